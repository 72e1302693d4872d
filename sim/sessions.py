"""What a replay amounts to session by session (or play by play): how many ended, and how long each took."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sim.distribution import Distribution, of_ns
from sim.result import UNFINISHED, Columns

Row = tuple[str, str, str, float | None, str, int]


class Sessions(NamedTuple):
    """Figures of the sessions that began.

    Attributes:
        n_started: sessions of which a request arrived.
        n_ended: those all of whose requests have ended.
        latency: from a session's first arrival to its last end, over those.
        last_end_ns: shape (n_ended,), by session number.
    """

    n_started: int
    n_ended: int
    latency: Distribution
    last_end_ns: np.ndarray

    def rows(self) -> list[Row]:
        """Rows of the metrics table."""
        n = self.n_started
        return [
            ("run", "sessions", "started", n, "sessions", n),
            ("run", "sessions", "ended", self.n_ended, "sessions", n),
            *(
                ("run", "session_latency", stat, value, "ms", self.n_ended)
                for stat, value in self.latency.stats().items()
            ),
        ]


def of_sessions(requests: Columns, session: np.ndarray, warmup: int = 0) -> Sessions:
    """Sessions of a replay. Requests outside of any are none; a session that began among the warm-up does not count.

    Args:
        requests: the requests table, in order of `request`.
        session: shape (n,), session number or -1.
        warmup: leading requests that do not count.
    """
    arrival, end = requests["arrival_ns"], requests["end_ns"]
    member = session >= 0
    n = int(session.max(initial=-1)) + 1
    first, last = np.full(n, np.iinfo(np.int64).max), np.full(n, -1, np.int64)
    arrived = member & (arrival >= 0)
    np.minimum.at(first, session[arrived], arrival[arrived])
    np.maximum.at(last, session[arrived], end[arrived])
    whole = np.ones(n, bool)
    whole[session[member & (requests["status"] == UNFINISHED)]] = False
    started = np.zeros(n, bool)
    started[session[arrived]] = True
    started[session[:warmup][member[:warmup]]] = False
    ended = started & whole
    return Sessions(int(started.sum()), int(ended.sum()), of_ns(last[ended] - first[ended]), last[ended])
