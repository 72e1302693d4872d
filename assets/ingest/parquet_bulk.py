"""Rows of parquet files many at a time, as arrow columns (see `bulk`).

A row is plain if its counts are whole numbers in range, its time is a number or a timestamp in range, and it has as
many ids as its prompt needs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from assets.ingest.bulk import NotPlain
from assets.ingest.fields import MAX_NS, MAX_TOKENS
from assets.ingest.generic import NEEDED, OPTIONAL
from assets.ingest.parser import Options
from assets.ingest.times import UNITS, is_early

if TYPE_CHECKING:
    import pyarrow as pa


class Bulk:
    """Reads batch after batch of one file.

    Args:
        names: our name of a field -> the file's.
    """

    def __init__(self, schema: pa.Schema, names: Mapping[str, str], options: Options) -> None:
        import pyarrow.types as types

        self._names, self._unit_ns, self._block_tokens = names, UNITS[options.time_unit], options.block_tokens
        there = {ours: schema.field(theirs).type for ours, theirs in names.items() if theirs in schema.names}
        if len(set(schema.names)) < len(schema.names) or any(
            each in there for each in OPTIONAL if each not in ("arrival", "hash_ids")
        ):
            raise NotPlain
        self.has_ids, self.has_times = "hash_ids" in there, "arrival" in there
        if not all(each in there and types.is_integer(there[each]) for each in NEEDED):
            raise NotPlain
        if self.has_times and not _is_time(there["arrival"]):
            raise NotPlain
        if self.has_ids and not (types.is_list(there["hash_ids"]) and types.is_integer(there["hash_ids"].value_type)):
            raise NotPlain

    def plain(self, chunk: pa.RecordBatch) -> tuple[Any, np.ndarray]:
        """Columns of all rows, and which of them are plain."""
        import pyarrow as pa

        prompt, prompt_fits = self._count(chunk, "prompt_tokens")
        output, output_fits = self._count(chunk, "output_tokens")
        plain = prompt_fits & output_fits & (prompt >= 1)
        columns: dict[str, Any] = {
            "arrival_ns": np.zeros(len(prompt), np.int64),
            "prompt_tokens": prompt,
            "output_tokens": output,
        }
        if self.has_times:
            columns["arrival_ns"], early = self._times(chunk.column(self._names["arrival"]))
            plain &= early
        if self.has_ids:
            columns["hash_ids"], enough = self._ids(chunk.column(self._names["hash_ids"]), prompt)
            plain &= enough
        return pa.table(columns), plain

    def _count(self, chunk: pa.RecordBatch, field: str) -> tuple[np.ndarray, np.ndarray]:
        column = chunk.column(self._names[field])
        there = np.asarray(column.is_valid())
        values = np.asarray(column.fill_null(0))
        fits = there & (values >= 0) & (values <= MAX_TOKENS)
        return np.where(fits, values, 0).astype(np.int64), fits

    def _times(self, column: pa.Array) -> tuple[np.ndarray, np.ndarray]:
        import pyarrow as pa
        import pyarrow.types as types

        there = np.asarray(column.is_valid())
        if types.is_timestamp(column.type):
            per_unit = UNITS[column.type.unit]
            values = np.asarray(column.cast(pa.int64()).fill_null(0))
            fits = there & (values >= 0) & (values < MAX_NS // per_unit)
            return np.where(fits, values, 0) * per_unit, fits
        values = np.asarray(column.fill_null(0))
        if types.is_integer(column.type):
            fits = there & (values >= 0) & (values <= MAX_NS // self._unit_ns)
            return np.where(fits, values, 0).astype(np.int64) * self._unit_ns, fits
        values = values.astype(np.float64)
        fits = there & is_early(values)
        return np.rint(np.where(fits, values, 0) * self._unit_ns).astype(np.int64), fits

    def _ids(self, column: pa.ListArray, prompt: np.ndarray) -> tuple[pa.Array, np.ndarray]:
        import pyarrow as pa

        offsets = np.asarray(column.offsets).astype(np.int64)
        values = column.values.slice(offsets[0], offsets[-1] - offsets[0])
        offsets = offsets - offsets[0]
        enough = np.asarray(column.is_valid()) & (np.diff(offsets) == -(-prompt // self._block_tokens))
        if values.null_count:
            strange = np.flatnonzero(np.asarray(values.is_null()))
            enough[np.searchsorted(offsets, strange, side="right") - 1] = False
        flat = np.asarray(values.fill_null(0))
        # Unsigned ids keep their bits.
        flat = flat.view(np.int64) if flat.dtype == np.uint64 else flat.astype(np.int64)
        return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), pa.array(flat)), enough


def _is_time(type_: pa.DataType) -> bool:
    import pyarrow.types as types

    return types.is_integer(type_) or types.is_floating(type_) or types.is_timestamp(type_)
