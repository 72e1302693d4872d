"""Digests of tables: per column, in row order, and the same however the rows were cut into chunks or files.

DuckDB's hash() is not used: it is not promised to stay the same between versions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from perf_db.schema import Column, Dtype, Table

if TYPE_CHECKING:
    import pyarrow as pa

NULL = -1  # what a null looks like among codes, lengths and the engine's never negative integers


class ColumnDigest:
    """Takes the values of one column piece by piece.

    Fixed-width values are hashed as they lie in memory, with nulls as -1. Text needs two streams, lengths and bytes,
    or ("ab", "c") would equal ("a", "bc"); so do nullable doubles, which have no value to spare for null.
    """

    def __init__(self, column: Column) -> None:
        self._body = hashlib.blake2b(digest_size=16)
        self._side = hashlib.blake2b(digest_size=16)
        names = column.values[: column.digested or None]
        self._header = f"{column.name}|{column.dtype.value}|{','.join(names)}".encode()

    def add(self, body: np.ndarray, side: np.ndarray | None = None) -> None:
        """Append values (and, for text and doubles, their lengths or validity). Arrays are contiguous."""
        self._body.update(body.data)
        if side is not None:
            self._side.update(side.data)

    def hexdigest(self) -> str:
        return _of(self._header, self._body.digest(), self._side.digest())


def table_digest(n_rows: int, columns: Mapping[str, str]) -> str:
    """Digest of a table from the digests of its columns, which are in declared order."""
    return _of(str(n_rows).encode(), *(f"{name}={digest}".encode() for name, digest in columns.items()))


def result_digest(tables: Mapping[str, str]) -> str:
    """Digest of everything a replay produced, from the digests of its tables, in any order."""
    return _of(*(f"{name}={digest}".encode() for name, digest in sorted(tables.items())))


def digest_columns(table: Table, batches: Iterable[pa.RecordBatch]) -> tuple[int, dict[str, str]]:
    """Rows and column digests of rows read back from anywhere. Proves that a file still holds what was committed."""
    states = {c.name: ColumnDigest(c) for c in table.columns}
    n_rows = 0
    for batch in batches:
        n_rows += batch.num_rows
        for c in table.columns:
            states[c.name].add(*streams(c, batch.column(c.name)))
    return n_rows, {name: state.hexdigest() for name, state in states.items()}


def streams(column: Column, values: pa.Array) -> tuple[np.ndarray, np.ndarray | None]:
    """What a digest takes in for these values of a column: (body, side)."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if column.values:
        names = pa.array([v or None for v in column.values], pa.string())
        codes = pc.index_in(values.cast(pa.string()), value_set=names, skip_nulls=True)
        return codes.fill_null(NULL).to_numpy(zero_copy_only=False).astype(np.int8), None
    if column.dtype is Dtype.TEXT:
        return text_streams(values)
    if column.dtype is Dtype.FLOAT64:
        valid = values.is_valid().to_numpy(zero_copy_only=False).astype(np.uint8)
        return np.ascontiguousarray(values.fill_null(0.0).to_numpy(zero_copy_only=False)), valid
    if column.dtype is Dtype.BOOL:
        return values.to_numpy(zero_copy_only=False).astype(np.int8), None
    whole = values.fill_null(NULL) if values.null_count else values
    return np.ascontiguousarray(whole.to_numpy(zero_copy_only=False)), None


def text_streams(values: pa.StringArray) -> tuple[np.ndarray, np.ndarray]:
    """(UTF-8 bytes, length of each value or -1 for null)."""
    import pyarrow.compute as pc

    lengths = pc.binary_length(values).fill_null(NULL).to_numpy(zero_copy_only=False)
    _, offsets, data = values.buffers()
    if data is None or not len(values):
        return np.zeros(0, np.uint8), np.ascontiguousarray(lengths, np.int32)
    ends = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1]
    # A null slot may cover bytes in a foreign buffer, so they are cut out unless the text is gapless.
    body = np.frombuffer(data, np.uint8)[ends[0] : ends[-1]]
    if values.null_count and int(lengths[lengths > 0].sum()) != len(body):
        return text_streams(values.take(np.arange(len(values))))
    return body, np.ascontiguousarray(lengths, np.int32)


def _of(*parts: bytes) -> str:
    state = hashlib.blake2b(digest_size=16)
    for part in parts:
        state.update(len(part).to_bytes(8, "little"))
        state.update(part)
    return state.hexdigest()
