"""Small operator tables and perf roots made up for the tests; the extra's data when it is installed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import polars as pl
import pytest
import yaml

from perf_db.gpu.errors import PerfDataError
from perf_db.gpu.operator_tables import OPERATOR_TABLES
from perf_db.gpu.source import PerfRoot, open_root

SYSTEM = {
    "gpu": {
        "mem_bw": 4.8e12,
        "mem_bw_empirical_scaling_factor": 0.8,
        "mem_empirical_constant_latency": 3e-6,
        "mem_capacity": 151397597184,
        "bfloat16_tc_flops": 989e12,
        "fp8_tc_flops": 1978e12,
        "sm_version": 90,
    },
    "node": {
        "num_gpus_per_node": 8,
        "intra_node_bw": 450e9,
        "inter_node_bw": 50e9,
        "p2p_latency": 1e-5,
    },
    "misc": {"nccl_mem": {1: 0, 2: 358612992}, "other_mem": 3758096384, "nccl_version": "2.27.3"},
}


def extra_root(version: str = "0.12.") -> PerfRoot:
    """The extra's data; skips by name when it, or its version, is not there."""
    try:
        root = open_root()
    except PerfDataError:
        pytest.skip("needs the extra perfdata (aiconfigurator-core 0.12)")
    if not (root.version or "").startswith(version):
        pytest.skip(f"needs aiconfigurator-core {version}*, installed is {root.version}")
    return root


def rows_of(table: str, points: Sequence[Mapping[str, object]], **common: object) -> pl.DataFrame:
    """Rows of a table: what `points` and `common` leave out is filled in by kind."""
    declared = OPERATOR_TABLES[table]
    filler = {"text": "some", "integer": 1, "number": 1.0, "flag": False}
    wanted = (*declared.required, "framework", "version", "device")
    base = {c: filler[declared.columns[c]] for c in wanted}
    frame = pl.DataFrame([base | dict(common) | dict(point) for point in points])
    kinds = {"text": pl.String, "integer": pl.Int64, "number": pl.Float64, "flag": pl.Boolean}
    return frame.with_columns(pl.col(c).cast(kinds[declared.columns[c]]) for c in frame.columns)


def numbered(frame: pl.DataFrame, file: str = "own.parquet") -> pl.DataFrame:
    """As a loader hands it out: with `file` and `row`."""
    return frame.with_row_index("row").with_columns(pl.col("row").cast(pl.Int64), file=pl.lit(file))


def gemm(ms: Mapping[int, float], **common: object) -> pl.DataFrame:
    """One GEMM curve: m -> latency."""
    base = {"gemm_dtype": "bfloat16", "n": 4096, "k": 4096}
    return rows_of("gemm", [{"m": m, "latency": v} for m, v in ms.items()], **(base | common))


def write_root(folder: Path, files: Mapping[str, pl.DataFrame], systems: Sequence[str] = ("h200_sxm",)) -> PerfRoot:
    """A perf root. `files`: path below systems/data -> rows."""
    (folder / "model_configs").mkdir(parents=True, exist_ok=True)
    for system in systems:
        path = folder / "systems" / f"{system}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(yaml.safe_dump(SYSTEM))
        (folder / "systems" / "data" / system).mkdir(parents=True, exist_ok=True)
    for name, frame in files.items():
        path = folder / "systems" / "data" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        frame.write_parquet(path)
    return open_root(folder)
