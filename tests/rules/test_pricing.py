"""Section 7: what a pass costs."""

import numpy as np
import pytest

from sim.spec import PolynomialTiming, TableTiming
from tests.rules.world import Ask, fixed, in_both_profiles, prompt, replay


def prefill(t: float) -> float:
    return 4.209989e-7 * t * t + 1.518344e-2 * t + 16.50142


def decode(u: float) -> float:
    return -25.74 * u * u + 54.01 * u + 5.74


@in_both_profiles
def test_7_1_totals_of_a_mixed_pass(engine, profile):
    """
    pass 0   A computes its 8 tokens
    pass 1   A decodes with 9 known tokens; B computes 4 over the 8 it shares with A
    """
    text = prompt(group=1, tokens=8)
    asks = {"A": Ask(8, 3, text=text), "B": Ask(12, 2, at=0.5, text=text)}
    got = replay(engine, asks, profile=profile)
    row = got.passes()[1].row
    assert (row["n_prefill"], row["prefill_tokens"], row["prefill_kv_tokens"]) == (1, 4, 8)
    assert (row["n_decode"], row["decode_kv_tokens"]) == (1, 9)
    # B's first token comes from its prefill; B is not a decoding request of this pass.
    assert row["n_tokens"] == 2


@in_both_profiles
def test_7_1_fixed_passes(engine, profile):
    """A 10/4 and B 100/3, budget 64, prefill 10 ms, decode 3 ms: A and B's chunk; mixed; decode; decode."""
    asks = {"A": Ask(10, 4), "B": Ask(100, 3)}
    got = replay(engine, asks, profile=profile, timing=fixed(10, 3), max_batched_tokens=64)
    assert np.diff([0, *got.ends()]).tolist() == [10, 13, 3, 3]


def test_7_1_a_resumed_chunk_that_covers_prompt_and_answers_is_prefill_and_decode(engine):
    """As 4-A: B computes 13 tokens, 8 of its prompt and 5 generated: Tp 8, and a decode over all 13."""
    asks = {"A": Ask(8, 8), "B": Ask(8, 8)}
    got = replay(engine, asks, profile="parity", blocks=6, max_num_seqs=2, prefix_caching=False)
    row = got.passes()[8].row
    assert (row["n_prefill"], row["prefill_tokens"]) == (1, 8)
    assert (row["n_decode"], row["decode_kv_tokens"]) == (1, 13)


@in_both_profiles
def test_7_2_the_polynomial_sees_rounded_means(engine, profile):
    """
    bs=4. A leaves 4 cached tokens. B (8 tokens, 4 cached) and C (5 tokens) prefill together:

    np 2, Tp 9, KVp 4: mean length floor(13 / 2) = 6, mean prefix 2, so the model is asked for 2 x 4 = 8 tokens, not 9
    """
    text = prompt(group=1, tokens=4)
    asks = {"A": Ask(4, 1, text=text), "B": Ask(8, 1, at=50, text=text), "C": Ask(5, 1, at=50)}
    got = replay(engine, asks, profile=profile, timing=PolynomialTiming())
    assert got.column("prefill_tokens") == [4, 9]
    assert got.column("prefill_kv_tokens") == [0, 4]
    assert got.column("prefill_ns") == [round(prefill(4) * 1e6), round(prefill(8) * 1e6)]


@in_both_profiles
def test_1_2_a_duration_is_rounded_as_the_double_it_is(engine, profile):
    """
    Recorded: 15,000 tokens cost 338.9777725 ms, a tie in decimals. As a double of seconds it lies just below, and
    338,977,772 ns come out. Twice as fast that is 169,488,886 ns, and its half, 84,744,443.
    """
    for ratio, ns in ((1.0, 338_977_772), (2.0, 169_488_886), (4.0, 84_744_443)):
        got = replay(
            engine,
            {"A": Ask(15_000, 1)},
            profile=profile,
            timing=PolynomialTiming(),
            blocks=4096,
            max_batched_tokens=16_384,
            speedup_ratio=ratio,
        )
        assert got.column("prefill_ns") == [ns]


@in_both_profiles
def test_7_3_polynomial_decode_by_the_share_of_the_pool(engine, profile):
    """16 slots: 9 known tokens of A are 9/16 of the pool."""
    got = replay(engine, {"A": Ask(8, 2)}, profile=profile, timing=PolynomialTiming(), blocks=4)
    assert got.column("decode_ns")[1] == round(decode(9 / 16) * 1e6)


@in_both_profiles
def test_7_3_the_share_stops_at_one(engine, profile):
    """Requests that share blocks are counted in full, so their sum can exceed the pool."""
    text = prompt(group=1, tokens=8)
    asks = {name: Ask(9, 2, text=text) for name in "ABC"}
    got = replay(engine, asks, profile=profile, timing=PolynomialTiming(), blocks=5)
    assert got.column("decode_kv_tokens")[1] == 30
    assert got.column("decode_ns")[1] == round(decode(1.0) * 1e6)


@in_both_profiles
def test_7_3_tables_interpolate_and_go_on_past_their_ends(engine, profile):
    """0 -> 5, 100 -> 15, 1000 -> 105 ms: 150 new tokens cost 20 ms. Decode 1 ms + 1 ms per 100 summed tokens."""
    timing = TableTiming(
        prefill_tokens=np.array([0.0, 100.0, 1000.0]),
        prefill_ms=np.array([5.0, 15.0, 105.0]),
        decode_kv_tokens=np.array([0.0, 100.0]),
        decode_context=np.array([1.0, 100.0]),
        decode_ms=np.array([[1.0, 1.0], [2.0, 2.0]]),
    )
    asks = {"A": Ask(50, 2), "B": Ask(100, 2)}
    got = replay(engine, asks, profile=profile, timing=timing)
    assert got.column("prefill_ns") == [20_000_000, 0]
    # 51 + 101 known tokens, past the last knot of 100.
    assert got.column("decode_ns") == [0, 2_520_000]


@in_both_profiles
def test_7_c_a_mixed_pass_costs_both_parts_rounded_on_their_own(engine, profile):
    asks = {"A": Ask(8, 3), "B": Ask(100, 1, at=0.5)}
    got = replay(engine, asks, profile=profile, timing=PolynomialTiming(), blocks=64)
    row = got.passes()[1].row
    assert row["prefill_ns"] == round(prefill(100) * 1e6)
    assert row["decode_ns"] == round(decode(9 / 256) * 1e6)
    assert row["end_ns"] == row["start_ns"] + row["prefill_ns"] + row["decode_ns"]


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -1.0])
def test_7_1_a_duration_that_is_none_is_an_error_that_names_the_model(engine, bad):
    from sim.errors import TimingError

    timing = TableTiming(
        prefill_tokens=np.array([0.0, 100.0]),
        prefill_ms=np.array([5.0, 15.0]),
        decode_kv_tokens=np.array([0.0, 100.0]),
        decode_context=np.array([1.0, 100.0]),
        decode_ms=np.full((2, 2), bad),
    )
    with pytest.raises(TimingError, match="table"):
        replay(engine, {"A": Ask(8, 2)}, timing=timing)
