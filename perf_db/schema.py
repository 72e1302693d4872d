"""Tables as data: one declaration gives validation, DuckDB DDL, an arrow schema and documentation.

pyarrow is imported where it is used: listing runs or printing help needs the declarations but not 0.2 s of import.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa


class SchemaError(ValueError):
    """Rows do not match their declared table."""


class Dtype(Enum):
    """What a column holds; the value is DuckDB's name of the type."""

    INT32 = "INTEGER"
    INT64 = "BIGINT"
    UINT64 = "UBIGINT"
    FLOAT64 = "DOUBLE"
    BOOL = "BOOLEAN"
    TEXT = "VARCHAR"
    TIMESTAMP = "TIMESTAMP"  # UTC, without zone: DuckDB needs an extension to show zones
    INT64_LIST = "BIGINT[]"

    @property
    def arrow(self) -> pa.DataType:
        import pyarrow as pa

        return {
            Dtype.INT32: pa.int32(),
            Dtype.INT64: pa.int64(),
            Dtype.UINT64: pa.uint64(),
            Dtype.FLOAT64: pa.float64(),
            Dtype.BOOL: pa.bool_(),
            Dtype.TEXT: pa.string(),
            Dtype.TIMESTAMP: pa.timestamp("us"),
            Dtype.INT64_LIST: pa.list_(pa.int64()),
        }[self]

    @property
    def range(self) -> range | None:
        """Whole numbers it can hold; None for other types."""
        return {
            Dtype.INT32: range(-(2**31), 2**31),
            Dtype.INT64: range(-(2**63), 2**63),
            Dtype.UINT64: range(2**64),
        }.get(self)

    @property
    def bytes(self) -> int:
        """Width of one value in memory; an estimate for text and lists."""
        return {Dtype.INT32: 4, Dtype.BOOL: 1, Dtype.TEXT: 16, Dtype.INT64_LIST: 256}.get(self, 8)


@dataclass(frozen=True, slots=True)
class Column:
    """One column.

    Attributes:
        unit: '' only for identifiers and categories.
        values: for a category that the engine hands out as a code, the names in the order of the codes. The name ''
            means "nothing to say" and is stored as null.
        digested: how many of `values` a digest of the column begins with; 0: all. Names that were added later say
            nothing else about the codes before them, so rows recorded earlier keep their digest.
    """

    name: str
    dtype: Dtype
    unit: str
    meaning: str
    nullable: bool = False
    values: tuple[str, ...] = ()
    digested: int = 0

    @property
    def comment(self) -> str:
        return f"[{self.unit}] {self.meaning}" if self.unit else self.meaning


@dataclass(frozen=True, slots=True)
class Table:
    """A named set of columns.

    Attributes:
        row_is: completes the sentence "One row is ...".
        key: columns that together name a row; within one replay for the tables of a replay.
    """

    name: str
    row_is: str
    key: tuple[str, ...]
    columns: tuple[Column, ...]

    def __post_init__(self) -> None:
        names = [c.name for c in self.columns]
        if len(set(names)) != len(names) or not set(self.key) <= set(names):
            raise SchemaError(f"table {self.name!r}: a column is declared twice, or the key names no column")

    @property
    def column_names(self) -> tuple[str, ...]:
        return tuple(c.name for c in self.columns)

    def column(self, name: str) -> Column:
        for c in self.columns:
            if c.name == name:
                return c
        raise KeyError(f"table {self.name!r} has no column {name!r}; it has {', '.join(self.column_names)}")

    def validate(self, frame: Any, *, source: str) -> pa.Table:
        """Return the rows as an arrow table in declared column order, or raise one SchemaError listing every fault.

        Args:
            frame: an arrow table, anything with `to_arrow()` (a polars frame), a mapping of columns, or mappings.
            source: where the rows came from, repeated in the error (a path or an asset key).

        Raises:
            SchemaError: missing, unexpected or mistyped columns, nulls, values outside a category, repeated keys.
        """
        table = as_arrow(frame)
        wanted = {c.name: c for c in self.columns}
        faults = [f"column {n!r} is missing" for n in wanted if n not in table.column_names]
        faults += [f"column {n!r} is not declared" for n in table.column_names if n not in wanted]
        for name in table.column_names:
            if name in wanted:
                faults += _column_faults(wanted[name], table[name])
        if not faults and (twice := table.num_rows - _n_distinct(table, self.key)):
            faults.append(f"key ({', '.join(self.key)}) repeats in {twice} row(s)")
        if faults:
            raise SchemaError(f"{source} does not match table {self.name!r}: " + "; ".join(faults))
        return table.select(list(wanted)).cast(self.arrow_schema())

    def ddl(self, *, before: tuple[Column, ...] = ()) -> str:
        """CREATE TABLE plus comments, so units survive into the database file.

        Args:
            before: columns put in front, for tables that gather the rows of many replays.
        """
        columns = before + self.columns
        # No PRIMARY KEY: its index quadrupled load time and doubled the file at 5M rows, and rows come from one
        # writer per replay that keeps the key by construction.
        body = [f"{c.name} {c.dtype.value}{'' if c.nullable else ' NOT NULL'}" for c in columns]
        create = f"CREATE TABLE {self.name} (\n  " + ",\n  ".join(body) + "\n)"
        return ";\n".join([create, *self.comments("TABLE", before=before)]) + ";"

    def comments(self, kind: str, *, before: tuple[Column, ...] = ()) -> list[str]:
        """COMMENT statements for this table, or for the view of the same name (`kind` "VIEW")."""
        out = [f"COMMENT ON {kind} {self.name} IS {quoted(f'One row is {self.row_is}.')}"]
        return out + [f"COMMENT ON COLUMN {self.name}.{c.name} IS {quoted(c.comment)}" for c in before + self.columns]

    def arrow_schema(self) -> pa.Schema:
        import pyarrow as pa

        return pa.schema([pa.field(c.name, c.dtype.arrow, nullable=c.nullable) for c in self.columns])

    def markdown(self) -> str:
        """A section of the documentation page."""
        rows = []
        for c in self.columns:
            type_ = c.dtype.value + (", may be null" if c.nullable else "")
            names = ", ".join(f"`{v}`" for v in c.values if v)
            rows.append(f"| `{c.name}` | {type_} | {c.unit or '–'} | {c.meaning}{': ' + names if names else ''} |")
        head = f"## {self.name}\n\nOne row is {self.row_is}. Key: {', '.join(f'`{k}`' for k in self.key)}.\n\n"
        return head + "| column | type | unit | meaning |\n|---|---|---|---|\n" + "\n".join(rows) + "\n"


def quoted(text: str) -> str:
    """A SQL string literal."""
    return "'" + text.replace("'", "''") + "'"


def as_arrow(frame: Any) -> pa.Table:
    """Rows in any of the shapes our packages hand around, as an arrow table."""
    import pyarrow as pa

    if isinstance(frame, pa.Table):
        return frame
    if hasattr(frame, "to_arrow"):
        return frame.to_arrow()
    if isinstance(frame, Mapping):
        return pa.table(dict(frame))
    if isinstance(frame, Sequence) and all(isinstance(row, Mapping) for row in frame):
        return pa.Table.from_pylist([dict(row) for row in frame])
    raise TypeError(f"cannot read rows from {type(frame).__name__}; give an arrow table, a frame, columns or mappings")


def _column_faults(column: Column, got: pa.ChunkedArray) -> list[str]:
    import pyarrow as pa
    import pyarrow.compute as pc

    if not _same_type(got.type, column.dtype):
        return [f"column {column.name!r} is {got.type}, declared {column.dtype.arrow}"]
    faults = []
    if not column.nullable and got.null_count:
        faults.append(f"column {column.name!r} has {got.null_count} null(s), declared non-null")
    if column.values:
        known = pc.is_in(got, value_set=pa.array([v for v in column.values if v] or [""]).cast(got.type))
        strange = pc.filter(got, pc.and_(pc.invert(known), pc.is_valid(got))).unique().to_pylist()
        if strange:
            faults.append(f"column {column.name!r} holds {strange[:3]}, declared {[v for v in column.values if v]}")
    return faults


def _same_type(got: pa.DataType, dtype: Dtype) -> bool:
    """Whether only the container differs: long text is text, a dictionary of text is text, a long list is a list."""
    import pyarrow as pa

    if dtype is Dtype.TEXT:
        value = got.value_type if pa.types.is_dictionary(got) else got
        return pa.types.is_string(value) or pa.types.is_large_string(value) or pa.types.is_string_view(value)
    if dtype is Dtype.INT64_LIST:
        return (pa.types.is_list(got) or pa.types.is_large_list(got)) and pa.types.is_int64(got.value_type)
    if dtype is Dtype.TIMESTAMP:
        return pa.types.is_timestamp(got)
    return got == dtype.arrow


def _n_distinct(table: pa.Table, key: tuple[str, ...]) -> int:
    return table.select(list(key)).group_by(list(key)).aggregate([]).num_rows if table.num_rows else 0
