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
from perf_db.gpu.hardware import load_hardware
from perf_db.gpu.names import unknown
from perf_db.gpu.operator_tables import OPERATOR_TABLES, OperatorTable
from perf_db.gpu.read_table import require
from perf_db.gpu.source import PerfRoot, stamp_of

if TYPE_CHECKING:
    import polars as pl

BACKENDS = ("vllm", "trtllm", "sglang")
LIBRARIES = ("nccl", "oneccl")  # folders under comm/ that are named by a library, not by a backend
# Categories that no operator asks for: of rows that differ in nothing else the first wins.
UNREAD = frozenset({"model", "model_name", "tp_size", "beam_width", "allreduce_dtype", "backend", "implementation"})
# Tables whose grid is read whatever kernel measured a point: a backend changes kernels with the shape.
ANY_KERNEL = frozenset(
    f"{kind}_{phase}_module" for kind in ("dsa", "msa", "mla") for phase in ("context", "generation")
) | {"context_mla", "generation_mla", "mla_bmm"}


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


def sources(root: PerfRoot, system: str, backend: str, version: str, table: OperatorTable) -> list[Source]:
    """The files that may answer for this backend version, best first. Empty when nobody has such a table."""
    folder = root.data / system
    if table.name in LIBRARIES:
        return _library_sources(root, folder, table)
    limit = version_key(version)
    found = [
        Source(path, backend, path.parent.name, None)
        for path in _files(folder, backend, table)
        if version_key(path.parent.name) <= limit
    ]
    allowed = _shared_kernels(root).get((table.file_name, backend), frozenset())
    for other in backends(root, system) if allowed else ():
        if other != backend:
            found += [Source(path, other, path.parent.name, allowed) for path in _files(folder, other, table)]
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
        table: a name of `perf_db.gpu.operator_tables.OPERATOR_TABLES`.
        clean: hand the rows to `perf_db.gpu.clean.clean_table`. Otherwise the first row of a key wins and nothing else
            is changed.
        where: values, or sequences of values, that columns must have; a slice loads in a fraction of the whole.

    Returns:
        The table's categories (but for `UNREAD`), its axes, its measure, `file` (relative to the root), `row` (0-based
        in that file). Empty when no row qualifies.

    Raises:
        PerfDataError: `bad_file`.
    """
    declared = OPERATOR_TABLES[table]
    asked = tuple(
        (column, tuple(value) if isinstance(value, (list, tuple, set)) else value)
        for column, value in sorted((where or {}).items())
    )
    found = tuple(sources(root, system, backend, version, declared))
    lenders = tuple(_lenders(root, system, backend, declared)) if clean and declared.compared else ()
    files = {origin.path for origin in found} | {origin.path for _, lent in lenders for origin in lent}
    stamps = tuple((path, stamp_of(path)) for path in sorted(files))
    return _slice(_Root(root), system, table, asked, found, lenders if clean else None, stamps)


class _Root:
    """A root that compares by its folder, to key what was read from it."""

    def __init__(self, root: PerfRoot) -> None:
        self.root = root

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Root) and self.root.path == other.root.path

    def __hash__(self) -> int:
        return hash(self.root.path)


Lenders = tuple[tuple[str, tuple[Source, ...]], ...]


@functools.lru_cache(maxsize=512)
def _slice(
    key: _Root,
    system: str,
    table: str,
    asked: tuple[tuple[str, Any], ...],
    found: tuple[Source, ...],
    lenders: Lenders | None,
    stamps: tuple[tuple[Path, tuple[int, ...]], ...],
) -> pl.DataFrame:
    """What `load` returns, kept per process while none of the files changes. `lenders` is None without cleaning."""
    import polars as pl

    root, declared, where = key.root, OPERATOR_TABLES[table], dict(asked)
    keys = _keys(declared)
    picked = _rows(root, found, declared, where)
    if picked is None:
        return pl.DataFrame(schema=[*keys, declared.measure.column, "file", "row"])
    if lenders is None:
        return picked.unique(keys, keep="first", maintain_order=True).drop("rank")
    from perf_db.gpu.clean import clean_table

    best = picked.filter(pl.col("rank") == pl.col("rank").min().over(keys)).drop("rank")
    anywhere = {column: value for column, value in where.items() if column != "kernel_source"}
    donors = {}
    for other, lent in lenders:
        rows = _rows(root, lent, declared, anywhere)
        if rows is not None:
            donors[other] = rows.unique(keys, keep="first", maintain_order=True).drop("rank")
    cleaned, _repairs = clean_table(table, best, load_hardware(root, system), donors)
    return cleaned


def _keys(table: OperatorTable) -> list[str]:
    unread = UNREAD | {"kernel_source"} if table.name in ANY_KERNEL else UNREAD
    return [c for c in (*table.categories, *table.axis_columns) if c not in unread]


def _lenders(root: PerfRoot, system: str, backend: str, table: OperatorTable) -> list[tuple[str, tuple[Source, ...]]]:
    """Other backends' own files of a table, each in its current version."""
    found = []
    for other in backends(root, system):
        if other != backend:
            version = current_version(root, system, other)
            own = (s for s in sources(root, system, other, version, table) if s.backend == other)
            found.append((other, tuple(own)))
    return found


def where_it_would_be(root: PerfRoot, system: str, backend: str, version: str, table: str) -> str:
    """The file that would hold a table of this backend version, relative to the root."""
    file = OPERATOR_TABLES[table].file_name
    family = next((p.parts[-4] for p in sorted(root.data.glob(f"*/*/*/*/{file}"))), "<family>")
    owner = Path(table) / "<library version>" if table in LIBRARIES else Path(backend) / version
    return root.relative(root.data / system / family / owner / file)


def _rows(
    root: PerfRoot, origins: Sequence[Source], table: OperatorTable, where: Mapping[str, Any] | None
) -> pl.DataFrame | None:
    """Qualifying rows of all sources, best source first, with `rank`; None when there is none."""
    import polars as pl

    parts = []
    for rank, origin in enumerate(origins):
        frame = read_table(root, origin.path)
        tests = [
            pl.col(column).is_in(list(value)) if isinstance(value, (list, tuple, set)) else pl.col(column) == value
            for column, value in (where or {}).items()
        ]
        if origin.kernels is not None:
            tests.append(pl.col("kernel_source").is_in(list(origin.kernels)))
        if tests:
            frame = frame.filter(*tests)
        if frame.height:
            place = (pl.lit(root.relative(origin.path)).alias("file"), pl.lit(rank, pl.Int32).alias("rank"))
            parts.append(frame.select(*_keys(table), table.measure.column, "row", *place))
    return pl.concat(parts) if parts else None


def read_table(root: PerfRoot, path: Path) -> pl.DataFrame:
    """One file, checked against its declaration, with `row`; optional categories it lacks are 0.

    The result is kept per process, keyed by the file's path and state; a file that fails a check is not.

    Raises:
        PerfDataError: `bad_file`, naming the file, its row count and every column at fault.
    """
    return _read(path, root.relative(path), stamp_of(path))


@functools.lru_cache(maxsize=64)
def _read(path: Path, name: str, stamp: tuple[int, ...]) -> pl.DataFrame:
    import polars as pl

    read = require(path, name)
    assert read.frame is not None and read.table is not None
    absent = [c for c in _keys(read.table) if c not in read.frame.columns]
    return read.frame.with_columns(pl.lit(0, pl.Int64).alias(c) for c in absent) if absent else read.frame


def _files(folder: Path, owner: str, table: OperatorTable) -> list[Path]:
    """Files of a table that a backend or library owns, newest version first."""
    found = folder.glob(f"*/{owner}/*/{table.file_name}")
    return sorted(found, key=lambda path: version_key(path.parent.name), reverse=True)


def _library_sources(root: PerfRoot, folder: Path, table: OperatorTable) -> list[Source]:
    limit = version_key(load_hardware(root, folder.name).nccl_version)
    found = _files(folder, table.name, table)
    # The version that the hardware file names first, then the earlier ones, then the later ones.
    ordered = [p for p in found if version_key(p.parent.name) <= limit]
    ordered += [p for p in reversed(found) if version_key(p.parent.name) > limit]
    return [Source(path, table.name, path.parent.name, None) for path in ordered]


def _slots(root: PerfRoot) -> dict[str, Any]:
    return _yaml(root.systems / "query_versions.yaml")


@functools.lru_cache(maxsize=8)
def _manifest(path: Path, stamp: tuple[int, ...]) -> dict[tuple[str, str], frozenset[str]]:
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
    return _manifest(path, stamp_of(path))


def _yaml(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        values = yaml.load(path.read_text(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError as error:
        raise PerfDataError("bad_file", f"{path.name}: not YAML: {error}") from error
    return values if isinstance(values, dict) else {}
