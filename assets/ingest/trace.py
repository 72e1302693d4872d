"""A trace as columns, whatever file it came from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np


class TraceError(ValueError):
    """The trace cannot be used at all. The message names the file, what was found and what to do."""


class Quarantine:
    """Rows of the source that were set aside, in file order.

    Attributes:
        source_line: line of the file, from 1.
        reason: one of `fields.REASONS`.
        field: the field at fault, or None when it is the line as a whole.
        value: its value as text.
        raw: the line as it stands in the file.
    """

    def __init__(self) -> None:
        self.source_line: list[int] = []
        self.reason: list[str] = []
        self.field: list[str | None] = []
        self.value: list[str | None] = []
        self.raw: list[str] = []

    def __len__(self) -> int:
        return len(self.source_line)

    def add(self, line: int, reason: str, field: str | None, value: str | None, raw: str) -> None:
        self.source_line.append(line)
        self.reason.append(reason)
        self.field.append(field)
        self.value.append(value)
        self.raw.append(raw)

    def clear(self) -> None:
        """Forget the rows."""
        for values in self.columns().values():
            values.clear()

    def sort(self) -> None:
        """File order: formats that need the whole file find some faults after the last line."""
        order = sorted(range(len(self)), key=self.source_line.__getitem__)
        for name, values in self.columns().items():
            setattr(self, name, [values[i] for i in order])

    def columns(self) -> dict[str, list[Any]]:
        """Columns of table `quarantine`."""
        return {
            "source_line": self.source_line,
            "reason": self.reason,
            "field": self.field,
            "value": self.value,
            "raw": self.raw,
        }

    def reasons(self) -> dict[str, int]:
        """Rows per reason, most frequent first."""
        counts: dict[str, int] = {}
        for reason in self.reason:
            counts[reason] = counts.get(reason, 0) + 1
        return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


@dataclass(frozen=True, slots=True)
class Counts:
    """Where the lines of a file went: lines = header + blank + skipped + records, and rows_read = clean + quarantined.

    A record is a line with requests in it. In most formats it is one request, and rows_read = records. Skipped lines
    hold events of other kinds.
    """

    lines: int
    header: int
    blank: int
    rows_read: int
    clean: int
    quarantined: int
    skipped: int = 0
    records: int = 0


class Waits(NamedTuple):
    """What requests of a session wait for: row r for entries offsets[r] up to offsets[r + 1] of the other columns.

    Attributes:
        offsets: shape (n + 1,).
        on: shape (waits,), request_id of an earlier row of the same session.
        delay_ns: shape (waits,), from the event to the arrival.
        on_dispatch: shape (waits,), 1: the event is the other's arrival, 0: its end.
    """

    offsets: np.ndarray
    on: np.ndarray
    delay_ns: np.ndarray
    on_dispatch: np.ndarray

    def taken(self, rows: np.ndarray) -> Waits:
        """These rows in this order."""
        columns = [reordered(self.offsets, column, rows) for column in self[1:]]
        return Waits(columns[0][0], *(column for _, column in columns))


def reordered(offsets: np.ndarray, values: np.ndarray, order: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Lists of values, one per row, in another row order."""
    lengths = np.diff(offsets)[order]
    moved = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    source = np.repeat(offsets[:-1][order] - moved[:-1], lengths) + np.arange(moved[-1])
    return moved, values[source]


@dataclass(frozen=True, slots=True, eq=False)
class Trace:
    """The usable rows of a trace in order of arrival; rows of a session are its turns.

    Attributes:
        request_id: shape (n,), position among the file's rows, from 0, quarantined rows included.
        source_line: shape (n,), line of the file, from 1.
        external_id: the source's names of the requests, or None if it has none.
        session: shape (n,), session number by first appearance, -1 for none; or None if there are no sessions.
        session_names: the source's name of each session.
        turn: shape (n,), from 0 within a session, -1 for none; or None with `session`.
        arrival_ns: shape (n,), non-decreasing, the earliest is 0. For later turns (and without timestamps) a place in
            the order rather than a time.
        delay_ns: shape (n,), think time before a later turn; or None with `session`.
        prompt_tokens, output_tokens: shape (n,).
        not_before_ns: shape (n,), earliest arrival after that of the session's first request; None: zero for all.
        waits: who waits for whom, where sessions are more than turns that follow one another; else None.
        pinned_rank: shape (n,), rank inside the worker, -1 for none; or None if nobody is pinned.
        hash_offsets, hash_ids: ids of row r are hash_ids[hash_offsets[r]:hash_offsets[r + 1]]; None if the trace says
            nothing about prefixes, which is not the same as saying that none are shared.
        hash_block_tokens: tokens per id.
        hashed_tokens: shape (n,), leading tokens that ids describe where they cover generated ones, too; None: prompts.
        has_timestamps: whether every row that needs an arrival has one.
        format: the format's name, and `why` it was taken for that.
        digest: blake2b of the file's bytes, 32 hex digits.
        notes: facts about the file that are no faults: sorting, surplus ids, ignored fields.
    """

    request_id: np.ndarray
    source_line: np.ndarray
    external_id: list[str | None] | None
    session: np.ndarray | None
    session_names: list[str]
    turn: np.ndarray | None
    arrival_ns: np.ndarray
    delay_ns: np.ndarray | None
    not_before_ns: np.ndarray | None
    waits: Waits | None
    prompt_tokens: np.ndarray
    output_tokens: np.ndarray
    pinned_rank: np.ndarray | None
    hash_offsets: np.ndarray | None
    hash_ids: np.ndarray | None
    hash_block_tokens: int
    hashed_tokens: np.ndarray | None
    has_timestamps: bool
    quarantine: Quarantine
    counts: Counts
    path: str
    format: str
    why: str
    digest: str
    notes: dict[str, Any]

    def __len__(self) -> int:
        return len(self.request_id)

    @property
    def session_id(self) -> list[str | None] | None:
        """The source's session name per row."""
        if self.session is None:
            return None
        return [self.session_names[code] if code >= 0 else None for code in self.session.tolist()]

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is no fault and yet probably not meant."""
        found = []
        surplus = self.notes.get("rows_with_surplus_hash_ids", 0)
        if surplus * 2 > len(self):
            found.append(
                f"{surplus:,} of {len(self):,} rows have more hash ids than blocks of {self.hash_block_tokens} tokens "
                "need: is traffic.source.block_size right?"
            )
        if "replay" in self.notes and self.session is not None:
            found.append(self.notes["replay"])
        late = self.notes["rows_out_of_order"]
        if late:
            found.append(f"{late:,} row(s) of the trace were out of order and have been sorted by time")
        if self.counts.quarantined:
            reasons = ", ".join(f"{count:,} {reason}" for reason, count in self.quarantine.reasons().items())
            found.append(f"{self.counts.quarantined:,} of {self.counts.rows_read:,} rows are in quarantine: {reasons}")
        return tuple(found)

    @property
    def provenance(self) -> dict[str, Any]:
        """Where the rows come from and what happened on the way, ready for JSON."""
        counts = self.counts
        return {
            "path": self.path,
            "format": self.format,
            "why_this_format": self.why,
            "digest": self.digest,
            "lines": counts.lines,
            "header": counts.header,
            "blank": counts.blank,
            "skipped": counts.skipped,
            "rows_read": counts.rows_read,
            "clean": counts.clean,
            "quarantined": counts.quarantined,
            "reasons": self.quarantine.reasons(),
            **self.notes,
        }
