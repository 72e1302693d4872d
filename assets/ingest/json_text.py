"""JSON lines: what the formats that use them share."""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterator
from typing import Any

from assets.ingest.fields import BadRow, TooFewIds

_decode = json.JSONDecoder().decode


def json_object(line: bytes) -> dict[str, Any]:
    """The line as one JSON object."""
    try:
        row = _decode(line.decode())
    except (ValueError, RecursionError):  # RecursionError: a line of a thousand brackets
        raise BadRow("bad_json") from None
    if type(row) is not dict:
        raise BadRow("bad_json")
    return row


def objects(lines: list[bytes], most: int = 50) -> Iterator[dict[str, Any]]:
    """The objects among the first lines."""
    for line in lines[:most]:
        try:
            yield json_object(line)
        except BadRow:
            continue


def hash_ids(value: Any, field: str, line: bytes = b"true") -> array[int]:
    """Ids as 64-bit numbers. Unsigned ones keep their bits: an id is a name, not a quantity.

    Args:
        line: the text that the ids come from. true and false pass for 1 and 0 in an array, and a glance at the line is
            cheaper than one at every id.
    """
    if type(value) is not list:
        raise BadRow("missing_field" if value is None else "wrong_type", field, value)
    try:
        column = array("q", value)
    except TypeError:
        raise BadRow("wrong_type", field, next(each for each in value if type(each) is not int)) from None
    except OverflowError:
        for each in value:
            if type(each) is not int:
                raise BadRow("wrong_type", field, each) from None
            if not -(2**63) <= each < 2**64:
                raise BadRow("out_of_range", field, each) from None
        column = array("q", [each - 2**64 if each >= 2**63 else each for each in value])
    if b"true" in line or b"false" in line:
        for each in value:
            if type(each) is bool:
                raise BadRow("wrong_type", field, each)
    return column


def enough_ids(ids: array[int], prompt: int, block_tokens: int, field: str) -> int:
    """Ids that a prompt needs when its last, partly filled block has one, too; fewer are a fault."""
    needed = -(-prompt // block_tokens)
    if len(ids) < needed:
        raise TooFewIds(field, len(ids), prompt, block_tokens)
    return needed
