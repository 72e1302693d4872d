"""Reading one file of performance data against the declaration of its table, listing every fault at once."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from perf_db.gpu.errors import PerfDataError
from perf_db.gpu.names import unknown
from perf_db.gpu.operator_tables import FILE_SUFFIX, IGNORED, OPERATOR_TABLES, Measure, OperatorTable

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa

# No single operator of one layer is as short or as long as this: the unit is another one.
SHORTEST_MS, LONGEST_MS = 2e-4, 2e5
# Median of an operator table of a GPU, ms; what lies outside is in seconds or in nanoseconds.
LEAST_MEDIAN_MS, MOST_MEDIAN_MS = 1e-3, 1e3


@dataclass(frozen=True)
class ReadTable:
    """One file, read.

    Attributes:
        table: its declaration; None when nobody declares a table of this name.
        frame: declared columns (texts as text, integers as int64, numbers as float64) and `row`, 0-based; None when the
            file has faults.
        n_rows: rows of the file, 0 when it is no parquet.
        faults: what is wrong, one sentence each.
    """

    table: OperatorTable | None
    frame: pl.DataFrame | None
    n_rows: int
    faults: tuple[str, ...]


def read_operator_table(path: Path) -> ReadTable:
    """Read and check one file `<table>_perf.parquet`. Faults are returned: the caller knows whether they are fatal."""
    import polars as pl
    import pyarrow.parquet as pq

    name = path.name.removesuffix(".parquet").removesuffix(FILE_SUFFIX)
    table = OPERATOR_TABLES.get(name)
    try:
        schema = pq.read_schema(path)
        n_rows = pq.read_metadata(path).num_rows
    except Exception as error:  # pyarrow raises its own kinds and plain OSError for a file that is no parquet
        return ReadTable(table, None, 0, (f"not a parquet file: {error}",))
    if table is None:
        known = [f"{each}{FILE_SUFFIX}.parquet" for each in OPERATOR_TABLES]
        fault = unknown("table", path.name, known, "docs/performance-data.md lists all")
        return ReadTable(None, None, n_rows, (fault,))
    faults = _schema_faults(table, schema)
    if faults:
        return ReadTable(table, None, n_rows, tuple(faults))
    wanted = [c for c in table.columns if c in schema.names and c not in IGNORED]
    frame = pl.from_arrow(pq.read_table(path, columns=wanted))
    assert isinstance(frame, pl.DataFrame)
    frame = frame.with_columns(pl.col(c).cast(_dtype(table.columns[c])) for c in wanted).with_row_index("row")
    frame = frame.with_columns(pl.col("row").cast(pl.Int64))
    faults = _value_faults(table, frame)
    return ReadTable(table, None if faults else frame, n_rows, tuple(faults))


def require(path: Path, name: str) -> ReadTable:
    """As `read_operator_table`, with faults raised.

    Args:
        name: what to call the file in the message.

    Raises:
        PerfDataError: `bad_file`, naming the file, its row count and every fault.
    """
    read = read_operator_table(path)
    if read.faults:
        raise PerfDataError(
            "bad_file", f"{name} ({read.n_rows:,} rows): {'; '.join(read.faults)}; none of its rows is used"
        )
    return read


def _schema_faults(table: OperatorTable, schema: pa.Schema) -> list[str]:
    kinds = {name: _kind(schema.field(name).type) for name in schema.names}
    faults = [f"column {c!r} is missing" for c in table.required if c not in kinds]
    for name, kind in kinds.items():
        declared = table.columns.get(name)
        if declared is None:
            faults.append(f"column {name!r} is not one of a {table.name} table")
        # Whole numbers are numbers.
        elif kind != declared and (declared, kind) != ("number", "integer"):
            faults.append(f"column {name!r} is {schema.field(name).type}, expected {declared}")
    for measure in table.measures:
        told = (schema.field(measure.column).metadata or {}).get(b"unit") if measure.column in kinds else None
        if told and told.decode() != measure.unit:
            faults.append(f"column {measure.column!r} says its unit is {told.decode()!r}, expected {measure.unit!r}")
    return faults


def _value_faults(table: OperatorTable, frame: pl.DataFrame) -> list[str]:
    if frame.is_empty():
        return ["it has no rows"]
    faults = []
    numbers = {m.column for m in table.measures}
    for column in frame.columns:
        # A measure's nulls are counted with what else is no number.
        if column not in numbers and (nulls := frame[column].null_count()) and column in table.required:
            faults.append(f"column {column!r} has {nulls:,} nulls")
    for column in table.axis_columns:
        if below := int((frame[column] < 0).sum()):
            faults.append(f"column {column!r} is negative in {below:,} rows")
    for measure in table.measures:
        faults += _measure_faults(measure, frame)
    return faults


def _measure_faults(measure: Measure, frame: pl.DataFrame) -> list[str]:
    column = frame[measure.column]
    fits = column.is_finite() & ((column >= 0) if measure.zero else (column > 0))
    if bad := frame.height - int(fits.fill_null(False).sum()):
        what = "negative" if measure.zero else "not above 0"
        return [f"column {measure.column!r} is null, NaN, infinite or {what} in {bad:,} of {frame.height:,} rows"]
    if measure.zero:
        return []
    low, middle, high = (float(v) for v in (column.min(), column.median(), column.max()))  # type: ignore[arg-type]
    scale = 1.0 if measure.unit == "ms" else 1e-3
    possible = low * scale >= SHORTEST_MS and high * scale <= LONGEST_MS
    if not possible or not LEAST_MEDIAN_MS <= middle * scale <= MOST_MEDIAN_MS:
        return [
            f"column {measure.column!r} runs from {low:.4g} to {high:.4g} (median {middle:.4g}) where {measure.unit} "
            "are expected: the unit is another one"
        ]
    return []


def _kind(kind: Any) -> str:
    import pyarrow.types as pt

    if pt.is_dictionary(kind):
        kind = kind.value_type
    if pt.is_string(kind) or pt.is_large_string(kind) or pt.is_string_view(kind):
        return "text"
    if pt.is_boolean(kind):
        return "flag"
    if pt.is_integer(kind):
        return "integer"
    return "number" if pt.is_floating(kind) else str(kind)


def _dtype(kind: str) -> Any:
    import polars as pl

    return {"text": pl.String, "integer": pl.Int64, "number": pl.Float64, "flag": pl.Boolean}[kind]
