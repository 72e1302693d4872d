"""The four repairs, on curves small enough to do by hand."""

from __future__ import annotations

import math

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from perf_db.gpu.clean import ABOUT_TABLE, DUPLICATE, HOST_BOUND, NON_MONOTONE, REPAIRS, SPIKE, clean_table
from perf_db.gpu.hardware import load_hardware
from tests.perf_db.gpu.measured import gemm, numbered, rows_of, write_root


def curve(frame: pl.DataFrame, axis: str = "m") -> dict[int, float]:
    return dict(frame.sort(axis).select(axis, "latency").rows())


def test_close_duplicates_become_their_median_and_wide_ones_their_smallest():
    close = gemm({8: 1.0}).vstack(gemm({8: 1.4})).vstack(gemm({8: 1.2}))
    wide = gemm({16: 3.0}).vstack(gemm({16: 1.9}))
    rows, repairs = clean_table("gemm", numbered(close.vstack(wide)), None, steps=[DUPLICATE])
    assert curve(rows) == {8: 1.2, 16: 1.9}
    listed = repairs.select("row_no", "before", "after", "basis").rows()
    assert listed == [(0, 1.0, 1.2, "rows 0, 1, 2"), (3, 3.0, 1.9, "rows 3, 4")]


def test_rows_of_a_later_file_are_no_duplicates():
    frame = numbered(gemm({8: 1.0}), "own").vstack(numbered(gemm({8: 2.0, 16: 3.0}), "older"))
    rows, repairs = clean_table("gemm", frame, None, steps=[DUPLICATE])
    assert curve(rows) == {8: 1.0, 16: 3.0}
    assert repairs.is_empty()


def test_another_kernel_of_the_same_point_is_no_duplicate():
    frame = gemm({8: 1.0}, kernel_source="a").vstack(gemm({8: 1.2}, kernel_source="b"))
    rows, _ = clean_table("gemm", numbered(frame), None, steps=[DUPLICATE])
    assert curve(rows) == {8: 1.0}


def test_a_spike_takes_the_line_between_its_neighbours_in_both_logarithms():
    rows, repairs = clean_table("gemm", numbered(gemm({7: 1.0, 15: 9.0, 63: 4.0})), None, steps=[SPIKE])
    share = (math.log2(16) - math.log2(8)) / (math.log2(64) - math.log2(8))
    assert curve(rows)[15] == pytest.approx(4.0**share, rel=1e-12)
    assert repairs.select("row_no", "before", "basis").rows() == [(1, 9.0, "rows 0, 2")]


@pytest.mark.parametrize("top", [1.4, 5.9])
def test_a_step_or_a_gentle_top_is_no_spike(top):
    rows, repairs = clean_table("gemm", numbered(gemm({7: 1.0, 15: top, 63: 4.0})), None, steps=[SPIKE])
    assert curve(rows)[15] == top and repairs.is_empty()


def test_a_fall_is_levelled_to_the_geometric_mean_and_the_rest_stays():
    rows, repairs = clean_table("gemm", numbered(gemm({1: 1.0, 2: 4.0, 3: 2.0, 4: 9.0})), None, steps=[NON_MONOTONE])
    level = math.sqrt(8.0)
    assert curve(rows) == {1: 1.0, 2: pytest.approx(level, rel=1e-12), 3: pytest.approx(level, rel=1e-12), 4: 9.0}
    assert repairs["row_no"].to_list() == [1, 2]
    assert repairs["basis"].to_list() == ["m 2..3", "m 2..3"]


def test_no_repair_goes_below_the_roofline(tmp_path):
    hardware = load_hardware(write_root(tmp_path, {}), "h200_sxm")
    floor = 2 * 4096 * 4096 * 8192 / 989e12 * 1e3  # ms; bound by computing at this size
    frame = gemm({4096: 100 * floor, 8192: 1.001 * floor}, n=4096, k=4096)
    bare, _ = clean_table("gemm", numbered(gemm({4096: 1.001 * floor, 8192: 0.9 * floor})), None)
    assert curve(bare)[8192] < floor
    rows, _ = clean_table("gemm", numbered(frame), hardware)
    assert min(curve(rows).values()) >= floor


def test_repairs_follow_every_growing_axis():
    points = [
        {"batch_size": b, "step": kv - 1, "latency": ms}
        for (b, kv), ms in {(1, 2): 1.0, (1, 4): 3.0, (1, 8): 2.0, (2, 2): 0.5, (2, 4): 3.5, (4, 2): 0.7}.items()
    ]
    frame = rows_of("generation_attention", points, isl=1, num_heads=8, kv_cache_dtype="bfloat16")
    rows, _ = clean_table("generation_attention", numbered(frame), None)
    at = {(b, kv + 1): ms for b, kv, ms in rows.select("batch_size", "step", "latency").rows()}
    assert at[1, 2] <= at[1, 4] <= at[1, 8] and at[1, 2] <= at[2, 2] <= at[4, 2]
    assert at[2, 2] <= at[2, 4] and at[1, 4] <= at[2, 4]


def others(ms: dict[int, float], **common: object) -> dict[str, pl.DataFrame]:
    return {
        name: numbered(gemm({m: v * f for m, v in ms.items()}, **common), f"{name}.parquet")
        for name, f in (("sglang", 1.0), ("trtllm", 1.2))
    }


def test_a_host_bound_slice_takes_the_others_kernel_time_up_to_its_level():
    kernel = {1: 0.01, 64: 0.02, 2048: 0.05, 32768: 0.8}
    own = {1: 0.2, 64: 0.22, 2048: 0.21, 32768: 0.9}
    rows, repairs = clean_table("gemm", numbered(gemm(own)), None, others(kernel), steps=[HOST_BOUND])
    got = curve(rows)
    assert [got[m] for m in (1, 64, 2048)] == pytest.approx([0.011, 0.022, 0.055])
    assert got[32768] == 0.9, "above one and a half times the level the kernel is what was measured"
    launch = dict(rows.select("m", "launch_ms").rows())
    assert launch[1] == pytest.approx(0.2 - 0.011) and launch[32768] == 0
    assert repairs["basis"][0] == "sglang.parquet:0, trtllm.parquet:0"


def test_a_slice_within_three_times_the_others_is_slow_and_not_host_bound():
    rows, repairs = clean_table(
        "gemm", numbered(gemm({1: 0.029, 64: 0.03})), None, others({1: 0.01, 64: 0.01}), steps=[HOST_BOUND]
    )
    assert curve(rows) == {1: 0.029, 64: 0.03} and repairs.is_empty()


@pytest.mark.parametrize("donors", [None, {}])
def test_without_other_backends_the_repair_is_left_out_with_a_note(donors):
    rows, repairs = clean_table("gemm", numbered(gemm({1: 0.2})), None, donors, steps=[HOST_BOUND])
    assert curve(rows) == {1: 0.2}
    assert repairs["row_no"].to_list() == [ABOUT_TABLE]
    assert "no other backend's gemm_perf.parquet" in repairs["note"][0]


def test_an_unknown_repair_is_named():
    with pytest.raises(ValueError, match="no such repair: polish"):
        clean_table("gemm", numbered(gemm({1: 0.2})), None, steps=["polish"])


def test_nothing_to_repair_changes_nothing():
    frame = numbered(gemm({1: 0.1, 2: 0.2, 3: 0.2}))
    rows, repairs = clean_table("gemm", frame, None, others({1: 0.1, 2: 0.2, 3: 0.2}))
    assert rows.drop("launch_ms").equals(frame) and repairs.is_empty()


@settings(max_examples=60, deadline=None)
@given(
    st.dictionaries(
        st.tuples(st.sampled_from([1, 2, 4, 8]), st.sampled_from([2, 4, 16, 64])),
        st.floats(1e-3, 1e3),
        min_size=1,
    )
)
def test_cleaned_tables_never_fall_and_list_every_change(cells):
    points = [{"batch_size": b, "step": kv - 1, "latency": ms} for (b, kv), ms in cells.items()]
    frame = numbered(rows_of("generation_attention", points, isl=1))
    rows, repairs = clean_table("generation_attention", frame, None, steps=REPAIRS)
    at = {(b, step + 1): ms for b, step, ms in rows.select("batch_size", "step", "latency").rows()}
    for (b, kv), ms in at.items():
        assert np.isfinite(ms) and ms > 0
        for (b2, kv2), ms2 in at.items():
            # Neighbours in one axis only: a staircase says nothing about others.
            if (b2 == b and kv2 >= kv) or (kv2 == kv and b2 >= b):
                assert ms2 >= ms
    before = dict(frame.select("row", "latency").rows())
    changed = {row for row, ms in rows.select("row", "latency").rows() if ms != before[row]}
    assert changed <= set(repairs["row_no"].to_list())
