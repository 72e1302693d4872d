"""From the kernels' logs to result columns, where every request has two rows."""

from __future__ import annotations

import numpy as np

import sim.pools.state as P
import sim.state as S
from sim.collect import Collector
from sim.inputs import Workload
from sim.pools.state import Pools
from sim.result import (
    ACTIVATED,
    GAVE_UP,
    HANDOFF_TIMEOUT,
    HANDOFFS,
    NEVER_FITS,
    NO_REASON,
    TABLES,
    TIMED_OUT,
    TRANSFER_FAILED,
    UNDER_WAY,
    Columns,
    Sink,
)
from sim.spec import PoolsSpec
from sim.speculation.columns import Drafting
from sim.state import Config, State
from sim.timing.evidence import PoolsEvidence

_INSTANTS = {
    "held_ns": P.HELD,
    "reserved_ns": P.RESERVED,
    "transferred_ns": P.TRANSFERRED_AT,
    "activated_ns": P.ACTIVATED,
    "released_ns": P.RELEASED,
    "sent_tokens": P.SENT,
}


class PoolsCollector(Collector):
    """A collector that knows which rank is where, and that a bootstrap is its request."""

    def __init__(
        self,
        spec: PoolsSpec,
        load: Workload,
        config: Config,
        state: State,
        sink: Sink,
        pools: Pools,
        drafting: Drafting | None,
    ) -> None:
        """`drafting`: the decode pool's drafter."""
        super().__init__(spec.decode, load, config, state, sink, drafting, ranks=pools.ranks)
        self.pools, self.transfer = pools, spec.transfer
        self.evidence = PoolsEvidence(spec)
        self.worker_of = pools.worker_of.astype(np.int64)
        self.dp_rank_of = np.arange(pools.ranks) - pools.w[self.worker_of, P.FIRST_RANK]

    def _ranked(self, table: str, columns: Columns) -> Columns:
        rank, n = columns.pop("rank"), self.pools.n
        columns["worker"], columns["dp_rank"] = self.worker_of[rank], self.dp_rank_of[rank]
        if table == "admissions":
            later = columns["request"] < n
            columns["admission_no"][later] += self.state.q[n + columns["request"][later], S.N_ADMITTED]
        for name in ("request", "asker"):
            if name in columns:
                columns[name] = np.where(columns[name] >= n, columns[name] - n, columns[name])
        return {name: columns[name] for name in TABLES[table]}

    def _requests(self, low: int, high: int) -> Columns:
        values, q, t, n = super()._requests(low, high), self.state.q, self.state.t, self.pools.n
        first, rank = q[n + low : n + high].astype(np.int64), q[low:high, S.RANK].astype(np.int64)
        placed = rank >= 0
        values["worker"] = np.where(placed, self.worker_of[rank], -1)
        values["dp_rank"] = np.where(placed, self.dp_rank_of[rank], -1)
        handed = first[:, S.RANK] >= 0  # others were prefilled where they decode, or never came
        values["admitted_ns"] = np.where(handed, t[n + low : n + high, S.ADMITTED], t[low:high, S.ADMITTED])
        values["cached_tokens_first"] = np.where(handed, first[:, S.CACHED_FIRST], values["cached_tokens_first"])
        values["cached_tokens_max"] = np.maximum(first[:, S.CACHED_MAX], values["cached_tokens_max"])
        values["n_admissions"] = values["n_admissions"] + first[:, S.N_ADMITTED]
        values["n_preemptions"] = values["n_preemptions"] + first[:, S.N_PREEMPTED]
        return values

    def _close_open(self, rank: int) -> bool:
        # A prefill worker makes no tokens.
        return rank >= self.pools.prefill_ranks and super()._close_open(rank)

    def finish(self, *, stopped: bool) -> dict[str, np.ndarray]:
        gaps = super().finish(stopped=stopped)
        self._hand_over("handoffs", self._handoffs())
        return gaps

    def _handoffs(self) -> Columns:
        t, n = self.state.t, self.pools.n
        h = self.pools.h[:n]
        request = np.flatnonzero(h[:, P.HELD] >= 0)
        source, rank = h[request, P.SOURCE], self.state.q[request, S.RANK].astype(np.int64)
        placed = rank >= self.pools.prefill_ranks
        values = {name: h[request, place] for name, place in _INSTANTS.items()}
        values["request"] = request
        values["source_worker"], values["source_rank"] = self.worker_of[source], self.dp_rank_of[source]
        values["worker"] = np.where(placed, self.worker_of[rank], -1)
        values["dp_rank"] = np.where(placed, self.dp_rank_of[rank], -1)
        values |= self._transfers(request)
        values["prefill_admitted_ns"] = t[n + request, S.ADMITTED]
        values["decode_admitted_ns"] = t[request, S.ADMITTED]
        return {name: np.ascontiguousarray(values[name]) for name in HANDOFFS}

    def _transfers(self, request: np.ndarray) -> Columns:
        """What became of the transfers of these requests."""
        h, transfer = self.pools.h[request], self.transfer
        reserved, asked = h[:, P.RESERVED], h[:, P.RESERVED] >= 0
        size = np.rint(h[:, P.SENT] * (transfer.bytes_per_token or 0.0) + transfer.fixed_bytes).astype(np.int64)
        values = {"sent_bytes": np.where(asked & bool(transfer.bytes_per_token), size, -1)}
        if self.pools.wired:
            names = {"queued_ns": P.QUEUED, "began_ns": P.BEGAN, "attempts": P.ATTEMPTS, "withdrawn_ns": P.WITHDRAWN}
            values |= {name: h[:, place] for name, place in names.items()}
        else:
            queued = np.where(asked, reserved + transfer.first_byte_ns, -1)
            values |= {"queued_ns": queued, "began_ns": queued, "attempts": asked.astype(np.int64)}
            values["withdrawn_ns"] = np.full(len(request), -1, np.int64)
        reason = self.state.q[request, S.REASON]
        ways = [
            (h[:, P.ACTIVATED] >= 0, ACTIVATED),
            (reason == TRANSFER_FAILED, GAVE_UP),
            (reason == HANDOFF_TIMEOUT, TIMED_OUT),
            (reason != NO_REASON, NEVER_FITS),
        ]
        conditions, outcomes = zip(*ways, strict=True)
        values["outcome"] = np.select(conditions, outcomes, UNDER_WAY).astype(np.int64)
        return values
