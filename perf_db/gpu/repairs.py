"""What cleaning changes in the files of a version: table `perf_repairs`.

Each file is taken by itself. A deployment is priced from the rows of several files at times (an older version fills
what its own lacks); there the same repairs run over the merged rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from perf_db.gpu.clean import clean_table
from perf_db.gpu.errors import PerfDataError
from perf_db.gpu.frames import frame_of, schema_of
from perf_db.gpu.hardware import Hardware, load_hardware
from perf_db.gpu.operator_tables import FILE_SUFFIX
from perf_db.gpu.quality import PerfVersion, donors_of, files_of_version
from perf_db.gpu.read_table import read_operator_table
from perf_db.gpu.source import PerfRoot
from perf_db.tables.perf_repairs import PERF_REPAIRS

if TYPE_CHECKING:
    import polars as pl


def repairs_of(root: PerfRoot, version: PerfVersion, *, tables: Iterable[str] | None = None) -> pl.DataFrame:
    """Rows of `perf_repairs` for every good file of a version, or those of the named tables."""
    import polars as pl

    wanted = None if tables is None else set(tables)
    hardware = _hardware(root, version.system)
    parts = []
    for path in files_of_version(root, version):
        if wanted is not None and path.stem.removesuffix(FILE_SUFFIX) not in wanted:
            continue
        read = read_operator_table(path)
        if read.frame is None or read.table is None:
            continue
        frame = read.frame.with_columns(file=pl.lit(root.relative(path)))
        donors = donors_of(root, path, version, read.table)
        _, repairs = clean_table(read.table.name, frame, hardware, donors)
        parts.append(repairs)
    if not parts:
        return frame_of(PERF_REPAIRS)
    identity = {name: pl.lit(value) for name, value in zip(("system", "backend", "version"), version, strict=True)}
    return pl.concat(parts).with_columns(**identity).select(list(schema_of(PERF_REPAIRS)))


def _hardware(root: PerfRoot, system: str) -> Hardware | None:
    """None where the root holds tables of a system without its hardware file: rooflines are left out then."""
    try:
        return load_hardware(root, system)
    except PerfDataError:
        return None
