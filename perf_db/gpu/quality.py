"""What a performance root holds, file by file, and what is wrong with it: tables `perf_tables` and `perf_anomalies`.

What counts as a fault is defined in `perf_db.gpu.judge`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from perf_db.gpu.errors import PerfDataError, Reason
from perf_db.gpu.faults import ABOUT
from perf_db.gpu.frames import frame_of
from perf_db.gpu.judge import judge
from perf_db.gpu.names import unknown
from perf_db.gpu.operator_tables import FILE_SUFFIX, OPERATOR_TABLES, OperatorTable
from perf_db.gpu.read_table import ReadTable, read_operator_table
from perf_db.gpu.source import PerfRoot
from perf_db.tables.perf_anomalies import PERF_ANOMALIES

if TYPE_CHECKING:
    import polars as pl

WHOLE_FILE = -1


class PerfVersion(NamedTuple):
    """What was measured together: the partition of performance data."""

    system: str
    backend: str
    version: str

    @property
    def key(self) -> str:
        return "|".join(self)


@dataclass(frozen=True)
class Report:
    """Examined files of a version: rows of `perf_tables`, and of `perf_anomalies` as a frame."""

    version: PerfVersion
    tables: list[dict[str, Any]]
    anomalies: pl.DataFrame


def perf_versions(root: PerfRoot) -> list[PerfVersion]:
    """Every (system, backend, version) with at least one table, in order of names."""
    folders = {path.parent for path in root.data.glob("*/*/*/*/*.parquet")}
    found = {PerfVersion(p.parts[-4], p.parts[-2], p.parts[-1]) for p in (f.relative_to(root.data) for f in folders)}
    return sorted(found)


def files_of_version(root: PerfRoot, version: PerfVersion) -> list[Path]:
    """Parquet files of a version, in order of paths."""
    return sorted((root.data / version.system).glob(f"*/{version.backend}/{version.version}/*.parquet"))


def examine(root: PerfRoot, version: PerfVersion, *, tables: Iterable[str] | None = None) -> Report:
    """Read and judge every file of a version, or those of the named tables. A bad file is reported, not raised."""
    import polars as pl

    wanted = None if tables is None else set(tables)
    rows, anomalies = [], []
    for path in files_of_version(root, version):
        name = path.stem.removesuffix(FILE_SUFFIX)
        if wanted is None or name in wanted:
            row, found = examine_file(root, path, version)
            rows.append(row)
            anomalies += found
    return Report(version, rows, pl.concat(anomalies) if anomalies else frame_of(PERF_ANOMALIES))


def examine_file(root: PerfRoot, path: Path, version: PerfVersion) -> tuple[dict[str, Any], list[pl.DataFrame]]:
    """(row of `perf_tables`, parts of `perf_anomalies`) of one file."""
    import polars as pl

    read = read_operator_table(path)
    about = dict(zip(("system", "backend", "version"), version, strict=True)) | {
        "family": path.parts[-4],
        "table_name": path.stem.removesuffix(FILE_SUFFIX),
        "file": root.relative(path),
        "digest": root.digest(path),
        "n_bytes": path.stat().st_size,
    }
    if read.frame is None or read.table is None:
        return about | _unread(read), [_invalid(about, read)]
    donors = donors_of(root, path, version, read.table)
    figures, found = judge(read.table, read.frame, donors)
    parts = [part.with_columns(pl.lit(about[c]).alias(c) for c in ABOUT) for part in found]
    return about | figures | {"n_rows": read.n_rows, "valid": True, "faults": None}, parts


def donors_of(root: PerfRoot, path: Path, version: PerfVersion, table: OperatorTable) -> dict[str, pl.DataFrame]:
    """Rows of the same table and system under the other backends: of each its current version, else the newest.

    With `file` and `row`; empty for tables whose work differs between backends.
    """
    import polars as pl

    from perf_db.gpu.load import BACKENDS, current_version, versions

    if not table.compared or version.backend not in BACKENDS:
        return {}
    found = {}
    for other in BACKENDS:
        known = versions(root, version.system, other) if other != version.backend else []
        if not known:
            continue
        first = current_version(root, version.system, other)
        for candidate in (first, *reversed(known)):
            file = path.parents[2] / other / candidate / path.name
            if file.is_file() and (read := read_operator_table(file)).frame is not None:
                found[other] = read.frame.with_columns(file=pl.lit(root.relative(file)))
                break
    return found


def _unread(read: ReadTable) -> dict[str, Any]:
    counts = (
        "n_slices", "n_points", "n_holes", "n_pairs", "n_falling", "n_halved", "n_spikes", "n_duplicates",
        "n_host_bound",
    )  # fmt: skip
    return {
        "n_rows": read.n_rows,
        "valid": False,
        "faults": "; ".join(read.faults),
        **dict.fromkeys(("key_columns", "axes", "precisions", "unit"), ""),
        **dict.fromkeys(counts, 0),
        **dict.fromkeys(("min_value", "max_value", "coverage", "widest_duplicate", "host_ratio")),
    }


def _invalid(about: Mapping[str, Any], read: ReadTable) -> pl.DataFrame:
    row = {c: about[c] for c in ABOUT} | {
        "row_no": WHOLE_FILE,
        "kind": "invalid",
        "slice": "",
        "point": "; ".join(read.faults),
        "measure": "",
        "unit": "",
        **dict.fromkeys(("value", "before", "after", "ratio", "suggested")),
        "repair": "none: nothing is taken from the file",
    }
    return frame_of(PERF_ANOMALIES, [row])


def chosen_versions(
    root: PerfRoot,
    *,
    system: str | None = None,
    backend: str | None = None,
    version: str | None = None,
    tables: Iterable[str] = (),
) -> list[PerfVersion]:
    """The versions that were asked for, all without a wish.

    Raises:
        PerfDataError: a name that no version of the root has; the nearest ones are named.
    """
    left = perf_versions(root)
    for field, wish in (("system", system), ("backend", backend), ("version", version)):
        if wish is None:
            continue
        known = sorted({getattr(each, field) for each in left})
        left = [each for each in left if getattr(each, field) == wish]
        if not left:
            reason: Reason = f"unknown_{field}"  # type: ignore[assignment]
            raise PerfDataError(reason, unknown(field, wish, known, f"all: {', '.join(known)}"))
    for table in tables:
        if table not in OPERATOR_TABLES:
            all_of_them = "docs/performance-data.md lists all"
            raise PerfDataError("missing_table", unknown("table", table, OPERATOR_TABLES, all_of_them))
    return left
