"""Mooncake lines many at a time, through DuckDB (see `bulk`).

A line is plain if it has the keys of the file's first row, in their order, each of the right kind and in range, and
nothing else.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from assets.ingest import mooncake
from assets.ingest.bulk import NotPlain, one
from assets.ingest.chunks import Chunk
from assets.ingest.fields import MAX_NS, MAX_TOKENS
from assets.ingest.json_text import objects
from assets.ingest.parser import Options


class Bulk:
    """Reads chunk after chunk of one file.

    Args:
        first: the keys of the file's first usable row.
    """

    has_times = True

    def __init__(self, con: Any, first: list[str], block_tokens: int) -> None:
        self._con, self._block_tokens = con, block_tokens
        self.has_ids = "hash_ids" in first
        names = (mooncake.TIME, mooncake.INPUT, mooncake.OUTPUT)
        found = [next((each for each in pair if each in first), None) for pair in names]
        if None in found or len(first) != 3 + self.has_ids:
            raise NotPlain
        self._keys, self._names = first, [str(each) for each in found] + (["hash_ids"] if self.has_ids else [])
        self._sql = _query(first, self._names[:3])

    def plain(self, chunk: Chunk) -> tuple[Any, np.ndarray]:
        """Columns of all lines, and which of them are plain."""
        import pyarrow as pa

        read = chunk.asked(self._con, self._sql)
        kind = np.asarray(read["kind"].fill_null(0))
        fields = one(read["row"])
        values = {name: fields.field(name) for name in self._names}
        # What does not fit 64 bits is read as nothing, and nothing must not pass for zero.
        time, prompt, output = (np.asarray(pa.compute.fill_null(values[name], -1)) for name in self._names[:3])
        plain = (kind > 0) & (prompt >= 1) & (prompt <= MAX_TOKENS) & (output >= 0) & (output <= MAX_TOKENS)
        # Fractions that late are worked out in decimals by the line reader.
        plain &= (time >= 0) & (time <= np.where(kind == 1, MAX_NS // 10**6, 1e6 - 1))
        commas: Any = len(self._keys) - 1
        ids = None
        if self.has_ids:
            ids = values["hash_ids"]
            counts = np.diff(np.asarray(ids.offsets))
            plain &= counts == -(-prompt // self._block_tokens)
            commas = commas + counts - 1
            flat = np.asarray(ids.values.fill_null(0))
            strange = flat >= 2**63
            if ids.values.null_count:
                strange |= np.asarray(ids.values.is_null())
            if strange.any():
                plain[np.searchsorted(np.asarray(ids.offsets), np.flatnonzero(strange), side="right") - 1] = False
            ids = pa.ListArray.from_arrays(ids.offsets, pa.array(flat.view(np.int64)))
        # The JSON parser lets trailing commas pass and reports a repeated key once: counting catches both.
        plain &= (chunk.count(b",") == commas) & (chunk.count(b'"') == 2 * len(self._keys))
        time = np.where(plain, time, 0)
        with_fraction = plain & (kind == 2)
        arrival_ns = time.astype(np.int64) * 10**6
        arrival_ns[with_fraction] = np.rint(time[with_fraction] * 1e6).astype(np.int64)
        columns = {"arrival_ns": arrival_ns, "prompt_tokens": prompt, "output_tokens": output}
        return pa.table({**columns, **({"hash_ids": ids} if ids is not None else {})}), plain


def _query(keys: list[str], names: list[str]) -> str:
    """Kind (1: whole ms, 2: ms with a fraction, null: another shape) and fields of every line of table `chunk`."""
    time = names[0]
    kinds = dict.fromkeys(names, '"UBIGINT"') | {"hash_ids": '["UBIGINT"]'}
    whole = ",".join(f'"{key}":{kinds[key]}' for key in keys)
    fraction = whole.replace(f'"{time}":"UBIGINT"', f'"{time}":"DOUBLE"')
    read = fraction.replace(f'"{names[1]}":"UBIGINT"', f'"{names[1]}":"BIGINT"')
    read = read.replace(f'"{names[2]}":"UBIGINT"', f'"{names[2]}":"BIGINT"')
    # The text is checked once, by the cast; what is no JSON has no shape and no fields.
    return f"""
        SELECT list_position(['{{{whole}}}', '{{{fraction}}}'], json_structure(found)::VARCHAR)::TINYINT AS kind,
            from_json(found, '{{{read}}}') AS row
        FROM (SELECT TRY_CAST(line AS JSON) AS found FROM chunk)"""


def of(con: Any, options: Options, lines: list[bytes]) -> Bulk:
    """For a file that begins with these lines."""
    first = next((row for row in objects(lines) if {"input_length", "input_tokens"} & row.keys()), None)
    if first is None:
        raise NotPlain
    return Bulk(con, list(first), options.block_tokens)
