"""Replays of one log under many timings, keeping nothing but first and last token times."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from sim.engine import replay
from sim.errors import ReplayError
from sim.inputs import Workload
from sim.result import Columns
from sim.spec import EngineSpec, Timing


class _TokenTimes:
    """A sink that keeps what a fit compares."""

    def __init__(self) -> None:
        self.first: list[np.ndarray] = []
        self.last: list[np.ndarray] = []

    def rows(self, table: str, columns: Columns) -> None:
        if table == "requests":
            self.first.append(columns["first_token_ns"])
            self.last.append(columns["last_token_ns"])


class Replayer:
    """Replays a workload on a deployment whose timing changes from call to call.

    Attributes:
        replays: how many there were.
    """

    def __init__(self, spec: EngineSpec, workload: Workload) -> None:
        self.spec, self.workload = spec, workload
        self.replays = 0

    def times(self, timing: Timing) -> tuple[np.ndarray, np.ndarray] | None:
        """(first, last) token times in seconds, shape (n,), NaN where there is none; None if the replay cannot be
        completed with this timing."""
        self.replays += 1
        sink = _TokenTimes()
        try:
            replay(replace(self.spec, timing=timing), self.workload, sink)
        except ReplayError:
            return None
        first, last = np.concatenate(sink.first), np.concatenate(sink.last)
        return tuple(np.where(t < 0, np.nan, t / 1e9) for t in (first, last))  # type: ignore[return-value]
