"""Section 9: TensorRT-LLM's guaranteed_no_evict, where whoever is admitted can run to its end and nobody is thrown out;
and its max_utilization, worked out by hand from its documentation, for there is no recorded engine."""

import random

import pytest

from sim.spec import Speculation
from tests.rules.world import Ask, fixed, prompt, replay

TRTLLM = {"profile": "trtllm"}
FULL = {**TRTLLM, "capacity_policy": "max_utilization"}


def test_9_a_two_requests_that_vllm_runs_together_run_one_after_the_other(engine):
    """6 blocks; A and B: 8 in, 8 out, 4 blocks each to their end, 2 for the prompt."""
    asks = {"A": Ask(8, 8), "B": Ask(8, 8)}
    ours = replay(engine, asks, blocks=6, **TRTLLM)
    theirs = replay(engine, asks, blocks=6, profile="parity")
    assert [ours.admitted(n) for n in "AB"] == [0, 8]
    assert [theirs.admitted(n) for n in "AB"] == [0, 0]
    assert not any(ours.preempted()) and any(theirs.preempted())


def test_9_b_an_output_is_clamped_to_what_the_pool_holds(engine):
    """4 blocks of 4; 4 in, 40 out: 12 tokens, and completed."""
    got = replay(engine, {"A": Ask(4, 40)}, blocks=4, **TRTLLM)
    assert (got.row("A")["requested_tokens"], got.row("A")["output_tokens"]) == (40, 12)
    assert got.status("A") == "completed"


def test_9_c_running_settles_where_the_footprints_fill_the_pool(engine):
    """7,319 blocks of 32; 64 requests of 1,096 in and 7,000 out take 253 blocks each: 28 run, 36 wait."""
    asks = {f"r{i}": Ask(1096, 7000) for i in range(64)}
    got = replay(
        engine,
        asks,
        block_tokens=32,
        blocks=7319,
        max_num_seqs=256,
        max_batched_tokens=8192,
        stop_ns=400_000_000,
        **TRTLLM,
    )
    assert (got.column("n_running")[-1], got.column("n_waiting")[-1]) == (28, 36)
    assert sum(got.column("n_preempted")) == 0


def test_9_d_only_blocks_in_use_are_credited(engine):
    """
    8 blocks. H (4 in, 12 out: 4 blocks) runs. P's prefix of 8 tokens is cached, but nobody holds it. A (8 in, 12 out)
    shares it and needs 5 blocks of the 4 that are left: it waits until H ends.
    """
    asks = {
        "P": Ask(8, 1, text=prompt(group=1, tokens=8)),
        "H": Ask(4, 12, at=1),
        "A": Ask(8, 12, at=2, text=prompt(group=1, tokens=8)),
    }
    got = replay(engine, asks, blocks=8, **TRTLLM)
    assert got.admitted("H") == 1
    assert got.admitted("A") == got.tokens_at("H")[-1] == 13
    assert got.reused("A") == [8]


def test_9_e_a_footprint_above_the_pool_is_rejected_whatever_is_shared(engine):
    """8 blocks; H (8 in, 8 out) runs; A (32 in, 8 out) shares its prompt. 10 blocks in all: rejected."""
    asks = {
        "H": Ask(8, 8, text=prompt(group=1, tokens=8)),
        "A": Ask(32, 8, at=1, text=prompt(group=1, tokens=8)),
    }
    got = replay(engine, asks, blocks=8, **TRTLLM)
    assert got.status("A") == "rejected exceeds_kv_pool"
    assert got.status("H") == "completed"


def test_9_f_a_prompt_above_the_pool_is_rejected_and_the_next_one_runs(engine):
    asks = {"A": Ask(20, 4), "B": Ask(4, 4)}
    got = replay(engine, asks, blocks=4, **TRTLLM)
    assert [got.status(n) for n in "AB"] == ["rejected exceeds_kv_pool", "completed"]


@pytest.mark.parametrize(("profile", "cached", "cost"), [("trtllm", 16, 3), ("parity", 12, 10)])
def test_5_5_a_full_hit_stays_full_and_its_first_token_costs_a_decode(engine, profile, cached, cost):
    """16 tokens twice, prefill 10 ms, decode 3 ms. Recorded: TensorRT-LLM takes all 16 from the cache."""
    text = prompt(group=1, tokens=16)
    asks = {"A": Ask(16, 1, text=text), "B": Ask(16, 1, at=20, text=text)}
    got = replay(engine, asks, profile=profile, timing=fixed(10, 3))
    assert got.reused("B") == [cached]
    assert got.tokens_at("B") == [20 + cost]


def test_max_utilization_admits_what_fits_now(engine):
    """9-A again: 6 blocks, A and B of 4 blocks to their end. Both are let in, and one of them has to come again."""
    asks = {"A": Ask(8, 8), "B": Ask(8, 8)}
    got = replay(engine, asks, blocks=6, prefix_caching=False, **FULL)
    assert [got.admitted(n) for n in "AB"] == [0, 0]
    assert [got.row(n)["n_preemptions"] for n in "AB"] == [0, 1]


def test_max_utilization_throws_the_latest_request_out_and_resumes_it(engine):
    """
    Passes of 1 ms, 6 blocks of 4. Pass 0 computes both prompts, 2 blocks each; pass 1 takes the third block each. In
    pass 5 A wants a fourth (13 tokens known) and none is free: B goes, with 5 tokens made. A ends at 8; B is back
    in pass 8, computes its 13 tokens and makes the last three at 9, 10 and 11.
    """
    asks = {"A": Ask(8, 8), "B": Ask(8, 8)}
    got = replay(engine, asks, blocks=6, max_batched_tokens=16, prefix_caching=False, **FULL)
    assert got.preempted()[5] == ["B"]
    assert got.tokens_at("A") == [1, 2, 3, 4, 5, 6, 7, 8]
    assert got.tokens_at("B") == [1, 2, 3, 4, 5, 9, 10, 11]
    assert got.scheduled()[8] == {"B": 13}
    assert got.status("B") == "completed"


def test_max_utilization_finds_what_is_left_of_its_blocks_again(engine):
    """The same with prefix caching: B leaves three full blocks, A takes the last of them, B computes 5 tokens anew."""
    got = replay(engine, {"A": Ask(8, 8), "B": Ask(8, 8)}, blocks=6, max_batched_tokens=16, **FULL)
    assert got.reused("B") == [0, 8]
    assert got.scheduled()[8] == {"B": 5}
    assert got.tokens_at("B")[-3:] == [9, 10, 11]


def test_max_utilization_puts_who_was_thrown_out_in_front(engine):
    """C arrives at 6, after B was thrown out at 5 and before there is room: B comes first, C behind it."""
    asks = {"A": Ask(8, 8), "B": Ask(8, 8), "C": Ask(12, 1, at=6)}
    got = replay(engine, asks, blocks=6, max_batched_tokens=16, prefix_caching=False, **FULL)
    assert got.tokens_at("B")[-3:] == [9, 10, 11]
    assert got.admitted("C") == 11


def test_max_utilization_admits_nobody_in_a_pass_that_throws_out(engine):
    """D (2 in) would fit beside A at 5, when B has just left six blocks to the two of them; it comes one pass later."""
    asks = {"A": Ask(8, 8), "B": Ask(8, 8), "D": Ask(2, 1, at=5)}
    got = replay(engine, asks, blocks=6, max_batched_tokens=16, prefix_caching=False, **FULL)
    assert got.preempted()[5] == ["B"]
    assert got.admitted("D") > 5


def test_max_utilization_still_cuts_outputs_and_refuses_what_a_pool_never_holds(engine):
    """A request that has the pool for itself always ends: output is cut to it, a prompt that fills it is refused."""
    got = replay(engine, {"A": Ask(4, 40), "P": Ask(16, 1)}, blocks=4, **FULL)
    assert (got.row("A")["output_tokens"], got.status("A")) == (12, "completed")
    assert got.status("P") == "rejected exceeds_kv_pool"


def test_max_utilization_with_bursts(engine):
    """8-A with TensorRT-LLM: in pass 1 both want a block for their bursts, and the latest goes."""
    speculation = Speculation("mtp", 2, (1.0, 1.0))
    got = replay(
        engine, {"A": Ask(4, 8), "B": Ask(4, 8)}, blocks=4, max_batched_tokens=8, speculation=speculation, **FULL
    )
    assert got.preempted()[:2] == [[], ["B"]]
    assert (got.column("n_decode")[1], got.column("decode_kv_tokens")[1]) == (1, 7)
    assert [got.status(n) for n in "AB"] == ["completed", "completed"]


@pytest.mark.parametrize("seed", range(20))
def test_nothing_is_ever_thrown_out_without_it(engine, seed):
    """guaranteed_no_evict holds in worlds where max_utilization would throw out, drafts or none."""
    rng = random.Random(seed)
    times = sorted(rng.randint(0, 9) for _ in range(12))
    asks = {f"r{i}": Ask(rng.randint(1, 20), rng.randint(1, 20), at=at) for i, at in enumerate(times)}
    speculation = rng.choice([None, Speculation("mtp", 3, (0.9, 0.5, 0.3), seed)])
    spec = {"blocks": 12, "max_batched_tokens": 24, "speculation": speculation}
    assert sum(replay(engine, asks, **spec, **TRTLLM).column("n_preempted")) == 0
    assert sum(replay(engine, asks, **spec, **FULL).column("n_preempted")) > 0
