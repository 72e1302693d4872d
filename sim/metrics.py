"""What a replay amounts to: latency distributions, throughput, reuse, goodput. Definitions: docs/metrics.md."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from sim.acceptance import Acceptance
from sim.distribution import (
    Distribution,
    exact_int_sum,
    of_floats,
    of_ns,
    of_weighted_ns,
    of_weighted_rates,
    rank,
)
from sim.goodput import Limits, Sla, is_good
from sim.result import CANCELED, COMPLETED, FAILED, REJECTED, REQUESTS, Columns, Outcome, Sink
from sim.spec import Deployment, EngineSpec, as_pools

__all__ = ["Limits", "Metrics", "Sla", "Tap", "compute", "metric_rows", "steady_window", "summary"]

MS = 1_000_000  # ns

# Metric, unit, and how the reference simulator spells it in its summary keys.
LATENCIES = {
    "ttft": ("ms", "{stat}_ttft_ms"),
    "ttst": ("ms", "{stat}_ttst_ms"),
    "tpot": ("ms", "{stat}_tpot_ms"),
    "itl": ("ms", "{stat}_itl_ms"),
    "e2e_latency": ("ms", "{stat}_e2e_latency_ms"),
    "output_token_throughput_per_user": ("tok/s", "{stat}_output_token_throughput_per_user"),
}

Row = tuple[str, str, str, float | None, str, int]


class Gaps(NamedTuple):
    """Times between tokens of completed requests; equal ones of a pass stand together."""

    ns: np.ndarray
    weights: np.ndarray  # how often the gap occurred, > 0
    ends: np.ndarray  # when its later token was made, ns

    def between(self, start_ns: int, end_ns: int) -> Gaps:
        """Those that ended in a window, both ends included."""
        rows = _rows_of((self.ends >= start_ns) & (self.ends <= end_ns))
        return Gaps(self.ns[rows], self.weights[rows], self.ends[rows])


@dataclass(frozen=True)
class ScopeMetrics:
    """Figures of one scope: the whole run, or its steady-state window."""

    scope: str
    duration_ns: int
    n_completed: int
    input_tokens: int
    output_tokens: int
    latencies: dict[str, Distribution]
    n_good: int | None = None
    good_tokens: int | None = None

    def rate(self, count: int) -> float:
        """Per second; the denominator is at least a nanosecond."""
        return count * 1e9 / max(self.duration_ns, 1)


@dataclass(frozen=True)
class Metrics:
    """Every figure of a replay. `rows()` feeds the metrics table, `summary()` speaks the reference's key names."""

    run: ScopeMetrics
    steady: ScopeMetrics | None
    spec: Deployment
    engine_ms: float
    end_ns: int
    n_requests: int
    n_rejected: int
    n_preemptions: int
    n_admissions: int
    n_passes: int
    reused_tokens_max: int
    reused_tokens_first: int
    peak_active_blocks: int
    committed_prefill_tokens: int | None
    gpus_per_worker: tuple[int, int] = (0, 1)
    n_warmup: int = 0
    n_failed: int = 0
    n_canceled: int = 0
    acceptance: Acceptance | None = None  # None: nothing was drafted, or the table was not given

    @property
    def worker_seconds(self) -> tuple[float, float]:
        """Of workers that only prefill, and of the others. They are busy or ready from time 0 to the last event."""
        prefill, others = as_pools(self.spec)
        return (prefill.workers if prefill else 0) * self.end_ns / 1e9, others.workers * self.end_ns / 1e9

    @property
    def gpu_hours(self) -> float:
        seconds = zip(self.worker_seconds, self.gpus_per_worker, strict=True)
        return sum(each * gpus for each, gpus in seconds) / 3600

    def rows(self) -> list[Row]:
        """(scope, metric, stat, value, unit, n); value is None where there is no sample."""
        run, tokens_in = self.run, max(self.run.input_tokens, 1)
        n = run.n_completed
        # Two pools have two sizes; what each of them holds is told by the views.
        left = self.n_requests - n - self.n_rejected - self.n_failed - self.n_canceled
        usage = self.peak_active_blocks / self.spec.blocks if isinstance(self.spec, EngineSpec) else None
        rows: list[Row] = [
            ("run", "requests", "submitted", self.n_requests, "requests", self.n_requests),
            ("run", "requests", "completed", n, "requests", self.n_requests),
            ("run", "requests", "rejected", self.n_rejected, "requests", self.n_requests),
            ("run", "requests", "unfinished", left, "requests", self.n_requests),
            *(
                ("run", "requests", how, count, "requests", self.n_requests)
                for how, count in (("failed", self.n_failed), ("canceled", self.n_canceled))
                if count
            ),
            *([("run", "requests", "warmup", self.n_warmup, "requests", self.n_requests)] if self.n_warmup else []),
            ("run", "passes", "total", self.n_passes, "passes", self.n_passes),
            ("run", "admissions", "total", self.n_admissions, "admissions", self.n_requests),
            ("run", "preemptions", "total", self.n_preemptions, "preemptions", self.n_requests),
            ("run", "prefix_reuse", "max", self.reused_tokens_max / tokens_in if n else None, "ratio", n),
            ("run", "prefix_reuse", "first", self.reused_tokens_first / tokens_in if n else None, "ratio", n),
            ("run", "kv_active_blocks", "peak", self.peak_active_blocks, "blocks", self.n_passes),
            *([("run", "kv_usage", "peak", usage, "ratio", self.n_passes)] if usage is not None else []),
            ("run", "worker_time", "total", sum(self.worker_seconds), "s", self.spec.workers),
            ("run", "gpu_time", "total", self.gpu_hours, "h", self.spec.workers),
        ]
        if self.committed_prefill_tokens is not None:
            rows.append(
                ("run", "committed_prefill_tokens", "total", self.committed_prefill_tokens, "tokens", self.n_passes)
            )
        drafter = self.spec.sides[-1].speculation
        if self.acceptance is not None and drafter is not None:
            rows += self.acceptance.rows(drafter.drafts)
        for scope in (self.run, self.steady):
            if scope is not None:
                rows += _scope_rows(scope)
        return rows

    def summary(self) -> dict[str, float | int | str | None]:
        """The whole run under the reference simulator's key names; 0 where there is no sample (rule MR-8), but for the
        mean acceptance, which is then None (rule 8.5)."""
        run = self.run
        wall_s = max(self.engine_ms, 1e-6) / 1e3
        tokens = run.input_tokens + run.output_tokens
        answer: dict[str, float | int | str | None] = {"kv_eviction_policy": "lru"}
        if self.committed_prefill_tokens is not None:
            answer["committed_prefill_tokens"] = self.committed_prefill_tokens
        answer |= {
            "num_requests": self.n_requests,
            "completed_requests": run.n_completed,
            "total_input_tokens": run.input_tokens,
            "total_output_tokens": run.output_tokens,
            "duration_ms": run.duration_ns / MS,
            "wall_time_ms": self.engine_ms,
            "request_throughput_rps": run.rate(run.n_completed),
            "input_throughput_tok_s": run.rate(run.input_tokens),
            "output_throughput_tok_s": run.rate(run.output_tokens),
            "total_throughput_tok_s": run.rate(tokens),
            "prefill_worker_seconds": self.worker_seconds[0],
            "decode_worker_seconds": self.worker_seconds[1],
            "prefill_gpus_per_worker": self.gpus_per_worker[0],
            "decode_gpus_per_worker": self.gpus_per_worker[1],
            "gpu_hours": self.gpu_hours,
            "processed_tokens": tokens,
            "processed_tokens_per_s": tokens / wall_s,
            "processed_output_tokens_per_s": run.output_tokens / wall_s,
            "prefix_cache_reused_ratio": self.reused_tokens_max / max(run.input_tokens, 1),
            "first_admission_prefix_cache_reused_ratio": self.reused_tokens_first / max(run.input_tokens, 1),
            "num_ttft_samples": run.latencies["ttft"].n,
            "num_tpot_samples": run.latencies["tpot"].n,
            "num_e2e_latency_samples": run.latencies["e2e_latency"].n,
        }
        if run.n_good is not None and run.good_tokens is not None:
            answer["goodput_completed_requests"] = run.n_good
            answer["goodput_request_throughput_rps"] = run.rate(run.n_good)
            answer["goodput_output_throughput_tok_s"] = run.rate(run.good_tokens)
        if self.acceptance is not None:
            answer |= self.acceptance.summary()
        for name, (_, key) in LATENCIES.items():
            for stat, value in run.latencies[name].stats().items():
                answer[key.format(stat=stat)] = 0.0 if value is None else value
        return answer


def compute(
    requests: Columns,
    outcome: Outcome,
    passes: Columns | None,
    spec: Deployment,
    *,
    sla: Limits | None = None,
    window: tuple[int, int] | None = None,
    chunks: Columns | None = None,
    gpus_per_worker: int | tuple[int, int] | None = None,
    warmup: int = 0,
    acceptance: Columns | None = None,
    handoffs: Columns | None = None,
) -> Metrics:
    """Every figure of one replay.

    Args:
        requests: the requests table.
        outcome: its `latencies` hold the weighted gaps of completed requests.
        passes: the passes table, or None.
        sla: limits of a good request; without it there is no goodput.
        window: virtual times (from, to) in ns of the steady state, both inclusive. Default: from the arrival of the
            tenth percentile of the completed requests to that of the ninetieth; no steady state if those coincide.
        chunks: the chunks table, or None; without it committed prefill tokens are known only if `passes` are there and
            nothing was preempted.
        gpus_per_worker: for gpu hours; a pair of a prefill and a decode worker's where they have pools of their own.
            Default: one per attention-DP rank.
        warmup: leading requests that do not count, as in the workload. Time then counts from the first arrival of one
            that does. Passes, memory and worker time are those of the whole replay.
        acceptance: the acceptance table, or None.
        handoffs: the handoffs table where TTFT ends when the prompt is computed; None: with the first token, which
            separate pools make after the handover (PD-16).
    """
    if handoffs is not None:
        requests = with_prompt_ends(requests, handoffs)
    status, arrival = requests["status"], requests["arrival_ns"]
    counted: np.ndarray | bool = True if warmup == 0 else np.arange(len(status)) >= warmup
    completed = (status == COMPLETED) & counted
    gaps = Gaps(*(outcome.latencies[name] for name in ("gap_ns", "gap_weight", "gap_end_ns")))
    duration_ns = int(requests["end_ns"].max(where=completed, initial=0))
    if warmup:
        first_ns = int(arrival.min(where=counted & (arrival >= 0), initial=np.iinfo(np.int64).max))
        duration_ns = max(0, duration_ns - first_ns)
    run = _scope("run", duration_ns, requests, completed, gaps, sla)
    steady = None
    if window is None:
        window = steady_window(arrival[completed])
    if window is not None and window[1] > window[0]:
        inside = completed & (arrival >= window[0]) & (arrival <= window[1])
        kept = gaps.between(*window)
        flow = _flow(requests, completed, kept, window)
        steady = _scope("steady", window[1] - window[0], requests, inside, kept, sla, flow)
    first, most = requests["cached_tokens_first"], requests["cached_tokens_max"]
    sent = (arrival >= 0) & (arrival <= outcome.end_ns)
    submitted = sent & counted
    n_preemptions = int(requests["n_preemptions"].sum(where=counted))
    committed = None
    if chunks is not None:
        committed = committed_prefill_tokens(chunks, warmup)
    elif passes is not None and n_preemptions == 0 and warmup == 0:
        committed = int(passes["prefill_tokens"].sum())
    return Metrics(
        run=run,
        steady=steady,
        spec=spec,
        engine_ms=outcome.engine_ms,
        end_ns=outcome.end_ns,
        n_requests=int(np.count_nonzero(submitted)),
        n_rejected=int(np.count_nonzero((status == REJECTED) & counted)),
        n_preemptions=n_preemptions,
        n_admissions=int(requests["n_admissions"].sum(where=counted)),
        n_passes=outcome.n_passes,
        reused_tokens_max=int(most.sum(where=completed)),
        reused_tokens_first=int(first.sum(where=completed)),
        peak_active_blocks=outcome.peak_active_blocks,
        committed_prefill_tokens=committed,
        gpus_per_worker=_gpus(spec, gpus_per_worker),
        n_failed=int(np.count_nonzero((status == FAILED) & counted)),
        n_canceled=int(np.count_nonzero((status == CANCELED) & counted)),
        n_warmup=int(np.count_nonzero(sent[:warmup])),
        acceptance=None
        if spec.sides[-1].speculation is None or acceptance is None
        else Acceptance().add(acceptance, warmup),
    )


def with_prompt_ends(requests: Columns, handoffs: Columns) -> Columns:
    """The requests table, and in column `ttft_at_ns` when each prompt was computed.

    Whoever was not handed over got its first token with its prompt.
    """
    at = requests.get("ttft_at_ns", requests["first_token_ns"]).copy()
    rows = np.searchsorted(requests["request"], handoffs["request"])  # requests are in order
    made = at[rows] >= 0
    at[rows[made]] = np.minimum(at[rows[made]], handoffs["held_ns"][made])
    return requests | {"ttft_at_ns": at}


def _gpus(spec: Deployment, told: int | tuple[int, int] | None) -> tuple[int, int]:
    if told is not None:
        return told if isinstance(told, tuple) else (0, told)
    return (0, spec.dp) if isinstance(spec, EngineSpec) else spec.gpus_per_worker


def metric_rows(
    requests: Columns,
    outcome: Outcome,
    passes: Columns | None,
    spec: Deployment,
    *,
    sla: Limits | None = None,
    window: tuple[int, int] | None = None,
    chunks: Columns | None = None,
    acceptance: Columns | None = None,
) -> list[Row]:
    """Rows of the metrics table; arguments as in `compute`."""
    found = compute(requests, outcome, passes, spec, sla=sla, window=window, chunks=chunks, acceptance=acceptance)
    return found.rows()


def summary(
    requests: Columns,
    outcome: Outcome,
    spec: Deployment,
    *,
    sla: Limits | None = None,
    passes: Columns | None = None,
    chunks: Columns | None = None,
    gpus_per_worker: int | tuple[int, int] | None = None,
) -> dict[str, float | int | str | None]:
    """The whole run under the reference simulator's key names; arguments as in `compute`."""
    # An empty window: the summary has no steady state, so none is worked out.
    window = (0, 0)
    found = compute(
        requests, outcome, passes, spec, sla=sla, window=window, chunks=chunks, gpus_per_worker=gpus_per_worker
    )
    return found.summary()


class Tap:
    """A sink that hands everything on and keeps what metrics need: the requests, and running sums.

    Lets metrics of a replay be computed whose tables go straight to disk, or, without a sink behind it, nowhere.

    Args:
        ttft_to_prefill: TTFT ends when a prompt is computed, not with the token that separate pools make of it later.
    """

    def __init__(self, sink: Sink | None = None, *, warmup: int = 0, ttft_to_prefill: bool = False) -> None:
        self._sink, self._requests, self._warmup = sink, list[Columns](), warmup
        self._handoffs: list[Columns] | None = [] if ttft_to_prefill else None
        self._committed, self._acceptance = 0, Acceptance()

    def rows(self, table: str, columns: Columns) -> None:
        """See `sim.result.Sink`."""
        if table == "requests":
            self._requests.append(columns)
        elif table == "handoffs" and self._handoffs is not None:
            self._handoffs.append({name: columns[name] for name in ("request", "held_ns")})
        elif table == "chunks":
            self._committed += committed_prefill_tokens(columns, self._warmup)
        elif table == "acceptance":
            self._acceptance = self._acceptance.add(columns, self._warmup)
        if self._sink is not None:
            self._sink.rows(table, columns)

    def requests(self) -> Columns:
        """The requests table so far."""
        parts = self._requests
        if len(parts) == 1:
            return parts[0]
        empty = np.zeros(0, np.int64)
        return {column: np.concatenate([empty, *(part[column] for part in parts)]) for column in REQUESTS}

    def compute(
        self,
        outcome: Outcome,
        spec: Deployment,
        *,
        sla: Limits | None = None,
        window: tuple[int, int] | None = None,
        gpus_per_worker: int | tuple[int, int] | None = None,
    ) -> Metrics:
        """Every figure of the replay that wrote here; arguments as in the function of that name."""
        gpus, table, warmup = gpus_per_worker, self.requests(), self._warmup
        for part in self._handoffs or ():
            # Each part with what the ones before it said: a request is in one of them.
            table = with_prompt_ends(table, part)
        found = compute(table, outcome, None, spec, sla=sla, window=window, gpus_per_worker=gpus, warmup=warmup)
        drafted = None if spec.sides[-1].speculation is None else self._acceptance
        return replace(found, committed_prefill_tokens=self._committed, acceptance=drafted)


def steady_window(arrival_ns: np.ndarray) -> tuple[int, int] | None:
    """Arrival times of the 10th and 90th percentile of the completed requests; None if there is no request."""
    if not len(arrival_ns):
        return None
    marks = [rank(len(arrival_ns), p) for p in (10, 90)]
    parted = np.partition(arrival_ns, marks)
    return int(parted[marks[0]]), int(parted[marks[1]])


def committed_prefill_tokens(chunks: Columns, warmup: int = 0) -> int:
    """Tokens computed by requests that computed prompt tokens in the same pass: reuse excluded, recomputation included.

    A resumed request whose prompt is still cached computes generated tokens only; the reference does not count those.
    """
    of_prompts = chunks["prompt_tokens"] > 0
    if warmup:
        of_prompts &= chunks["request"] >= warmup
    return int(chunks["n_tokens"].sum(where=of_prompts))


def _scope(
    name: str,
    duration_ns: int,
    requests: Columns,
    chosen: np.ndarray,
    gaps: Gaps,
    sla: Limits | None,
    flow: tuple[int, int, int] | None = None,
) -> ScopeMetrics:
    """Figures over the chosen requests; `flow` replaces their totals (requests, input tokens, output tokens)."""
    n_good = good_tokens = None
    if sla is not None:
        good = is_good(requests, chosen, sla)
        n_good, good_tokens = int(np.count_nonzero(good)), int(requests["output_tokens"].sum(where=good))
    latencies = _latencies(requests, chosen, gaps)
    if flow is None:
        made = exact_int_sum(requests["output_tokens"][chosen])
        flow = (int(np.count_nonzero(chosen)), exact_int_sum(requests["prompt_tokens"][chosen]), made)
    return ScopeMetrics(name, duration_ns, *flow, latencies, n_good, good_tokens)


def _flow(requests: Columns, completed: np.ndarray, gaps: Gaps, window: tuple[int, int]) -> tuple[int, int, int]:
    """What passed through the window: requests that ended, prompts that got their first token, tokens made."""
    ended = completed & (requests["end_ns"] >= window[0]) & (requests["end_ns"] <= window[1])
    first = requests["first_token_ns"]
    started = completed & (first >= window[0]) & (first <= window[1])
    made = int(np.count_nonzero(started)) + int(gaps.weights.sum())
    return int(np.count_nonzero(ended)), int(requests["prompt_tokens"].sum(where=started)), made


def _latencies(requests: Columns, chosen: np.ndarray, gaps: Gaps) -> dict[str, Distribution]:
    arrival, first, last = requests["arrival_ns"], requests["first_token_ns"], requests["last_token_ns"]
    counted = requests.get("ttft_at_ns", first)
    made, second = requests["output_tokens"], requests["second_token_ns"]
    one, two = _rows_of(chosen & (made >= 1)), _rows_of(chosen & (made >= 2))
    return {
        "ttft": of_ns(counted[one] - arrival[one]),
        "ttst": of_ns(second[two] - first[two]),
        "tpot": of_floats((last[two] - first[two]) / ((made[two] - 1) * MS)),
        "itl": of_weighted_ns(gaps.ns, gaps.weights),
        "e2e_latency": of_ns(last[one] - arrival[one]),
        "output_token_throughput_per_user": of_weighted_rates(gaps.ns, gaps.weights),
    }


def _rows_of(mask: np.ndarray) -> slice | np.ndarray:
    """The same rows, as a slice where they are neighbours: reading a column then needs no copy."""
    count = int(np.count_nonzero(mask))
    first = int(mask.argmax()) if count else 0
    return slice(first, first + count) if mask[first : first + count].all() else mask


def _scope_rows(scope: ScopeMetrics) -> list[Row]:
    name, n = scope.scope, scope.n_completed
    rows: list[Row] = [
        (name, "duration", "total", scope.duration_ns / MS, "ms", n),
        (name, "input_tokens", "total", scope.input_tokens, "tokens", n),
        (name, "output_tokens", "total", scope.output_tokens, "tokens", n),
        (name, "request_throughput", "mean", scope.rate(n), "requests/s", n),
        (name, "input_throughput", "mean", scope.rate(scope.input_tokens), "tok/s", n),
        (name, "output_throughput", "mean", scope.rate(scope.output_tokens), "tok/s", n),
        (name, "total_throughput", "mean", scope.rate(scope.input_tokens + scope.output_tokens), "tok/s", n),
    ]
    if scope.n_good is not None and scope.good_tokens is not None:
        rows += [
            (name, "goodput", "completed", scope.n_good, "requests", n),
            (name, "goodput", "share", scope.n_good / n if n else None, "ratio", n),
            (name, "goodput", "request_throughput", scope.rate(scope.n_good), "requests/s", n),
            (name, "goodput", "output_throughput", scope.rate(scope.good_tokens), "tok/s", n),
        ]
    for metric, (unit, _) in LATENCIES.items():
        sample = scope.latencies[metric]
        rows += [(name, metric, stat, value, unit, sample.n) for stat, value in sample.stats().items()]
    return rows
