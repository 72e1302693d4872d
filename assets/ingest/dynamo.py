"""Dynamo request trace (schema dynamo.request.trace.v1), JSON lines: what a running deployment has recorded.

A `request_end` record is a request: when it came, how long its answer was, and the hashes of its prompt's blocks,
whose size stands in the records. Tool and payload records are skipped, for the times of the requests already cover
them. Records may be wrapped in `event`. Requests are ordered by (start, end, id), rule WL-17. With `agent_context`,
those of one session follow one another after the recorded pauses (their recorded starts are no lower bound, and
nothing else is, as its producer has it). A session with a parent session starts as long after the parent's latest
request as recorded, and the first request of the parent that came after the session's last one had ended waits for
that end, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

from assets.ingest.fields import BadRow, name, prompt_tokens, tokens
from assets.ingest.graph import Wait, components, in_order, places_in_time
from assets.ingest.json_text import enough_ids, hash_ids, json_object, objects
from assets.ingest.parser import Format, Options, Parser
from assets.ingest.rows import Row
from assets.ingest.times import UNITS, span_ns

SCHEMA, REQUEST = "dynamo.request.trace.v1", "request_end"
SKIPPED = frozenset(("request_payload", "tool_start", "tool_end", "tool_error"))
MS = UNITS["ms"]
REPLAY = (
    "requests of a session start as long after the end of the one before as recorded, not at their recorded times: "
    "with a faster engine they come earlier, with a slower one later"
)


def recognise(lines: list[bytes]) -> str | None:
    """Why these lines are a Dynamo trace, or None."""
    if any(_record(row).get("schema") == SCHEMA for row in objects(lines)):
        return f"JSON lines with schema {SCHEMA}"
    return None


class _Call(NamedTuple):
    start_ns: int
    end_ns: int
    request_id: str
    ordinal: int
    number: int
    line: bytes
    row: Row


class Reader(Parser):
    """Reads one file's lines."""

    whole = True

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._calls: list[_Call] = []
        self._ids: set[str] = set()
        self._block: int | None = options.asserted_block
        self._kinds: dict[str, int] = {}
        self._parents: dict[str, str] = {}
        self._lost = 0

    @property
    def block_tokens(self) -> int:
        """The records say it."""
        return self._block or self.options.block_tokens

    def take(self, ordinal: int, number: int, line: bytes) -> int:
        record = _record(json_object(line))
        if record.get("schema") != SCHEMA:
            raise BadRow("unknown_schema", "schema", record.get("schema"))
        kind = record.get("event_type")
        if kind in SKIPPED:
            self._kinds[kind] = self._kinds.get(kind, 0) + 1
            return 0
        if kind != REQUEST:
            raise BadRow("unknown_schema", "event_type", kind)
        request = _section(record, "request")
        replay = _section(request, "replay")
        request_id = name(_given(request, "request_id"), "request_id")
        if request_id in self._ids:
            raise BadRow("duplicate_id", "request_id", request_id)
        block = prompt_tokens(tokens(replay.get("trace_block_size"), "trace_block_size"), "trace_block_size")
        if self._block not in (None, block):
            raise BadRow("conflicting_fields", "trace_block_size", f"{block} where others have {self._block}")
        prompt = prompt_tokens(tokens(replay.get("input_length"), "input_length"), "input_length")
        ids = hash_ids(replay.get("input_sequence_hashes"), "input_sequence_hashes", line)
        needed = enough_ids(ids, prompt, block, "input_sequence_hashes")
        output = tokens(request.get("output_tokens"), "output_tokens")
        start_ns, end_ns = _times(record, request)
        session = self._session(record)
        self._block = block
        self._ids.add(request_id)
        row = Row(start_ns, prompt, output, ids[:needed], session, None, request_id)
        self._calls.append(_Call(start_ns, end_ns, request_id, ordinal, number, line, row))
        return 1

    def _session(self, record: dict[str, Any]) -> str | None:
        context = record.get("agent_context")
        known = self._calls[0].row.session is not None if self._calls else context is not None
        if (context is not None) != known:
            # All requests have one or none has, as its producer insists.
            raise BadRow("missing_field" if known else "conflicting_fields", "agent_context")
        if context is None:
            return None
        session = name(_given(_section(record, "agent_context"), "session_id"), "session_id")
        parent = context.get("parent_session_id")
        if parent is not None:
            self._parents.setdefault(session, name(parent, "parent_session_id"))
        return session

    def finish(self) -> Iterator[tuple[int, int, bytes, Row | BadRow]]:
        calls = sorted(self._calls, key=lambda each: each[:3])
        sessions: dict[str, list[_Call]] = {}
        for call in calls:
            if call.row.session is not None:
                sessions.setdefault(call.row.session, []).append(call)
        self._lost = sum(parent not in sessions for parent in self._parents.values())
        parents = {child: parent for child, parent in self._parents.items() if parent in sessions and child in sessions}
        if parents:
            yield from _plays(calls, sessions, parents)
            return
        ends: dict[str, int] = {}
        for call in calls:
            row, session = call.row, call.row.session
            if session is not None:
                if session in ends:
                    row = row._replace(delay_ns=max(0, call.start_ns - ends[session]))
                ends[session] = call.end_ns
            yield call.ordinal, call.number, call.line, row

    def notes(self) -> dict[str, Any]:
        more: dict[str, Any] = {"replay": REPLAY} if any(call.row.session for call in self._calls) else {}
        more |= {"sessions_with_unknown_parents": self._lost} if self._lost else {}
        return {"skipped_records": dict(sorted(self._kinds.items())), **more}


def _plays(
    calls: list[_Call], sessions: dict[str, list[_Call]], parents: dict[str, str]
) -> Iterator[tuple[int, int, bytes, Row | BadRow]]:
    """Requests that wait for those of other sessions, too (rule WL-17). What parents connect is one play."""
    waits = _waits(calls, sessions, parents, inclusive=True)
    if len(in_order(waits)) < len(waits):
        # Requests of no duration at one instant can seem to wait for each other.
        waits = _waits(calls, sessions, parents, inclusive=False)
    starts = {call.request_id: call.start_ns for call in calls}
    by_id = {call.request_id: call for call in calls}
    plays = components(waits)
    opened: dict[str, int] = {}
    for request_id, order_ns in places_in_time(waits, starts).items():
        call, play = by_id[request_id], plays[request_id]
        opener_ns = opened.setdefault(play, order_ns)
        found = tuple((by_id[wait.request_id].ordinal, wait.delay_ns, wait.on_dispatch) for wait in waits[request_id])
        # A request of a play that waits for nobody comes when it came; whoever waits has no other lower bound.
        not_before_ns = 0 if found else order_ns - opener_ns
        row = call.row._replace(arrival_ns=order_ns, session=play, not_before_ns=not_before_ns, waits=found)
        yield call.ordinal, call.number, call.line, row


def _waits(
    calls: list[_Call], sessions: dict[str, list[_Call]], parents: dict[str, str], *, inclusive: bool
) -> dict[str, list[Wait]]:
    """Who waits for whom. `inclusive`: a parent's request of the very same time counts as before its child."""
    waits: dict[str, list[Wait]] = {call.request_id: [] for call in calls}
    for own in sessions.values():
        for before, call in pairwise(own):
            waits[call.request_id].append(Wait(before.request_id, max(0, call.start_ns - before.end_ns), False))
    place = {call.request_id: i for i, call in enumerate(calls)}
    for child, parent in parents.items():
        if child == parent:
            continue
        first, last = sessions[child][0], max(sessions[child], key=lambda call: call.end_ns)
        earlier = [
            call
            for call in sessions[parent]
            if place[call.request_id] < place[first.request_id] or (inclusive and call.start_ns == first.start_ns)
        ]
        if not earlier:
            continue
        spawn = earlier[-1]
        waits[first.request_id].append(Wait(spawn.request_id, first.start_ns - spawn.start_ns, True))
        later = (call for call in sessions[parent] if place[call.request_id] > place[last.request_id])
        if (joining := next((call for call in later if call.start_ns >= last.end_ns), None)) is not None:
            waits[joining.request_id].append(Wait(last.request_id, joining.start_ns - last.end_ns, False))
    return waits


def _record(row: dict[str, Any]) -> dict[str, Any]:
    inner = row.get("event")
    return inner if isinstance(inner, dict) else row


def _section(row: dict[str, Any], field: str) -> dict[str, Any]:
    found = _given(row, field)
    if type(found) is not dict:
        raise BadRow("wrong_type", field, found)
    return found


def _given(row: dict[str, Any], field: str) -> Any:
    if row.get(field) is None:
        raise BadRow("missing_field", field)
    return row[field]


def _times(record: dict[str, Any], request: dict[str, Any]) -> tuple[int, int]:
    """Start and end. Any two of start, duration and end will do."""
    start, took, end = (
        request.get("request_received_ms"),
        request.get("total_time_ms"),
        record.get("event_time_unix_ms"),
    )
    took_ns = None if took is None else span_ns(took, "total_time_ms", MS)
    if start is None:
        if end is None or took_ns is None:
            raise BadRow("missing_field", "request_received_ms")
        end_ns = span_ns(end, "event_time_unix_ms", MS)
        return max(0, end_ns - took_ns), end_ns
    start_ns = span_ns(start, "request_received_ms", MS)
    if took_ns is not None:
        return start_ns, start_ns + took_ns
    return start_ns, start_ns if end is None else max(start_ns, span_ns(end, "event_time_unix_ms", MS))


FORMAT = Format("dynamo", "Dynamo request trace", recognise, Reader)
