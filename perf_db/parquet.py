"""One table on its way to one parquet file: fixed row groups, bounded memory, the same bytes for the same rows."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from perf_db.buffer import ColumnBuffer
from perf_db.digest import table_digest
from perf_db.schema import Column, Dtype, SchemaError, Table

# Rows held back until they are written. The upper bounds are 1M rows and 64 MB; a group of 131,072 rows stays far
# below both, compresses as well, and lets two cores read a table of 262,144 rows.
GROUP_ROWS = 131_072


class TableWriter:
    """Collects rows of one table and writes a row group whenever one is full. No row, no file."""

    def __init__(self, table: Table, path: Path) -> None:
        self.table = table
        self.path = path
        self.n_rows = 0
        self._pending = 0
        self._columns = {c.name: ColumnBuffer(table.name, c) for c in table.columns}
        self._codes: dict[str, np.ndarray] = {
            c.name: np.zeros(len(c.values), np.int64) for c in table.columns if c.values
        }
        self._file: pq.ParquetWriter | None = None

    def add(self, columns: Mapping[str, Any]) -> None:
        """Append rows; nullable columns may be left out.

        Raises:
            SchemaError: a column is unknown, missing, too short, or holds what its declaration does not admit.
        """
        faults = [f"{name!r} is not declared" for name in columns if name not in self._columns]
        faults += [f"{n!r} is missing" for n, b in self._columns.items() if n not in columns and not b.column.nullable]
        if faults:
            raise SchemaError(f"table {self.table.name!r}: column " + ", column ".join(faults))
        n_rows = max((len(values) for values in columns.values() if values is not None), default=0)
        for name, buffer in self._columns.items():
            codes = buffer.add(columns.get(name), n_rows)
            if codes is not None:
                self._codes[name] += np.bincount(codes[codes >= 0], minlength=len(self._codes[name]))
        self.n_rows += n_rows
        self._pending += n_rows
        while self._pending >= GROUP_ROWS:
            self._write(GROUP_ROWS)

    def count(self, column: str, value: str) -> int:
        """Rows so far in which a coded column says `value`."""
        return int(self._codes[column][self.table.column(column).values.index(value)])

    def close(self) -> None:
        """Write what is left and finish the file."""
        if self._pending:
            self._write(self._pending)
        if self._file is not None:
            self._file.close()

    def column_digests(self) -> dict[str, str]:
        return {name: buffer.digest.hexdigest() for name, buffer in self._columns.items()}

    def digest(self) -> str:
        return table_digest(self.n_rows, self.column_digests())

    def _write(self, n_rows: int) -> None:
        if self._file is None:
            self._file = _open(self.table, self.path)
        arrays = [buffer.take(n_rows) for buffer in self._columns.values()]
        self._file.write_table(pa.Table.from_arrays(arrays, schema=self._file.schema), row_group_size=n_rows)
        self._pending -= n_rows


def options(columns: Sequence[Column]) -> dict[str, Any]:
    """How our files are written, as arguments of pyarrow's writers."""
    whole = (Dtype.INT32, Dtype.INT64)
    return {
        "compression": "zstd",
        "compression_level": 1,
        # Counters and clocks are near their neighbours: differences were both faster to write and smaller than
        # dictionaries, which are kept for text.
        "column_encoding": {c.name: "DELTA_BINARY_PACKED" for c in columns if c.dtype in whole},
        "use_dictionary": [c.name for c in columns if c.dtype is Dtype.TEXT],
        # Without the arrow schema a reader sees plain text, not the dictionary we happened to write from.
        "store_schema": False,
    }


def _open(table: Table, path: Path) -> pq.ParquetWriter:
    fields = []
    for c in table.columns:
        kind = pa.dictionary(pa.int8(), pa.string()) if c.values else c.dtype.arrow
        fields.append(pa.field(c.name, kind, nullable=c.nullable))
    # A file that has left the store still says what its columns are.
    about = {"table": table.name, "row_is": table.row_is, "columns": {c.name: c.comment for c in table.columns}}
    file = pq.ParquetWriter(path, pa.schema(fields), **options(table.columns))
    file.add_key_value_metadata({"tracemill": json.dumps(about)})
    return file
