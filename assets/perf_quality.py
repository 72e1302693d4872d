"""Examining performance data: the three tables about it, of one version or of many. Without Dagster."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perf_db.gpu.frames import frame_of
from perf_db.gpu.quality import PerfVersion, examine
from perf_db.gpu.repairs import repairs_of
from perf_db.gpu.source import PerfRoot
from perf_db.performance import performance_folder
from perf_db.tables import PERF_ANOMALIES, PERF_REPAIRS, PERF_TABLES

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True)
class Examined:
    """Rows of `perf_tables`, and the frames of `perf_anomalies` and `perf_repairs`.

    Attributes:
        still_falling: files in which cleaning has left something that falls, with how many pairs.
    """

    tables: list[dict[str, Any]]
    anomalies: pl.DataFrame
    repairs: pl.DataFrame
    still_falling: list[str]

    def worst(self, n: int) -> pl.DataFrame:
        """The `n` anomalies of every kind that are furthest out, both ways."""
        import polars as pl

        out = pl.col("ratio").log().abs().fill_null(0) + pl.when(kind="hole").then(1 - pl.col("value")).otherwise(0)
        ranked = self.anomalies.with_columns(_out=out).sort("_out", descending=True, maintain_order=True)
        return ranked.group_by("kind", maintain_order=True).head(n).sort("kind", maintain_order=True).drop("_out")


def examine_versions(
    root: PerfRoot,
    versions: Sequence[PerfVersion],
    *,
    tables: Iterable[str] | None = None,
    repairs: bool = True,
    progress: Callable[[int, int], None] | None = None,
) -> Examined:
    """Every file of the versions, read and judged; with `repairs` also what cleaning changes in it."""
    import polars as pl

    wanted = None if tables is None else tuple(tables)
    rows: list[dict[str, Any]] = []
    still_falling: list[str] = []
    anomalies, repaired = [frame_of(PERF_ANOMALIES)], [frame_of(PERF_REPAIRS)]
    for done, version in enumerate(versions, 1):
        report = examine(root, version, tables=wanted)
        rows += report.tables
        anomalies.append(report.anomalies)
        if repairs:
            changed, left = repairs_of(root, version, tables=wanted)
            repaired.append(changed)
            still_falling += left
        if progress is not None:
            progress(done, len(versions))
    return Examined(rows, pl.concat(anomalies), pl.concat(repaired), still_falling)


def folder_of(store_root: Path, version: PerfVersion) -> Path:
    """Where the tables about a version are kept."""
    return performance_folder(store_root.absolute()) / version.system / version.backend / version.version


def write_tables(folder: Path, found: Examined) -> dict[str, Path]:
    """The three tables as parquet, validated; each file appears whole or not at all. Returns their paths by name."""
    import pyarrow.parquet as pq

    folder.mkdir(parents=True, exist_ok=True)
    paths = {}
    frames = ((PERF_TABLES, found.tables), (PERF_ANOMALIES, found.anomalies), (PERF_REPAIRS, found.repairs))
    for table, given in frames:
        frame = frame_of(table, given) if isinstance(given, list) else given
        rows = table.validate(frame, source=f"examination of performance data ({table.name})")
        path = folder / f"{table.name}.parquet"
        aside = path.with_name(path.name + ".partial")
        try:
            pq.write_table(rows, aside, compression="zstd", compression_level=3)
            os.replace(aside, path)
        finally:
            aside.unlink(missing_ok=True)
        paths[table.name] = path
    return paths
