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

from assets.identity import canonical_json, digest, new_run_id, replay_id, sources_digest, timing_digest
from assets.inputs import Inputs, prepare
from perf_db.store import Store
from perf_db.tables import schema_digest
from perf_db.writer import Identity
from sim.metrics import Metrics, Row, Tap
from sim.sessions import of_sessions

if TYPE_CHECKING:
    from sim.config import RunConfig
    from sim.spec import EngineSpec

Progress = Callable[[int, int], None]

# How a pass with prefill and decode work is priced. The timing models so far know no joint price.
MIXED_PASS = {"vllm": "two_prices", "parity": "two_prices", "trtllm": "two_prices"}


@dataclass(frozen=True)
class RunReport:
    """What a finished replay tells its caller; the tables themselves are in the store.

    Attributes:
        run: the row of `runs`.
        metrics: rows of `metrics`: scope, metric, stat, value, unit, n.
        summary: the figures under the reference simulator's key names.
        seconds: host time by stage.
    """

    run: dict[str, Any]
    metrics: list[Row]
    summary: dict[str, float | int | str | None]
    database: Path
    inputs: Inputs
    seconds: dict[str, float]

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
    progress: Progress | None = None,
) -> RunReport:
    """Read the traffic, replay it, write and commit every table.

    Args:
        config: what to replay.
        store: where the results go.
        base: folder that relative paths of the configuration start from.
        name: what to call the run if the configuration does not name it.
        reading: called with (bytes read, bytes in all) of the trace.
        progress: called with (requests done, requests in all) of the replay.

    Raises:
        ConfigError, TraceError, ReplayError: the input's fault. Nothing is left behind then, as after any error.
    """
    started = time.perf_counter()
    inputs = prepare(config, base=base, progress=reading)
    prepared = time.perf_counter()
    # Loading machine code takes a good part of a second: not before the trace is known to be good.
    from sim.engine import load_kernels, replay

    load_kernels(drafting=inputs.spec.speculation is not None)
    loaded = time.perf_counter()
    run = run_facts(config, inputs, name=name)
    # Whatever ends the block before the commit, Ctrl-C and a cancelled Dagster step included, leaves nothing behind.
    with store.begin(run["run_id"], identity=_identity(inputs)) as writer:
        sink = Tap(writer, warmup=inputs.workload.warmup)
        outcome = replay(inputs.spec, inputs.workload, sink, progress=progress)
        replayed = time.perf_counter()
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
    return RunReport(run, rows, summary(metrics, inputs), store.database, inputs, seconds)


def run_facts(config: RunConfig, inputs: Inputs, *, name: str) -> dict[str, Any]:
    """The part of a run's row that is known before the replay."""
    canonical = config.canonical()
    trace = str(inputs.provenance["digest"])
    parts = {
        "performance": timing_digest(inputs.spec.timing),
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
        "provenance_json": canonical_json(inputs.provenance),
        "seed": config.seed,
        "profile": inputs.spec.profile,
        "backend": config.engine.backend,
        "model": config.engine.model,
        "hardware": config.engine.hardware,
        "mixed_pass": MIXED_PASS[inputs.spec.profile],
        "unproven": ",".join(unproven(inputs.spec)),
        "tracemill_version": metadata.version("tracemill"),
        "python_version": platform.python_version(),
        "numpy_version": np.__version__,
        "numba_version": metadata.version("numba"),
    }


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


def unproven(spec: EngineSpec) -> tuple[str, ...]:
    """Features in use that no recorded engine confirms."""
    drafts = spec.speculation
    found = {
        # Two batches in flight and ranks in lockstep: each is confirmed alone, the pair was never recorded.
        "async_with_attention_dp": spec.async_scheduling and spec.dp > 1,
        "max_utilization": spec.profile == "trtllm" and spec.capacity_policy == "max_utilization",
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
