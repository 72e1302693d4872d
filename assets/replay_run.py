"""One replay from configuration to committed tables: the one path that the command line and Dagster share.

Nothing here imports Dagster, and a small replay should not pay for polars either.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from assets.cell_ops import cell_ops
from assets.identity import canonical_json, digest, new_run_id, performance_digest, replay_id, sources_digest
from assets.inputs import Inputs, prepare
from assets.pricing import Pricing
from assets.strict import insist
from perf_db.store import Store
from perf_db.tables import CELL_OPS, schema_digest
from perf_db.writer import Identity
from sim.metrics import Metrics, Row, Tap
from sim.result import PHASE_NAMES, ROLE_NAMES, Columns, Outcome, Sink
from sim.sessions import of_sessions
from sim.spec import Deployment, PoolsSpec
from sim.timing.tables import ArrayTiming

if TYPE_CHECKING:
    from sim.config import RunConfig
    from sim.spec import Deployment, PoolsSpec

Progress = Callable[[int, int], None]

NEARLY_FULL = 0.9  # of the KV pool; beyond it waiting times move by factors


@dataclass(frozen=True)
class RunReport:
    """What a finished replay tells its caller; the tables themselves are in the store.

    Attributes:
        run: the row of `runs`.
        metrics: rows of `metrics`: scope, metric, stat, value, unit, n.
        summary: the figures under the reference simulator's key names.
        seconds: host time by stage.
        warnings: what is allowed and yet probably not meant, what the replay showed included.
    """

    run: dict[str, Any]
    metrics: list[Row]
    summary: dict[str, float | int | str | None]
    database: Path
    inputs: Inputs
    seconds: dict[str, float]
    warnings: tuple[str, ...] = ()

    @property
    def run_id(self) -> str:
        return str(self.run["run_id"])

    @property
    def replay_id(self) -> str:
        return str(self.run["replay_id"])


def run_replay(
    config: RunConfig,
    store: Store,
    *,
    base: Path,
    name: str = "replay",
    reading: Progress | None = None,
    compiling: Callable[[], None] | None = None,
    progress: Progress | None = None,
) -> RunReport:
    """Read the traffic, replay it, write and commit every table.

    Args:
        config: what to replay.
        store: where the results go.
        base: folder that relative paths of the configuration start from.
        name: what to call the run if the configuration does not name it.
        reading: called with (bytes read, bytes in all) of the trace.
        compiling: called once the input is known to be good, before machine code is loaded.
        progress: called with (requests done, requests in all) of the replay.

    Raises:
        ConfigError, TraceError, ReplayError: the input's fault. Nothing is left behind then, as after any error.
    """
    started = time.perf_counter()
    inputs = prepare(config, base=base, progress=reading)
    prepared = time.perf_counter()
    # Loading machine code takes a good part of a second, and a minute where there is none yet: not before the input is
    # known to be good.
    if compiling is not None:
        compiling()
        spent = time.perf_counter() - prepared  # once per version, and no part of what this replay takes
        started, prepared = started + spent, prepared + spent
    from sim.engine import kernels_of, replay
    from sim.timing.compiled import compile_timing

    kernels_of(inputs.spec)()
    for side in inputs.spec.sides:
        compile_timing(side)  # array timings are packed once; from here on that is known
    loaded = time.perf_counter()
    run = run_facts(config, inputs, name=name)
    pricing = inputs.pricing or Pricing(inputs.spec)
    # Whatever ends the block before the commit, Ctrl-C and a cancelled Dagster step included, leaves nothing behind.
    with store.begin(run["run_id"], identity=_identity(inputs)) as writer:
        sink = Tap(
            with_corrections(writer, inputs.spec),
            warmup=inputs.workload.warmup,
            ttft_to_prefill=config.ttft_ends == "prefill",
        )
        outcome = replay(inputs.spec, inputs.workload, sink, progress=progress)
        replayed = time.perf_counter()
        for role, side_pricing in zip(roles(inputs.spec), pricing.sides, strict=True):
            mine = outcome.lookups["role"] == role
            lookups = {name: values[mine] for name, values in outcome.lookups.items()}
            insist(side_pricing.strict, lookups)
            if side_pricing.model is not None:
                writer.rows(CELL_OPS.name, cell_ops(lookups, side_pricing.model, side_pricing.cells))
        metrics = sink.compute(outcome, inputs.spec, sla=config.sla, gpus_per_worker=config.gpus_per_worker)
        rows = metric_rows(metrics, inputs) + session_rows(sink, inputs)
        writer.metrics(rows)
        writer.quarantine(inputs.quarantine)
        run |= {
            "engine_ms": outcome.engine_ms,
            "total_ms": (time.perf_counter() - started) * 1e3,
            "end_ns": outcome.end_ns,
            "peak_active_blocks": outcome.peak_active_blocks,
        }
        run = writer.commit(run)
    finished = time.perf_counter()
    seconds = {
        "prepare": prepared - started,
        "load_kernels": loaded - prepared,
        "replay": replayed - loaded,
        "write": finished - replayed,
    }
    warnings = inputs.warnings + pool_warnings(inputs.spec, outcome)
    return RunReport(run, rows, summary(metrics, inputs), store.database, inputs, seconds, warnings)


def roles(spec: Deployment) -> range:
    """Codes of the pools' roles, in order."""
    return range(1, 3) if isinstance(spec, PoolsSpec) else range(1)


def pool_warnings(spec: Deployment, outcome: Outcome) -> tuple[str, ...]:
    """What the demand for KV blocks says about how far the figures carry."""
    if isinstance(spec, PoolsSpec):
        return ()  # the peak is that of whichever pool held more; the view pass_mix tells them apart
    share = outcome.peak_active_blocks / spec.blocks
    if share < NEARLY_FULL:
        return ()
    return (
        f"KV demand reached {share:.1%} of the pool ({outcome.peak_active_blocks:,} of {spec.blocks:,} blocks on one "
        "rank): near capacity, waiting times move by factors with small errors of the pool's size",
    )


def run_facts(config: RunConfig, inputs: Inputs, *, name: str) -> dict[str, Any]:
    """The part of a run's row that is known before the replay."""
    canonical, pricing = config.canonical(), inputs.pricing or Pricing(inputs.spec)
    # Where the pool follows from memory, the number found is part of what was replayed.
    for code, side in zip(roles(inputs.spec), inputs.spec.sides, strict=True):
        canonical["engine"]["workers"][ROLE_NAMES[code]]["kv_cache"]["capacity"]["blocks"] = side.blocks
    provenance = dict(inputs.provenance)
    if pricing.provenance:
        provenance["performance"] = pricing.provenance
    trace = str(inputs.provenance["digest"])
    parts = {
        "performance": performance_digest(inputs.spec),
        "engine": sources_digest("sim"),
        "schema": schema_digest(),
    }
    return {
        "run_id": new_run_id(),
        "replay_id": replay_id(config=canonical, trace=trace, seed=config.seed, **parts),
        "name": config.name or name,
        "config_digest": digest(canonical_json(canonical)),
        "trace_digest": trace,
        "performance_digest": parts["performance"],
        "engine_digest": parts["engine"],
        "config_json": canonical_json(canonical),
        "provenance_json": canonical_json(provenance),
        "seed": config.seed,
        "profile": inputs.spec.profile,
        "backend": config.engine.backend,
        "model": config.engine.model,
        "hardware": config.engine.hardware,
        "timing": pricing.timing,
        "ttft_ends": config.ttft_ends,
        "mixed_pass": pricing.mixed_pass,
        "kv_blocks": inputs.spec.sides[-1].blocks,
        "kv_blocks_estimated": pricing.estimated_blocks,
        "output_path_ns": front.reply_ns if (front := inputs.spec.sides[-1].front) is not None else None,
        "unproven": ",".join(unproven(inputs.spec)),
        "tracemill_version": metadata.version("tracemill"),
        "python_version": platform.python_version(),
        "numpy_version": np.__version__,
        "numba_version": metadata.version("numba"),
    }


class _Corrected:
    """Adds the factor of each correction bin to evidence: the engine counts bins, the snapshot knows their factors."""

    def __init__(self, sink: Sink, timings: dict[int, ArrayTiming]) -> None:
        self._sink = sink
        self._stores: dict[int, list[np.ndarray]] = {}
        for role, timing in timings.items():
            mixed = timing.arrays["factor_mixed"].ravel()
            stores = {"prefill": timing.arrays["factor_prefill"], "decode": timing.arrays["factor_decode"].ravel()}
            self._stores[role] = [stores.get(name, mixed) for name in PHASE_NAMES]

    def rows(self, table: str, columns: Columns) -> None:
        if table == "evidence":
            bins, factor = columns["correction_bin"], np.full(len(columns["phase"]), np.nan)
            for role, stores in self._stores.items():
                for phase, store in enumerate(stores):
                    here = (columns["role"] == role) & (columns["phase"] == phase) & (bins >= 0)
                    factor[here] = store[bins[here]]
            columns = {**columns, "correction": factor}
        self._sink.rows(table, columns)


def with_corrections(sink: Sink, spec: Deployment) -> Sink:
    """The sink as it is, or one that writes the factors of a tuned snapshot into evidence."""
    timings = {
        role: side.timing
        for role, side in zip(roles(spec), spec.sides, strict=True)
        if isinstance(side.timing, ArrayTiming) and side.timing.is_corrected
    }
    return _Corrected(sink, timings) if timings else sink


def metric_rows(metrics: Metrics, inputs: Inputs) -> list[Row]:
    """Rows of the metrics table. Reuse is unknown, not zero, where the trace says nothing about prefixes."""
    rows = metrics.rows()
    if inputs.workload.hash_offsets is not None:
        return rows
    return [(*row[:3], None, *row[4:]) if row[1] == "prefix_reuse" else row for row in rows]


def session_rows(sink: Tap, inputs: Inputs) -> list[Row]:
    """The same for sessions, where there are any."""
    session = inputs.workload.session
    return [] if session is None else of_sessions(sink.requests(), session, inputs.workload.warmup).rows()


def summary(metrics: Metrics, inputs: Inputs) -> dict[str, float | int | str | None]:
    """The reference simulator's keys, with unknown reuse as None."""
    found: dict[str, float | int | str | None] = dict(metrics.summary())
    if inputs.workload.hash_offsets is None:
        found |= {key: None for key in found if key.endswith("reused_ratio")}
    return found


def unproven(deployment: Deployment) -> tuple[str, ...]:
    """Features in use that no recorded engine confirms."""
    spec = deployment.sides[-1]
    drafts = spec.speculation
    moved = deployment.transfer if isinstance(deployment, PoolsSpec) else None
    found = {
        # Recorded are those of the reference simulator.
        "separate_pools_as_vllm": isinstance(deployment, PoolsSpec) and spec.profile == "vllm",
        "transfers_share_links": moved is not None and moved.links != "none",
        "transfer_first_byte": moved is not None and moved.first_byte_ns > 0,
        "transfer_overlap": moved is not None and moved.layers > 0,
        "transfer_failures": moved is not None and moved.failure_rate > 0,
        "handoff_timeout": moved is not None and moved.timeout_ns is not None,
        # Written from the router's documentation.
        "conditional_disaggregation": isinstance(deployment, PoolsSpec) and deployment.local_prefill_tokens is not None,
        # Two batches in flight and ranks in lockstep: each is confirmed alone, the pair was never recorded.
        "async_with_attention_dp": any(side.async_scheduling and side.dp > 1 for side in deployment.sides),
        "async_in_separate_pools": moved is not None and any(side.async_scheduling for side in deployment.sides),
        "max_utilization": spec.profile == "trtllm"
        and any(side.capacity_policy == "max_utilization" for side in deployment.sides),
        "eagle": drafts is not None and drafts.kind == "eagle",
        "ngram_trigger_rate": drafts is not None and drafts.trigger_rate < 1,
        "drafts_off_above_a_batch": drafts is not None and drafts.max_batch is not None,
    }
    return tuple(name for name, used in found.items() if used)


def _identity(inputs: Inputs) -> Identity:
    return Identity(
        request_id=inputs.request_id,
        external_id=inputs.external_id,
        source_line=inputs.source_line,
        session_id=inputs.session_id,
        turn=inputs.turn,
    )
