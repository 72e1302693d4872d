"""The faults of one file as rows of `perf_anomalies`, one function per kind; the file's identity is left blank."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from perf_db.gpu.clean import HOST_TOKENS, WIDE_SPREAD, named
from perf_db.gpu.curves import Curves
from perf_db.gpu.frames import frame_of
from perf_db.gpu.operator_tables import Measure, OperatorTable
from perf_db.tables.perf_anomalies import PERF_ANOMALIES

if TYPE_CHECKING:
    import polars as pl

# Whose file it is: filled in by who knows.
ABOUT = ("system", "backend", "version", "table_name", "file")


def duplicates(table: OperatorTable, frame: pl.DataFrame, identity: list[str]) -> pl.DataFrame:
    """Rows after the first of a point; `before` is the first one's value."""
    import polars as pl

    value = pl.col(table.measure.column)
    if frame.n_unique(identity) == frame.height:
        return frame_of(PERF_ANOMALIES)
    low, high = value.min().over(identity), value.max().over(identity)
    marked = frame.with_columns(
        _first=value.first().over(identity),
        _later=pl.col("row") != pl.col("row").first().over(identity),
        _merged=pl.when(high < WIDE_SPREAD * low).then(value.median().over(identity)).otherwise(low),
        _wide=high / low,
    ).filter("_later")
    return _part(
        table,
        marked,
        kind="duplicate",
        before=pl.col("_first"),
        ratio=pl.col("_wide"),
        suggested=pl.col("_merged"),
        repair=f"one value for the point: the median, or the smallest where they are {WIDE_SPREAD}x apart",
    )


def falls(
    table: OperatorTable,
    frame: pl.DataFrame,
    ms: NDArray[np.float64],
    along: Curves,
    at: NDArray[np.int64],
    left: NDArray[np.int64],
) -> pl.DataFrame:
    import polars as pl

    after = _next_value(ms, along)[at]
    rows = frame[at.tolist()].with_columns(pl.Series("_before", ms[left]), pl.Series("_after", after, nan_to_null=True))
    value = pl.col(table.measure.column)
    return _part(
        table,
        rows,
        kind="non_monotone",
        before=pl.col("_before"),
        after=pl.col("_after"),
        ratio=value / pl.col("_before"),
        # What two points alone would be levelled to; the regression looks at the whole curve.
        suggested=(value * pl.col("_before")).sqrt(),
        repair="isotonic regression of the logarithm along the axis",
    )


def spikes(
    table: OperatorTable,
    frame: pl.DataFrame,
    ms: NDArray[np.float64],
    along: Curves,
    found: tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]],
) -> pl.DataFrame:
    import polars as pl

    at, left, right = found
    x = np.log2(1.0 + along.position)
    share = (x[at] - x[left]) / (x[right] - x[left])
    line = np.exp((1 - share) * np.log(ms[left]) + share * np.log(ms[right]))
    rows = frame[at.tolist()].with_columns(
        pl.Series("_before", ms[left]), pl.Series("_after", ms[right]), pl.Series("_line", line)
    )
    return _part(
        table,
        rows,
        kind="spike",
        before=pl.col("_before"),
        after=pl.col("_after"),
        ratio=pl.col(table.measure.column) / pl.col("_line"),
        suggested=pl.col("_line"),
        repair="the value on the line between its neighbours, logarithms of both",
    )


def host_bound(table: OperatorTable, ratios: pl.DataFrame) -> pl.DataFrame:
    import polars as pl

    return _part(
        table,
        ratios.filter("_bound"),
        kind="host_bound",
        point=pl.concat_str(pl.lit(f"{table.main.name} to {HOST_TOKENS} "), named(_other_axes(table), ratios)),
        ratio=pl.col("_ratio"),
        suggested=pl.col("_theirs"),
        repair="other backends' kernel time; the rest is kept as launch cost",
    )


def holes(table: OperatorTable, grids: pl.DataFrame) -> pl.DataFrame:
    import polars as pl

    sides = [name for group in table.rectangle for name in group]
    held = {column for name in sides for column in table.axis(name).columns}
    rest = [c for c in table.axis_columns if c not in held]
    rows = grids.filter(pl.col("_held") < pl.col("_span")).with_columns(
        (pl.col("_held") / pl.col("_span")).alias(table.measure.column)
    )
    part = _part(
        table,
        rows,
        kind="hole",
        point=pl.concat_str(
            pl.format(f"{{}} of {{}} points of {' x '.join(sides)}", "_held", "_span"), named(rest, rows), separator=" "
        )
        if rest
        else pl.format(f"{{}} of {{}} points of {' x '.join(sides)}", "_held", "_span"),
        repair="none: prices there are extrapolated, and evidence says so",
    )
    return part.with_columns(unit=pl.lit("ratio"))


def _other_axes(table: OperatorTable) -> list[str]:
    return [c for axis in table.axes if axis is not table.main for c in axis.columns]


def _next_value(ms: NDArray[np.float64], along: Curves) -> NDArray[np.float64]:
    """The value after each row on its curve, NaN at the end."""
    out = np.full(len(ms), np.nan)
    left, right = along.pairs()
    out[left] = ms[right]
    return out


def _part(
    table: OperatorTable,
    rows: pl.DataFrame,
    *,
    kind: str,
    repair: str,
    point: pl.Expr | None = None,
    before: pl.Expr | None = None,
    after: pl.Expr | None = None,
    ratio: pl.Expr | None = None,
    suggested: pl.Expr | None = None,
) -> pl.DataFrame:
    import polars as pl

    nothing = pl.lit(None, pl.Float64)
    measure: Measure = table.measure
    return rows.select(
        **{c: pl.lit("") for c in ABOUT},
        row_no=pl.col("row").cast(pl.Int64),
        kind=pl.lit(kind),
        slice=named(table.categories, rows),
        point=named(table.axis_columns, rows) if point is None else point,
        measure=pl.lit(measure.column),
        unit=pl.lit(measure.unit),
        value=pl.col(measure.column).cast(pl.Float64),
        before=nothing if before is None else before,
        after=nothing if after is None else after,
        ratio=nothing if ratio is None else ratio,
        suggested=nothing if suggested is None else suggested,
        repair=pl.lit(repair),
    )
