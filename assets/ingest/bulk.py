"""Many lines at a time: those that are plain beyond doubt pass at once, the line reader settles the others.

Whatever differs from a plain line in any way goes to the format's own reader, so verdicts, reasons and values are the
same as when every line is read there; only the speed depends on how many lines are plain.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from assets.ingest.fields import BadRow
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


class Bulk(Protocol):
    """Reads chunk after chunk of one file.

    Attributes:
        has_ids: whether rows have prefix ids: then all have to.
        has_times: whether rows have arrivals: then all have to.
    """

    has_ids: bool
    has_times: bool

    def plain(self, chunk: Any) -> tuple[pa.Table | None, np.ndarray]:
        """Columns of all lines, and which of them are plain; no columns if none is."""


def part_of(bulk: Bulk, chunk: Any, left_out: np.ndarray, read: Callable[[int], Row]) -> Part:
    """The rows of a chunk, in file order.

    Args:
        left_out: lines that are no rows (blank ones, a header). Shape (n,), bool.
        read: what the format's own reader makes of line i, or BadRow.
    """
    found, plain = bulk.plain(chunk)
    plain &= ~left_out
    rows, bad = _settled(bulk, np.flatnonzero(~left_out & ~plain), read)
    return _joined(bulk, found, np.flatnonzero(plain), rows, bad)


def _settled(
    bulk: Bulk, doubtful: np.ndarray, read: Callable[[int], Row]
) -> tuple[list[tuple[int, Row]], list[tuple[int, BadRow]]]:
    rows, bad = [], []
    for i in doubtful.tolist():
        try:
            row = read(i)
            if row.session is not None or row.external_id is not None or row.pinned_rank >= 0:
                raise NotPlain
            # In the order in which rows read one by one are checked.
            if row.hash_ids is None and bulk.has_ids:
                raise BadRow("missing_field", "hash_ids")
            if row.hash_ids is not None and not bulk.has_ids:
                raise NotPlain
            if row.delay_ns:
                raise BadRow("delay_without_turn", "delay", row.delay_ns / 1e6)
            if row.arrival_ns is None and bulk.has_times:
                raise BadRow("missing_field", "timestamp")
            rows.append((i, row))
        except BadRow as fault:
            bad.append((i, fault))
    return rows, bad


def _joined(
    bulk: Bulk, found: Any, plain: np.ndarray, rows: list[tuple[int, Row]], bad: list[tuple[int, BadRow]]
) -> Part:
    import pyarrow as pa

    at = plain
    if found is not None and len(plain) < found.num_rows:
        found = found.take(plain)
    if rows or found is None:
        made: dict[str, Any] = {
            "arrival_ns": pa.array([row.arrival_ns or 0 for _, row in rows], pa.int64()),
            "prompt_tokens": pa.array([row.prompt_tokens for _, row in rows], pa.int64()),
            "output_tokens": pa.array([row.output_tokens for _, row in rows], pa.int64()),
        }
        if bulk.has_ids:
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
        hash_ids=one(found["hash_ids"]) if bulk.has_ids else None,
        bad=bad,
    )


def one(column: pa.ChunkedArray) -> pa.Array:
    """The column in one piece."""
    import pyarrow as pa

    return column.chunk(0) if column.num_chunks else pa.array([], column.type)
