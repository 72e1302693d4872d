"""Section 7: what a pass costs."""

import numpy as np
import pytest

from perf_db.gpu.forward import compile_forward, read_forward_table, write_forward_table
from perf_db.gpu.forward_jsonl import RankWork
from perf_db.gpu.snapshot import Corrections, Options
from sim.spec import PolynomialTiming, TableTiming
from sim.timing.tables import ArrayTiming, mixed_pass
from tests.perf_db.gpu.forward_rows import SEVEN_A, rows
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


def whole_forward(tmp_path, content):
    """A timing model from a whole-forward table that is written and read back."""
    path = tmp_path / "forward.parquet"
    write_forward_table(path, content, measurement_policy="by hand")
    return ArrayTiming("forward", *compile_forward(read_forward_table(path), "one"))


SEVEN_A_ASKS = {"A": Ask(7, 3), "B": Ask(8, 1, at=5)}


@in_both_profiles
def test_7_a_a_composed_mixed_pass_costs_what_the_decodes_add(engine, profile, tmp_path):
    """
    pass 0   A's 7 tokens: 10 ms
    pass 1   B's 8 tokens 10 ms, and A at KV 8: 3 ms by interpolation, of which 2 ms are the pass itself: 11 ms
    pass 2   A alone at KV 9: 3.25 ms
    """
    got = replay(engine, SEVEN_A_ASKS, profile=profile, timing=whole_forward(tmp_path, SEVEN_A))
    assert got.ends() == [10, 21, 24.25]
    assert got.column("prefill_ns") == [10_000_000, 10_000_000, 0]
    assert got.column("decode_ns") == [0, 1_000_000, 3_250_000]


@in_both_profiles
def test_7_b_a_zero_share_costs_nothing_and_leaves_its_row(engine, profile, tmp_path):
    """A decode of one request costs 2 ms at any KV: beside a prefill it adds nothing."""
    content = rows([(1, 7, 0, 10.0), (1, 8, 0, 10.0)], [(1, 4, 2.0), (1, 12, 2.0)])
    got = replay(engine, SEVEN_A_ASKS, profile=profile, timing=whole_forward(tmp_path, content))
    assert got.ends() == [10, 20, 22]
    evidence = got.replayed.tables["evidence"]
    shares = {int(p): (int(n), int(ns)) for p, n, ns in zip(*(evidence[c] for c in ("phase", "n_lookups", "total_ns")))}
    assert shares[3] == (1, 0)  # mixed_decode: looked up once, for nothing


@in_both_profiles
def test_7_b_a_share_is_never_negative(engine, profile, tmp_path):
    content = rows([(1, 7, 0, 10.0), (1, 8, 0, 10.0)], [(1, 4, 5.0), (1, 12, 2.0)])
    got = replay(engine, SEVEN_A_ASKS, profile=profile, timing=whole_forward(tmp_path, content))
    assert got.column("decode_ns")[1] == 0


def test_7_c_who_composes_and_who_prices_twice(tmp_path):
    table = whole_forward(tmp_path, SEVEN_A)
    assert [mixed_pass(table, p) for p in ("vllm", "parity", "trtllm")] == ["composed"] * 3
    for timing in (fixed(1, 1), PolynomialTiming()):
        assert [mixed_pass(timing, p) for p in ("vllm", "parity")] == ["two_prices"] * 2


@in_both_profiles
def test_7_d_a_mixed_pass_takes_the_mixed_factor_on_both_parts(engine, profile, tmp_path):
    """That prefill alone was seen at 15 ms (1.5), that mixed pass at 13.75 (1.25): 12.5 + 1.25, and alone still 15."""
    kept = Corrections(Options(min_observations=1))
    kept.observe(RankWork(1, 8), 10.0, 15.0)
    kept.observe(RankWork(1, 8, 0, 1, 8), 11.0, 13.75)
    timing = whole_forward(tmp_path, SEVEN_A).with_factors(kept.arrays())
    got = replay(engine, {"A": Ask(8, 2), "B": Ask(8, 1, at=5)}, profile=profile, timing=timing)
    # A's first decode stands at KV 9, 1.25 ms above the baseline.
    assert got.column("prefill_ns") == [15_000_000, 12_500_000]
    assert got.column("decode_ns") == [0, round(1.25 * 1.25 * 1e6)]
    got = replay(engine, SEVEN_A_ASKS, profile=profile, timing=timing)
    assert (got.column("prefill_ns")[1], got.column("decode_ns")[1]) == (12_500_000, 1_250_000)


def test_a_pass_outside_a_whole_forward_table_is_an_error_that_says_what_it_holds(engine, tmp_path):
    from sim.errors import TimingError

    with pytest.raises(TimingError, match=r"does not cover a pass of 1 prefill request.s. with 20 new"):
        replay(engine, {"A": Ask(20, 1)}, timing=whole_forward(tmp_path, SEVEN_A))
