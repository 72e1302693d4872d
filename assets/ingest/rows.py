"""Growing columns: rows in, a Trace out. Sessions, duplicate ids and order are settled here for every format."""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from assets.ingest.fields import BadRow
from assets.ingest.trace import Waits, reordered

NO_TIME = -1


class Row(NamedTuple):
    """What a format makes of one line. `arrival_ns` counts from any epoch."""

    arrival_ns: int | None
    prompt_tokens: int
    output_tokens: int
    hash_ids: array[int] | None = None
    session: str | None = None
    delay_ns: int | None = None
    external_id: str | None = None
    pinned_rank: int = -1
    hashed_tokens: int = -1  # leading tokens that ids describe, where not just the prompt
    not_before_ns: int = 0  # earliest arrival after that of the session's first request
    # Where sessions are more than turns: (ordinal of an earlier row, delay in ns, on its arrival rather than its end).
    # `arrival_ns` is then the place in the order, not before those of the rows waited for.
    waits: tuple[tuple[int, int, bool], ...] | None = None


@dataclass(slots=True)
class _Session:
    code: int
    turns: int
    arrival_ns: int  # of its latest turn, NO_TIME if that had none
    order_ns: int  # its latest turn's place in the order


class SomeRowsHaveIds(Exception):
    """The first prefix ids of a file came after rows without any: read it again with `needs_ids`."""


class Rows:
    """Columns of the usable rows so far.

    Args:
        needs_timestamps: a first turn without an arrival is a bad row; None: if the first row has one.
        needs_ids: a row without prefix ids is a bad row. A file in which no row has any is a trace without prefix
            information; in one where others have them, a row without would pass for one that shares nothing.
        needs_output: a request for no tokens is a bad row.
    """

    def __init__(self, *, needs_timestamps: bool | None, needs_ids: bool, needs_output: bool) -> None:
        self.needs_timestamps, self.needs_ids, self.needs_output = needs_timestamps, needs_ids, needs_output
        self.request_id, self.source_line = array("q"), array("q")
        self.order_ns, self.delay_ns = array("q"), array("q")
        self.prompt_tokens, self.output_tokens = array("q"), array("q")
        self.session, self.turn, self.pinned_rank = array("q"), array("q"), array("q")
        self.hash_ids, self.hash_ends = array("q"), array("q")
        self.hashed_tokens = array("q")
        self.wait_ends, self.wait_on = array("q"), array("q")
        self.wait_delay_ns, self.wait_on_dispatch = array("q"), array("q")
        self.not_before_ns: dict[int, int] = {}  # by place among the rows
        self.has_ids = False
        self.external_ids: list[str | None] = []
        self.has_timestamps = True
        self.last_order_ns = 0
        self._sessions: dict[str, _Session] = {}
        self._seen: set[str] = set()
        self._waited_for: set[int] = set()  # rows that others may wait for

    def __len__(self) -> int:
        return len(self.request_id)

    @property
    def session_names(self) -> list[str]:
        return list(self._sessions)

    def add(self, request_id: int, line: int, row: Row) -> None:
        """Append a row, or raise BadRow and leave everything as it was."""
        arrival_ns, prompt, output, hash_ids, name, delay_ns, external_id, pinned_rank, hashed, not_before, waits = row
        if external_id is not None and external_id in self._seen:
            raise BadRow("duplicate_id", "request_id", external_id)
        if output == 0 and self.needs_output:
            raise BadRow("zero_output", "output", 0)
        if hash_ids is None:
            if self.needs_ids or self.has_ids:
                raise BadRow("missing_field", "hash_ids")
        elif self.request_id and not self.has_ids:
            raise SomeRowsHaveIds
        for other, _, _ in waits or ():
            if other not in self._waited_for:
                raise BadRow("no_such_request", "dependencies", other)
        session = self._sessions.get(name) if name is not None else None
        if session is None:
            if delay_ns:
                raise BadRow("delay_without_turn", "delay", delay_ns / 1e6)
            if self.needs_timestamps is None:
                self.needs_timestamps = arrival_ns is not None
            if arrival_ns is None:
                if self.needs_timestamps:
                    raise BadRow("missing_field", "timestamp")
                self.has_timestamps = False
            # A row without a time keeps its place in the file.
            order_ns = self.last_order_ns if arrival_ns is None else arrival_ns
            code = turn = -1
            if name is not None:
                code, turn = len(self._sessions), 0
                stamp = NO_TIME if arrival_ns is None else arrival_ns
                self._sessions[name] = _Session(code, 1, stamp, order_ns)
            delay_ns = 0
        else:
            stamp = NO_TIME if arrival_ns is None else arrival_ns
            if waits is not None:
                delay_ns = 0
            elif delay_ns is None:
                known = stamp != NO_TIME and session.arrival_ns != NO_TIME
                delay_ns = stamp - session.arrival_ns if known else 0
                if delay_ns < 0:
                    raise BadRow("turn_goes_back", "timestamp", delay_ns / 1e6)
            # Never before the turn it follows: a stable sort must keep turns in order.
            order_ns = stamp if stamp != NO_TIME else session.order_ns + delay_ns
            if waits is None:
                order_ns = max(session.order_ns, order_ns)
            code, turn = session.code, session.turns
            session.turns += 1
            session.arrival_ns, session.order_ns = stamp, order_ns
        if external_id is not None:
            self._seen.add(external_id)
        self.last_order_ns = order_ns
        if not_before:
            self.not_before_ns[len(self.request_id)] = not_before
        if waits is not None:
            self._waited_for.add(request_id)
            for other, delay, on_dispatch in waits:
                self.wait_on.append(other)
                self.wait_delay_ns.append(delay)
                self.wait_on_dispatch.append(on_dispatch)
            self.wait_ends.append(len(self.wait_on))
        self.request_id.append(request_id)
        self.source_line.append(line)
        self.order_ns.append(order_ns)
        self.prompt_tokens.append(prompt)
        self.output_tokens.append(output)
        self.session.append(code)
        self.turn.append(turn)
        self.delay_ns.append(delay_ns)
        self.pinned_rank.append(pinned_rank)
        self.external_ids.append(external_id)
        self.hashed_tokens.append(hashed)
        if hash_ids is not None:
            self.has_ids = True  # an empty list says something, too: a prompt shorter than a block
            self.hash_ids.extend(hash_ids)
        self.hash_ends.append(len(self.hash_ids))

    def drain(self) -> dict[str, Any]:
        """Columns of table `traces` of the rows so far, in file order and with times as given; then start afresh."""
        names = (
            "request_id",
            "source_line",
            "order_ns",
            "delay_ns",
            "prompt_tokens",
            "output_tokens",
            "session",
            "turn",
        )
        found: dict[str, Any] = {
            name: _column(getattr(self, name)).copy() for name in (*names, "pinned_rank", "hashed_tokens")
        }
        found["arrival_ns"] = found.pop("order_ns")
        found["external_id"] = self.external_ids
        found["not_before_ns"], found["waits"] = self._not_before(), self._waits()
        ends, ids = _column(self.hash_ends), _column(self.hash_ids)
        found["has_ids"], found["session_names"] = self.has_ids, self.session_names
        found["hash_offsets"], found["hash_ids"] = np.concatenate([np.zeros(1, np.int64), ends]), ids.copy()
        del ends, ids
        waits = ("wait_ends", "wait_on", "wait_delay_ns", "wait_on_dispatch")
        for name in (*names, "pinned_rank", "hashed_tokens", "hash_ids", "hash_ends", *waits):
            setattr(self, name, array("q"))
        self.not_before_ns = {}
        self.external_ids = []
        return found

    def _not_before(self) -> np.ndarray | None:
        if not self.not_before_ns:
            return None
        found = np.zeros(len(self), np.int64)
        found[list(self.not_before_ns)] = list(self.not_before_ns.values())
        return found

    def _waits(self) -> Waits | None:
        if not self.wait_ends:
            return None
        offsets = np.concatenate([np.zeros(1, np.int64), _column(self.wait_ends)])
        columns = (self.wait_on, self.wait_delay_ns, self.wait_on_dispatch)
        return Waits(offsets, *(_column(column).copy() for column in columns))

    def columns(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Columns of a Trace in order of arrival, and what the sorting did."""
        order_ns = _column(self.order_ns)
        n_late = int((order_ns < np.maximum.accumulate(order_ns)).sum())
        order = np.argsort(order_ns, kind="stable") if n_late else None

        def take(values: array[int]) -> np.ndarray:
            column = _column(values)
            return column if order is None else column[order]

        has_sessions, has_ids = bool(self._sessions), self.has_ids
        offsets = np.concatenate([np.zeros(1, np.int64), _column(self.hash_ends)])
        ids = _column(self.hash_ids)
        if order is not None:
            offsets, ids = reordered(offsets, ids, order)
        named = any(each is not None for each in self.external_ids)
        names = self.external_ids if order is None else [self.external_ids[i] for i in order.tolist()]
        pinned, hashed = take(self.pinned_rank), take(self.hashed_tokens)
        prompts = take(self.prompt_tokens)
        not_before_ns, waits = self._not_before(), self._waits()
        if order is not None:
            not_before_ns = None if not_before_ns is None else not_before_ns[order]
            waits = None if waits is None else waits.taken(order)
        found = {
            "request_id": take(self.request_id),
            "source_line": take(self.source_line),
            "external_id": names if named else None,
            "session": take(self.session) if has_sessions else None,
            "session_names": self.session_names,
            "turn": take(self.turn) if has_sessions else None,
            "arrival_ns": take(self.order_ns) - int(order_ns.min()),
            "delay_ns": take(self.delay_ns) if has_sessions and waits is None else None,
            "not_before_ns": not_before_ns,
            "waits": waits,
            "prompt_tokens": prompts,
            "output_tokens": take(self.output_tokens),
            "pinned_rank": pinned if (pinned >= 0).any() else None,
            "hash_offsets": offsets if has_ids else None,
            "hash_ids": ids if has_ids else None,
            "hashed_tokens": np.where(hashed < 0, prompts, hashed) if (hashed >= 0).any() else None,
            "has_timestamps": self.has_timestamps,
        }
        return found, {"sorted": n_late == 0, "rows_out_of_order": n_late}


def _column(values: array[int]) -> np.ndarray:
    # A view: the array is not touched again, and the ids are most of a trace.
    return np.frombuffer(values, np.int64) if len(values) else np.zeros(0, np.int64)
