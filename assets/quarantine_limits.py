"""How many rows of a trace may be bad: `traffic.source.quarantine`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from assets.ingest.fields import REASONS
from assets.ingest.trace import TraceError
from sim.config.traffic import QuarantineLimits

FIELD = "traffic.source.quarantine"


class Verdict(NamedTuple):
    """What the limits say of a trace; empty texts where it keeps them.

    Attributes:
        failed: beyond a limit that nothing is replayed above.
        warned: beyond the share that is worth a word.
    """

    failed: str
    warned: str


def judge(rows_read: int, reasons: Mapping[str, int], limits: QuarantineLimits) -> Verdict:
    """Hold what was set aside against the limits.

    Raises:
        TraceError: a limit is given for a reason that does not exist.
    """
    for reason in limits.reasons:
        if reason not in REASONS:
            raise TraceError(f"{FIELD}.reasons.{reason}: no such reason; use {', '.join(REASONS)}")
    bad, rows_read = sum(reasons.values()), max(rows_read, 1)
    beyond = [
        _said(reasons[reason], rows_read, f"are {reason}", f"reasons.{reason}", most)
        for reason, most in limits.reasons.items()
        if reasons.get(reason, 0) > most * rows_read
    ]
    if bad > limits.fail_above * rows_read:
        beyond.insert(0, _said(bad, rows_read, "are in quarantine", "fail_above", limits.fail_above))
    warned = ""
    if limits.warn_above is not None and bad > limits.warn_above * rows_read:
        warned = _said(bad, rows_read, "are in quarantine", "warn_above", limits.warn_above)
    return Verdict("; ".join(beyond), warned)


def _said(count: int, rows_read: int, what: str, name: str, most: float) -> str:
    share = f"{count / rows_read:.3%} of the rows ({count:,} of {rows_read:,}) {what}"
    return f"{share}, more than {FIELD}.{name}={most:g}"
