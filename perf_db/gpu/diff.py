"""What differs between two states of performance data: files, keys, shapes, units, rows, coverage, faults, points.

A side is a whole root, one version in it, or one file. Files of roots are matched by path, those of versions by family
and table. Points are matched by all categories and axes; of repeated points the first stands for all, as for a reader.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from perf_db.gpu.clean import named
from perf_db.gpu.errors import PerfDataError
from perf_db.gpu.operator_tables import OperatorTable
from perf_db.gpu.quality import PerfVersion, examine_file, files_of_version, perf_versions
from perf_db.gpu.read_table import read_operator_table
from perf_db.gpu.source import OPTION, PerfRoot, open_root

if TYPE_CHECKING:
    import polars as pl

ADDED, REMOVED, CHANGED, SAME = "added", "removed", "changed", "same"
FIGURES = (
    "n_rows", "n_points", "n_slices", "coverage", "n_holes", "n_pairs", "n_falling", "n_halved", "n_spikes",
    "n_duplicates", "widest_duplicate", "n_host_bound", "host_ratio", "min_value", "max_value",
)  # fmt: skip
DESCRIBED = ("key_columns", "axes", "precisions", "unit", "valid", "faults")


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two. `version` or `file` narrow the root down.

    Attributes:
        label: what the person called it.
    """

    label: str
    root: PerfRoot
    version: PerfVersion | None = None
    file: Path | None = None

    def files(self) -> dict[str, Path]:
        """Operator tables by the name they are matched by."""
        if self.file is not None:
            return {self.file.name: self.file}
        if self.version is not None:
            return {f"{p.parts[-4]}/{p.name}": p for p in files_of_version(self.root, self.version)}
        return {self.root.relative(p): p for p in sorted(self.root.data.glob("*/*/*/*/*.parquet"))}

    def version_of(self, path: Path) -> PerfVersion:
        """Whose file it is, by its folders; blank for a loose file."""
        parts = path.parts
        return PerfVersion(parts[-5], parts[-3], parts[-2]) if len(parts) >= 6 else PerfVersion("", "", "")


def side_of(text: str, root: Path | None) -> Side:
    """The side that an argument names: a folder, a parquet file, `extra`, or SYSTEM|BACKEND|VERSION of `root`.

    Raises:
        PerfDataError: it names none of them.
    """
    if text == "extra":
        return Side(text, open_root(None, option=OPTION))
    path = Path(text)
    if path.is_dir():
        return Side(text, open_root(path))
    if path.is_file():
        return Side(text, PerfRoot(path.parent.resolve(), "folder", None), file=path.resolve())
    parts = text.replace("/", "|").split("|")
    if len(parts) == 3:
        held, asked = open_root(root, option=OPTION), PerfVersion(*parts)
        if asked in perf_versions(held):
            return Side(text, held, version=asked)
    raise PerfDataError(
        "no_source",
        f"{text!r} is no folder of performance data, no parquet file, and no SYSTEM|BACKEND|VERSION of the data at "
        "hand; 'extra' is the installed extra, `tracemill perf list --all-versions` shows its versions",
    )


@dataclass(frozen=True)
class Difference:
    """What was found.

    Attributes:
        files: one mapping per operator table that is not the same on both sides; see `diff_files`.
        same: names of the tables that are.
        points: name -> changed points: `state, slice, point, row_before, row_after, before, after`.
        facts: changed hardware files and model configurations: file -> field -> (before, after).
    """

    files: list[dict[str, Any]]
    same: list[str]
    points: dict[str, pl.DataFrame]
    facts: dict[str, dict[str, tuple[Any, Any]]]

    @property
    def is_empty(self) -> bool:
        return not self.files and not self.facts


def diff(before: Side, after: Side) -> Difference:
    """Compare two sides."""
    left, right = before.files(), after.files()
    if before.file is not None and after.file is not None:
        right = dict(zip(left, right.values(), strict=True))
    files, same, points = [], [], {}
    for name in sorted({*left, *right}):
        a, b = left.get(name), right.get(name)
        if a is not None and b is not None and before.root.digest(a) == after.root.digest(b):
            same.append(name)
            continue
        found, changed = diff_files(before, a, after, b)
        files.append({"file": name, **found})
        if changed is not None:
            points[name] = changed
    whole = before.version is None and after.version is None and before.file is None and after.file is None
    return Difference(files, same, points, _facts(before.root, after.root) if whole else {})


def diff_files(before: Side, a: Path | None, after: Side, b: Path | None) -> tuple[dict[str, Any], pl.DataFrame | None]:
    """One table on both sides: (summary, changed points; None when one side cannot be read).

    The summary holds `state`, `table`, and of both sides `digest`, every figure of `FIGURES` and `DESCRIBED`; of points
    how many were `added`, `removed`, `changed`, and of the changed ones the median and the extreme ratios.
    """
    state = ADDED if a is None else REMOVED if b is None else CHANGED
    left = None if a is None else examine_file(before.root, a, before.version_of(a))[0]
    right = None if b is None else examine_file(after.root, b, after.version_of(b))[0]
    either = left or right
    assert either is not None
    summary: dict[str, Any] = {"state": state, "table": either["table_name"]}
    for name in ("digest", *FIGURES, *DESCRIBED):
        summary[name] = [None if left is None else left[name], None if right is None else right[name]]
    rows = [read_operator_table(path) if path is not None else None for path in (a, b)]
    frames = [None if read is None else read.frame for read in rows]
    table = next((read.table for read in rows if read is not None), None)
    if table is None or any(read is not None and read.frame is None for read in rows):
        return summary, None
    changed = changed_points(table, *frames)
    summary["points"] = _counts(changed)
    return summary, changed


def changed_points(table: OperatorTable, before: pl.DataFrame | None, after: pl.DataFrame | None) -> pl.DataFrame:
    """Points that differ in the first measure: `state, slice, point, row_before, row_after, before, after`."""
    import polars as pl

    key = [*table.categories, *table.axis_columns]
    sides = []
    for frame in (before, after):
        if frame is None:
            other = after if before is None else before
            assert other is not None
            frame = other.clear()
        missing = [
            pl.lit(None, pl.String if table.columns[c] == "text" else pl.Int64).alias(c)
            for c in key
            if c not in frame.columns
        ]
        frame = frame.with_columns(missing).unique(key, keep="first", maintain_order=True)
        sides.append(frame.select(*key, "row", pl.col(table.measure.column).alias("_ms")))
    joined = sides[0].join(
        sides[1], on=key, how="full", coalesce=True, nulls_equal=True, suffix="_after", maintain_order="left_right"
    )
    state = (
        pl.when(pl.col("row").is_null())
        .then(pl.lit(ADDED))
        .when(pl.col("row_after").is_null())
        .then(pl.lit(REMOVED))
        .when(pl.col("_ms") != pl.col("_ms_after"))
        .then(pl.lit(CHANGED))
        .otherwise(pl.lit(SAME))
    )
    return (
        joined.with_columns(state=state)
        .filter(pl.col("state") != SAME)
        .select(
            "state",
            slice=named(table.categories, joined),
            point=named(table.axis_columns, joined),
            row_before="row",
            row_after="row_after",
            before="_ms",
            after="_ms_after",
        )
    )


def _counts(changed: pl.DataFrame) -> dict[str, Any]:
    import polars as pl

    n = dict(changed.group_by("state").len().rows())
    ratio = changed.filter(state=CHANGED).select(pl.col("after") / pl.col("before")).to_series()
    ratio = ratio.filter(ratio.is_finite())
    spread = {name: None if ratio.is_empty() else float(getattr(ratio, name)()) for name in ("min", "median", "max")}
    return {**{state: int(n.get(state, 0)) for state in (ADDED, REMOVED, CHANGED)}, "ratio": spread}


def _facts(before: PerfRoot, after: PerfRoot) -> dict[str, dict[str, tuple[Any, Any]]]:
    """Fields of hardware files and model configurations that differ."""
    found = {}
    left, right = (dict(_fact_files(root)) for root in (before, after))
    for name in sorted({*left, *right}):
        a, b = (_flat(side.get(name)) for side in (left, right))
        fields = {key: (a.get(key), b.get(key)) for key in sorted({*a, *b}) if a.get(key) != b.get(key)}
        if fields:
            found[name] = fields
    return found


def _fact_files(root: PerfRoot) -> Iterator[tuple[str, Path]]:
    for path in (*sorted(root.systems.glob("*.yaml")), *sorted(root.model_configs.glob("*.json"))):
        yield root.relative(path), path


def _flat(path: Path | None) -> dict[str, Any]:
    """Values of a YAML or JSON file by their dotted names; a file that is neither has its digest instead."""
    if path is None:
        return {}
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        values = yaml.load(path.read_text(encoding="utf-8"), Loader=loader)
    except (yaml.YAMLError, UnicodeDecodeError):
        return {"": f"unreadable, {path.stat().st_size} bytes"}
    out: dict[str, Any] = {}

    def walk(prefix: str, value: Any) -> None:
        if isinstance(value, Mapping) and value:
            for key, inner in value.items():
                walk(f"{prefix}.{key}" if prefix else str(key), inner)
        else:
            out[prefix] = value

    walk("", values)
    return out
