"""From a configuration to what the engine replays: requests as columns, who they are, and where they come from."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from assets import synthetic
from assets.constants_origin import origins
from assets.ingest import Quarantine, Trace, TraceError, read_trace
from assets.pricing import Pricing, price_deployment
from assets.quarantine_limits import Verdict, judge
from perf_db.gpu.errors import PerfDataError
from sim.config import ConfigError, RunConfig
from sim.config import traffic as kinds
from sim.inputs import Workload
from sim.spec import Deployment, EngineSpec

Progress = Callable[[int, int], None]
LAST_NS = synthetic.LAST_NS


@dataclass(frozen=True, slots=True, eq=False)
class Inputs:
    """Everything a replay starts from. Identity columns are indexed by the engine's request number.

    Attributes:
        request_id: shape (n,), position of its row in the source, from 0, quarantined rows included.
        external_id: the source's names of the requests; None if it has none.
        source_line: shape (n,), line of the file, from 1; None for made-up traffic.
        session_id: the source's session name per request, or session numbers (-1 for none); None without sessions.
        turn: shape (n,), from 0 within a session, -1 for none; None without sessions.
        quarantine: columns of table `quarantine`.
        provenance: source, digest, counts and lineage, ready for JSON. `digest` identifies the traffic's content.
        warnings: what is allowed and yet probably not meant.
        trace: the trace as read, before load and stop; None for made-up traffic.
        pricing: where the prices of passes and the size of the KV pool come from.
    """

    spec: Deployment
    workload: Workload
    request_id: np.ndarray
    external_id: list[str | None] | None
    source_line: np.ndarray | None
    session_id: list[str | None] | np.ndarray | None
    turn: np.ndarray | None
    quarantine: dict[str, list[Any]]
    provenance: dict[str, Any]
    warnings: tuple[str, ...]
    trace: Trace | None
    pricing: Pricing | None = None


def prepare(config: RunConfig, *, base: Path, progress: Progress | None = None, keep_limits: bool = True) -> Inputs:
    """Read or make the traffic of a configuration.

    Args:
        config: a loaded configuration.
        base: folder that a relative trace path starts from.
        progress: called with (bytes read, bytes in all) while a trace is read.
        keep_limits: more bad rows than `traffic.source.quarantine` allows are an error.

    Raises:
        ConfigError: a trace that it names is not there.
        TraceError: the trace cannot be used, or not with this configuration.
        PerfDataError: its passes cannot be priced.
    """
    try:
        pricing = price_deployment(config, base=base)
    except PerfDataError as error:
        if error.reason != "unknown_system":
            raise
        # The data call it a system; whoever reads this wrote it down under another name.
        raise PerfDataError(error.reason, f"engine.hardware={config.engine.hardware!r}: {error}") from error
    spec = pricing.spec
    if isinstance(config.traffic.source, kinds.Trace):
        inputs = _from_trace(config, config.traffic.source, spec, base, progress)
    else:
        inputs = _made_up(config, config.traffic.source, spec)
    verdict = verdict_on(config, inputs)
    if verdict.failed and keep_limits:
        block = getattr(config.traffic.source, "block_size", None)
        mend = "mend the file"
        if block is not None and "hash_count_mismatch" in inputs.provenance["reasons"]:
            mend += f" or traffic.source.block_size={block}"
        raise TraceError(f"{inputs.provenance['path']}: {verdict.failed}; {mend}, or raise the limit")
    if verdict.warned:
        inputs = replace(inputs, warnings=(*inputs.warnings, verdict.warned))
    _insist_that_prompts_fit(inputs)
    constants, foreign = origins(config, base)
    if constants:
        inputs = replace(inputs, provenance={**inputs.provenance, "constants": constants})
    return replace(inputs, pricing=pricing, warnings=inputs.warnings + foreign + pricing.warnings)


def verdict_on(config: RunConfig, inputs: Inputs) -> Verdict:
    """What the limits of the configuration say of the rows that were set aside."""
    source = config.traffic.source
    if not isinstance(source, kinds.Trace):
        return Verdict("", "")
    facts = inputs.provenance
    return judge(facts["rows_read"], facts["reasons"], source.quarantine)


def _from_trace(
    config: RunConfig, source: kinds.Trace, spec: Deployment, base: Path, progress: Progress | None
) -> Inputs:
    load = config.traffic.load

    def read(field: str, path: str, form: str | None, progress: Progress | None = None) -> Trace:
        if not (base / path).exists():
            raise ConfigError(
                f"traffic.source.{field}={path!r}: {base / path}: no such trace file; paths start from the "
                "configuration's folder"
            )
        return read_trace(
            base / path,
            format=form,
            block_tokens=source.block_size,
            cut_tokens=spec.block_tokens,
            columns=None if source.columns is None else source.columns.model_dump(exclude_none=True),
            time_unit=source.time_unit or "ms",
            nested_basis=source.nested_timestamp_basis or "auto",
            strict=source.strict,
            needs_timestamps=isinstance(load, kinds.TraceTimestamps),
            needs_output=config.zero_output == "quarantine",
            progress=progress,
        )

    trace = read("paths" if source.path is None else "path", source.file, source.format, progress)
    steps: list[dict[str, Any]] = []
    if source.shape:
        from assets.ingest.shape import shaped

        places = {id(step): f"shape.{i}.path" for i, step in enumerate(source.shape)}
        trace, steps = shaped(trace, source.shape, lambda step: read(places[id(step)], step.path, step.format))
    _insist_on_output(config, trace)
    _insist_on_ranks(spec, trace)
    n = min(len(trace), config.traffic.count or len(trace))
    whole, lanes = trace, isinstance(load, kinds.TraceTimestamps) and load.agentic_lanes is not None
    if lanes or trace.waits is not None:
        from assets.ingest.shape import as_queue, first_rows

        trace = as_queue(first_rows(trace, n), file_order=lanes)
    first = np.ones(n, bool) if trace.turn is None else trace.turn[:n] <= 0
    speedup = load.speedup if isinstance(load, kinds.TraceTimestamps) else 1.0
    if isinstance(load, kinds.TraceTimestamps):
        arrival_ns = _divided(trace.arrival_ns[:n], load.speedup, trace.path)
    else:
        _insist_on_unit(load, trace)
        arrival_ns = _spread(_arrivals(config, int(first.sum())), first)
    workload = workload_of(
        trace, n, arrival_ns=arrival_ns, faster=lambda ns: _divided(ns, speedup, trace.path), concurrency=_slots(load)
    )
    workload = replace(workload, send_limit=_turns(config, trace), warmup=_warmup(config, n))
    prefix = "unknown: the trace says nothing about it"
    if trace.hash_ids is not None:
        prefix = f"hash ids of {trace.hash_block_tokens} tokens in the trace"
    lineage: dict[str, Any] = {"arrivals": _origin(load), "lengths": "the trace", "prefixes": prefix}
    if workload.warmup:
        lineage["warmup_requests"] = workload.warmup
    if steps:
        lineage["shape"] = steps
    session_id = trace.session_id
    return Inputs(
        spec=spec,
        workload=workload,
        request_id=trace.request_id[:n],
        external_id=None if trace.external_id is None else trace.external_id[:n],
        source_line=trace.source_line[:n],
        session_id=None if session_id is None else session_id[:n],
        turn=None if trace.turn is None else trace.turn[:n],
        quarantine=trace.quarantine.columns(),
        provenance={**trace.provenance, "path": source.file, "replayed": n, "lineage": lineage},
        warnings=config.warnings + trace.warnings,
        trace=whole,
    )


def workload_of(
    trace: Trace,
    n: int,
    *,
    arrival_ns: np.ndarray,
    faster: Callable[[np.ndarray], np.ndarray],
    concurrency: int | None,
) -> Workload:
    """The first n rows of a trace as the engine takes them, with the arrivals of the load.

    Args:
        faster: what the load does to times inside a session: think times, pauses, earliest starts.
    """
    offsets = None if trace.hash_offsets is None else trace.hash_offsets[: n + 1]
    waits = None if trace.waits is None else trace.waits.taken(np.arange(n))
    return Workload(
        arrival_ns=arrival_ns,
        prompt_tokens=trace.prompt_tokens[:n],
        output_tokens=trace.output_tokens[:n],
        hash_offsets=offsets,
        hash_ids=None if trace.hash_ids is None or offsets is None else trace.hash_ids[: offsets[-1]],
        hash_block_tokens=trace.hash_block_tokens,
        hashed_tokens=None if trace.hashed_tokens is None else trace.hashed_tokens[:n],
        session=None if trace.session is None else trace.session[:n],
        delay_ns=None if trace.delay_ns is None else faster(trace.delay_ns[:n]),
        pinned_rank=None if trace.pinned_rank is None else trace.pinned_rank[:n],
        concurrency=concurrency,
        not_before_ns=None if trace.not_before_ns is None else faster(trace.not_before_ns[:n]),
        wait_offsets=None if waits is None else waits.offsets,
        wait_on=None if waits is None else _row_of(trace.request_id[:n], waits.on),
        wait_delay_ns=None if waits is None else faster(waits.delay_ns),
        wait_on_dispatch=None if waits is None else waits.on_dispatch,
    )


def _row_of(request_id: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """Where rows of these numbers are; they are there."""
    order = np.argsort(request_id)
    return order[np.searchsorted(request_id, wanted, sorter=order)]


def _made_up(config: RunConfig, source: kinds.Synthetic | kinds.SyntheticSession, spec: Deployment) -> Inputs:
    count = config.traffic.count
    assert count is not None, "a synthetic source without a count passed the configuration's checks"
    if isinstance(source, kinds.Synthetic):
        columns = synthetic.requests(
            count,
            input_tokens=source.input_tokens,
            output_tokens=source.output_tokens,
            shared_prefix_ratio=source.shared_prefix_ratio,
            prefix_groups=source.prefix_groups,
            block_tokens=spec.block_tokens,
            seed=config.seed,
        )
    else:
        shape = source.shape
        columns = synthetic.sessions(
            count,
            turns=shape["turns_per_session"],
            new_tokens=source.new_input_tokens_per_turn,
            output_tokens=source.output_tokens_per_turn,
            inter_turn_delay_ms=shape["inter_turn_delay_ms"],
            shared_prefix_ratio=shape["shared_prefix_ratio"],
            prefix_groups=shape["prefix_groups"],
            block_tokens=spec.block_tokens,
            seed=config.seed,
        )
    n = len(columns.prompt_tokens)
    arrival_ns = _arrivals(config, count)
    workload = Workload(
        arrival_ns=np.repeat(arrival_ns, n // count) if n > count else arrival_ns,
        prompt_tokens=columns.prompt_tokens,
        output_tokens=columns.output_tokens,
        hash_offsets=columns.hash_offsets,
        hash_ids=columns.hash_ids,
        hash_block_tokens=columns.hash_block_tokens,
        hashed_tokens=columns.hashed_tokens,
        session=columns.session,
        delay_ns=columns.delay_ns,
        concurrency=_slots(config.traffic.load),
        send_limit=config.traffic.stop.turns,
        warmup=_warmup(config, n),
    )
    # Everything the columns depend on: the traffic section, the seed, and the block size that shared prefixes count in.
    recipe = [config.canonical()["traffic"], config.seed, spec.block_tokens]
    text = json.dumps(recipe, sort_keys=True, separators=(",", ":"))
    provenance = {
        "path": None,
        "format": source.type,
        "digest": hashlib.blake2b(text.encode(), digest_size=16).hexdigest(),
        "rows_read": n,
        "clean": n,
        "quarantined": 0,
        "replayed": n,
        "lineage": {
            "arrivals": _origin(config.traffic.load),
            "lengths": _lengths(source),
            "prefixes": "made up" if columns.hash_ids is not None and len(columns.hash_ids) else "none are shared",
        },
    }
    return Inputs(
        spec=spec,
        workload=workload,
        request_id=np.arange(n),
        external_id=None,
        source_line=None,
        session_id=columns.session,
        turn=columns.turn,
        quarantine=Quarantine().columns(),
        provenance=provenance,
        warnings=config.warnings,
        trace=None,
    )


def _slots(load: Any) -> int | None:
    if isinstance(load, kinds.TraceTimestamps):
        return load.agentic_lanes
    return load.concurrency if isinstance(load, kinds.Concurrency) else None


def _turns(config: RunConfig, trace: Trace) -> int | None:
    turns = config.traffic.stop.turns
    if turns is not None and trace.session is None:
        raise TraceError(f"{trace.path}: the trace has no sessions; use traffic.stop.requests instead of turns")
    return turns


def _warmup(config: RunConfig, n: int) -> int:
    warmup = config.traffic.warmup_requests
    sent = min(n, config.traffic.stop.turns or n)
    if warmup >= sent:
        raise TraceError(f"traffic.warmup: all {sent:,} requests would be warm-up ({warmup:,}); lower it")
    return warmup


def _origin(load: Any) -> str:
    if isinstance(load, kinds.TraceTimestamps) and load.agentic_lanes:
        return f"{load.agentic_lanes} sessions at once, inside them the trace's times, {load.speedup:g} times as fast"
    if isinstance(load, kinds.TraceTimestamps):
        return "the trace" if load.speedup == 1 else f"the trace, {load.speedup:g} times as fast"
    return f"load {load.type}"


def _lengths(source: kinds.Synthetic | kinds.SyntheticSession) -> str:
    given = [value for name, value in source if "tokens" in name]
    drawn = sorted({each.type for each in given if hasattr(each, "type")})
    return f"drawn: {', '.join(drawn)}" if drawn else "fixed in the configuration"


def _arrivals(config: RunConfig, n: int) -> np.ndarray:
    """Arrivals of n units (requests, or sessions by their first turn), ns from the start."""
    load, seed = config.traffic.load, config.load_seed
    try:
        if isinstance(load, kinds.ConstantRate):
            return synthetic.constant_arrivals(n, load.rate or 0)
        if isinstance(load, kinds.Poisson):
            return synthetic.poisson_arrivals(n, load.rate or 0, seed)
        if isinstance(load, kinds.Gamma):
            return synthetic.gamma_arrivals(n, load.rate or 0, load.shape, seed)
        if isinstance(load, kinds.Diurnal):
            return synthetic.diurnal_arrivals(n, load.rate or 0, load.amplitude, load.period_seconds, seed)
    except OverflowError as error:
        raise TraceError(f"traffic.load: {error}; raise the rate or stop earlier") from None
    return np.zeros(n, np.int64)  # a burst; in a closed loop nobody looks


def _spread(arrival_ns: np.ndarray, first: np.ndarray) -> np.ndarray:
    """Arrivals of units over all rows; a later turn, whose arrival nobody reads, repeats the row before it."""
    return arrival_ns[np.maximum(np.cumsum(first) - 1, 0)]


def _divided(ns: np.ndarray, speedup: float, path: str) -> np.ndarray:
    if speedup == 1:
        return ns
    faster = ns / speedup
    if len(faster) and not faster.max() < LAST_NS:
        raise TraceError(f"{path}: with traffic.load.speedup={speedup:g} it would not end within {LAST_NS} ns")
    return np.rint(faster).astype(np.int64)


def _insist_on_output(config: RunConfig, trace: Trace) -> None:
    empty = np.flatnonzero(trace.output_tokens == 0)
    if len(empty) and config.zero_output == "refuse":
        raise TraceError(
            f"{trace.path}: {len(empty):,} row(s) ask for no output, the first on line {trace.source_line[empty[0]]}; "
            "vLLM refuses such requests. Use traffic.zero_output: prefill_only or quarantine"
        )


def _insist_on_ranks(spec: Deployment, trace: Trace) -> None:
    if trace.pinned_rank is None:
        return
    if isinstance(spec, EngineSpec):
        ranks, have = spec.dp, f"engine.workers.aggregated.parallelism.attention_data={spec.dp} has ranks"
    else:
        decode = spec.decode
        ranks = decode.ranks
        have = f"the decode pool, {decode.workers} worker(s) of attention_data={decode.dp}, has ranks"
    wrong = np.flatnonzero(trace.pinned_rank >= ranks)
    if len(wrong):
        raise TraceError(
            f"{trace.path}: line {trace.source_line[wrong[0]]} is pinned to dp_rank {trace.pinned_rank[wrong[0]]}, but "
            f"{have} 0 to {ranks - 1}"
        )


def _insist_on_unit(load: Any, trace: Trace) -> None:
    if not isinstance(load, kinds.OpenLoad):
        return
    unit, given = (
        ("requests", load.requests_per_second) if trace.session is None else ("sessions", load.sessions_per_second)
    )
    if given is None:
        have = "no sessions" if trace.session is None else "sessions"
        raise TraceError(f"{trace.path}: the trace has {have}; give traffic.load.{unit}_per_second")


def _insist_that_prompts_fit(inputs: Inputs) -> None:
    """vLLM will not start where a legal prompt could never run: chunking off and a budget below it."""
    spec, prompts = inputs.spec.sides[0], inputs.workload.prompt_tokens
    if spec.profile != "vllm" or spec.chunked_prefill:
        return
    tried = prompts if spec.max_model_len is None else prompts[prompts < spec.max_model_len]
    too_long = int((tried > spec.max_batched_tokens).sum())
    if too_long:
        raise TraceError(
            f"{too_long:,} prompt(s) of up to {int(tried.max()):,} tokens can never run: chunked_prefill is off and "
            f"max_batched_tokens={spec.max_batched_tokens}. Turn chunked_prefill on, raise max_batched_tokens, or set "
            "engine.context_length so that they are rejected"
        )
