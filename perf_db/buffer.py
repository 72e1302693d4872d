"""A column on its way to a file: values come in pieces of any size, are narrowed and digested at once, and leave as
contiguous arrow arrays of the size the writer asks for."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
import pyarrow as pa

from perf_db.digest import NULL, ColumnDigest, text_streams
from perf_db.schema import Column, Dtype, SchemaError

_NUMPY: dict[Dtype, Any] = {
    Dtype.INT32: np.int32,
    Dtype.INT64: np.int64,
    Dtype.BOOL: np.int8,
    Dtype.FLOAT64: np.float64,
}


class ColumnBuffer:
    """Values of one column that are not written yet."""

    def __init__(self, table: str, column: Column) -> None:
        self.column = column
        self.digest = ColumnDigest(column)
        self._where = f"{table}.{column.name}"
        self._is_text = column.dtype is Dtype.TEXT and not column.values
        self._kind = np.int8 if column.values or self._is_text else _NUMPY[column.dtype]
        self._pieces: deque[Any] = deque()  # numpy arrays, or arrow arrays for text
        # A name of '' says nothing: it is stored as null and is no part of the dictionary.
        self._names = [name for name in column.values if name]
        # The extra entry at the end answers code -1.
        self._recode = np.array([self._names.index(n) if n else NULL for n in column.values] + [NULL], np.int8)

    def add(self, values: Any, n_rows: int) -> np.ndarray | None:
        """Take `n_rows` values; None stands for a column of nulls. Returns the codes of a coded column.

        Raises:
            SchemaError: a null or a value that the declaration does not admit.
        """
        if values is None:
            values = pa.nulls(n_rows, pa.string()) if self._is_text else np.full(n_rows, self._no_value())
        if len(values) != n_rows:
            raise SchemaError(f"{self._where} has {len(values)} values, the other columns have {n_rows}")
        if self._is_text:
            text = self._text(values)
            self.digest.add(*text_streams(text))
            self._pieces.append(text)
            return None
        piece = self._numbers(np.asarray(values))
        if self.column.dtype is Dtype.FLOAT64:
            valid = ~np.isnan(piece)
            self.digest.add(np.where(valid, piece, 0.0), valid.view(np.uint8))
        elif self.column.values:
            # Digests are over codes as declared, where '' has a code too; what is stored knows only null.
            self.digest.add(np.where(self._recode[piece] < 0, NULL, piece).astype(np.int8))
        else:
            self.digest.add(piece)
        self._pieces.append(piece)
        return piece if self.column.values else None

    def take(self, n_rows: int) -> pa.Array:
        """The first `n_rows` pending values as one array: pages must not depend on how the values came in."""
        parts, missing = [], n_rows
        while missing:
            piece = self._pieces.popleft()
            if len(piece) > missing:
                self._pieces.appendleft(piece[missing:])
                piece = piece[:missing]
            parts.append(piece)
            missing -= len(piece)
        if self._is_text:
            return pa.concat_arrays(parts) if parts else pa.array([], pa.string())
        whole = parts[0] if len(parts) == 1 else np.concatenate(parts) if parts else self._numbers(np.zeros(0))
        if self.column.values:
            return pa.DictionaryArray.from_arrays(_nullable(self._recode[whole], pa.int8()), pa.array(self._names))
        if self.column.dtype is Dtype.BOOL:
            return pa.array(whole.view(np.bool_))
        if self.column.dtype is Dtype.FLOAT64:
            return pa.array(whole, from_pandas=True)
        return _nullable(whole, self.column.dtype.arrow)

    def _no_value(self) -> float | int:
        return np.nan if self.column.dtype is Dtype.FLOAT64 else NULL

    def _numbers(self, values: np.ndarray) -> np.ndarray:
        """Checked, narrowed, contiguous."""
        if self.column.dtype is Dtype.FLOAT64:
            wide = np.ascontiguousarray(values, np.float64)
            if not self.column.nullable and np.isnan(wide).any():
                raise SchemaError(
                    f"{self._where} has no value in row {int(np.isnan(wide).argmax())}, declared non-null"
                )
            return wide
        if not len(values):
            return np.zeros(0, self._kind)
        low, high = int(values.min()), int(values.max())
        if self.column.values:
            bounds = (NULL if self.column.nullable else 0, len(self.column.values) - 1)
        elif self.column.dtype is Dtype.BOOL:
            bounds = (0, 1)
        else:
            bounds = (NULL if self.column.nullable else 0, int(np.iinfo(self._kind).max))
        if low < bounds[0] or high > bounds[1]:
            row, value = (int(values.argmin()), low) if low < bounds[0] else (int(values.argmax()), high)
            raise SchemaError(
                f"{self._where} holds {value} in row {row} of a chunk; the declaration in perf_db/tables admits "
                f"{bounds[0]} to {bounds[1]}" + (f" ({', '.join(self.column.values)})" if self.column.values else "")
            )
        return np.ascontiguousarray(values, self._kind)

    def _text(self, values: Any) -> pa.StringArray:
        if isinstance(values, pa.ChunkedArray):
            values = values.combine_chunks()
        if isinstance(values, np.ndarray) and values.dtype != object:
            values = pa.array(values)
        text = values if isinstance(values, pa.Array) else pa.array(values, pa.string())
        text = text.cast(pa.string())
        if not self.column.nullable and text.null_count:
            raise SchemaError(f"{self._where} has {text.null_count} null(s), declared non-null")
        return text


def _nullable(values: np.ndarray, kind: pa.DataType) -> pa.Array:
    """An arrow array over the same memory, null where the value is -1."""
    validity = None
    if len(values) and values.min() < 0:
        validity = pa.py_buffer(np.packbits(values != NULL, bitorder="little"))
    return pa.Array.from_buffers(kind, len(values), [validity, pa.py_buffer(np.ascontiguousarray(values))])
