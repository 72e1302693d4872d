"""From the kernels' logs to result columns, between two stretches of passes."""

from __future__ import annotations

import time

import numpy as np

import sim.speculation.columns as D
import sim.state as S
from sim.clock import PassClock
from sim.inputs import Workload
from sim.logs import logged, without_drafts
from sim.result import COMPLETED, REQUESTS, TABLES, Columns, Sink
from sim.spec import EngineSpec
from sim.speculation.collect import AcceptanceRows
from sim.speculation.columns import Drafting
from sim.speculation.tail import close_open_bursts
from sim.state import Config, State
from sim.tail import close_open_spans
from sim.timing.evidence import EvidenceCounter, PoolsEvidence

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


SEEN_LATER = ("first_token_ns", "second_token_ns", "last_token_ns", "end_ns")  # by the client than by the engine


class Collector:
    """Hands finished rows to the sink and derives what depends on the clock of passes."""

    def __init__(
        self,
        spec: EngineSpec,
        load: Workload,
        config: Config,
        state: State,
        sink: Sink,
        drafting: Drafting | None = None,
        *,
        ranks: int | None = None,
    ) -> None:
        """`ranks`: where there are more than those of `spec`."""
        self.ranks = ranks or spec.ranks
        self.spec, self.load, self.config, self.state, self.sink = spec, load, config, state, sink
        self.drafting = drafting
        self.evidence: EvidenceCounter | PoolsEvidence = EvidenceCounter(spec.timing, spec.profile)
        # Gaps of requests that do not complete are taken out again at the end.
        self.keep_spans = spec.stop_ns is not None or load.warmup > 0 or _may_break_off(spec, load)
        self.clock = PassClock(self.ranks, len(load), keep_spans=self.keep_spans)
        self.acceptance = AcceptanceRows()
        self.sink_seconds = 0.0

    def drain(self, *, last: bool = False) -> None:
        """Hand over finished rows. Rows of passes still in flight stay, for they may never end.

        Args:
            last: the replay has stopped; what is in flight never happened.
        """
        st = self.state
        delivered = st.r[:, S.DELIVERED]
        passes = self._take("passes", st.passes, S.N_PASSES)
        rank = passes["rank"]
        passes = self._ranked("passes", passes)
        self.clock.passes(passes, rank)
        self.evidence.add(passes)
        self._hand_over("passes", passes)
        if self.drafting is not None:
            self._drain_bursts(self.drafting)
        # Kernels that draft write a span when its passes are over, the others as soon as it is certain.
        n = int(st.g[S.N_SPANS_LOG]) if self.drafting is None else 0
        in_flight = st.spans[3, :n] + st.spans[4, :n] - 1 > delivered[st.spans[2, :n]]
        if last and in_flight.any():
            self._truncate(in_flight, delivered)
            in_flight = np.zeros(int(st.g[S.N_SPANS_LOG]), bool)
        spans = self._take("spans", st.spans, S.N_SPANS_LOG, held=in_flight)
        self.clock.spans(spans, spans.pop("previous_pass"))
        self._hand_over("spans", self._ranked("spans", spans))
        n = int(st.g[S.N_CHUNKS_LOG])
        in_flight = st.chunks[2, :n] > delivered[st.chunks[1, :n]]
        for table, log, counter, held in (
            ("chunks", st.chunks, S.N_CHUNKS_LOG, in_flight),
            ("admissions", st.admissions, S.N_ADMISSIONS_LOG, None),
            ("pressure", st.pressure, S.N_PRESSURE_LOG, None),
        ):
            self._hand_over(table, self._ranked(table, self._take(table, log, counter, held=held)))

    def _drain_bursts(self, drafting: Drafting) -> None:
        n = int(drafting.counts[D.N_BURSTS_LOG])
        drafting.counts[D.N_BURSTS_LOG] = 0
        self.acceptance.drain(drafting)
        names = logged("bursts", drafting=True)
        bursts = {name: drafting.bursts[i, :n].copy() for i, name in enumerate(names)}
        self.clock.bursts(bursts)
        self._hand_over("bursts", self._ranked("bursts", bursts))

    def _hand_over(self, table: str, columns: Columns) -> None:
        """Time spent in the sink (writing files, say) is not the engine's."""
        began = time.perf_counter()
        self.sink.rows(table, columns)
        self.sink_seconds += time.perf_counter() - began

    def _take(self, table: str, log: np.ndarray, counter: int, held: np.ndarray | None = None) -> Columns:
        """Empty a log but for the rows `held` back."""
        drafting = self.drafting is not None
        n, names = int(self.state.g[counter]), logged(table, drafting=drafting)
        if held is None or not held.any():
            self.state.g[counter] = 0
            taken = {name: log[i, :n].copy() for i, name in enumerate(names)}
        else:
            taken = {name: log[i, :n][~held] for i, name in enumerate(names)}
            rest = log[:, :n][:, held]
            log[:, : rest.shape[1]] = rest
            self.state.g[counter] = rest.shape[1]
        return taken if drafting else without_drafts(table, taken)

    def _ranked(self, table: str, columns: Columns) -> Columns:
        rank = columns.pop("rank")
        columns["worker"], columns["dp_rank"] = (
            np.divmod(rank, self.spec.dp) if self.spec.dp > 1 else (rank, np.zeros_like(rank))
        )
        return {name: columns[name] for name in TABLES[table]}

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
            for rank in range(self.ranks):
                while self._close_open(rank):
                    self.drain(last=True)
                self.drain(last=True)
        if self.keep_spans:
            uncounted = st.q[:, S.STATUS] != COMPLETED
            uncounted[: self.load.warmup] = True
        for low in range(0, len(self.load), REQUEST_ROWS):
            self._hand_over("requests", self._requests(low, min(low + REQUEST_ROWS, len(self.load))))
        self._hand_over("evidence", self.evidence.columns())
        if self.drafting is not None:
            self._hand_over("acceptance", self.acceptance.table())
        gap, weight, end = self.clock.gaps(uncounted)
        if self.spec.front is not None:
            end += self.spec.front.reply_ns
        return {"gap_ns": gap, "gap_weight": weight, "gap_end_ns": end}

    def _close_open(self, rank: int) -> bool:
        """End the open spans of a rank, or as many as the logs hold. Returns whether there may be more."""
        if self.drafting is not None:
            return bool(close_open_bursts(self.config, self.state, self.drafting, rank, self.config.seqs))
        close_open_spans(self.state, rank)
        return False

    def _requests(self, low: int, high: int) -> Columns:
        load, status, made = self.load, self.state.q[low:high, S.STATUS], self.state.q[low:high, S.RECEIVED]
        values = _transposed(self.state.q[low:high], _REQUEST_COLUMNS) | _transposed(
            self.state.t[low:high], _REQUEST_TIMES
        )
        rank = values.pop("rank")
        values["worker"], values["dp_rank"] = np.divmod(rank, self.spec.dp)
        values["dp_rank"][rank < 0] = -1
        open_ended = np.flatnonzero((status != COMPLETED) & (made > 0))
        if len(open_ended):
            values["last_token_ns"][open_ended] = self.clock.last_token_ns(open_ended + low)
        values["request"] = np.arange(low, high, dtype=np.int64)
        values["second_token_ns"] = self.clock.second_token_ns[low:high]
        if self.spec.front is not None:  # as the client sees it (2.8)
            values["arrival_ns"] = self.state.sent[low:high].copy()
            for name in SEEN_LATER:
                values[name] = np.where(values[name] >= 0, values[name] + self.spec.front.reply_ns, -1)
        values["prompt_tokens"] = np.array(load.prompt_tokens[low:high], np.int64)
        values["requested_tokens"] = np.array(load.output_tokens[low:high], np.int64)
        return {name: values[name] for name in REQUESTS}


def _may_break_off(spec: EngineSpec, load: Workload) -> bool:
    """Whether a request can be refused in the middle of its output: drafts that no pool of this size could hold."""
    if spec.speculation is None or spec.native_drafts or not len(load):
        return False
    longest = int((load.prompt_tokens + spec.outputs(load.prompt_tokens, load.output_tokens)).max())
    return longest > spec.blocks * spec.block_tokens


def _transposed(rows: np.ndarray, places: dict[str, int]) -> Columns:
    """Columns `places` of an array of rows, as int64."""
    return {name: rows[:, place].astype(np.int64) for name, place in places.items()}
