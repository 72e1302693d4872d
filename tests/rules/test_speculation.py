"""Section 8: speculative decoding. Policy mode in `parity` and `trtllm`, drafts as tokens in `vllm`."""

from __future__ import annotations

from collections import Counter
from math import ceil
from typing import Any

import pytest

from sim.metrics import metric_rows
from sim.spec import Speculation
from sim.speculation import draws
from tests.rules.world import Ask, Story, fixed, in_both_profiles, prompt, replay

PARITY = {"profile": "parity"}
VLLM = {"profile": "vllm"}
both_kinds = pytest.mark.parametrize("kind", ["mtp", "ngram", "eagle"])


def drafts(*rates: float, kind: str = "mtp", **more: Any) -> Speculation:
    """One draft per conditional acceptance rate."""
    return Speculation(kind, len(rates), tuple(float(rate) for rate in rates), **more)  # type: ignore[arg-type]


def bursts(got: Story) -> list[dict[str, int]]:
    """Per pass: tokens made by each request, those that made none left out."""
    at = {name: Counter(got.tokens_at(name)) for name in got.names}
    return [{name: at[name][end] for name in got.names if at[name][end]} for end in got.ends()]


def test_8_a_bursts_that_do_not_fit_preempt_and_only_survivors_are_charged(engine):
    """A and B, 4 in and 8 out, 4 blocks. Three tokens each in pass 0; in pass 1 both want a block and none is free."""
    got = replay(
        engine, {"A": Ask(4, 8), "B": Ask(4, 8)}, blocks=4, max_batched_tokens=8, speculation=drafts(1, 1), **PARITY
    )
    assert bursts(got)[:2] == [{"A": 3, "B": 3}, {"A": 3}]
    assert got.preempted()[:2] == [[], ["B"]]
    first, second = (pass_.row for pass_ in got.passes()[:2])
    assert (first["n_decode"], first["decode_kv_tokens"], first["active_blocks"]) == (2, 8, 4)
    assert (second["n_decode"], second["decode_kv_tokens"]) == (1, 7)
    assert got.scheduled()[1] == {"A": 1}  # B's decode of that pass never happened


def test_8_a_a_victims_prefill_stays_paid(engine):
    """The same with 3 blocks: two extra blocks are wanted in pass 0 and one is free."""
    got = replay(
        engine, {"A": Ask(4, 8), "B": Ask(4, 8)}, blocks=3, max_batched_tokens=8, speculation=drafts(1, 1), **PARITY
    )
    first = got.passes()[0].row
    assert (first["n_prefill"], first["prefill_tokens"]) == (2, 8)
    assert (first["n_decode"], first["decode_kv_tokens"], first["n_tokens"]) == (1, 4, 3)
    assert got.scheduled()[0] == {"A": 4, "B": 4}
    assert got.preempted()[0] == ["B"]
    assert got.replayed.tables["pressure"]["reserving"].tolist()[0] == 1
    assert [got.status(name) for name in "AB"] == ["completed", "completed"]


@both_kinds
def test_8_b_a_burst_ends_with_the_output(engine, kind):
    got = replay(engine, {"S": Ask(4, 5), "L": Ask(4, 8)}, blocks=16, speculation=drafts(1, 1, kind=kind), **PARITY)
    assert bursts(got) == [{"S": 3, "L": 3}, {"S": 2, "L": 3}, {"L": 2}]
    assert got.column("n_decode") == [2, 2, 1]
    assert got.column("n_accepted") == [4, 4, 2]  # before the end of an output clips


def test_8_c_blocks_of_refused_drafts_go_back(engine):
    """2-token blocks, 3 tokens in: 5 blocks are reserved for 6 tokens, one token comes, and 3 blocks hold the next."""
    got = replay(engine, {"A": Ask(3, 2)}, block_tokens=2, speculation=drafts(0, 1, 1, 1, 1), **PARITY)
    assert bursts(got) == [{"A": 1}, {"A": 1}]
    assert got.column("active_blocks") == [3, 3]
    got = replay(
        engine, {"A": Ask(3, 9)}, block_tokens=2, stop_ns=2_500_000, speculation=drafts(0, 1, 1, 1, 1), **PARITY
    )
    assert got.column("active_blocks") == [5, 5]  # 3 + 6, then 4 + 6: two came back in between


def test_8_d_the_length_limit_ends_a_burst(engine):
    got = replay(engine, {"A": Ask(5, 8)}, max_model_len=8, speculation=drafts(1, 1), **PARITY)
    assert bursts(got) == [{"A": 3}]
    assert got.status("A") == "completed"


@pytest.mark.parametrize("output", [1, 2, 5, 7])
def test_8_e_the_completing_prefill_verifies_a_round_and_pays_a_decode(engine, output):
    got = replay(engine, {"A": Ask(8, output)}, timing=fixed(1, 1), speculation=drafts(1, 1), **PARITY)
    assert got.tokens_at("A")[0] == 2
    assert got.duration == 1 + ceil(output / 3)


def test_8_f_a_request_for_no_tokens_takes_no_round(engine):
    got = replay(engine, {"Z": Ask(4, 0), "A": Ask(4, 3)}, speculation=drafts(1, 1), **PARITY)
    assert bursts(got) == [{"A": 3}]
    assert got.column("n_decode") == [1]
    assert [got.status(name) for name in "ZA"] == ["completed", "completed"]


def test_8_3_refused_drafts_cost_one_decode_more_than_none(engine):
    """Policy mode, all rates 0: the prefill that completes pays a decode, which without drafts it does not."""
    without = replay(engine, {"A": Ask(8, 4)}, timing=fixed(10, 3), **PARITY)
    rates_0 = replay(engine, {"A": Ask(8, 4)}, timing=fixed(10, 3), speculation=drafts(0, 0), **PARITY)
    assert (without.duration, rates_0.duration) == (19, 22)


def test_8_4_a_burst_that_no_pool_holds_ends_the_request(engine):
    """3 blocks of 4. A (4 in, 12 out) makes 6 tokens a pass; with 10 known, 6 more need a fourth block."""
    got = replay(engine, {"A": Ask(4, 12), "B": Ask(4, 2, at=2)}, blocks=3, speculation=drafts(1, 1, 1, 1, 1), **PARITY)
    assert got.status("A") == "rejected lookahead_exceeds_kv_pool"
    assert got.tokens_at("A") == [1.0] * 6
    assert got.status("B") == "completed"


def test_14_1_two_ready_one_leaves_and_the_survivor_alone_is_charged(engine):
    """A can never have its burst: B's (batch, KV) is what the pass costs."""
    asks = {"A": Ask(4, 12), "B": Ask(3, 2)}
    got = replay(engine, asks, blocks=3, block_tokens=4, speculation=drafts(1, 1, 1, 1, 1), **PARITY)
    assert got.preempted()[0] == ["B"]  # 3 + 2 blocks are wanted in pass 0, and A's 3 fit
    assert got.status("A") == "rejected lookahead_exceeds_kv_pool"
    assert got.status("B") == "completed"
    assert got.column("n_decode")[0] == 1
    assert got.column("decode_kv_tokens")[0] == 4


def test_9_g_a_burst_stays_inside_the_footprint(engine):
    """TensorRT-LLM, 4 blocks: two requests of 4 in and 12 out finish, one after the other, and nobody is thrown out."""
    got = replay(engine, {"A": Ask(4, 12), "B": Ask(4, 12)}, blocks=4, profile="trtllm", speculation=drafts(1, 1))
    assert [got.status(name) for name in "AB"] == ["completed", "completed"]
    assert sum(got.column("n_preempted")) == 0
    assert got.admitted("B") == got.tokens_at("A")[-1] == 4


# ------------------------------------------------------------------ drafts as tokens


def test_b1_drafts_are_scheduled_as_tokens(engine):
    """ngram, 2 drafts: the completing prefill makes one token, then 1 + 2 tokens are computed for each."""
    got = replay(engine, {"A": Ask(8, 8), "B": Ask(4, 5, at=1.5)}, speculation=drafts(1, 1, kind="ngram"), **VLLM)
    assert got.scheduled() == [{"A": 8}, {"A": 3}, {"A": 3, "B": 4}, {"A": 3, "B": 3}, {"B": 3}]
    assert bursts(got) == [{"A": 1}, {"A": 3}, {"A": 3, "B": 1}, {"A": 1, "B": 3}, {"B": 1}]
    assert got.column("n_drafts") == [0, 2, 2, 4, 2]
    assert got.column("n_accepted") == [0, 2, 2, 4, 2]
    assert got.column("n_tokens") == [1, 3, 4, 4, 1]


def test_b1_drafts_are_cut_to_the_budget(engine):
    """Budget 4, two requests: three tokens for the first, what is left for the second."""
    got = replay(
        engine,
        {"A": Ask(2, 9), "B": Ask(2, 9)},
        max_batched_tokens=4,
        speculation=drafts(1, 1, kind="ngram"),
        **VLLM,
    )
    assert got.scheduled()[:3] == [{"A": 2, "B": 2}, {"A": 3, "B": 1}, {"A": 3, "B": 1}]
    assert bursts(got)[:3] == [{"A": 1, "B": 1}, {"A": 3, "B": 1}, {"A": 3, "B": 1}]


def test_b2_an_admission_of_one_token_is_padded(engine):
    """9 tokens, 8 of them cached, beside a running decode: 3 are computed, and the padding is never accepted."""
    text = prompt(group=1, tokens=9)
    asks = {"a": Ask(9, 8, text=text), "b": Ask(9, 4, at=2.5, text=text)}
    got = replay(engine, asks, speculation=drafts(1, 1, kind="ngram"), **VLLM)
    assert got.scheduled()[3]["b"] == 3
    assert bursts(got)[3]["b"] == 1
    assert got.reused("b") == [8]


def test_b2_padding_that_does_not_fit_stops_admission(engine):
    """Budget 5: a takes 3, b would take 3 and waits until a ends."""
    asks = {"a": Ask(3, 6), "b": Ask(1, 2, at=1.5)}
    got = replay(engine, asks, max_batched_tokens=5, max_num_seqs=3, speculation=drafts(0, 0, kind="ngram"), **VLLM)
    assert got.admitted("b") == got.tokens_at("a")[-1] == 6


def test_b3_a_full_hit_gives_up_two_blocks(engine):
    text = prompt(group=1, tokens=8)
    asks = {"a": Ask(8, 1, text=text), "b": Ask(8, 1, at=5, text=text)}
    for kind, reuse in (("mtp", 0), ("eagle", 0), ("ngram", 4)):
        assert replay(engine, asks, speculation=drafts(1, kind=kind), **VLLM).reused("b") == [reuse]


@in_both_profiles
def test_5_b_with_mtp_one_more_block_is_computed(engine, profile):
    """8 tokens are cached, 12 are asked: 4 are reused and 8 computed; without drafts 8 and 4."""
    text = prompt(group=1, tokens=12)
    asks = {"a": Ask(8, 1, text=text[:8]), "b": Ask(12, 1, at=5, text=text)}
    assert replay(engine, asks, speculation=drafts(1), profile=profile).reused("b") == [4]
    assert replay(engine, asks, profile=profile).reused("b") == [8]


def test_a6_the_next_round_is_chosen_as_if_all_drafts_were_accepted(engine):
    """A 4 in, 8 out, three drafts that never hold: blocks are taken up to a round early."""
    asks = {"A": Ask(4, 8)}
    later = replay(engine, asks, speculation=drafts(0, 0, 0), async_scheduling=True, **VLLM)
    now = replay(engine, asks, speculation=drafts(0, 0, 0), **VLLM)
    assert later.column("active_blocks")[:5] == [2, 3, 4, 4, 5]
    assert now.column("active_blocks")[:5] == [2, 3, 3, 4, 4]


def test_a6_a_pass_may_be_computed_for_a_request_that_has_ended(engine):
    """All four tokens of the second pass hold, so the third was chosen for nothing: no token, but its time is paid."""
    got = replay(engine, {"A": Ask(4, 5)}, speculation=drafts(1, 1, 1), async_scheduling=True, **VLLM)
    assert bursts(got) == [{"A": 1}, {"A": 4}, {}]
    assert got.scheduled()[2] == {"A": 4}
    assert (got.row("A")["end_ns"], got.ends()[-1]) == (2_000_000, 3)


def test_b4_a_request_below_the_length_limit_sits_out_and_those_behind_go_on(engine):
    """Limit 8. With two batches in flight A (6 in) may be believed to have reached it; B is served all the same."""
    asks = {"A": Ask(4, 4), "B": Ask(4, 4)}
    got = replay(
        engine, asks, max_model_len=8, speculation=drafts(0, 0, 0), async_scheduling=True, max_batched_tokens=64, **VLLM
    )
    assert [len(got.tokens_at(name)) for name in "AB"] == [4, 4]
    assert all(
        tokens + before <= 7
        for tokens, before in [(s.tokens, s.computed_before) for p in got.passes() for s in p.requests]
    )


def test_6_a_ngram_admits_as_the_synchronous_engine_does(engine):
    """10 + 10 ms; A 8 in, 7 out at 0, B the same at 15. With ngram drafts B is first admitted at 20 ms."""
    asks = {"A": Ask(8, 7), "B": Ask(8, 7, at=15)}
    for profile in ("parity", "vllm"):
        got = replay(
            engine, asks, timing=fixed(10, 10), profile=profile, speculation=drafts(1, kind="ngram"), max_num_seqs=16
        )
        assert got.admitted("B") == 20


def test_mtp_slots_ahead_preempt(engine):
    """6 blocks of 4, A and B 8 in, 8 out, two drafts and two slots ahead: in pass 1 B gives way at once."""
    got = replay(
        engine,
        {"A": Ask(8, 8), "B": Ask(8, 8)},
        blocks=6,
        max_num_seqs=2,
        prefix_caching=False,
        speculation=drafts(0, 0),
        **VLLM,
    )
    assert got.preempted()[:2] == [[], ["B"]]
    assert (
        replay(
            engine,
            {"A": Ask(8, 8), "B": Ask(8, 8)},
            blocks=6,
            prefix_caching=False,
            speculation=drafts(0, 0, kind="ngram"),
            **VLLM,
        ).preempted()[1]
        == []
    )


# ------------------------------------------------------------------ chance


def test_8_2_rates_of_0_and_1_are_certain():
    for seed in (0, 42, 2**64 - 1):
        for request in range(50):
            for round_no in range(20):
                for rates, held in (((0.0, 1.0), 0), ((1.0, 1.0), 2), ((1.0, 0.0, 1.0), 1), ((), 0)):
                    thresholds = Speculation("mtp", len(rates), rates).thresholds
                    assert draws.accepted(seed, request, round_no, len(rates), thresholds) == held


def test_8_1_rates_are_conditional():
    """0.8, 0.6, 0.4: 1 + 0.8 + 0.48 + 0.192 = 2.472 tokens a round, each position within five standard errors."""
    thresholds, n = Speculation("ngram", 3, (0.8, 0.6, 0.4)).thresholds, 200_000
    found = Counter(draws.accepted(7, i % 1000, i // 1000, 3, thresholds) for i in range(n))
    for position, share in enumerate((0.8, 0.48, 0.192), start=1):
        held = sum(count for accepted, count in found.items() if accepted >= position) / n
        assert abs(held - share) < 5 * (share * (1 - share) / n) ** 0.5


def test_a_round_with_fewer_drafts_is_the_same_round_cut_short():
    """What the budget takes away changes no later draw."""
    thresholds = Speculation("mtp", 4, (0.9, 0.8, 0.7, 0.6)).thresholds
    for round_no in range(500):
        whole = draws.accepted(3, 11, round_no, 4, thresholds)
        assert [draws.accepted(3, 11, round_no, k, thresholds) for k in range(5)] == [min(whole, k) for k in range(5)]


def test_draws_are_pinned():
    """A change of the hash would change every recorded run with fractional rates."""
    assert [draws.draw(42, 0, 0, k) >> 29 for k in range(4)] == [6492351, 15457138, 1394460, 10124892]
    assert len({draws.draw(s, t, r, k) for s in range(5) for t in (0, 1) for r in range(20) for k in range(20)}) == 4000


@in_both_profiles
def test_a_requests_rounds_do_not_depend_on_the_others(engine, profile):
    """Alone or beside others, early or late: the same sequence of bursts."""
    chance = drafts(0.7, 0.5, 0.3, seed=5)
    alone = replay(engine, {"A": Ask(5, 40)}, speculation=chance, profile=profile)
    among = replay(
        engine, {"A": Ask(5, 40), "B": Ask(9, 30), "C": Ask(3, 50, at=4)}, speculation=chance, profile=profile
    )
    assert [pass_["A"] for pass_ in bursts(alone) if "A" in pass_] == [p["A"] for p in bursts(among) if "A" in p]


def test_a_trigger_that_never_comes_is_decoding_without_drafts(engine):
    asks = {"A": Ask(5, 9), "B": Ask(6, 7, at=2)}
    never = replay(engine, asks, speculation=drafts(1, 1, kind="ngram", trigger_rate=0.0), **VLLM)
    without = replay(engine, asks, **VLLM)
    assert bursts(never) == bursts(without)
    assert sum(never.column("n_drafts")) == 0


def test_some_rounds_have_a_trigger(engine):
    got = replay(engine, {"A": Ask(5, 200)}, speculation=drafts(1, 1, kind="ngram", trigger_rate=0.5), **VLLM)
    sizes = Counter(pass_["A"] for pass_ in bursts(got)[:-1])
    assert set(sizes) == {1, 3} and 0.3 < sizes[3] / sum(sizes.values()) < 0.7


@in_both_profiles
def test_drafts_are_off_above_a_batch(engine, profile):
    """Two requests with at most one: bursts while A runs alone, single tokens beside B."""
    asks = {"A": Ask(4, 12), "B": Ask(4, 3, at=1.5)}
    got = replay(engine, asks, speculation=drafts(1, 1, max_batch=1), profile=profile)
    together = [pass_ for pass_ in bursts(got)[2:] if len(pass_) == 2]
    assert together and all(pass_["A"] == 1 for pass_ in together[1:])
    assert any(pass_.get("A") == 3 for pass_ in bursts(got))


def test_a_recorded_sequence_at_fractional_rates(engine):
    """Budget, length limit and pool all cut bursts short; recorded once from the plain engine, held by both since."""
    asks = {
        "A": Ask(7, 20),
        "B": Ask(5, 24, at=0.5),
        "C": Ask(9, 16, at=1.5),
        "D": Ask(3, 30, at=2.5),
        "E": Ask(6, 9, at=6),
    }
    for profile, recorded in RECORDED.items():
        got = replay(
            engine,
            asks,
            profile=profile,
            blocks=14,
            max_num_seqs=4,
            max_batched_tokens=9,
            max_model_len=26,
            speculation=drafts(0.8, 0.5, 0.6, seed=9),
        )
        assert sum(got.column("n_preempted")) > 0
        assert [" ".join(f"{name}{made}" for name, made in pass_.items()) for pass_ in bursts(got)] == recorded
        cut = [row["n_tokens"] < row["n_bursts"] + row["n_accepted"] for row in (p.row for p in got.passes())]
        assert any(cut)
        assert [got.row(name)["output_tokens"] for name in asks] == [19, 21, 16, 23, 9]


RECORDED = {
    "parity": [
        "A2",
        "A4 B3",
        "A4 B3",
        "A2 B2 C1",
        "A3 B3",
        "A1 B4",
        "A2 B3",
        "A1 B1",
        "B2",
        "C1 D4",
        "C4 D4 E1",
        "C4 D1 E2",
        "C4 D3 E2",
        "C2 D4",
        "D1 E2",
        "D3 E1",
        "D3 E1",
    ],
    "vllm": [
        "A1",
        "A2 B1",
        "A4 B3",
        "A4 B3",
        "A2 B2",
        "A3 B3",
        "A1 B4",
        "A2 B3",
        "B1",
        "B1 C1 D1",
        "C1 D4",
        "C1 D4",
        "C4 D1 E1",
        "C4 D3 E1",
        "C4 D4",
        "C1 D1",
        "D3",
        "D2 E1",
        "E1",
        "E2",
        "E2",
        "E1",
    ],
}


# ------------------------------------------------------------------ statistics


def test_8_5_acceptance_is_counted_before_an_output_clips_it_and_without_prefill(engine):
    """Policy mode, K 2, all accepted, 5 tokens out: pass 0 completes the prompt, pass 1 verifies 2 and keeps 1."""
    got = replay(engine, {"A": Ask(4, 5)}, speculation=drafts(1, 1), **PARITY)
    table = got.replayed.tables["acceptance"]
    assert {name: values.tolist() for name, values in table.items()} == {
        "request": [0],
        "n_rounds": [1],
        "n_drafts": [2],
        **{f"accepted_{n}": [int(n == 2)] for n in range(6)},
    }
    assert got.column("n_rounds") == [1, 1]


def figures(got: Story) -> dict[tuple[str, str], float | None]:
    """Figures of scope `run`, by metric and stat."""
    tables = got.replayed.tables
    rows = metric_rows(
        tables["requests"], got.replayed.outcome, None, got.replayed.spec, acceptance=tables["acceptance"]
    )
    return {(metric, stat): value for scope, metric, stat, value, _, _ in rows if scope == "run"}


def test_8_5_mean_accept_length(engine):
    """Native drafts, 3 accepted then none by turns, 9 tokens out: 1, then 4, 1 and 3 of the last 4."""
    script = ((3, 0),)
    got = replay(engine, {"A": Ask(4, 9)}, speculation=drafts(1, 1, 1, scripted=script), **VLLM)
    assert bursts(got) == [{"A": 1}, {"A": 4}, {"A": 1}, {"A": 3}]
    found = figures(got)
    assert found["decode_forwards", "total"] == 3
    assert (found["drafts", "verified"], found["drafts", "accepted"]) == (9, 6)
    assert found["accept_length", "mean"] == 3.0
    assert [found["acceptance", f"position_{n}"] for n in (1, 2, 3)] == [2 / 3] * 3
    assert ("acceptance", "position_4") not in found


def test_8_5_without_rounds_there_is_no_mean(engine):
    assert figures(replay(engine, {"A": Ask(4, 1)}, speculation=drafts(1), **VLLM))["accept_length", "mean"] is None
    assert ("accept_length", "mean") not in figures(replay(engine, {"A": Ask(4, 1)}, **VLLM))


def test_12_1_latencies_count_the_zeros_inside_a_burst(engine):
    """2 ms, then 3 + 3 + 1 tokens 1 ms apart: gaps 0 0 1 0 0 1."""
    got = replay(engine, {"A": Ask(8, 7)}, timing=fixed(1, 1), speculation=drafts(1, 1), **PARITY)
    found = figures(got)
    assert (found["ttft", "mean"], found["ttst", "mean"]) == (2.0, 0.0)
    assert (found["itl", "mean"], found["itl", "max"], found["itl", "median"]) == (2 / 6, 1.0, 0.0)
    assert found["tpot", "mean"] == 2 / 6
    assert found["output_token_throughput_per_user", "mean"] == 1000.0  # of gaps that are not zero
