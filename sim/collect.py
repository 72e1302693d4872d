"""From the kernels' logs to result columns, between two stretches of passes."""

from __future__ import annotations

import time

import numpy as np

import sim.state as S
from sim.clock import PassClock
from sim.inputs import Workload
from sim.result import ADMISSIONS, CHUNKS, PASSES, PRESSURE, REQUESTS, SPANS, UNFINISHED, Columns, Sink
from sim.spec import EngineSpec
from sim.state import State
from sim.tail import close_open_spans
from sim.timing.evidence import EvidenceCounter

REQUEST_ROWS = 1 << 13  # rows that stay in the processor's cache while they become columns
_REQUEST_COLUMNS = {
    "rank": S.RANK,
    "status": S.STATUS,
    "reason": S.REASON,
    "output_tokens": S.RECEIVED,
    "cached_tokens_first": S.CACHED_FIRST,
    "cached_tokens_max": S.CACHED_MAX,
    "n_admissions": S.N_ADMITTED,
    "n_preemptions": S.N_PREEMPTED,
    "n_spans": S.N_SPANS,
}
_REQUEST_TIMES = {
    "arrival_ns": S.ARRIVAL,
    "admitted_ns": S.ADMITTED,
    "first_token_ns": S.FIRST_TOKEN,
    "last_token_ns": S.LAST_TOKEN,
    "end_ns": S.END,
}


def _logged(columns: tuple[str, ...]) -> tuple[str, ...]:
    """Columns of a kernel log: the rank index stands for worker and rank in the worker."""
    return tuple("rank" if name == "worker" else name for name in columns if name != "dp_rank")


class Collector:
    """Hands finished rows to the sink and derives what depends on the clock of passes."""

    def __init__(self, spec: EngineSpec, load: Workload, state: State, sink: Sink) -> None:
        self.spec, self.load, self.state, self.sink = spec, load, state, sink
        self.evidence = EvidenceCounter(spec.timing)
        self.clock = PassClock(spec.ranks, len(load), keep_spans=spec.stop_ns is not None or load.warmup > 0)
        self.sink_seconds = 0.0

    def drain(self, *, last: bool = False) -> None:
        """Hand over finished rows. Rows of passes still in flight stay, for they may never end.

        Args:
            last: the replay has stopped; what is in flight never happened.
        """
        st = self.state
        delivered = st.r[:, S.DELIVERED]
        passes = self._ranked(self._take(st.passes, S.N_PASSES, PASSES), PASSES)
        self.clock.passes(passes, self.spec.dp)
        self.evidence.add(passes)
        self._hand_over("passes", passes)
        n = int(st.g[S.N_SPANS_LOG])
        in_flight = st.spans[3, :n] + st.spans[4, :n] - 1 > delivered[st.spans[2, :n]]
        if last and in_flight.any():
            self._truncate(in_flight, delivered)
            in_flight = np.zeros(int(st.g[S.N_SPANS_LOG]), bool)
        spans = self._take(st.spans, S.N_SPANS_LOG, (*SPANS, "previous_pass"), held=in_flight)
        self.clock.spans(spans, spans.pop("previous_pass"))
        self._hand_over("spans", self._ranked(spans, SPANS))
        n = int(st.g[S.N_CHUNKS_LOG])
        in_flight = st.chunks[2, :n] > delivered[st.chunks[1, :n]]
        chunks = self._take(st.chunks, S.N_CHUNKS_LOG, CHUNKS, held=in_flight)
        self._hand_over("chunks", self._ranked(chunks, CHUNKS))
        admissions = self._take(st.admissions, S.N_ADMISSIONS_LOG, ADMISSIONS)
        self._hand_over("admissions", self._ranked(admissions, ADMISSIONS))
        self._hand_over("pressure", self._ranked(self._take(st.pressure, S.N_PRESSURE_LOG, PRESSURE), PRESSURE))

    def _hand_over(self, table: str, columns: Columns) -> None:
        """Time spent in the sink (writing files, say) is not the engine's."""
        began = time.perf_counter()
        self.sink.rows(table, columns)
        self.sink_seconds += time.perf_counter() - began

    def _take(self, log: np.ndarray, counter: int, columns: tuple[str, ...], held: np.ndarray | None = None) -> Columns:
        """Empty a log but for the rows `held` back."""
        n, names = int(self.state.g[counter]), _logged(columns)
        if held is None or not held.any():
            self.state.g[counter] = 0
            return {name: log[i, :n].copy() for i, name in enumerate(names)}
        taken = {name: log[i, :n][~held] for i, name in enumerate(names)}
        rest = log[:, :n][:, held]
        log[:, : rest.shape[1]] = rest
        self.state.g[counter] = rest.shape[1]
        return taken

    def _ranked(self, columns: Columns, names: tuple[str, ...]) -> Columns:
        rank = columns.pop("rank")
        columns["worker"], columns["dp_rank"] = (
            np.divmod(rank, self.spec.dp) if self.spec.dp > 1 else (rank, np.zeros_like(rank))
        )
        return {name: columns[name] for name in names}

    def _truncate(self, in_flight: np.ndarray, delivered: np.ndarray) -> None:
        """The replay stopped while the last token of a preempted request was in flight: that token was never made."""
        st, n = self.state, len(in_flight)
        log, q = st.spans, st.q
        for row in np.flatnonzero(in_flight):
            request = int(log[0, row])
            kept = max(0, int(delivered[log[2, row]]) - int(log[3, row]) + 1)
            q[request, S.RECEIVED] -= int(log[4, row]) - kept
            q[request, S.N_SPANS] -= kept == 0
            log[4, row] = kept
        kept_rows = log[:, :n][:, ~(in_flight & (log[4, :n] == 0))]
        log[:, : kept_rows.shape[1]] = kept_rows
        st.g[S.N_SPANS_LOG] = kept_rows.shape[1]

    def finish(self, *, stopped: bool) -> dict[str, np.ndarray]:
        """Write what only the end reveals: open spans, the requests table, the evidence.

        Returns:
            The weighted inter-token gaps of completed requests, warm-up excluded: gap_ns, gap_weight, gap_end_ns.
        """
        st, uncounted = self.state, None
        if stopped:
            for rank in range(self.spec.ranks):
                close_open_spans(st, rank)
                self.drain(last=True)
            uncounted = st.q[:, S.STATUS] == UNFINISHED
        if self.load.warmup > 0:
            warmup = np.arange(len(self.load)) < self.load.warmup
            uncounted = warmup if uncounted is None else uncounted | warmup
        for low in range(0, len(self.load), REQUEST_ROWS):
            self._hand_over("requests", self._requests(low, min(low + REQUEST_ROWS, len(self.load))))
        self._hand_over("evidence", self.evidence.columns())
        return dict(zip(("gap_ns", "gap_weight", "gap_end_ns"), self.clock.gaps(uncounted), strict=True))

    def _requests(self, low: int, high: int) -> Columns:
        load, status, made = self.load, self.state.q[low:high, S.STATUS], self.state.q[low:high, S.RECEIVED]
        values = _transposed(self.state.q[low:high], _REQUEST_COLUMNS) | _transposed(
            self.state.t[low:high], _REQUEST_TIMES
        )
        rank = values.pop("rank")
        values["worker"], values["dp_rank"] = np.divmod(rank, self.spec.dp)
        values["dp_rank"][rank < 0] = -1
        open_ended = np.flatnonzero((status == UNFINISHED) & (made > 0))
        if len(open_ended):
            values["last_token_ns"][open_ended] = self.clock.last_token_ns(open_ended + low)
        values["request"] = np.arange(low, high, dtype=np.int64)
        values["second_token_ns"] = self.clock.second_token_ns[low:high]
        values["prompt_tokens"] = np.array(load.prompt_tokens[low:high], np.int64)
        values["requested_tokens"] = np.array(load.output_tokens[low:high], np.int64)
        return {name: values[name] for name in REQUESTS}


def _transposed(rows: np.ndarray, places: dict[str, int]) -> Columns:
    """Columns `places` of an array of rows, as int64."""
    return {name: rows[:, place].astype(np.int64) for name, place in places.items()}
