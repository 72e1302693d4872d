"""Azure LLM inference traces: CSV with a wall-clock time, prompt and output lengths; no prefixes, no sessions."""

from __future__ import annotations

import csv
import datetime as dt
import re

from assets.ingest.fields import BadRow, prompt_tokens, tokens_in_text
from assets.ingest.rows import Row

TIME, PROMPT, OUTPUT = "TIMESTAMP", "ContextTokens", "GeneratedTokens"
# Seven fractional digits as published, up to nine elsewhere; a zone is optional and defaults to UTC.
_STAMP = re.compile(
    r"(\d{4}-\d\d-\d\d)[ T](\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d(?::?\d\d)?)?", re.ASCII | re.IGNORECASE
)
_EPOCH = dt.date(1970, 1, 1).toordinal()
_DAY_NS = 86_400 * 10**9


def recognise(lines: list[bytes]) -> str | None:
    """Why these lines are an Azure trace, or None."""
    names = _cells(lines[0])
    if names and {TIME, PROMPT, OUTPUT} <= set(names):
        return f"CSV header with {TIME}, {PROMPT} and {OUTPUT}"
    return None


def _cells(line: bytes) -> list[str] | None:
    try:
        text = line.decode().rstrip("\r\n")
    except UnicodeDecodeError:
        return None
    # Quotes are legal and never occur in published files: the plain split is the fast path.
    cells = next(csv.reader([text]), []) if '"' in text else text.split(",")
    return [cell.strip() for cell in cells]


class Parser:
    """Reads one file's lines."""

    def __init__(self, block_tokens: int) -> None:
        self._names: list[str] = []
        self._at = (0, 1, 2)
        self._days: dict[str, int] = {}

    def header(self, line: bytes) -> bool:
        names = _cells(line) or []
        if not {TIME, PROMPT, OUTPUT} <= set(names):
            return False
        self._names, self._at = names, (names.index(TIME), names.index(PROMPT), names.index(OUTPUT))
        return True

    def row(self, line: bytes) -> Row:
        cells = _cells(line)
        if cells is None or len(cells) != (len(self._names) or 3):
            raise BadRow("bad_line")
        stamp, prompt, output = (cells[i] for i in self._at)
        return Row(
            self._instant_ns(stamp),
            prompt_tokens(tokens_in_text(prompt, PROMPT), PROMPT),
            tokens_in_text(output, OUTPUT),
        )

    def notes(self) -> dict[str, object]:
        return {"ignored_fields": [name for name in self._names if name not in (TIME, PROMPT, OUTPUT)]}

    def _instant_ns(self, text: str) -> int:
        """Nanoseconds since 1970, exact to the last digit given."""
        if not text:
            raise BadRow("missing_field", TIME)
        found = _STAMP.fullmatch(text)
        if found is None:
            raise BadRow("bad_timestamp", TIME, text)
        day, hour, minute, second, fraction, zone = found.groups()
        midnight = self._days.get(day)
        if midnight is None:
            try:
                midnight = (dt.date.fromisoformat(day).toordinal() - _EPOCH) * _DAY_NS
            except ValueError:
                raise BadRow("bad_timestamp", TIME, text) from None
            self._days[day] = midnight
        h, m, s = int(hour), int(minute), int(second)
        if h > 23 or m > 59 or s > 59:
            raise BadRow("bad_timestamp", TIME, text)
        ns = midnight + (h * 3600 + m * 60 + s) * 10**9 + (int(fraction.ljust(9, "0")) if fraction else 0)
        if zone and zone not in "Zz":
            minutes = int(zone[1:3]) * 60 + int(zone[3:].lstrip(":") or 0)
            if minutes >= 24 * 60:
                raise BadRow("bad_timestamp", TIME, text)
            ns -= (1 if zone[0] == "+" else -1) * minutes * 60 * 10**9
        if not 0 <= ns < 2**62:
            raise BadRow("out_of_range", TIME, text)
        return ns
