"""Mooncake JSON lines: one request (or one turn of a session, with its whole prompt) per line.

Times in ms. `hash_ids` holds one id per block of the prompt, the last, partly filled block included; equal leading ids
mean equal leading tokens.
"""

from __future__ import annotations

import json
from array import array
from typing import Any

from assets.ingest.fields import MISSING, BadRow, milliseconds, name, prompt_tokens, tokens
from assets.ingest.rows import Row

# Where a field has two names, the second is the other one in use.
INPUT, OUTPUT = ("input_length", "input_tokens"), ("output_length", "output_tokens")
TIME, DELAY = ("timestamp", "created_time"), ("delay", "delay_ms")
KNOWN = frozenset(
    (*INPUT, *OUTPUT, *TIME, *DELAY, "hash_ids", "session_id", "request_id", "dp_rank", "output_token_ids")
)
# Passed through by producers; they steer nothing here.
PASSED_OVER = frozenset(("priority", "strict_priority", "policy_class"))
# Fields of formats that look like this one but count in other units or by other rules.
OTHERS = ("chat_id", "wait_for", "play_id", "num_turns", "schema")

_decode = json.JSONDecoder().decode


def recognise(lines: list[bytes]) -> str | None:
    """Why these lines are Mooncake, or None."""
    for line in lines[:50]:
        row = _object(line)
        if row is None:
            continue
        if any(field in row for field in OTHERS):
            return None
        output = next((field for field in OUTPUT if field in row), None)
        prompt = next((field for field in (*INPUT, "hash_ids") if field in row), None)
        if output and prompt:
            return f"JSON lines with {prompt} and {output}"
    return None


def _object(line: bytes) -> dict[str, Any] | None:
    try:
        row = _decode(line.decode())
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None


class Parser:
    """Reads one file's lines."""

    def __init__(self, block_tokens: int) -> None:
        self._block_tokens = block_tokens
        self._surplus_rows = 0
        self._ignored: dict[str, int] = {}

    def header(self, line: bytes) -> bool:
        return False

    def row(self, line: bytes) -> Row:
        try:
            row = _decode(line.decode())
        except (ValueError, RecursionError):  # RecursionError: a line of a thousand brackets
            raise BadRow("bad_json") from None
        if type(row) is not dict:
            raise BadRow("bad_json")
        if not row.keys() <= KNOWN:
            for field in row.keys() - KNOWN - PASSED_OVER:
                self._ignored[field] = self._ignored.get(field, 0) + 1
        ids = row.get("hash_ids")
        if ids is not None:
            if type(ids) is not list:
                raise BadRow("wrong_type", "hash_ids", ids)
            if not ids:
                raise BadRow("missing_field", "hash_ids", ids)
        length, field = _either(row, INPUT)
        if length is MISSING and ids is not None:
            prompt = prompt_tokens(len(ids) * self._block_tokens, "hash_ids")
        else:
            prompt = prompt_tokens(length, field)
        output = tokens(*_either(row, OUTPUT))
        if ids is not None:
            ids = _whole_numbers(ids, line)
            needed = -(-prompt // self._block_tokens)
            if len(ids) < needed:
                raise BadRow("hash_count_mismatch", "hash_ids", f"{len(ids)} ids where {needed} are needed")
            if len(ids) > needed:
                self._surplus_rows += 1
                ids = ids[:needed]
        stamp, field = _either(row, TIME)
        arrival_ns = None if stamp is MISSING or stamp is None else milliseconds(stamp, field)
        wait, field = _either(row, DELAY)
        delay_ns = None if wait is MISSING or wait is None else milliseconds(wait, field)
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


def _whole_numbers(ids: list[Any], line: bytes) -> array[int]:
    """Ids as 64-bit numbers. Unsigned ones keep their bits: an id is a name, not a quantity."""
    try:
        column = array("q", ids)
    except TypeError:
        raise BadRow("wrong_type", "hash_ids", next(each for each in ids if type(each) is not int)) from None
    except OverflowError:
        for each in ids:
            if not -(2**63) <= each < 2**64:
                raise BadRow("out_of_range", "hash_ids", each) from None
        return array("q", [each - 2**64 if each >= 2**63 else each for each in ids])
    # true and false pass for 1 and 0 above. A glance at the line is cheaper than one at every id.
    if b"true" in line or b"false" in line:
        for each in ids:
            if type(each) is bool:
                raise BadRow("wrong_type", "hash_ids", each)
    return column


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
