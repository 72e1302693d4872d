"""Mooncake lines many at a time: DuckDB passes those that are plain beyond doubt, the line reader settles the others.

A line is plain if it has the keys of the file's first row, in their order, each of the right kind and in range, and
nothing else. Whatever differs in any way goes to `mooncake.Reader`, so verdicts, reasons and values are the same as
when every line is read there; only the speed depends on how many lines are plain.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from assets.ingest import mooncake
from assets.ingest.chunks import Chunk
from assets.ingest.fields import MAX_NS, MAX_TOKENS, BadRow
from assets.ingest.rows import Row

if TYPE_CHECKING:
    import pyarrow as pa


class NotPlain(Exception):
    """Rows of this file depend on one another (sessions, names): they have to be read one by one."""


class Part(NamedTuple):
    """The rows of a chunk.

    Attributes:
        at: shape (n,), which line of the chunk each row is.
        bad: line of the chunk, and what is wrong with it.
    """

    at: np.ndarray
    arrival_ns: np.ndarray
    prompt_tokens: np.ndarray
    output_tokens: np.ndarray
    hash_ids: pa.Array | None
    bad: list[tuple[int, BadRow]]


class Bulk:
    """Reads chunk after chunk of one file.

    Args:
        first: the keys of the file's first usable row.
        reader: settles what is not plain.
    """

    def __init__(self, con: Any, first: list[str], reader: mooncake.Reader, block_tokens: int) -> None:
        self._con, self._reader, self._block_tokens = con, reader, block_tokens
        self._has_ids = "hash_ids" in first
        names = (mooncake.TIME, mooncake.INPUT, mooncake.OUTPUT)
        found = [next((each for each in pair if each in first), None) for pair in names]
        if None in found or len(first) != 3 + self._has_ids:
            raise NotPlain
        self._keys, self._names = first, [str(each) for each in found] + (["hash_ids"] if self._has_ids else [])
        self._sql = _query(first, self._names[:3])

    def part(self, chunk: Chunk, blank: np.ndarray) -> Part:
        """The rows of a chunk, in file order."""
        found, plain = self._plain(chunk)
        rows, bad = self._settle(chunk, np.flatnonzero(~blank & ~plain))
        return self._joined(found, np.flatnonzero(plain), rows, bad)

    def _plain(self, chunk: Chunk) -> tuple[Any, np.ndarray]:
        """Columns of all lines, and which of them are plain."""
        import pyarrow as pa

        none = np.zeros(len(chunk), bool)
        try:
            chunk.data.decode()
        except UnicodeDecodeError:
            return None, none
        # In small batches, so that every thread has some.
        lines = pa.table({"line": chunk.strings()}).to_batches(max_chunksize=8192)
        self._con.register("chunk", pa.Table.from_batches(lines))
        read = self._con.sql(self._sql).to_arrow_table().combine_chunks()
        self._con.unregister("chunk")
        kind = np.asarray(read["kind"].fill_null(0))
        fields = _one(read["row"])
        values = {name: fields.field(name) for name in self._names}
        # What does not fit 64 bits is read as nothing, and nothing must not pass for zero.
        time, prompt, output = (np.asarray(pa.compute.fill_null(values[name], -1)) for name in self._names[:3])
        plain = (kind > 0) & (prompt >= 1) & (prompt <= MAX_TOKENS) & (output >= 0) & (output <= MAX_TOKENS)
        # Fractions that late are worked out in decimals by the line reader.
        plain &= (time >= 0) & (time <= np.where(kind == 1, MAX_NS // 10**6, 1e6 - 1))
        commas: Any = len(self._keys) - 1
        ids = None
        if self._has_ids:
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

    def _settle(self, chunk: Chunk, doubtful: np.ndarray) -> tuple[list[tuple[int, Row]], list[tuple[int, BadRow]]]:
        rows, bad = [], []
        for i in doubtful.tolist():
            try:
                row = self._reader.row(chunk.line(i))
                if row.session is not None or row.external_id is not None or row.pinned_rank >= 0:
                    raise NotPlain
                # In the order in which rows read one by one are checked.
                if row.hash_ids is None and self._has_ids:
                    raise BadRow("missing_field", "hash_ids")
                if row.hash_ids is not None and not self._has_ids:
                    raise NotPlain
                if row.delay_ns:
                    raise BadRow("delay_without_turn", "delay", row.delay_ns / 1e6)
                if row.arrival_ns is None:
                    raise BadRow("missing_field", "timestamp")
                rows.append((i, row))
            except BadRow as fault:
                bad.append((i, fault))
        return rows, bad

    def _joined(
        self, found: Any, plain: np.ndarray, rows: list[tuple[int, Row]], bad: list[tuple[int, BadRow]]
    ) -> Part:
        import pyarrow as pa

        at = plain
        if found is not None and len(plain) < found.num_rows:
            found = found.take(plain)
        if rows or found is None:
            made: dict[str, Any] = {
                "arrival_ns": pa.array([row.arrival_ns for _, row in rows], pa.int64()),
                "prompt_tokens": pa.array([row.prompt_tokens for _, row in rows], pa.int64()),
                "output_tokens": pa.array([row.output_tokens for _, row in rows], pa.int64()),
            }
            if self._has_ids:
                lists = [(row.hash_ids or array("q")).tolist() for _, row in rows]
                made["hash_ids"] = pa.array(lists, pa.list_(pa.int64()))
            mine = pa.table(made)
            found = mine if found is None else pa.concat_tables([found.cast(mine.schema), mine])
            at = np.append(plain, np.array([i for i, _ in rows], np.int64))
            order = np.argsort(at, kind="stable")
            at, found = at[order], found.take(order)
        found = found.combine_chunks()
        return Part(
            at=at,
            arrival_ns=np.asarray(found["arrival_ns"]),
            prompt_tokens=np.asarray(found["prompt_tokens"]),
            output_tokens=np.asarray(found["output_tokens"]),
            hash_ids=_one(found["hash_ids"]) if self._has_ids else None,
            bad=bad,
        )


def _one(column: pa.ChunkedArray) -> pa.Array:
    import pyarrow as pa

    return column.chunk(0) if column.num_chunks else pa.array([], column.type)


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
