"""Mooncake JSON lines: one request (or one turn of a session, with its whole prompt) per line.

Times in ms. `hash_ids` holds one id per block of the prompt, the last, partly filled block included; equal leading ids
mean equal leading tokens.
"""

from __future__ import annotations

from typing import Any

from assets.ingest.fields import MISSING, BadRow, name, prompt_tokens, tokens
from assets.ingest.json_text import enough_ids, hash_ids, json_object, objects
from assets.ingest.parser import Format, Options, Parser
from assets.ingest.rows import Row
from assets.ingest.times import span_ns

# Where a field has two names, the second is the other one in use.
INPUT, OUTPUT = ("input_length", "input_tokens"), ("output_length", "output_tokens")
TIME, DELAY = ("timestamp", "created_time"), ("delay", "delay_ms")
KNOWN = frozenset(
    (*INPUT, *OUTPUT, *TIME, *DELAY, "hash_ids", "session_id", "request_id", "dp_rank", "output_token_ids")
)
# Passed through by producers; they steer nothing here.
PASSED_OVER = frozenset(("priority", "strict_priority", "policy_class"))
MS = 10**6  # ns
# Fields of formats that look like this one but count in other units or by other rules.
OTHERS = ("chat_id", "wait_for", "play_id", "num_turns", "schema")


def recognise(lines: list[bytes]) -> str | None:
    """Why these lines are Mooncake, or None."""
    for row in objects(lines):
        if any(field in row for field in OTHERS):
            return None
        output = next((field for field in OUTPUT if field in row), None)
        prompt = next((field for field in (*INPUT, "hash_ids") if field in row), None)
        if output and prompt:
            return f"JSON lines with {prompt} and {output}"
    return None


class Reader(Parser):
    """Reads one file's lines."""

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._block_tokens = options.block_tokens
        self._surplus_rows = 0
        self._ignored: dict[str, int] = {}

    def row(self, line: bytes) -> Row:
        row = json_object(line)
        if not row.keys() <= KNOWN:
            for field in row.keys() - KNOWN - PASSED_OVER:
                self._ignored[field] = self._ignored.get(field, 0) + 1
        ids = row.get("hash_ids")
        length, field = _either(row, INPUT)
        if ids is not None:
            if type(ids) is not list:
                raise BadRow("wrong_type", "hash_ids", ids)
            if not ids and length != 0:  # a prompt of no tokens has no ids, and is at fault itself
                raise BadRow("missing_field", "hash_ids", ids)
        if length is MISSING and ids is not None:
            prompt = prompt_tokens(len(ids) * self._block_tokens, "hash_ids")
        else:
            prompt = prompt_tokens(length, field)
        output = tokens(*_either(row, OUTPUT))
        if ids is not None:
            ids = hash_ids(ids, "hash_ids", line)
            needed = enough_ids(ids, prompt, self._block_tokens, "hash_ids")
            if len(ids) > needed:
                self._surplus_rows += 1
                ids = ids[:needed]
        stamp, field = _either(row, TIME)
        arrival_ns = None if stamp is MISSING or stamp is None else span_ns(stamp, field, MS)
        wait, field = _either(row, DELAY)
        delay_ns = None if wait is MISSING or wait is None else span_ns(wait, field, MS)
        session, external_id, rank = row.get("session_id"), row.get("request_id"), row.get("dp_rank")
        if session is not None:
            session = name(session, "session_id")
        if external_id is not None:
            external_id = name(external_id, "request_id")
        planned = row.get("output_token_ids")
        if planned is not None:
            if type(planned) is not list:
                raise BadRow("wrong_type", "output_token_ids", planned)
            if len(planned) != output:
                raise BadRow("output_count_mismatch", "output_token_ids", f"{len(planned)} ids for {output} tokens")
        rank = -1 if rank is None else tokens(rank, "dp_rank")
        return Row(arrival_ns, prompt, output, ids, session, delay_ns, external_id, rank)

    def notes(self) -> dict[str, object]:
        return {"rows_with_surplus_hash_ids": self._surplus_rows, "ignored_fields": dict(sorted(self._ignored.items()))}


def _either(row: dict[str, Any], names: tuple[str, str]) -> tuple[Any, str]:
    """The value under one of two names, and the name; MISSING and the first name if neither is there."""
    first, second = names
    value = row.get(first, MISSING)
    if second in row:
        other = row[second]
        if value is MISSING or value is None:
            return other, second
        if other is not None and other != value:
            raise BadRow("conflicting_fields", second, f"{first}={value!r}, {second}={other!r}")
    return value, first


FORMAT = Format("mooncake", "Mooncake JSON lines", recognise, Reader)
