"""Section 9: TensorRT-LLM's guaranteed_no_evict. Whoever is admitted can run to its end, and nobody is thrown out."""

import pytest

from tests.rules.world import Ask, fixed, prompt, replay

TRTLLM = {"profile": "trtllm"}


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
