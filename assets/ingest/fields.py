"""Checks of single values. What fails one goes to quarantine with the reason, the field and the value."""

from __future__ import annotations

import math
import re
from typing import Any

# Every reason a row can be set aside for.
REASONS = {
    "bad_json": "the line is not one JSON object",
    "bad_line": "the line does not have the header's number of fields, or is not text",
    "missing_field": "a required field is absent, null or empty",
    "wrong_type": "a field holds another kind of value (text for a number, 12.5 or true for a count)",
    "negative": "a length, time or delay is below zero",
    "not_finite": "a number is NaN or infinite",
    "non_positive": "the prompt has no tokens",
    "out_of_range": "a number is too large to be meant",
    "bad_timestamp": "a wall-clock time that cannot be read",
    "hash_count_mismatch": "fewer hash ids than the prompt's length needs",
    "output_count_mismatch": "output_token_ids has another length than the output",
    "conflicting_fields": "two names of one field are given with different values",
    "duplicate_id": "the request id occurred before",
    "turn_goes_back": "a later turn is stamped before the turn it follows",
    "delay_without_turn": "a delay on a row that follows no other turn",
    "failed_at_source": "the call failed where it was recorded",
    "total_mismatch": "a total that is not the sum of its parts",
    "unknown_schema": "a record of another schema or kind than this format has",
    "too_few_turns": "lists of turns that are not as long as the number of turns says",
    "no_such_request": "waits for a request that is not there, for itself, or in a circle",
    "zero_output": "no output is asked for, and the run sets such rows aside",
}

MAX_TOKENS = 2**31 - 1
MAX_NS = 2**62  # 146 years: two such times still add up in 64 bits
MISSING = object()


class BadRow(Exception):
    """This row cannot be used."""

    def __init__(self, reason: str, field: str | None = None, value: Any = None) -> None:
        super().__init__(reason, field, value)
        self.reason, self.field, self.value = reason, field, value

    @property
    def text(self) -> str | None:
        """The value as text, cut where it is long."""
        if self.value is None or self.value is MISSING:
            return None
        text = self.value if isinstance(self.value, str) else repr(self.value)
        return text if len(text) <= 200 else text[:197] + "..."


class TooFewIds(BadRow):
    """A prompt longer than its ids reach."""

    def __init__(self, field: str, ids: int, prompt: int, block_tokens: int) -> None:
        super().__init__("hash_count_mismatch", field, f"{ids} ids where {-(-prompt // block_tokens)} are needed")
        self.ids, self.prompt, self.block_tokens = ids, prompt, block_tokens


def tokens(value: Any, field: str) -> int:
    """A count of tokens, 0 or more."""
    if type(value) is int:
        if 0 <= value <= MAX_TOKENS:
            return value
        raise BadRow("negative" if value < 0 else "out_of_range", field, value)
    if value is None or value is MISSING:
        raise BadRow("missing_field", field)
    if type(value) is float and not math.isfinite(value):
        raise BadRow("not_finite", field, value)
    raise BadRow("wrong_type", field, value)


def prompt_tokens(value: Any, field: str) -> int:
    """A count of tokens, 1 or more."""
    count = tokens(value, field)
    if count == 0:
        raise BadRow("non_positive", field, value)
    return count


def name(value: Any, field: str) -> str:
    """An identifier: text, or a whole number standing for itself."""
    if type(value) is str and value:
        return value
    if type(value) is int:
        return str(value)
    if value == "":
        raise BadRow("missing_field", field, value)
    raise BadRow("wrong_type", field, value)


NUMBER = re.compile(r"[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?")
NOT_FINITE = {"nan", "inf", "+inf", "-inf", "infinity", "+infinity", "-infinity"}


def tokens_in_text(text: str, field: str) -> int:
    """A count of tokens written in a CSV field."""
    # Not int() alone: it takes " 7 ", "+7", "7_0" and digits of other scripts.
    if text.isascii() and text.isdigit():
        return tokens(int(text), field) if len(text) < 20 else _too_long(text, field)
    if not text:
        raise BadRow("missing_field", field)
    if text.lower() in NOT_FINITE:
        raise BadRow("not_finite", field, text)
    if text.startswith("-") and NUMBER.fullmatch(text):
        raise BadRow("negative", field, text)
    raise BadRow("wrong_type", field, text)


def _too_long(text: str, field: str) -> int:
    raise BadRow("out_of_range", field, text)
