"""Reading JSON and numbers in it, with errors that name file, line and field."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from assets.accuracy.truth import TruthError


def objects(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line number, object) of a file of JSON lines; blank lines are skipped.

    Raises:
        TruthError: a line is no JSON object.
    """
    with open(path, "rb") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                value = json.loads(line)
            except ValueError as error:
                raise TruthError(
                    f"{path}:{number}: no JSON ({error}); if the file was cut off, remove its last line"
                ) from error
            if not isinstance(value, dict):
                raise TruthError(f"{path}:{number}: {type(value).__name__} where a JSON object is expected")
            yield number, value


def document(path: Path) -> dict[str, Any]:
    """The file as one JSON object.

    Raises:
        TruthError: it is none.
    """
    try:
        value = json.loads(path.read_bytes())
    except ValueError as error:
        raise TruthError(f"{path}: no JSON ({error})") from error
    if not isinstance(value, dict):
        raise TruthError(f"{path}: {type(value).__name__} where a JSON object is expected")
    return value


def first_object(head: bytes) -> dict[str, Any]:
    """The first line of a file as an object; {} if it is none."""
    try:
        value = json.loads(head.splitlines()[0])
    except (ValueError, IndexError):
        return {}
    return value if isinstance(value, dict) else {}


def number(row: Mapping[str, Any], name: str, where: str, *, least: float = 0.0) -> float:
    """A finite number not below `least`.

    Raises:
        TruthError: it is missing, no number, or too small.
    """
    value = row.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise TruthError(f"{where}: {name}={value!r}: a finite number is needed")
    if value < least:
        raise TruthError(f"{where}: {name}={value!r}: must not be below {least:g}")
    return float(value)


def maybe_number(row: Mapping[str, Any], name: str, where: str, *, least: float = 0.0) -> float | None:
    """As `number`; None where the field is missing or null."""
    return None if row.get(name) is None else number(row, name, where, least=least)


def count(row: Mapping[str, Any], name: str, where: str, *, least: int = 0) -> int:
    """A whole number not below `least`."""
    value = number(row, name, where, least=least)
    if value != int(value):
        raise TruthError(f"{where}: {name}={value!r}: a whole number is needed")
    return int(value)
