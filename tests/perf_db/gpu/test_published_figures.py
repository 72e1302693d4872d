"""The faults of aiconfigurator-core 0.12.0, counted once by other means and written down: the examination finds them.

The figures are those of the performance model's section on what is wrong in the data.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import polars as pl
import pytest

from perf_db.gpu.judge import host_ratios
from perf_db.gpu.operator_tables import OPERATOR_TABLES
from perf_db.gpu.quality import examine, perf_versions
from perf_db.gpu.read_table import read_operator_table
from perf_db.gpu.source import PerfRoot
from tests.perf_db.gpu.measured import extra_root

pytestmark = pytest.mark.slow

COUNTED = (
    "gemm", "context_attention", "generation_attention", "moe", "context_mla", "generation_mla", "mla_context_module",
    "mla_generation_module", "dsa_context_module", "dsa_generation_module", "custom_allreduce", "nccl",
)  # fmt: skip


@pytest.fixture(scope="module")
def root() -> PerfRoot:
    return extra_root("0.12.0")


@pytest.fixture(scope="module")
def files(root: PerfRoot) -> pl.DataFrame:
    """`perf_tables` of the counted kinds, all systems and backends."""
    rows = [row for version in perf_versions(root) for row in examine(root, version, tables=COUNTED).tables]
    return pl.DataFrame(rows, infer_schema_length=None)


def total(files: pl.DataFrame, column: str, *tables: str) -> int:
    return int(files.filter(pl.col("table_name").is_in(tables))[column].sum())


def test_every_file_is_what_its_name_says(root: PerfRoot) -> None:
    paths = sorted(root.data.rglob("*.parquet"))
    reads = {path: read_operator_table(path) for path in paths}
    assert len(paths) == 736 and sum(read.n_rows for read in reads.values()) == 12_586_413
    assert {path.name: read.faults for path, read in reads.items() if read.faults} == {}


@pytest.mark.parametrize(
    ("tables", "percent", "digits"),
    [
        (["gemm"], 7.35, 2),
        (["generation_attention"], 2.2, 1),
        (["custom_allreduce"], 1.9, 1),
        (["dsa_generation_module"], 1.9, 1),
        (["dsa_context_module"], 1.4, 1),
        (["nccl"], 1.9, 1),
        (["moe"], 0.84, 2),
        (["context_attention"], 0.59, 2),
        (["mla_context_module", "mla_generation_module"], 0.05, 2),
    ],
)
def test_falling_pairs(files: pl.DataFrame, tables: list[str], percent: float, digits: int) -> None:
    share = total(files, "n_falling", *tables) / total(files, "n_pairs", *tables)
    assert round(100 * share, digits) == percent


def test_falling_pairs_of_gemm(files: pl.DataFrame) -> None:
    assert round(total(files, "n_pairs", "gemm") / 1e6, 2) == 2.95
    assert total(files, "n_falling", "gemm") == 217_113
    assert total(files, "n_halved", "gemm") == 4_937


@pytest.mark.parametrize(
    ("file", "percent"),
    [
        ("gb300/sparse_attention/vllm/0.24.0/dsa_context_module", 16),
        ("h200_sxm/gemm/sglang/0.5.14/gemm", 15),
        ("b200_sxm/gemm/sglang/0.5.14/gemm", 14),
        ("b200_sxm/gemm/vllm/0.24.0/gemm", 13),
    ],
)
def test_the_worst_files(files: pl.DataFrame, file: str, percent: int) -> None:
    (row,) = files.filter(file=f"systems/data/{file}_perf.parquet").rows(named=True)
    assert round(100 * row["n_falling"] / row["n_pairs"]) == percent
    # Of files of some size nothing is worse than the four, but for decode attention of an accelerator of another maker.
    large = files.filter(pl.col("n_pairs") > 10_000, pl.col("system") != "b60")
    worst = large.sort(pl.col("n_falling") / pl.col("n_pairs"), descending=True).head(4)
    assert row["file"] in worst["file"].to_list()


@pytest.mark.parametrize(
    ("tables", "extra", "n_files", "widest"),
    [
        (["moe"], 245_518, 8, 2.0),
        (["dsa_context_module"], 91_333, 2, 4.5),
        (["generation_mla"], 12_784, 5, 1.6),
        (["context_mla"], 7_920, 5, 1.3),
        (["nccl"], 5_307, 6, 4.2),
        (["dsa_generation_module"], 3_568, 1, 1.2),
        (["context_attention"], 408, 1, 1.2),
        (["custom_allreduce"], 184, 2, 1.8),
        (["gemm", "mla_context_module", "mla_generation_module", "generation_attention"], 0, 0, None),
    ],
)
def test_duplicates(files: pl.DataFrame, tables: list[str], extra: int, n_files: int, widest: float | None) -> None:
    some = files.filter(pl.col("table_name").is_in(tables), pl.col("n_duplicates") > 0)
    assert (int(some["n_duplicates"].sum()), some.height) == (extra, n_files)
    top = some["widest_duplicate"].max()
    assert widest is None if top is None else round(float(top), 1) == widest  # type: ignore[arg-type]


def spikes(root: PerfRoot, system: str, backend: str, version: str) -> Mapping[str, int]:
    """Spikes of a GEMM file by precision."""
    (version_,) = [v for v in perf_versions(root) if v == (system, backend, version)]
    found = examine(root, version_, tables=["gemm"]).anomalies.filter(kind="spike")
    named = found.with_columns(precision=pl.col("slice").str.extract(r"gemm_dtype=(\S+)"))
    return dict(named.group_by("precision").len().rows())


def test_isolated_spikes(root: PerfRoot) -> None:
    assert spikes(root, "b200_sxm", "vllm", "0.24.0")["fp8"] == 982
    assert spikes(root, "h200_sxm", "sglang", "0.5.14")["fp8_block"] == 421
    assert spikes(root, "b200_sxm", "sglang", "0.5.14")["fp8_block"] == 539
    for system in ("h200_sxm", "b200_sxm", "gb200"):
        assert max(spikes(root, system, "trtllm", "1.3.0rc20").values()) < 60


def fp8_block(root: PerfRoot, system: str, backend: str, version: str) -> pl.DataFrame:
    path: Path = root.data / system / "gemm" / backend / version / "gemm_perf.parquet"
    frame = read_operator_table(path).frame
    assert frame is not None
    return frame.filter(gemm_dtype="fp8_block")


@pytest.mark.parametrize(
    ("system", "times"), [("h200_sxm", 5.3), ("b200_sxm", 18), ("b300_sxm", 21), ("gb200", 38), ("gb300", 40)]
)
def test_host_bound_gemm_of_vllm_against_sglang(root: PerfRoot, system: str, times: float) -> None:
    own, theirs = fp8_block(root, system, "vllm", "0.24.0"), fp8_block(root, system, "sglang", "0.5.14")
    ratio = host_ratios(OPERATOR_TABLES["gemm"], own, {"sglang": theirs})["fp8_block"]
    assert round(ratio, 1 if times < 10 else 0) == times


def test_the_host_bound_site_that_is_quoted(root: PerfRoot) -> None:
    at = (pl.col("n") == 4096) & (pl.col("k") == 7168) & (pl.col("m") <= 64)
    own = fp8_block(root, "b200_sxm", "vllm", "0.24.0").filter(at)["latency"]
    theirs = fp8_block(root, "b200_sxm", "sglang", "0.5.14").filter(at)["latency"]
    assert (round(float(own.min()), 2), round(float(own.max()), 2)) == (0.17, 0.28)  # type: ignore[arg-type]
    assert round(float(theirs.min()), 3) == 0.013  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("table", "low", "high"), [("context_attention", 0.77, 0.78), ("generation_attention", 0.81, 0.83)]
)
def test_the_grids_are_staircases(files: pl.DataFrame, table: str, low: float, high: float) -> None:
    some = files.filter(table_name=table)
    assert low <= float(some["coverage"].median()) <= high  # type: ignore[arg-type]
    assert int(some["n_holes"].sum()) > 0


def test_gemm_is_whole(files: pl.DataFrame) -> None:
    assert round(float(files.filter(table_name="gemm")["coverage"].min()), 2) == 1.0  # type: ignore[arg-type]
