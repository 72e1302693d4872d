"""What the examination finds: in made-up tables by hand, in the extra's data the published figures."""

from __future__ import annotations

import polars as pl
import pytest

from perf_db.gpu.frames import frame_of
from perf_db.gpu.quality import PerfVersion, examine, perf_versions
from perf_db.tables import PERF_ANOMALIES, PERF_TABLES
from tests.perf_db.gpu.measured import gemm, rows_of, write_root

FILE = "h200_sxm/gemm/vllm/0.24.0/gemm_perf.parquet"
VLLM = PerfVersion("h200_sxm", "vllm", "0.24.0")


def report_of(tmp_path, frame, file=FILE, **others):
    root = write_root(tmp_path, {file: frame, **others})
    return examine(root, VLLM)


def test_figures_and_anomalies_of_a_small_table(tmp_path):
    curve = gemm({1: 0.1, 2: 0.4, 3: 0.1, 4: 0.2, 8: 0.05})
    again = gemm({4: 0.3})
    report = report_of(tmp_path, curve.vstack(again).vstack(gemm({1: 0.1, 2: 0.11}, n=8192)))
    (row,) = report.tables
    assert row["valid"] and row["n_rows"] == 8 and row["n_points"] == 7 and row["n_duplicates"] == 1
    assert row["widest_duplicate"] == pytest.approx(1.5)
    assert (row["n_pairs"], row["n_falling"], row["n_halved"], row["n_spikes"]) == (5, 2, 2, 2)
    assert row["coverage"] == pytest.approx(7 / 10) and row["n_holes"] == 1
    assert row["axes"] == "m 1..8 (5), n 4096..8192 (2), k 4096..4096 (1)"
    assert row["precisions"] == "gemm_dtype=bfloat16" and row["unit"] == "ms"
    found = report.anomalies.select("kind", "row_no", "value", "before", "after").rows()
    assert found == [
        ("duplicate", 5, 0.3, 0.2, None),
        ("non_monotone", 2, 0.1, 0.4, 0.2),
        ("non_monotone", 4, 0.05, 0.2, None),
        ("spike", 1, 0.4, 0.1, 0.1),
        ("spike", 3, 0.2, 0.1, 0.05),
        ("hole", 0, 0.7, None, None),
    ]
    PERF_TABLES.validate(frame_of(PERF_TABLES, report.tables), source="test")
    PERF_ANOMALIES.validate(report.anomalies, source="test")


def test_host_bound_slices_are_held_against_the_other_backends(tmp_path):
    kernel = dict.fromkeys((1, 16, 64), 0.01)
    report = report_of(
        tmp_path,
        gemm({1: 0.2, 16: 0.2, 64: 0.2}, gemm_dtype="fp8_block").vstack(gemm(kernel)),
        **{
            "h200_sxm/gemm/sglang/0.5.14/gemm_perf.parquet": gemm(kernel).vstack(gemm(kernel, gemm_dtype="fp8_block")),
            "h200_sxm/gemm/trtllm/1.3.0rc20/gemm_perf.parquet": gemm({1: 0.02}, gemm_dtype="fp8_block"),
        },
    )
    (row,) = report.tables
    assert row["n_host_bound"] == 1 and row["host_ratio"] == pytest.approx(20)
    (found,) = report.anomalies.filter(kind="host_bound").rows(named=True)
    assert "gemm_dtype=fp8_block" in found["slice"] and found["suggested"] == pytest.approx(0.01)


def test_versions_are_found_by_their_folders(tmp_path):
    root = write_root(tmp_path, {FILE: gemm({1: 0.1}), "h200_sxm/comm/nccl/2.27.3/nccl_perf.parquet": nccl()})
    assert perf_versions(root) == [PerfVersion("h200_sxm", "nccl", "2.27.3"), VLLM]


def nccl():
    return rows_of("nccl", [{"message_size": 2**i, "latency": 0.01 * i} for i in range(8, 12)])


@pytest.mark.parametrize(
    ("frame", "fault"),
    [
        (gemm({1: 0.1}).drop("gemm_dtype"), "column 'gemm_dtype' is missing"),
        (gemm({1: 0.1}).rename({"latency": "latency_us"}), "column 'latency' is missing"),
        (gemm({1: 0.1}).with_columns(pl.col("m").cast(pl.String)), "column 'm' is large_string, expected integer"),
        (gemm({1: 0.1}).with_columns(colour=pl.lit("red")), "column 'colour' is not one of a gemm table"),
        (gemm({1: 0.1, 2: float("nan")}), "column 'latency' is null, NaN, infinite or not above 0 in 1 of 2 rows"),
        (gemm({1: 0.1, 2: 0.0}), "not above 0 in 1 of 2 rows"),
        (gemm({1: 1e-5, 2: 2e-5}), "the unit is another one"),
        (gemm({1: 1e4, 2: 2e4}), "the unit is another one"),
        (gemm({1: 0.1}).with_columns(m=pl.lit(None, pl.Int64)), "column 'm' has 1 nulls"),
        (gemm({1: 0.1}).with_columns(m=pl.lit(-1)), "column 'm' is negative in 1 rows"),
        (gemm({1: 0.1}).clear(), "it has no rows"),
    ],
)
def test_a_file_that_is_not_what_its_name_says(tmp_path, frame, fault):
    (row,) = report_of(tmp_path, frame).tables
    assert not row["valid"] and fault in row["faults"] and row["n_rows"] == frame.height


def test_a_file_that_is_no_parquet_or_no_known_table(tmp_path):
    root = write_root(tmp_path, {FILE: gemm({1: 0.1}), "h200_sxm/gemm/vllm/0.24.0/gem_perf.parquet": gemm({1: 0.1})})
    (root.data / FILE).write_bytes(b"no parquet")
    unknown, broken = examine(root, VLLM).tables
    assert "nearest: gemm_perf.parquet" in unknown["faults"]
    assert "not a parquet file" in broken["faults"]
    assert examine(root, VLLM).anomalies["kind"].to_list() == ["invalid", "invalid"]
