"""What cleaning changes in the files of a version: table `perf_repairs`.

Each file is taken by itself. A deployment is priced from the rows of several files at times (an older version fills
what its own lacks); there the same repairs run over the merged rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from perf_db.gpu.clean import clean_table, growing_curves
from perf_db.gpu.errors import PerfDataError
from perf_db.gpu.frames import frame_of, schema_of
from perf_db.gpu.hardware import Hardware, load_hardware
from perf_db.gpu.operator_tables import FILE_SUFFIX, OperatorTable
from perf_db.gpu.quality import PerfVersion, donors_of, files_of_version
from perf_db.gpu.read_table import read_operator_table
from perf_db.gpu.source import PerfRoot
from perf_db.tables.perf_repairs import PERF_REPAIRS

if TYPE_CHECKING:
    import polars as pl


def repairs_of(
    root: PerfRoot, version: PerfVersion, *, tables: Iterable[str] | None = None
) -> tuple[pl.DataFrame, list[str]]:
    """(rows of `perf_repairs`, what still falls) for every good file of a version, or those of the named tables."""
    import polars as pl

    wanted = None if tables is None else set(tables)
    hardware = _hardware(root, version.system)
    parts, falling = [], []
    for path in files_of_version(root, version):
        if wanted is not None and path.stem.removesuffix(FILE_SUFFIX) not in wanted:
            continue
        read = read_operator_table(path)
        if read.frame is None or read.table is None:
            continue
        frame = read.frame.with_columns(file=pl.lit(root.relative(path)))
        donors = donors_of(root, path, version, read.table)
        cleaned, repairs = clean_table(read.table.name, frame, hardware, donors)
        parts.append(repairs)
        if n := _still_falling(read.table, cleaned):
            falling.append(f"{root.relative(path)}: {n} pair(s)")
    if not parts:
        return frame_of(PERF_REPAIRS), falling
    identity = {name: pl.lit(value) for name, value in zip(("system", "backend", "version"), version, strict=True)}
    return pl.concat(parts).with_columns(**identity).select(list(schema_of(PERF_REPAIRS))), falling


def _still_falling(table: OperatorTable, frame: pl.DataFrame) -> int:
    """Neighbours on any growing axis of which the later costs less."""
    n = 0
    for measure in table.measures:
        ms = frame[measure.column].to_numpy()
        for curves in growing_curves(table, frame).values():
            left, right = curves.pairs()
            n += int((ms[right] < ms[left]).sum())
    return n


def _hardware(root: PerfRoot, system: str) -> Hardware | None:
    """None where the root holds tables of a system without its hardware file: rooflines are left out then."""
    try:
        return load_hardware(root, system)
    except PerfDataError:
        return None
