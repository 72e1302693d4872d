"""Times as nanoseconds, exact to the last digit that a file gives."""

from __future__ import annotations

import datetime as dt
import math
import re
from decimal import Decimal
from functools import lru_cache
from typing import Any

from assets.ingest.fields import MAX_NS, NOT_FINITE, NUMBER, BadRow

UNITS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
# Below this a product with 1e9 still has digits to spare; above (seconds since 1970) it is worked out in decimals.
_PLAIN = 1e6
# Seven fractional digits in Azure's files, up to nine elsewhere; a zone is optional and defaults to UTC.
_STAMP = re.compile(
    r"(\d{4}-\d\d-\d\d)[ T](\d\d):(\d\d):(\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d(?::?\d\d)?)?", re.ASCII | re.IGNORECASE
)
_EPOCH = dt.date(1970, 1, 1).toordinal()


def span_ns(value: Any, field: str, unit_ns: int) -> int:
    """A time or duration, a number in units of so many nanoseconds, 0 or more."""
    kind = type(value)
    if kind is not int and kind is not float:
        raise BadRow("missing_field" if value is None else "wrong_type", field, value)
    if kind is float and not math.isfinite(value):
        raise BadRow("not_finite", field, value)
    if value < 0:
        raise BadRow("negative", field, value)
    if value > MAX_NS // unit_ns:
        raise BadRow("out_of_range", field, value)
    if kind is int:
        return value * unit_ns
    return round(value * unit_ns) if value < _PLAIN else round(Decimal(repr(value)) * unit_ns)


def is_early(values: Any) -> Any:
    """Of which doubles a plain product has digits to spare. Shape (n,), bool."""
    return (values >= 0) & (values < _PLAIN)


def span_in_text_ns(text: str, field: str, unit_ns: int) -> int:
    """The same, written in a CSV field."""
    if text.isascii() and text.isdigit() and len(text) < 19:
        return span_ns(int(text), field, unit_ns)
    if not text:
        raise BadRow("missing_field", field)
    if text.lower() in NOT_FINITE:
        raise BadRow("not_finite", field, text)
    if not NUMBER.fullmatch(text):
        raise BadRow("wrong_type", field, text)
    value = float(text)
    if not 0 <= value < _PLAIN:
        span_ns(value, field, unit_ns)
        return round(Decimal(text) * unit_ns)
    return round(value * unit_ns)


def wall_clock_ns(text: Any, field: str) -> int:
    """Date and time of day as nanoseconds since 1970."""
    if text is None or text == "":
        raise BadRow("missing_field", field)
    found = _STAMP.fullmatch(text) if type(text) is str else None
    if found is None:
        raise BadRow("bad_timestamp", field, text)
    day, hour, minute, second, fraction, zone = found.groups()
    midnight, h, m, s = _midnight_ns(day), int(hour), int(minute), int(second)
    if midnight is None or h > 23 or m > 59 or s > 59:
        raise BadRow("bad_timestamp", field, text)
    ns = midnight + (h * 3600 + m * 60 + s) * 10**9 + (int(fraction.ljust(9, "0")) if fraction else 0)
    if zone and zone not in "Zz":
        minutes = int(zone[1:3]) * 60 + int(zone[3:].lstrip(":") or 0)
        if minutes >= 24 * 60:
            raise BadRow("bad_timestamp", field, text)
        ns -= (1 if zone[0] == "+" else -1) * minutes * 60 * 10**9
    if not 0 <= ns < MAX_NS:
        raise BadRow("out_of_range", field, text)
    return ns


@lru_cache(maxsize=64)
def _midnight_ns(day: str) -> int | None:
    try:
        return (dt.date.fromisoformat(day).toordinal() - _EPOCH) * 86_400 * 10**9
    except ValueError:
        return None
