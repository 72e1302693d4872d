"""Repairs of measured tables: what a run prices with unless cleaning is switched off.

Four repairs, in this order (thresholds: the performance model's section on data faults):

- `duplicate`: rows that repeat a key count once, with the median where they lie within 1.5x, else with the smallest;
- `host_bound`: a slice whose small points cost more than three times what other backends measure for the same work was
  timed launching, not computing: its points at that level take the other backends' kernel time, and what was above it
  is kept as `launch_ms`;
- `spike`: a point of the main axis above 1.5x both neighbours takes the value on the line between them, both
  logarithms;
- `non_monotone`: isotonic regression of the logarithm along every axis that can only cost more, never below the
  roofline.

Host-bound slices come before the other two, because borrowed values have spikes and steps of their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from perf_db.gpu.curves import Curves, curves_along, grid_codes
from perf_db.gpu.frames import frame_of
from perf_db.gpu.operator_tables import OPERATOR_TABLES, Measure, OperatorTable
from perf_db.gpu.rooflines import floor_ms
from perf_db.tables.perf_repairs import PERF_REPAIRS
from perf_db.tables.perf_tables import PERF_VERSION

if TYPE_CHECKING:
    import polars as pl

    from perf_db.gpu.hardware import Hardware

DUPLICATE, HOST_BOUND, SPIKE, NON_MONOTONE = "duplicate", "host_bound", "spike", "non_monotone"
REPAIRS = (DUPLICATE, HOST_BOUND, SPIKE, NON_MONOTONE)

WIDE_SPREAD = 1.5  # duplicates further apart than this are not noise around one value
SPIKE_FACTOR = 1.5
HOST_FACTOR = 3.0
HOST_TOKENS = 64  # up to here a GEMM is too short to hide its launch
# A host-bound slice is flat: what lies above one and a half times its level is kernel time.
LEVEL_FACTOR = 1.5
ROUNDS, SETTLED = 64, 1e-9  # of alternating regressions; a step of the logarithm that counts as none
_VERSION = tuple(c.name for c in PERF_VERSION)
ABOUT_TABLE = -1  # `row_no` of a note that is about no row


def clean_table(
    table: str,
    frame: pl.DataFrame,
    hardware: Hardware | None,
    donors: Mapping[str, pl.DataFrame] | None = None,
    *,
    steps: Sequence[str] = REPAIRS,
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Repair one table.

    Args:
        table: name of the table, `gemm`.
        frame: its rows in the order in which they win: own version first, duplicates still there. `file`, `row` and
            those declared columns that tell its rows apart for the consumer: all axes, some categories, the latency.
        hardware: of the system, for rooflines; None leaves them out.
        donors: backend -> rows of the same table and system that other backends measured.
        steps: which repairs.

    Returns:
        (rows, repairs). rows: one per key in the order given, same columns and `launch_ms` (ms that only passes outside
        a captured graph pay). repairs: columns of table `perf_repairs` but for the version's identity.
    """
    import polars as pl

    declared = OPERATOR_TABLES[table]
    unknown = set(steps) - set(REPAIRS)
    if unknown:
        raise ValueError(f"no such repair: {', '.join(sorted(unknown))}; there are {', '.join(REPAIRS)}")
    repairs: list[pl.DataFrame] = []
    frame = _one_source(declared, frame)
    measures = [m for m in declared.measures if m.column in frame.columns]
    for measure in measures:
        if DUPLICATE in steps:
            merged = _merge_duplicates(declared, frame, measure)
            repairs.append(_listed(declared, merged, measure, DUPLICATE))
            frame = merged.drop("_before", "_basis")
    frame = frame.unique(point_key(declared, frame), keep="first", maintain_order=True)
    frame = frame.with_columns(launch_ms=pl.lit(0.0))
    if HOST_BOUND in steps and declared.compared and not frame.is_empty():
        frame, listed = _borrow(declared, frame, donors)
        repairs.append(listed)
    along = growing_curves(declared, frame)
    for measure in measures:
        if SPIKE in steps and declared.main.grows:
            frame, listed = _flatten(declared, frame, measure, along[declared.main.name])
            repairs.append(listed)
        if NON_MONOTONE in steps and along:
            frame, listed = _straighten(declared, frame, measure, list(along.values()), hardware)
            repairs.append(listed)
    kept = [each for each in repairs if not each.is_empty()]
    return frame, pl.concat(kept) if kept else _repairs()


def growing_curves(table: OperatorTable, frame: pl.DataFrame) -> dict[str, Curves]:
    """Axis -> the curves along it, for every axis on which more can only cost more."""
    base = grid_codes(frame, _present([*table.slice_key, *_fixed_axes(table)], frame))
    return {axis.name: curves_along(frame, base, table, axis) for axis in table.axes if axis.grows}


def point_key(table: OperatorTable, frame: pl.DataFrame) -> list[str]:
    """Columns that name one point of a consumer's grid."""
    return _present((*table.slice_key, *table.axis_columns), frame)


def _present(columns: Sequence[str], frame: pl.DataFrame) -> list[str]:
    return [c for c in columns if c in frame.columns]


def _fixed_axes(table: OperatorTable) -> list[str]:
    return [column for axis in table.axes if not axis.grows for column in axis.columns]


def _one_source(table: OperatorTable, frame: pl.DataFrame) -> pl.DataFrame:
    """Of every point only the rows of the file and kernel that come first: others measured something else."""
    import polars as pl

    key = point_key(table, frame)
    source = ["file", *_present(table.splice, frame)]
    if frame.n_unique(key) == frame.height:
        return frame
    first = [pl.col(c).eq_missing(pl.col(c).first().over(key)) for c in source]
    return frame.filter(pl.all_horizontal(first))


def _merge_duplicates(table: OperatorTable, frame: pl.DataFrame, measure: Measure) -> pl.DataFrame:
    """Give every row of a repeated key the key's value; `_before` is what a reader of the first row gets."""
    import polars as pl

    key, value = point_key(table, frame), pl.col(measure.column)
    n = pl.len().over(key)
    if frame.n_unique(key) == frame.height:
        return frame.with_columns(_before=value, _basis=pl.lit(None, pl.String))
    low, high = value.min().over(key), value.max().over(key)
    merged = pl.when(high < WIDE_SPREAD * low).then(value.median().over(key)).otherwise(low)
    rows = pl.concat_str(pl.lit("rows "), pl.col("row").cast(pl.String).implode().list.join(", ").over(key))
    return frame.with_columns(
        pl.when(n > 1).then(merged).otherwise(value).alias(measure.column),
        _before=value,
        _basis=pl.when((n > 1) & (pl.col("row") == pl.col("row").first().over(key))).then(rows),
    )


def _borrow(
    table: OperatorTable, frame: pl.DataFrame, donors: Mapping[str, pl.DataFrame] | None
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Kernel times of other backends for the flat part of host-bound slices."""
    import polars as pl

    column, main = table.measure.column, table.main.columns[0]
    key = [*table.compared, *table.axis_columns]
    site = [c for c in key if c != main]
    lent = _lent(table, donors, key)
    if lent is None:
        note = f"host-bound slices not looked for: no other backend's {table.file_name} is at hand"
        return frame, _note(table, frame, HOST_BOUND, note)
    frame = frame.join(lent, on=key, how="left", maintain_order="left")
    value, theirs, small = pl.col(column), pl.col("_lent"), pl.col(main) <= HOST_TOKENS
    ratio = (value / theirs).filter(small).median().over(site)
    level = value.filter(small).median().over(site)
    bound = (ratio > HOST_FACTOR) & (value > theirs) & (value <= LEVEL_FACTOR * level)
    frame = frame.with_columns(_bound=bound.fill_null(False), _before=value)
    frame = frame.with_columns(
        pl.when("_bound").then(theirs).otherwise(value).alias(column),
        pl.when("_bound").then(value - theirs).otherwise("launch_ms").alias("launch_ms"),
        _basis=pl.when("_bound").then("_lenders"),
    )
    listed = _listed(table, frame, table.measure, HOST_BOUND)
    return frame.drop("_lent", "_lenders", "_bound", "_before", "_basis"), listed


def _lent(table: OperatorTable, donors: Mapping[str, pl.DataFrame] | None, key: list[str]) -> pl.DataFrame | None:
    """Median over the other backends at every key, with the rows it comes from; None without any."""
    import polars as pl

    parts = [
        rows.unique(key, keep="first", maintain_order=True).select(
            *key,
            pl.col(table.measure.column).alias("_lent"),
            pl.format("{}:{}", "file", "row").alias("_lenders"),
        )
        for _, rows in sorted((donors or {}).items())
        if not rows.is_empty()
    ]
    if not parts:
        return None
    return (
        pl.concat(parts)
        .group_by(key, maintain_order=True)
        .agg(pl.col("_lent").median(), pl.col("_lenders").str.join(", "))
    )


def _flatten(
    table: OperatorTable, frame: pl.DataFrame, measure: Measure, curves: Curves
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Isolated spikes take the value on the line between their neighbours."""
    import polars as pl

    at, left, right = find_spikes(_values(frame, measure), curves)
    y = _values(frame, measure).copy()
    # A position of 0 (no prefix, no tokens) has no logarithm; log2(1 + x) keeps the order of all.
    x = np.log2(1.0 + curves.position)
    if len(at):
        share = (x[at] - x[left]) / (x[right] - x[left])
        y[at] = np.exp((1 - share) * np.log(y[left]) + share * np.log(y[right]))
    basis: NDArray[np.object_] = np.full(frame.height, None, dtype=object)
    rows = frame["row"].to_numpy()
    basis[at] = [f"rows {a}, {b}" for a, b in zip(rows[left].tolist(), rows[right].tolist())]
    frame = _replace(frame, measure, y, pl.Series("_basis", basis.tolist(), pl.String))
    listed = _listed(table, frame, measure, SPIKE)
    return frame.drop("_before", "_basis"), listed


def find_spikes(
    ms: NDArray[np.float64], curves: Curves
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """(row, row before, row after) of every point above 1.5x both neighbours; the neighbours are above 0."""
    at, left, right = curves.inner()
    found = (ms[at] > SPIKE_FACTOR * ms[left]) & (ms[at] > SPIKE_FACTOR * ms[right]) & (ms[left] > 0) & (ms[right] > 0)
    return at[found], left[found], right[found]


def _straighten(
    table: OperatorTable,
    frame: pl.DataFrame,
    measure: Measure,
    along: Sequence[Curves],
    hardware: Hardware | None,
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Isotonic regression along every growing axis in turn, until no curve falls."""
    import polars as pl

    raw = _values(frame, measure)
    floor = floor_ms(table, frame, hardware)
    ms = monotone(raw, along, None if floor is None else np.minimum(raw, floor))
    first, last = along[0].plateaus(ms)
    ends = frame.select(pl.format(f"{table.main.name} {{}}..{{}}", pl.Series(first), pl.Series(last))).to_series()
    frame = _replace(frame, measure, ms, ends)
    listed = _listed(table, frame, measure, NON_MONOTONE)
    return frame.drop("_before", "_basis"), listed


def monotone(
    ms: NDArray[np.float64], along: Sequence[Curves], floor: NDArray[np.float64] | None = None
) -> NDArray[np.float64]:
    """The values made non-decreasing along all curves: least squares in the logarithm per curve, axes in turn.

    Args:
        ms: shape (n,), positive (zeros, where a table allows them, count as a picosecond).
        along: one per axis, over the same rows.
        floor: shape (n,); a result below it is raised to it.
    """
    from scipy.optimize import isotonic_regression

    log = np.log(np.maximum(ms, 1e-9))
    fitted = log.copy()
    for _ in range(ROUNDS):
        settled = True
        for curves in along:
            y = fitted[curves.order]
            for start, stop in curves.falling(y, SETTLED):
                y[start:stop] = isotonic_regression(y[start:stop]).x
                settled = False
            fitted[curves.order] = y
        if settled:
            break
    # What no regression touched stays to the last bit.
    out = np.where(fitted == log, ms, np.exp(fitted))
    if floor is not None:
        out = np.maximum(out, floor)
    return _envelope(out, along)


def _envelope(ms: NDArray[np.float64], along: Sequence[Curves]) -> NDArray[np.float64]:
    """Running maxima until nothing falls: what rounding, staircases and the floor have left of steps down."""
    out = ms.copy()
    while True:
        settled = True
        for curves in along:
            y = out[curves.order]
            for start, stop in curves.falling(y, 0.0):
                y[start:stop] = np.maximum.accumulate(y[start:stop])
                settled = False
            out[curves.order] = y
        if settled:
            return out


def _values(frame: pl.DataFrame, measure: Measure) -> NDArray[np.float64]:
    return frame[measure.column].to_numpy().astype(np.float64)


def _replace(frame: pl.DataFrame, measure: Measure, ms: NDArray[np.float64], basis: pl.Series) -> pl.DataFrame:
    import polars as pl

    return frame.with_columns(_before=pl.col(measure.column), _basis=basis).with_columns(pl.Series(measure.column, ms))


def _listed(table: OperatorTable, frame: pl.DataFrame, measure: Measure, kind: str) -> pl.DataFrame:
    """Rows of `perf_repairs` for what a step has changed: `_before` against the measure's column now."""
    import polars as pl

    launch = pl.col("launch_ms") if kind == HOST_BOUND else pl.lit(None, pl.Float64)
    changed = pl.col("_basis").is_not_null() if kind == DUPLICATE else pl.col("_before") != pl.col(measure.column)
    return frame.filter(changed).select(
        table_name=pl.lit(table.name),
        file=pl.col("file").cast(pl.String),
        row_no=pl.col("row").cast(pl.Int64),
        kind=pl.lit(kind),
        measure=pl.lit(measure.column),
        slice=named(table.slice_key, frame),
        point=named(table.axis_columns, frame),
        unit=pl.lit(measure.unit),
        before=pl.col("_before"),
        after=pl.col(measure.column),
        launch_ms=launch,
        basis=pl.col("_basis"),
        note=pl.lit(None, pl.String),
    )


def _note(table: OperatorTable, frame: pl.DataFrame, kind: str, note: str) -> pl.DataFrame:
    """One row of `perf_repairs` that says why a step was left out."""
    return _repairs(
        {
            "table_name": table.name,
            "file": str(frame["file"][0]),
            "row_no": ABOUT_TABLE,
            "kind": kind,
            "measure": table.measure.column,
            "slice": "",
            "point": "",
            "unit": table.measure.unit,
            **dict.fromkeys(("before", "after", "launch_ms", "basis")),
            "note": note,
        }
    )


def named(columns: Sequence[str], frame: pl.DataFrame) -> pl.Expr:
    """`name=value name=value` of the columns that the frame has."""
    import polars as pl

    parts = [
        pl.concat_str(pl.lit(f"{c}="), pl.col(c).cast(pl.String).fill_null("none")) for c in _present(columns, frame)
    ]
    return pl.concat_str(parts, separator=" ") if parts else pl.lit("")


def _repairs(*rows: dict[str, Any]) -> pl.DataFrame:
    return frame_of(PERF_REPAIRS, rows, without=_VERSION)
