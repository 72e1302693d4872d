"""Replays of one log under many timings, keeping nothing but token times and, where asked, what the passes held."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from sim.engine import replay
from sim.errors import ReplayError
from sim.inputs import Workload
from sim.result import Columns
from sim.spec import EngineSpec, Timing

HELD = ("n_prefill", "prefill_tokens", "prefill_kv_tokens", "n_decode", "decode_kv_tokens")


@dataclass(frozen=True, slots=True, eq=False)
class Replayed:
    """
    Attributes:
        first_s, last_s: token times, shape (n,), NaN where there is none.
        start_s, end_s: of the passes, shape (passes,).
        held: what they held, shape (5, passes), float, in the order of `HELD`.
    """

    first_s: np.ndarray
    last_s: np.ndarray
    start_s: np.ndarray
    end_s: np.ndarray
    held: np.ndarray


class _Kept:
    """A sink that keeps what a fit compares."""

    def __init__(self, *, with_passes: bool) -> None:
        self.tables: dict[str, tuple[str, ...]] = {"requests": ("first_token_ns", "last_token_ns")}
        if with_passes:
            self.tables["passes"] = ("start_ns", "end_ns", *HELD)
        self.parts: dict[str, list[Columns]] = {name: [] for name in self.tables}

    def rows(self, table: str, columns: Columns) -> None:
        if table in self.parts:
            self.parts[table].append(columns)

    def column(self, table: str, name: str) -> np.ndarray:
        return np.concatenate([part[name] for part in self.parts[table]])


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
        kept = self._run(timing, with_passes=False)
        return None if kept is None else _token_times(kept)

    def traced(self, timing: Timing) -> Replayed | None:
        """As `times`, with the passes."""
        kept = self._run(timing, with_passes=True)
        if kept is None:
            return None
        held = np.array([kept.column("passes", name) for name in HELD], float)
        start, end = (kept.column("passes", name) / 1e9 for name in ("start_ns", "end_ns"))
        return Replayed(*_token_times(kept), start, end, held)

    def _run(self, timing: Timing, *, with_passes: bool) -> _Kept | None:
        self.replays += 1
        kept = _Kept(with_passes=with_passes)
        try:
            replay(replace(self.spec, timing=timing), self.workload, kept)
        except ReplayError:
            return None
        return kept


def _token_times(kept: _Kept) -> tuple[np.ndarray, np.ndarray]:
    first, last = (kept.column("requests", name) for name in ("first_token_ns", "last_token_ns"))
    return np.where(first < 0, np.nan, first / 1e9), np.where(last < 0, np.nan, last / 1e9)
