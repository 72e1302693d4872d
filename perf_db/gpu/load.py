"""Operator tables of one (system, backend, version): which files, which rows, in which order.

A backend version is priced from its own folder first, then from earlier versions of the same backend, newest first
(never from later ones), then from other backends, but only rows whose `kernel_source` the manifest
`perf_data_reuse_manifest.yaml` allows this backend. A key that an earlier source holds is never taken from a later one,
and within one file the first row of a key wins. Collective-library tables lie under the library's own version.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from packaging.version import InvalidVersion, Version

from perf_db.gpu.errors import PerfDataError
from perf_db.gpu.hardware import Hardware, load_hardware
from perf_db.gpu.names import unknown
from perf_db.gpu.schema import TABLES, PerfTable
from perf_db.gpu.source import PerfRoot

if TYPE_CHECKING:
    import polars as pl

BACKENDS = ("vllm", "trtllm", "sglang")
LIBRARIES = ("nccl", "oneccl")  # folders under comm/ that are named by a library, not by a backend


@dataclass(frozen=True, slots=True)
class Source:
    """One file that may answer, and which of its rows may."""

    path: Path
    backend: str
    version: str
    kernels: frozenset[str] | None  # None: all rows


def version_key(text: str) -> Version:
    """Order of versions; what is no version sorts before all that are."""
    try:
        return Version(text)
    except InvalidVersion:
        return Version("0.dev0")


def backends(root: PerfRoot, system: str) -> list[str]:
    """Backends with tables for a system."""
    found = {p.name for p in (root.data / system).glob("*/*") if p.is_dir()}
    return sorted(found - set(LIBRARIES))


def versions(root: PerfRoot, system: str, backend: str) -> list[str]:
    """Versions of a backend with tables for a system, oldest first."""
    return sorted({p.name for p in (root.data / system).glob(f"*/{backend}/*") if p.is_dir()}, key=version_key)


def current_version(root: PerfRoot, system: str, backend: str) -> str:
    """The version `systems/query_versions.yaml` calls current; without that file the newest that has tables.

    Raises:
        PerfDataError: `unknown_backend`: no tables of this backend for this system.
    """
    known = versions(root, system, backend)
    if not known:
        everything = f"`tracemill perf list --system {system}` shows all"
        raise PerfDataError("unknown_backend", unknown("backend", backend, backends(root, system), everything))
    listed = _slots(root)
    entry = listed.get("overrides", {}).get(system, {}).get(backend) or listed.get("defaults", {}).get(backend) or {}
    current = entry.get("current")
    return str(current) if current else known[-1]


def sources(root: PerfRoot, system: str, backend: str, version: str, table: PerfTable) -> list[Source]:
    """The files that may answer for this backend version, best first. Empty when nobody has such a table."""
    family = root.data / system / table.family
    if table.name in LIBRARIES:
        return _library_sources(root, system, table, family)
    limit = version_key(version)
    own = [v for v in _versions_in(family / backend, table.file) if version_key(v) <= limit]
    found = [Source(family / backend / v / table.file, backend, v, None) for v in own]
    for other in sorted(p.name for p in family.glob("*") if p.is_dir()):
        if other == backend or other in LIBRARIES:
            continue
        allowed = _shared_kernels(root).get((table.file, backend), frozenset())
        if allowed:
            found += [
                Source(family / other / v / table.file, other, v, allowed)
                for v in _versions_in(family / other, table.file)
            ]
    return found


def load(
    root: PerfRoot,
    system: str,
    backend: str,
    version: str,
    table: str,
    *,
    clean: bool,
    where: Mapping[str, Any] | None = None,
) -> pl.DataFrame:
    """Rows of a table that this backend version may use; of each key only those of the best source.

    Args:
        root, system, backend, version: whose tables.
        table: a name of `perf_db.gpu.schema.TABLES`.
        clean: hand the rows to `perf_db.gpu.clean.clean_table`. Otherwise the first row of a key wins and nothing else
            is changed.
        where: values, or sequences of values, that columns must have; a slice loads in a fraction of the whole.

    Returns:
        The table's key columns and axes, `kernel_source`, `latency` (ms), `file` (relative to the root), `row` (0-based in that file).
        Empty when no row qualifies.

    Raises:
        PerfDataError: `bad_file`.
    """
    import polars as pl

    declared = TABLES[table]
    picked = _rows(root, sources(root, system, backend, version, declared), declared, where)
    keys = [*declared.key, *declared.axes]
    if picked is None:
        return pl.DataFrame(schema=list(dict.fromkeys([*keys, "kernel_source", "latency", "file", "row"])))
    if not clean:
        return picked.unique(keys, keep="first", maintain_order=True).drop("rank")
    best = picked.filter(pl.col("rank") == pl.col("rank").min().over(keys)).drop("rank")
    from perf_db.gpu.clean import clean_table

    donors = {}
    for other in BACKENDS:
        if other != backend and other in backends(root, system):
            at = current_version(root, system, other)
            own = [s for s in sources(root, system, other, at, declared) if s.backend == other]
            rows = _rows(root, own, declared, {k: v for k, v in (where or {}).items() if k != "kernel_source"})
            if rows is not None and rows.height:
                donors[other] = rows.unique(keys, keep="first", maintain_order=True).drop("rank")
    cleaned, _repairs = clean_table(table, best, load_hardware(root, system), donors)
    return cleaned


def where_it_would_be(root: PerfRoot, system: str, backend: str, version: str, table: str) -> str:
    """The file that would hold a table of this backend version, relative to the root."""
    declared = TABLES[table]
    owner = Path(table) / "<library version>" if table in LIBRARIES else Path(backend) / version
    return root.relative(root.data / system / declared.family / owner / declared.file)


def files_of(frame: pl.DataFrame) -> list[str]:
    """Files that a loaded frame's rows come from."""
    return frame["file"].unique().sort().to_list()


def _rows(
    root: PerfRoot, origins: Sequence[Source], table: PerfTable, where: Mapping[str, Any] | None
) -> pl.DataFrame | None:
    import polars as pl

    parts = []
    for rank, origin in enumerate(origins):
        frame = read_table(root, origin.path, table)
        tests = [
            pl.col(column).is_in(list(value)) if isinstance(value, (list, tuple, set)) else pl.col(column) == value
            for column, value in (where or {}).items()
        ]
        if origin.kernels is not None:
            tests.append(pl.col("kernel_source").is_in(list(origin.kernels)))
        if tests:
            frame = frame.filter(*tests)
        if frame.height:
            keep = dict.fromkeys([*table.key, *table.axes, "kernel_source", "latency", "row"])
            parts.append(
                frame.select(list(keep)).with_columns(
                    pl.lit(root.relative(origin.path)).alias("file"), pl.lit(rank, pl.Int32).alias("rank")
                )
            )
    return pl.concat(parts) if parts else None


def read_table(root: PerfRoot, path: Path, table: PerfTable) -> pl.DataFrame:
    """One file, checked: key columns as text or int64, axes int64, `latency` float64 ms, `row`, `kernel_source`.

    The result is kept per process, keyed by the file's path, size and time of change; a file that fails a check is not.

    Raises:
        PerfDataError: `bad_file`, naming the file, its row count and every column at fault.
    """
    stat = path.stat()
    return _read(path, root.relative(path), table, stat.st_size, stat.st_mtime_ns)


@functools.lru_cache(maxsize=64)
def _read(path: Path, name: str, table: PerfTable, size: int, changed: int) -> pl.DataFrame:
    import polars as pl
    import pyarrow.parquet as pq

    try:
        schema = pq.read_schema(path)
        rows = pq.read_metadata(path).num_rows
    except Exception as error:  # pyarrow raises its own kinds and plain OSError for a file that is no parquet
        raise PerfDataError("bad_file", f"{name}: not a parquet file ({error}); 0 rows taken") from error
    defaults = dict(table.optional)
    wanted = list(dict.fromkeys([*table.key, *table.axes, "kernel_source", table.latency]))
    faults = [
        f"column {column!r} is missing" for column in wanted if column not in schema.names and column not in defaults
    ]
    for column in set(wanted) & set(schema.names):
        if problem := _wrong_type(schema.field(column), number=column in (*table.axes, table.latency)):
            faults.append(problem)
    if table.latency in schema.names and (unit := _unit(schema.field(table.latency))):
        expected = {1.0: "ms", 1e-3: "us"}[table.to_ms]
        if unit != expected:
            faults.append(f"column {table.latency!r} says its unit is {unit!r}, expected {expected!r}")
    if faults:
        raise PerfDataError("bad_file", _fault(name, rows, table, faults, schema.names))
    frame = pl.from_arrow(pq.read_table(path, columns=[c for c in wanted if c in schema.names]))
    assert isinstance(frame, pl.DataFrame)
    if len(set(wanted)) != len(frame.columns):
        frame = frame.with_columns(pl.lit(defaults[c]).alias(c) for c in wanted if c not in frame.columns)
    for column in wanted:
        if nulls := frame[column].null_count():
            faults.append(f"column {column!r} has {nulls} nulls")
    for column in table.axes:
        if not frame[column].dtype.is_integer() and (frame[column] != frame[column].floor()).any():
            faults.append(f"column {column!r} holds fractions")
        elif below := int((frame[column] < 0).sum()):
            faults.append(f"column {column!r} is negative in {below} rows")
    latency = frame[table.latency].cast(pl.Float64)
    if bad := int((~(latency.is_finite() & (latency > 0))).sum()):
        faults.append(f"column {table.latency!r} is NaN, infinite or not positive in {bad} rows")
    if faults:
        raise PerfDataError("bad_file", _fault(name, rows, table, faults, schema.names))
    integers = [c for c in wanted if frame[c].dtype.is_integer() or c in table.axes]
    return frame.with_columns(
        *(pl.col(c).cast(pl.Int64) for c in integers if c != table.latency),
        *(pl.col(c).cast(pl.String) for c in wanted if c not in integers and c != table.latency),
        (latency * table.to_ms).alias("latency"),
    ).with_row_index("row").with_columns(pl.col("row").cast(pl.Int64))


def _wrong_type(field: Any, *, number: bool) -> str | None:
    import pyarrow.types as pt

    kind = field.type
    if number:
        fits = pt.is_integer(kind) or pt.is_floating(kind)
    else:
        fits = pt.is_integer(kind) or pt.is_string(kind) or pt.is_large_string(kind) or pt.is_dictionary(kind)
    return None if fits else f"column {field.name!r} is {kind}, expected {'a number' if number else 'text or integers'}"


def _unit(field: Any) -> str | None:
    unit = (field.metadata or {}).get(b"unit")
    return unit.decode() if unit else None


def _fault(name: str, rows: int, table: PerfTable, faults: list[str], columns: list[str]) -> str:
    return (
        f"{name} ({rows:,} rows) is no {table.name} table: {'; '.join(faults)}; none of its rows is used. "
        f"Columns found: {', '.join(columns)}"
    )


def _versions_in(folder: Path, file: str) -> list[str]:
    """Versions whose folder holds `file`, newest first."""
    return sorted((p.parent.name for p in folder.glob(f"*/{file}")), key=version_key, reverse=True)


def _library_sources(root: PerfRoot, system: str, table: PerfTable, family: Path) -> list[Source]:
    limit = version_key(load_hardware(root, system).nccl_version)
    found = _versions_in(family / table.name, table.file)
    # The version that the hardware file names first, then the earlier ones, then the later ones.
    ordered = [v for v in found if version_key(v) <= limit] + [v for v in reversed(found) if version_key(v) > limit]
    return [Source(family / table.name / v / table.file, table.name, v, None) for v in ordered]


def _slots(root: PerfRoot) -> dict[str, Any]:
    return _yaml(root.systems / "query_versions.yaml")


@functools.lru_cache(maxsize=8)
def _manifest(path: Path, size: int, changed: int) -> dict[tuple[str, str], frozenset[str]]:
    allowed: dict[tuple[str, str], set[str]] = {}
    for group in _yaml(path).get("groups", []):
        if group.get("tier") == "absence_load_bearing":
            continue  # these rows are meant to be absent elsewhere
        for backend in group.get("frameworks", []):
            allowed.setdefault((group["op_file"], backend), set()).add(str(group["kernel_source"]))
    return {key: frozenset(kernels) for key, kernels in allowed.items()}


def _shared_kernels(root: PerfRoot) -> dict[tuple[str, str], frozenset[str]]:
    path = root.systems / "perf_data_reuse_manifest.yaml"
    if not path.is_file():
        return {}
    stat = path.stat()
    return _manifest(path, stat.st_size, stat.st_mtime_ns)


def _yaml(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        values = yaml.load(path.read_text(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError as error:
        raise PerfDataError("bad_file", f"{path.name}: not YAML: {error}") from error
    return values if isinstance(values, dict) else {}
