"""Declared tables as polars frames."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from perf_db.schema import Dtype, Table

if TYPE_CHECKING:
    import polars as pl


def schema_of(table: Table, *, without: Sequence[str] = ()) -> dict[str, pl.DataType]:
    """Column names and polars types of a declared table, in order."""
    import polars as pl

    types: dict[Dtype, pl.DataType] = {
        Dtype.TEXT: pl.String(),
        Dtype.INT32: pl.Int32(),
        Dtype.INT64: pl.Int64(),
        Dtype.FLOAT64: pl.Float64(),
        Dtype.BOOL: pl.Boolean(),
    }
    return {c.name: types[c.dtype] for c in table.columns if c.name not in without}


def frame_of(table: Table, rows: Sequence[Mapping[str, Any]] = (), *, without: Sequence[str] = ()) -> pl.DataFrame:
    """Rows as a frame with the declared types, whatever their values suggest."""
    import polars as pl

    schema = schema_of(table, without=without)
    return pl.DataFrame({name: [row[name] for row in rows] for name in schema}, schema=schema)
