"""Prefill and decode in separate pools (PD-1 to PD-16, RT-2), by worked timelines. Times in ms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from sim.errors import Deadlock, TimingError
from sim.spec import EngineSpec, PoolsSpec, Routing, Speculation, Transfer
from tests.rules.world import MS, Ask, Story, fixed, prompt, story_of

GB = 1e9


@dataclass(frozen=True)
class Pools:
    """What happened, with the instants of the handoffs."""

    story: Story

    def handoff(self, name: str) -> dict[str, float]:
        table, i = self.story.replayed.tables["handoffs"], self.story.names.index(name)
        (row,) = (table["request"] == i).nonzero()[0]
        return {
            column: int(values[row]) / MS if column.endswith("_ns") else int(values[row])
            for column, values in table.items()
        }

    def instants(self, name: str) -> tuple[float, ...]:
        """Held, reserved, activated, decode admitted, released."""
        row = self.handoff(name)
        return tuple(
            row[f"{instant}_ns"] for instant in ("held", "reserved", "activated", "decode_admitted", "released")
        )

    def column(self, name: str, *, worker: int = 0) -> list[int]:
        """One column of the passes of a worker."""
        table = self.story.replayed.tables["passes"]
        return [int(value) for value in table[name][table["worker"] == worker]]

    def tokens(self, name: str) -> list[float]:
        return self.story.tokens_at(name)


def pools(
    engine: str,
    asks: Mapping[str, Ask],
    *,
    prefill: Mapping[str, Any] | None = None,
    decode: Mapping[str, Any] | None = None,
    transfer: Transfer | None = None,
    concurrency: int | None = None,
    routing: Routing | None = None,
    local: int | None = None,
    **both: Any,
) -> Pools:
    """Replay named requests. Defaults: one worker each, 4-token blocks, prefill 10, decode 1 ms, instant transfer."""
    common = {"profile": "parity", "block_tokens": 4, "blocks": 256, "timing": fixed(10, 1), "async_scheduling": False}
    common |= {"max_num_seqs": 64, **both}
    spec = PoolsSpec(
        EngineSpec(**{**common, **(prefill or {})}),
        EngineSpec(**{**common, **(decode or {})}),
        transfer or Transfer(),
        routing,
        local,
    )
    return Pools(story_of(engine, asks, spec, concurrency=concurrency))


def rate(ms_per_token: float) -> Transfer:
    """A link that takes so long for the KV of one token."""
    return Transfer(bytes_per_token=1_000_000, bytes_per_second=1e9 / ms_per_token)


def test_pd_3_source_first_handoff(engine: str) -> None:
    """Prefill, hold, reserve, transfer, activate, release; the first token is the first decode pass's (PD-16)."""
    got = pools(engine, {"A": Ask(128, 3)}, transfer=Transfer(1_000_000, 1 * GB))
    assert got.instants("A") == (10, 10, 138, 138, 138)
    assert got.tokens("A") == [139, 140, 141]


def test_pd_3_one_output_token_takes_a_decode_pass_as_well(engine: str) -> None:
    assert pools(engine, {"A": Ask(8, 1)}).tokens("A") == [11]


def test_pd_3_a_request_for_no_token_takes_no_time_on_a_decode_worker(engine: str) -> None:
    got = pools(engine, {"A": Ask(8, 0)})
    assert got.story.row("A")["end_ns"] == 10 * MS and got.story.status("A") == "completed"


@pytest.mark.parametrize(
    ("mode", "fixed_bytes", "duration"), [(False, 0, 0.1), (False, 50_000, 0.15), (True, 0, 0.1), (True, 50_000, 0.15)]
)
def test_pd_7_duration_is_bytes_over_bandwidth(engine: str, mode: bool, fixed_bytes: float, duration: float) -> None:
    transfer = Transfer(1_000, 1 * GB, missing_only=mode, fixed_bytes=fixed_bytes)
    got = pools(engine, {"A": Ask(100, 1)}, transfer=transfer).handoff("A")
    assert got["transferred_ns"] - got["reserved_ns"] == pytest.approx(duration)


def test_pd_7_unknown_sizes_take_the_constant(engine: str) -> None:
    got = pools(engine, {"A": Ask(8, 1)}, transfer=Transfer(fallback_ns=5 * MS))
    assert got.instants("A") == (10, 10, 15, 15, 15)


@pytest.mark.parametrize("bytes_per_second", [1e-4, 2.2e-3, 1e-310])
def test_pd_7_transfers_that_do_not_fit_the_clock_are_an_error(engine: str, bytes_per_second: float) -> None:
    """The first and last do not even fit an int64 of nanoseconds, the second only not the clock."""
    with pytest.raises(TimingError, match="past the end of its clock, 146 years"):
        pools(engine, {"A": Ask(100, 1)}, transfer=Transfer(1_000_000, bytes_per_second))
    fits = pools(engine, {"A": Ask(1, 1)}, transfer=Transfer(1_000_000, 2.2e-3 / 10)).handoff("A")
    assert 0 < fits["reserved_ns"] < fits["transferred_ns"] == fits["activated_ns"]


def test_pd_8_missing_blocks_are_sent_whole(engine: str) -> None:
    """83 tokens of 100 kB at 1 GB/s, in blocks of 4: 84 tokens are sent, 8.4 ms."""
    got = pools(engine, {"A": Ask(83, 1)}, transfer=Transfer(100_000, 1 * GB, missing_only=True)).handoff("A")
    assert (got["sent_tokens"], got["transferred_ns"] - got["reserved_ns"]) == (84, pytest.approx(8.4))


def test_pd_8_what_the_destination_holds_is_not_sent(engine: str) -> None:
    text = prompt(group=1, tokens=12)
    asks = {"A": Ask(12, 1, text=text), "B": Ask(16, 1, at=50, text=text)}
    got = pools(engine, asks, transfer=Transfer(1_000_000, 1 * GB, missing_only=True))
    assert got.handoff("A")["sent_tokens"] == 12 and got.handoff("B")["sent_tokens"] == 4
    assert got.instants("B") == (60, 60, 64, 64, 64)


def test_pd_5_activation_waits_for_the_pass_that_runs(engine: str) -> None:
    """B's KV arrives at 24 while the decode worker computes 23.5-26; it is activated at 26."""
    asks = {"A": Ask(4, 9), "B": Ask(4, 1, at=1)}
    got = pools(engine, asks, decode={"timing": fixed(1, 2.5)}, transfer=rate(1))
    assert got.tokens("A")[:4] == [16.5, 19, 21.5, 24]
    assert got.instants("B") == (20, 21.5, 26.5, 26.5, 26.5)


def test_pd_5_release_waits_for_the_prefill_pass_that_runs(engine: str) -> None:
    """A is activated at 10.1 while the prefill worker computes B until 20."""
    got = pools(engine, {"A": Ask(4, 1), "B": Ask(4, 1, at=1)}, transfer=rate(0.025))
    assert got.instants("A") == (10, 10, pytest.approx(10.1), pytest.approx(10.1), 20)


@pytest.mark.parametrize(("at", "kept"), [(20, {"A": 8, "B": 16}), (20.5, {"A": 16, "B": 8})])
def test_pd_5_commands_are_obeyed_as_they_were_given(engine: str, at: float, kept: Mapping[str, int]) -> None:
    """Ten blocks of 4 on the prefill worker. A goes to the second decode worker, B to the first, and the pass of both
    ends at 30. Held then, A is handed over first, gives its source back first, and loses two of its four cached blocks
    to F. Held at 30.5, both wait for passes until 31, and the first worker's is the first to end."""
    texts = {name: prompt(group=k, tokens=16) for k, name in enumerate("AB", 1)}
    for name, text in texts.items():
        asks = {f"D{i}": Ask(1, 60) for i in range(3)}
        asks |= {"A": Ask(16, 1, at=at, text=texts["A"]), "B": Ask(16, 1, at=at, text=texts["B"])}
        asks |= {"F": Ask(16, 1, at=40), "again": Ask(17, 1, at=60, text=text)}
        got = pools(engine, asks, prefill={"blocks": 10}, decode={"workers": 2})
        assert [got.handoff(who)["worker"] for who in "AB"] == [2, 1]
        assert got.story.reused("again") == [kept[name], 0]


def test_pd_4_held_sources_keep_the_prefill_pool_full(engine: str) -> None:
    """25 blocks of 4, prompts of 60, transfers of 50 ms: the second prompt is computed when the first is released."""
    got = pools(
        engine, {"A": Ask(60, 1), "B": Ask(60, 1, at=1)}, prefill={"blocks": 25}, transfer=Transfer(1e6, 1.2 * GB)
    )
    assert got.instants("A") == (10, 10, 60, 60, 60)
    assert got.handoff("B")["prefill_admitted_ns"] == 60


def test_pd_12_a_full_decode_pool_holds_sources_back(engine: str) -> None:
    """Six decode blocks: A takes four; B, who needs four, is reserved when A has ended and holds its source so long."""
    got = pools(engine, {"A": Ask(12, 5), "B": Ask(13, 1, at=1)}, decode={"blocks": 6})
    assert got.tokens("A") == [11, 12, 13, 14, 15]
    assert got.instants("B") == (20, 20, 20, 20, 20)
    late = pools(engine, {"A": Ask(12, 12), "B": Ask(13, 1, at=1)}, decode={"blocks": 6})
    assert late.tokens("A")[-1] == 22
    assert late.instants("B") == (20, 22, 22, 22, 22)


def test_pd_14a_a_prompt_the_decode_pool_can_never_hold_fails_when_held(engine: str) -> None:
    got = pools(engine, {"A": Ask(28, 2), "B": Ask(8, 2, at=1)}, decode={"blocks": 6})
    assert got.story.status("A") == "failed exceeds_kv_pool" and got.story.row("A")["end_ns"] == 10 * MS
    assert got.handoff("A")["worker"] == -1 and got.tokens("B") == [21, 22]


def test_pd_14a_so_does_one_at_the_decode_workers_length_limit(engine: str) -> None:
    got = pools(engine, {"A": Ask(10, 2)}, decode={"max_model_len": 10})
    assert got.story.status("A") == "failed prompt_reaches_max_model_len"


def test_pd_14_a_slot_of_a_closed_loop_is_held_to_the_end(engine: str) -> None:
    got = pools(engine, {"A": Ask(4, 2), "B": Ask(4, 2)}, concurrency=1)
    assert got.story.row("B")["arrival_ns"] == 12 * MS and got.tokens("B") == [23, 24]


def test_rt_2_targets_take_turns_over_all_ranks_in_the_order_prompts_end(engine: str) -> None:
    asks = {name: Ask(4, 1, at=i) for i, name in enumerate("ABCDE")}
    got = pools(engine, asks, prefill={"max_num_seqs": 1}, decode={"workers": 2, "dp": 2})
    places = [(got.handoff(name)["worker"], got.handoff(name)["dp_rank"]) for name in asks]
    assert places == [(1, 0), (1, 1), (2, 0), (2, 1), (1, 0)]


def test_rt_1_a_pin_names_the_rank_and_moves_no_cursor(engine: str) -> None:
    """Ranks are counted through a pool's workers. `rank` is the decode side's, `prefill_rank` the other's."""
    asks = {
        "A": Ask(4, 1),
        "B": Ask(4, 1, at=20, rank=3),
        "C": Ask(4, 1, at=40, prefill_rank=2),
        "D": Ask(4, 1, at=60, rank=0, prefill_rank=3),
        "E": Ask(4, 1, at=80),
    }
    got = pools(engine, asks, workers=2, dp=2)
    rows = [got.handoff(name) for name in asks]
    assert [(row["source_worker"], row["source_rank"]) for row in rows] == [(0, 0), (0, 1), (1, 0), (1, 1), (1, 0)]
    assert [(row["worker"], row["dp_rank"]) for row in rows] == [(2, 0), (3, 1), (2, 1), (2, 0), (3, 0)]


def test_k_2_who_arrives_as_a_pass_ends_is_not_in_the_next(engine: str) -> None:
    """The worker restarts at 10 with B before C, who arrives at that instant, is looked at."""
    got = pools(engine, {"A": Ask(4, 1), "B": Ask(4, 1, at=1), "C": Ask(4, 1, at=10)})
    assert got.handoff("B")["held_ns"] == 20 and got.handoff("C")["held_ns"] == 30


def test_an_idle_prefill_worker_takes_an_arrival_at_once(engine: str) -> None:
    assert pools(engine, {"A": Ask(4, 1, at=7)}).handoff("A")["held_ns"] == 17


def test_pd_11_one_reservation_is_tried_when_a_pass_ends(engine: str) -> None:
    """B and C are asked for at 20 while a pass runs until 20.5. B is reserved then, C when B is activated."""
    asks = {"A": Ask(4, 20), "B": Ask(4, 1, at=1), "C": Ask(4, 1, at=1)}
    got = pools(engine, asks, transfer=Transfer(125_000, 1 * GB))  # 0.5 ms
    assert got.tokens("A")[0] == 11.5
    assert got.instants("B")[:3] == (20, 20.5, 21.5) and got.instants("C")[:3] == (20, 21.5, 22.5)


def test_1_4_a_deadlock_names_the_pool(engine: str) -> None:
    small = {"chunked_prefill": False, "max_batched_tokens": 6}
    said = r"request 0 .* is blocked in the prefill pool because .*budget of 6 tokens.* on in the prefill pool$"
    with pytest.raises(Deadlock, match=said):
        pools(engine, {"A": Ask(8, 2)}, prefill=small)
    said = r"request 0 .* is blocked in the decode pool because its 25 tokens need 7 KV blocks .* in the decode pool$"
    with pytest.raises(Deadlock, match=said):
        pools(engine, {"A": Ask(8, 40)}, decode={"blocks": 6})


def test_section_10_nobody_is_reserved_while_all_places_are_taken(engine: str) -> None:
    got = pools(engine, {"A": Ask(4, 15), "B": Ask(4, 1, at=1)}, decode={"max_num_seqs": 1})
    assert got.tokens("A")[-1] == 25 and got.instants("B") == (20, 25, 25, 25, 25)


def test_section_10_a_prompt_computed_again_costs_no_prefill_on_a_decode_worker(engine: str) -> None:
    """Six blocks of 4. A and B decode until A needs a block that B holds; B is thrown out and comes back for nothing
    but decode passes."""
    asks = {"A": Ask(12, 6), "B": Ask(8, 8, at=0)}
    got = pools(engine, asks, decode={"blocks": 6})
    assert len(got.story.replayed.tables["pressure"]["request"]) > 0
    decode = got.story.replayed.tables["passes"]
    assert not decode["prefill_ns"][decode["worker"] == 1].any()
    assert not decode["decode_ns"][decode["worker"] == 0].any()


def test_section_10_trtllm_protects_everybodys_whole_sequence(engine: str) -> None:
    """Eight blocks of 4. A (8 in, 12 out) is promised five; B (8 in, 12 out) would need five and waits for A's end."""
    got = pools(engine, {"A": Ask(8, 12), "B": Ask(8, 12, at=0)}, decode={"blocks": 8}, profile="trtllm")
    assert got.tokens("A")[-1] == 22 and got.instants("B")[1] == 22
    assert not len(got.story.replayed.tables["pressure"]["request"])


def test_pd_5_a_choice_that_only_threw_somebody_out_is_over_before_anything_is_activated(engine: str) -> None:
    """Two places, ten blocks of 4. A and E run from 10 on and hold four each at 23, B holds two and has no place. When
    A ends, at 23, W gets its four; E wants a fifth, and throws itself out. That choice computes nothing. V is reserved
    in E's blocks, and U still wants room, so the next choice, at 23 as well, lets in B and W (PD-13). V is activated
    after their pass. Activated before it, V would have let U be reserved, too, and E, at the head, have waited for the
    blocks of B and W for ever."""
    asks = {"A": Ask(4, 13), "E": Ask(4, 15), "B": Ask(8, 1)}
    asks |= {"W": Ask(16, 1, at=1), "V": Ask(4, 1, at=1), "U": Ask(4, 1, at=1)}
    got = pools(engine, asks, decode={"blocks": 10, "max_num_seqs": 2})
    assert got.instants("B") == (10, 10, 10, 23, 10) and got.instants("W") == (20, 23, 23, 23, 23)
    assert got.instants("V") == (20, 23, 24, 24, 24) and got.instants("U") == (20, 24, 24, 25, 24)
    assert got.tokens("E") == [*(float(t) for t in range(11, 24)), 25, 26]
    assert got.story.row("E")["n_preemptions"] == 1


def mtp(*rates: float, **more: Any) -> Speculation:
    """One draft per conditional acceptance rate."""
    return Speculation("mtp", len(rates), rates, **more)


def test_8_policy_mode_verifies_a_round_in_the_first_decode_pass(engine: str) -> None:
    """Two drafts, both accepted: three tokens a pass. The prefill worker pays for no decode and makes nothing."""
    got = pools(engine, {"A": Ask(8, 7)}, speculation=mtp(1, 1))
    assert got.tokens("A") == [11, 11, 11, 12, 12, 12, 13]
    assert got.column("n_decode", worker=1) == [1, 1, 1] and got.column("decode_kv_tokens", worker=1) == [8, 11, 14]
    assert got.column("n_accepted", worker=1) == [2, 2, 2]
    assert got.column("n_tokens") == [0] and got.column("n_decode") == [0]


def test_8_native_drafts_are_verified_from_the_second_decode_pass_on(engine: str) -> None:
    """vLLM: the first pass computes nothing and makes one token; then 1 + 2 tokens are computed and kept per pass."""
    got = pools(engine, {"A": Ask(8, 7)}, speculation=mtp(1, 1), profile="vllm")
    assert got.tokens("A") == [11, 12, 12, 12, 13, 13, 13]
    assert got.column("scheduled_tokens", worker=1) == [0, 3, 3]
    assert got.column("n_accepted", worker=1) == [0, 2, 2] and got.column("n_drafts") == [0]


def test_8_drafts_may_be_off_above_a_batch(engine: str) -> None:
    """They are let in when nobody runs yet, and draft; with two running nothing is drafted; A, alone again, drafts."""
    got = pools(engine, {"A": Ask(8, 8), "B": Ask(8, 6)}, speculation=mtp(1, 1, max_batch=1))
    assert got.tokens("B") == [11, 11, 11, 12, 13, 14]
    assert got.tokens("A") == [11, 11, 11, 12, 13, 14, 15, 15]


def test_5_5_a_drafter_with_a_model_gives_up_a_block_on_the_prefill_worker(engine: str) -> None:
    text = prompt(group=1, tokens=12)
    asks = {"A": Ask(12, 1, text=text), "B": Ask(16, 1, at=50, text=text)}
    assert pools(engine, asks).story.reused("B") == [12, 0]
    assert pools(engine, asks, speculation=mtp(1)).story.reused("B") == [8, 0]
    ngram = Speculation("ngram", 1, (1.0,))
    assert pools(engine, asks, speculation=ngram).story.reused("B") == [12, 0]


def test_8_4_policy_mode_reserves_a_block_for_the_token_that_nobody_sees(engine: str) -> None:
    """Five blocks of 4 on the prefill worker, two prompts of 8: four blocks without drafts, six with them."""
    asks = {"A": Ask(8, 1), "B": Ask(8, 1)}
    small = {"blocks": 5, "max_batched_tokens": 64}
    assert pools(engine, asks, prefill=small).handoff("B")["held_ns"] == 10
    got = pools(engine, asks, prefill=small, speculation=mtp(1))
    assert got.handoff("A")["held_ns"] == 10 and got.handoff("B")["held_ns"] == 20
    assert got.story.row("B")["n_preemptions"] == 1
    # vLLM wants slots for what is computed only.
    native = pools(engine, asks, prefill=small, speculation=mtp(1), profile="vllm")
    assert native.handoff("B")["held_ns"] == 10


def test_5_5_what_is_counted_too_well_waits_where_only_handoffs_hold_blocks(engine: str) -> None:
    """Two copies of one block: A's is cached from 14 on, B's is held until 18, and so is the block behind it. C hits
    both blocks and gives up the second, whose use is counted all the same: two of its three blocks fit into the two
    that are left, but the first is not in use. There is nobody to preempt, so it waits for B's release."""
    text = prompt(group=1, tokens=8)
    asks = {"A": Ask(4, 1, text=text), "B": Ask(8, 1, text=text), "C": Ask(12, 1, at=15, text=text)}
    got = pools(engine, asks, prefill={"blocks": 5}, transfer=rate(1), speculation=mtp(1))
    assert got.instants("A")[4] == 14 and got.instants("B")[4] == 18
    assert got.handoff("C")["prefill_admitted_ns"] == 18 and got.story.reused("C") == [4, 0]


def test_pd_13_who_was_thrown_out_before_its_first_token_keeps_its_number(engine: str) -> None:
    """D is reserved first and longest under way. C is let in at 12.5, and thrown out again and again, since its draft
    finds no room. When D is there, at 14.5, it goes ahead of C, so that D is not the one who has to go then."""
    asks = {"D": Ask(38, 3), "A": Ask(5, 6), "B": Ask(7, 12), "C": Ask(24, 1)}
    got = pools(engine, asks, decode={"blocks": 21}, transfer=rate(0.1), speculation=mtp(0))
    assert [got.instants(name)[1:3] for name in "DC"] == [(10, 14.5), (10, 12.5)]
    assert (got.tokens("D")[0], got.story.row("D")["n_preemptions"]) == (15.5, 0)
    assert (got.tokens("C")[0], got.story.row("C")["n_preemptions"]) == (18.5, 3)


def test_pd_13_who_was_thrown_out_keeps_its_number(engine: str) -> None:
    """Six blocks of 4. F is reserved first and under way until 18. S makes a token at 15 and wants a third block: it is
    thrown out, and G, refused until then, gets its two. S finds no room. At 18 F goes ahead of S, all the same; when it
    has ended, S, reserved before G, is let in before G."""
    asks = {"F": Ask(16, 1), "S": Ask(8, 3), "G": Ask(8, 1)}
    got = pools(engine, asks, decode={"blocks": 6}, transfer=rate(0.5))
    assert [got.instants(name)[1:4] for name in "FSG"] == [(10, 18, 18), (10, 14, 14), (15, 19, 19)]
    assert (got.tokens("F"), got.tokens("S"), got.tokens("G")) == ([19], [15, 20, 21], [20])


def test_pd_13_who_made_room_for_a_burst_keeps_its_number(engine: str) -> None:
    """Seven blocks of 4, four tokens a pass. F is reserved first and under way until 16.5. S makes its first four
    tokens at 15; its next burst wants an eighth block, so S is thrown out, and G gets its three. At 16.5 F goes ahead
    of S, which finds no room until F has ended."""
    asks = {"F": Ask(13, 3), "S": Ask(8, 8), "G": Ask(12, 1)}
    got = pools(engine, asks, decode={"blocks": 7}, transfer=rate(0.5), speculation=mtp(1, 1, 1))
    assert [got.instants(name)[1:4] for name in "FSG"] == [(10, 16.5, 16.5), (10, 14, 14), (15, 21, 21)]
    assert got.tokens("S") == [15] * 4 + [18.5] * 4 and got.story.row("S")["n_preemptions"] == 1
    assert got.tokens("F") == [17.5] * 3 and got.tokens("G") == [22]


def test_section_9_max_utilization_reserves_what_is_needed_now(engine: str) -> None:
    """The world of guaranteed_no_evict above: B no longer waits for A's end; when both have grown, the later one goes,
    and is computed again on the decode worker, for nothing but decode passes."""
    asks = {"A": Ask(8, 12), "B": Ask(8, 12, at=0)}
    got = pools(engine, asks, decode={"blocks": 8, "capacity_policy": "max_utilization"}, profile="trtllm")
    assert got.instants("B")[1] == 10 and got.tokens("B")[0] == 11
    pressure = got.story.replayed.tables["pressure"]
    assert pressure["request"].tolist() == [1] and pressure["worker"].tolist() == [1]
    assert got.story.row("B")["n_preemptions"] == 1
    assert got.tokens("A") == [float(t) for t in range(11, 23)]
    passes = got.story.replayed.tables["passes"]
    assert not passes["prefill_ns"][passes["worker"] == 1].any()


AHEAD = {"async_scheduling": True}


@pytest.mark.parametrize(("decode", "first"), [({}, 21), (AHEAD, 22)])
def test_pd_5_who_is_activated_joins_the_pass_that_is_chosen_next(
    engine: str, decode: Mapping[str, Any], first: int
) -> None:
    """A decodes in passes of 1 ms from 10 on. B is held, reserved and activated at 20, between passes. Chosen ahead,
    the pass of 20 has been chosen at 19 without B; the choice made at 20 is that of the pass of 21."""
    got = pools(engine, {"A": Ask(4, 20), "B": Ask(4, 2, at=1)}, decode=decode, profile="vllm")
    assert got.tokens("A") == [float(t) for t in range(11, 31)]
    assert got.instants("B") == (20, 20, 20, first - 1, 20)
    assert got.tokens("B") == [first, first + 1]


def test_6_an_idle_decode_worker_that_chooses_ahead_takes_a_handoff_at_once(engine: str) -> None:
    got = pools(engine, {"A": Ask(4, 3), "B": Ask(4, 1, at=30)}, decode=AHEAD, profile="vllm")
    assert got.tokens("A") == [11, 12, 13] and got.tokens("B") == [41]
    assert got.column("chosen_ns", worker=1) == [10 * MS, 10 * MS, 11 * MS, 40 * MS]


@pytest.mark.parametrize(("prefill", "held"), [({}, 20), (AHEAD, 30)])
def test_6_a_prefill_worker_that_chooses_ahead_reads_arrivals_a_pass_later(
    engine: str, prefill: Mapping[str, Any], held: int
) -> None:
    """A takes two passes of 8 tokens. B arrives in the first, for whose end the second has been chosen already."""
    asks = {"A": Ask(12, 1), "B": Ask(4, 1, at=5)}
    prefill = {"max_batched_tokens": 8, "max_num_seqs": 8, **prefill}
    got = pools(engine, asks, prefill=prefill, profile="vllm")
    assert (got.handoff("A")["held_ns"], got.handoff("B")["held_ns"]) == (20, held)


def test_both_first_instants_are_kept(engine: str) -> None:
    """TTFT counts to the decode worker's token; the prefill's end stays at hand for those who count to that."""
    got = pools(engine, {"A": Ask(8, 2, at=3)}, transfer=Transfer(fallback_ns=4 * MS))
    assert got.story.row("A")["first_token_ns"] == 18 * MS and got.handoff("A")["held_ns"] == 13
