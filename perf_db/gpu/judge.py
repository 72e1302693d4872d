"""Judging the rows of one file: figures of `perf_tables`, faults of `perf_anomalies`.

Definitions (a curve holds the points that differ in nothing but the main axis):

- duplicate: a row that repeats all but the measured columns; the first of them stands for the point in what follows;
- non_monotone: a point more than 10 % below the one before it on its curve;
- spike: a point above 1.5 times both neighbours on its curve;
- host_bound: a slice whose points up to 64 tokens cost, in the median, over 3 times what other backends measure;
- hole: a slice that lacks points of the grid its own axis values span.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from perf_db.gpu import faults
from perf_db.gpu.clean import HOST_FACTOR, HOST_TOKENS, find_spikes
from perf_db.gpu.curves import Curves, axis_values, curves, grid_codes, joined
from perf_db.gpu.operator_tables import PROVENANCE, Axis, OperatorTable

if TYPE_CHECKING:
    import polars as pl

FALL, HALVED = 0.9, 0.5


def judge(
    table: OperatorTable, frame: pl.DataFrame, donors: Mapping[str, pl.DataFrame] | None = None
) -> tuple[dict[str, Any], list[pl.DataFrame]]:
    """Figures and anomalies of the rows of one file.

    Args:
        frame: declared columns and `row`.
        donors: backend -> rows of the same table and system that other backends measured.

    Returns:
        (columns of `perf_tables` that follow from the rows, parts of `perf_anomalies` without the file's identity).
    """
    import polars as pl

    measure, value = table.measure, table.measure.column
    identity = [c for c in (*PROVENANCE, *table.categories, *table.axis_columns) if c in frame.columns]
    spread = frame.group_by(identity).agg(_low=pl.col(value).min(), _high=pl.col(value).max())
    once = frame.unique(identity, keep="first", maintain_order=True)
    ms = once[value].to_numpy().astype(np.float64)
    along = _file_curves(table, once)
    left, right = along.pairs()
    falling = ms[right] < FALL * ms[left]
    spikes = find_spikes(ms, along)
    grids = _grids(table, once)
    ratios = _host_ratios(table, once, donors)
    slices = [c for c in table.categories if c in once.columns]
    figures: dict[str, Any] = {
        "key_columns": ", ".join(slices),
        "axes": ", ".join(_span(axis.name, axis_values(once, axis)) for axis in table.axes),
        "precisions": ", ".join(_precisions(table, once)),
        "unit": measure.unit,
        "min_value": float(ms.min()) if len(ms) else None,
        "max_value": float(ms.max()) if len(ms) else None,
        "n_slices": once.n_unique(slices),
        "n_points": once.height,
        "coverage": None if grids is None else int(grids["_held"].sum()) / int(grids["_span"].sum()),
        "n_holes": 0 if grids is None else int((grids["_held"] < grids["_span"]).sum()),
        "n_pairs": len(left),
        "n_falling": int(falling.sum()),
        "n_halved": int((ms[right] < HALVED * ms[left]).sum()),
        "n_spikes": len(spikes[0]),
        "n_duplicates": frame.height - once.height,
        "widest_duplicate": _widest(spread) if frame.height > once.height else None,
        "n_host_bound": 0 if ratios is None else int(ratios["_bound"].sum()),
        "host_ratio": None if ratios is None else _host_ratio(table, ratios),
    }
    parts = [
        faults.duplicates(table, frame, identity),
        faults.falls(table, once, ms, along, right[falling], left[falling]),
        faults.spikes(table, once, ms, along, spikes),
    ]
    if ratios is not None:
        parts.append(faults.host_bound(table, ratios))
    if grids is not None:
        parts.append(faults.holes(table, grids))
    return figures, [part for part in parts if not part.is_empty()]


def host_ratios(table: OperatorTable, frame: pl.DataFrame, donors: Mapping[str, pl.DataFrame]) -> dict[str, float]:
    """Median over all small points of (own value / other backends' median), by what is compared (a precision)."""
    ratios = _small_points(table, frame, donors)
    if ratios is None:
        return {}
    grouped = ratios.group_by(table.compared, maintain_order=True).agg(_median("_ratio"))
    return {" ".join(map(str, row[:-1])): float(row[-1]) for row in grouped.rows()}


def _median(column: str) -> Any:
    import polars as pl

    return pl.col(column).median()


def _file_curves(table: OperatorTable, frame: pl.DataFrame) -> Curves:
    """Curves along the main axis of rows that agree in all else."""
    main = set(table.main.columns)
    others = [c for c in (*PROVENANCE, *table.categories, *table.axis_columns) if c not in main and c in frame.columns]
    return curves(grid_codes(frame, others), axis_values(frame, table.main))


def _grids(table: OperatorTable, frame: pl.DataFrame) -> pl.DataFrame | None:
    """Per slice: `_held` points of `_span`, the product of the different values of its rectangle's sides."""
    import polars as pl

    if not table.rectangle:
        return None
    sides = [[table.axis(name) for name in group] for group in table.rectangle]
    held = [column for side in sides for axis in side for column in axis.columns]
    columns = [c for c in (*PROVENANCE, *table.categories, *table.axis_columns) if c not in held and c in frame.columns]
    numbered = frame.with_columns(pl.Series(f"_side{i}", _side(frame, side)) for i, side in enumerate(sides))
    names = [f"_side{i}" for i in range(len(sides))]
    span = pl.lit(1, pl.Int64)
    for name in names:
        span = span * pl.col(name).n_unique().cast(pl.Int64)
    first = [pl.col(c).first() for c in frame.columns if c not in columns]
    return numbered.group_by(columns, maintain_order=True).agg(
        *first, _held=pl.struct(names).n_unique().cast(pl.Int64), _span=span
    )


def _side(frame: pl.DataFrame, side: Iterable[Axis]) -> NDArray[np.int64]:
    codes = np.zeros(frame.height, np.int64)
    for axis in side:
        codes = joined(codes, axis_values(frame, axis))
    return codes


def _small_points(
    table: OperatorTable, frame: pl.DataFrame, donors: Mapping[str, pl.DataFrame] | None
) -> pl.DataFrame | None:
    """Rows up to 64 on the main axis that other backends have as well, with `_theirs` and `_ratio`; None without."""
    import polars as pl

    if not table.compared or not donors:
        return None
    value, main = table.measure.column, table.main.columns[0]
    key = [*table.compared, *table.axis_columns]
    firsts = [rows.unique(key, keep="first", maintain_order=True) for rows in donors.values()]
    theirs = (
        pl.concat(rows.select(*key, _theirs=pl.col(value)) for rows in firsts)
        .group_by(key)
        .agg(pl.col("_theirs").median())
    )
    small = frame.filter(pl.col(main) <= HOST_TOKENS).join(theirs, on=key, how="inner", maintain_order="left")
    return None if small.is_empty() else small.with_columns(_ratio=pl.col(value) / pl.col("_theirs"))


def _host_ratios(
    table: OperatorTable, frame: pl.DataFrame, donors: Mapping[str, pl.DataFrame] | None
) -> pl.DataFrame | None:
    """Per slice, kernels of one curve taken together: medians of value, of the others and of the ratio; `_bound`."""
    import polars as pl

    small = _small_points(table, frame, donors)
    if small is None:
        return None
    main = table.main.columns[0]
    site = [*table.compared, *(c for c in table.axis_columns if c != main)]
    value = table.measure.column
    kept = [c for c in frame.columns if c not in {*site, value, main}]
    return (
        small.group_by(site, maintain_order=True)
        .agg(
            *(pl.col(c).first() for c in kept),
            pl.col(main).max(),
            pl.col(value).median(),
            pl.col("_theirs").median(),
            pl.col("_ratio").median(),
        )
        .with_columns(_bound=pl.col("_ratio") > HOST_FACTOR)
    )


def _host_ratio(table: OperatorTable, ratios: pl.DataFrame) -> float:
    return float(ratios.group_by(table.compared).agg(_median("_ratio"))["_ratio"].max())  # type: ignore[arg-type]


def _span(name: str, values: NDArray[np.int64]) -> str:
    if not len(values):
        return f"{name} (none)"
    return f"{name} {values.min()}..{values.max()} ({len(np.unique(values))})"


def _precisions(table: OperatorTable, frame: pl.DataFrame) -> Iterator[str]:
    for column in table.categories:
        if (column.endswith("_dtype") or column in ("gemm_type", "quant_type")) and column in frame.columns:
            for value in frame[column].unique().sort().drop_nulls():
                yield f"{column}={value}"


def _widest(spread: pl.DataFrame) -> float | None:
    import polars as pl

    wide = spread.filter(pl.col("_low") > 0).select((pl.col("_high") / pl.col("_low")).max()).item()
    return None if wide is None else float(wide)
