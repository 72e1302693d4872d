"""Agentic Mooncake JSON lines: requests that wait for one another. Version 2 has a header line, older files none.

Rules WL-14 to WL-16. A play is a graph of requests. Each arrives when everything it waits for has happened (another's
end, or its dispatch, and then a delay), and not before its own earliest start, which counts from the play's first
root. Where every request of a play waits for the end of one other at most, and nobody else waits for that one, the
play is a session and its requests are turns. The older form has no plays: what waits connect is one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

from assets.ingest.fields import BadRow, name, prompt_tokens, tokens
from assets.ingest.graph import Wait, are_chains, components, faulty, places_in_time
from assets.ingest.json_text import enough_ids, hash_ids, json_object, objects
from assets.ingest.parser import Format, Options, Parser
from assets.ingest.rows import Row
from assets.ingest.times import UNITS, span_ns

SCHEMA, VERSION = "dynamo.agentic_mooncake", 2
MS = UNITS["ms"]


def recognise(lines: list[bytes]) -> str | None:
    """Why these lines are agentic Mooncake, or None."""
    for row in objects(lines):
        if row.get("schema") == SCHEMA:
            return f"JSON lines whose header has schema {SCHEMA}"
        if "wait_for" in row and "request_id" in row:
            return "JSON lines with request_id and wait_for"
    return None


class _Step(NamedTuple):
    ordinal: int
    number: int
    line: bytes
    row: Row
    play: str
    not_before_ns: int | None
    waits: list[Wait]


class Reader(Parser):
    """Reads one file's lines."""

    whole = True

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._block = options.block_tokens
        self._versioned = False
        self._steps: dict[str, _Step] = {}

    @property
    def block_tokens(self) -> int:
        """The header says it."""
        return self._block

    def header(self, line: bytes) -> bool:
        try:
            row = json_object(line)
        except BadRow:
            return False
        if row.get("schema") != SCHEMA or row.get("version") != VERSION:
            return False
        block = row.get("block_size")
        if type(block) is not int or block < 1 or self.options.asserted_block not in (None, block):
            return False
        self._versioned, self._block = True, block
        return True

    def take(self, ordinal: int, number: int, line: bytes) -> int:
        row = json_object(line)
        if "schema" in row:
            raise BadRow("unknown_schema", "schema", row.get("schema"))
        request_id = name(row["request_id"], "request_id") if row.get("request_id") is not None else None
        if request_id is None:
            raise BadRow("missing_field", "request_id")
        if request_id in self._steps:
            raise BadRow("duplicate_id", "request_id", request_id)
        prompt = prompt_tokens(tokens(row.get("input_length"), "input_length"), "input_length")
        output = tokens(row.get("output_length"), "output_length")
        ids = hash_ids(row.get("hash_ids"), "hash_ids", line)
        needed = enough_ids(ids, prompt, self._block, "hash_ids")
        if self._versioned and len(ids) > needed:
            raise BadRow("hash_count_mismatch", "hash_ids", f"{len(ids)} ids where {needed} are needed")
        play, not_before_ns, waits = self._timing(row)
        made = Row(None, prompt, output, ids[:needed], None, None, request_id)
        self._steps[request_id] = _Step(ordinal, number, line, made, play, not_before_ns, waits)
        return 1

    def _timing(self, row: dict[str, Any]) -> tuple[str, int | None, list[Wait]]:
        """Play, earliest start, and what is waited for."""
        if not self._versioned:
            return "", *_timing_of_the_older_form(row)
        for field in ("play_id", "session_id", "model"):
            if row.get(field) is None:
                raise BadRow("missing_field", field)
        found = row.get("dependencies", [])
        if type(found) is not list:
            raise BadRow("wrong_type", "dependencies", found)
        waits = []
        for i, each in enumerate(found):
            at = f"dependencies[{i}]"
            if type(each) is not dict:
                raise BadRow("wrong_type", at, each)
            trigger, relation = each.get("trigger"), each.get("relation")
            if trigger not in ("dispatch", "completion"):
                raise BadRow("unknown_schema", f"{at}.trigger", trigger)
            if relation not in ("sequence", "spawn", "join", "replay_barrier"):
                raise BadRow("unknown_schema", f"{at}.relation", relation)
            if trigger == "dispatch" and relation != "spawn":
                raise BadRow("conflicting_fields", f"{at}.trigger", f"{relation} on {trigger}")
            if each.get("request_id") is None:
                raise BadRow("missing_field", f"{at}.request_id")
            delay_ns = span_ns(each.get("delay_ms", 0), f"{at}.delay_ms", MS)
            waits.append(Wait(name(each["request_id"], f"{at}.request_id"), delay_ns, trigger == "dispatch"))
        not_before_ns = span_ns(row.get("not_before_ms"), "not_before_ms", MS)
        return name(row["play_id"], "play_id"), not_before_ns, waits

    def finish(self) -> Iterator[tuple[int, int, bytes, Row | BadRow]]:
        waits = {each: step.waits for each, step in self._steps.items()}
        plays = {each: step.play for each, step in self._steps.items()}
        bad = faulty(waits, plays)
        for request_id, other in bad.items():
            step = self._steps[request_id]
            yield step.ordinal, step.number, step.line, BadRow("no_such_request", "dependencies", other)
        waits = {each: found for each, found in waits.items() if each not in bad}
        if not self._versioned:
            plays = components(waits)
        chained = are_chains(waits, plays)
        members = Counter(plays[each] for each in waits)
        starts = _starts({each: self._steps[each] for each in waits}, plays)
        # All plays are on one clock: each starts when its first root does.
        at = {each: self._steps[each].not_before_ns or 0 for each in waits}
        for request_id, order_ns in places_in_time(waits, at).items():
            step, play = self._steps[request_id], plays[request_id]
            # A play of the newer form is one, however small; in the older one a request that nothing connects is alone.
            alone = not self._versioned and members[play] == 1
            made = step.row._replace(
                arrival_ns=order_ns,
                session=None if alone else play,
                not_before_ns=max(0, (step.not_before_ns or 0) - starts[play]),
            )
            if not chained:
                found = tuple(
                    (self._steps[wait.request_id].ordinal, wait.delay_ns, wait.on_dispatch) for wait in step.waits
                )
                made = made._replace(waits=found)
            elif step.waits:
                made = made._replace(arrival_ns=None, delay_ns=step.waits[0].delay_ns)
            yield step.ordinal, step.number, step.line, made

    def notes(self) -> dict[str, Any]:
        return {"plays": len({each.play for each in self._steps.values()}) if self._versioned else None}


def _timing_of_the_older_form(row: dict[str, Any]) -> tuple[int | None, list[Wait]]:
    """Rule WL-16: completion edges that all have the row's own delay."""
    found = row.get("wait_for") or []
    if type(found) is not list:
        raise BadRow("wrong_type", "wait_for", found)
    if row.get("delay") is not None and row.get("delay_ms") is not None:
        raise BadRow("conflicting_fields", "delay_ms", f"delay={row['delay']!r}, delay_ms={row['delay_ms']!r}")
    field = "delay_ms" if row.get("delay_ms") is not None else "delay"
    delay_ns = sum(span_ns(row[each], each, MS) for each in (field, "tool_wait_ms") if row.get(each) is not None)
    stamp = row.get("timestamp")
    if not found:
        return span_ns(stamp, "timestamp", MS), []
    return None, [Wait(name(each, "wait_for"), delay_ns, False) for each in found]


def _starts(steps: dict[str, _Step], plays: dict[str, str]) -> dict[str, int]:
    """When each play's first root may start: where the play's own time counts from."""
    found: dict[str, int] = {}
    for request_id, step in steps.items():
        if not step.waits:
            play, mine = plays[request_id], step.not_before_ns or 0
            found[play] = min(mine, found.get(play, mine))
    return found


FORMAT = Format("agentic_mooncake", "Agentic Mooncake JSON lines", recognise, Reader)
