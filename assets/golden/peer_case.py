"""Case files of the reference simulator (profiles `parity` and `trtllm`) -> engine spec and workload.

Field names are the simulator's own. A field with no meaning here is refused or reported as unsupported, never ignored.
"""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from assets.golden.unsupported import Unsupported
from sim.config import ConfigError
from sim.inputs import Workload
from sim.metrics import Sla
from sim.result import MOST_DRAFTS
from sim.spec import (
    Deployment,
    EngineSpec,
    FixedTiming,
    PolynomialTiming,
    PoolsSpec,
    Speculation,
    TableTiming,
    Timing,
    Transfer,
)

MS = 1_000_000  # ns
TRACE_BLOCK_TOKENS = 512  # where a trace does not say

DEFAULT_RATES = "0.85,0.3,0,0,0"
BLOCK_TOKENS = {"vllm": 64, "trtllm": 32}  # where a case does not say

# Engine fields that need an issue of their own -> what they are.
MISSING = {
    "native_host_offload": "host offload",
    "g3_offload": "host offload",
    "state_cache": "state cache",
    "kv_cache_groups": "cache groups",
    "kv_cache_capacity_bytes": "cache groups",
}
# Engine fields that change nothing on an aggregated vLLM worker.
WITHOUT_EFFECT = {
    "backend",
    "worker_type",
    "sglang",
    "trtllm",
    "emit_kv_events",
    "emit_kv_token_ids",
    "kv_bytes_per_token",
    "kv_transfer_bytes_per_token",
    "kv_transfer_bandwidth",
    "kv_transfer_timing_mode",
    "kv_cache_bytes_per_token",
}
WORKER_FIELDS = {"engine", "dp_size", "tensor_parallel_size"}
ROW_FIELDS = {"timestamp", "input_length", "output_length", "hash_ids", "session_id", "delay"}


class PeerCase(NamedTuple):
    """What a case file asks for."""

    spec: Deployment
    workload: Workload
    options: Options


class Options(NamedTuple):
    """What belongs to the evaluation, not to the replay."""

    sla: Sla | None
    gpus_per_worker: int | tuple[int, int]
    plays: np.ndarray | None = None  # of each request, where the simulator reports on plays
    nested_basis: str | None = None


def load(case: Mapping[str, Any], base: Path) -> PeerCase:
    """Read one case; `path` traffic is looked up under `base`.

    Raises:
        Unsupported: it needs something the engine does not model yet.
        ConfigError: the reference refuses this configuration, and so do we.
    """
    topology, options = case.get("topology", {}), case.get("options", {})
    if topology.get("router_mode", "round_robin") != "round_robin":
        raise Unsupported("routers", f"topology.router_mode={topology['router_mode']!r}")
    spec: Deployment
    gpus: int | tuple[int, int]
    if topology.get("mode", "aggregated") == "aggregated":
        spec, gpus = _worker(case, "config", topology.get("workers", 1))
        block_tokens = spec.block_tokens
    else:
        prefill, of_prefill = _worker(case, "prefill_config", topology.get("prefill_workers", 1))
        decode, of_decode = _worker(case, "decode_config", topology.get("decode_workers", 1))
        if prefill.speculation is not None and decode.speculation is None:
            raise Unsupported("drafts on prefill workers alone", "prefill_config.engine.aic_nextn")
        spec, gpus = PoolsSpec(prefill, decode, _transfer(case["prefill_config"]["engine"])), (of_prefill, of_decode)
        block_tokens = prefill.block_tokens
    limits = {k: options[f"sla_{k}"] for k in ("ttft_ms", "itl_ms", "e2e_ms") if options.get(f"sla_{k}") is not None}
    try:
        sla = Sla(**limits) if limits else None
    except ValueError as problem:
        raise ConfigError(str(problem)) from None
    workload, basis = _workload(case["traffic"], block_tokens, base)
    plays = workload.session if case["traffic"].get("execution_model") else None
    return PeerCase(spec, workload, Options(sla, gpus, plays, basis))


def _worker(case: Mapping[str, Any], key: str, workers: int) -> tuple[EngineSpec, int]:
    """One pool of a case, and the GPUs of a worker in it."""
    worker = case[key]
    for name, value in worker.items():
        if name not in WORKER_FIELDS:
            raise Unsupported("worker fields", f"{key}.{name}={value!r}")
    spec = _spec(worker["engine"], worker.get("dp_size") or 1, workers, case.get("options", {}))
    return spec, spec.dp * (worker.get("tensor_parallel_size") or 1)


def _transfer(engine: Mapping[str, Any]) -> Transfer:
    """KV transfers, from the prefill side's settings."""
    mode = engine.get("kv_transfer_timing_mode") or "full_prompt"
    if mode not in ("full_prompt", "destination_missing"):
        raise ConfigError(f"engine.kv_transfer_timing_mode={mode!r}: full_prompt or destination_missing")
    rate = engine.get("kv_transfer_bandwidth")
    return Transfer(
        bytes_per_token=engine.get("kv_transfer_bytes_per_token") or engine.get("kv_bytes_per_token"),
        bytes_per_second=None if rate is None else _ratio("engine.kv_transfer_bandwidth", rate) * 1e9,
        missing_only=mode == "destination_missing",
    )


def _spec(engine: Mapping[str, Any], dp: int, workers: int, options: Mapping[str, Any]) -> EngineSpec:
    fields = dict(engine)
    backend = fields.get("backend", "vllm")
    if backend not in ("vllm", "trtllm"):
        raise Unsupported(f"{backend} backend", f"engine.backend={backend!r}")
    for name, area in MISSING.items():
        if fields.get(name) is not None:
            raise Unsupported(area, f"engine.{name}")
    if fields.pop("prefill_decode_interval", 0):
        raise ConfigError("engine.prefill_decode_interval: SGLang only; vLLM has prefill_schedule_interval")
    if backend == "trtllm":
        policy = (fields.get("trtllm") or {}).get("capacity_scheduler_policy", "guaranteed_no_evict")
        if policy != "guaranteed_no_evict":
            raise ConfigError(f"engine.trtllm.capacity_scheduler_policy={policy!r}: only guaranteed_no_evict is known")
        if fields.get("prefill_schedule_interval", 1) != 1:
            raise ConfigError("engine.prefill_schedule_interval: vLLM only; remove it")
    speculation = _speculation(fields)
    for name in [*WITHOUT_EFFECT, *MISSING]:
        fields.pop(name, None)
    stop = options.get("max_sim_time_ms")
    spec = EngineSpec(
        profile="parity" if backend == "vllm" else "trtllm",
        timing=_timing(fields.pop("timing_model", {"type": "polynomial"})),
        workers=_count("topology.workers", workers),
        dp=_count("config.dp_size", dp),
        block_tokens=_count("engine.block_size", fields.pop("block_size", BLOCK_TOKENS[backend]), least=2),
        blocks=_count("engine.num_gpu_blocks", fields.pop("num_gpu_blocks", 16384)),
        max_num_seqs=_count("engine.max_num_seqs", fields.pop("max_num_seqs", 256)),
        max_batched_tokens=_count("engine.max_num_batched_tokens", fields.pop("max_num_batched_tokens", 8192)),
        max_model_len=_optional_count("engine.max_model_len", fields.pop("max_model_len", None)),
        prefix_caching=bool(fields.pop("enable_prefix_caching", True)),
        chunked_prefill=bool(fields.pop("enable_chunked_prefill", True)),
        async_scheduling=False,  # the recorded engine has no such field
        speculation=speculation,
        preemption=fields.pop("preemption_mode", "lifo"),
        prefill_schedule_interval=_count(
            "engine.prefill_schedule_interval", fields.pop("prefill_schedule_interval", 1)
        ),
        speedup_ratio=_ratio("engine.speedup_ratio", fields.pop("speedup_ratio", 1.0)),
        decode_speedup_ratio=_ratio("engine.decode_speedup_ratio", fields.pop("decode_speedup_ratio", 1.0)),
        stop_ns=None if stop is None else round(stop * MS),
    )
    if fields:
        name, value = next(iter(fields.items()))
        raise ConfigError(f"engine.{name}={value!r}: unknown field; remove it or check the spelling")
    return spec


def _speculation(fields: dict[str, Any]) -> Speculation | None:
    """MTP; takes its fields out. Rates are text; missing ones count 0, extra ones are ignored."""
    nextn = fields.pop("aic_nextn", None)
    rates = fields.pop("aic_nextn_accept_rates", None)
    seed = fields.pop("aic_mtp_seed", None)
    if nextn is None:
        if rates is not None or seed is not None:
            raise ConfigError("engine.aic_nextn: required with acceptance rates or a seed")
        return None
    drafts = _count("engine.aic_nextn", nextn)
    if drafts > MOST_DRAFTS:
        raise ConfigError(f"engine.aic_nextn={nextn!r}: at most {MOST_DRAFTS}")
    if _ratio("engine.decode_speedup_ratio", fields.get("decode_speedup_ratio", 1.0)) != 1:
        raise ConfigError("engine.decode_speedup_ratio: must be 1 with engine.aic_nextn")
    try:
        given = [float(text) for text in (DEFAULT_RATES if rates is None else rates).split(",")]
    except ValueError:
        raise ConfigError(f"engine.aic_nextn_accept_rates={rates!r}: must be numbers with commas between") from None
    if not all(0 <= rate <= 1 for rate in given):
        raise ConfigError(f"engine.aic_nextn_accept_rates={rates!r}: rates must lie between 0 and 1")
    return Speculation("mtp", drafts, tuple([*given, *[0.0] * drafts][:drafts]), 42 if seed is None else seed)


def _timing(model: Mapping[str, Any]) -> Timing:
    kind = model["type"]
    if kind == "fixed":
        return FixedTiming(_ratio("prefill_ms", model["prefill_ms"]), _ratio("decode_ms", model["decode_ms"]))
    if kind == "polynomial":
        return PolynomialTiming()
    if kind == "table":
        arrays = {name: np.array(values, np.float64) for name, values in model["arrays"].items()}
        return TableTiming(
            prefill_tokens=arrays["prefill_isl"],
            prefill_ms=arrays["prefill_ttft_ms"],
            decode_kv_tokens=arrays["decode_active_kv_tokens"],
            decode_context=arrays["decode_context_length"],
            decode_ms=arrays["decode_itl"],
        )
    raise Unsupported("timing models", f"engine.timing_model.type={kind!r}")


def _workload(traffic: Mapping[str, Any], engine_block_tokens: int, base: Path) -> tuple[Workload, str | None]:
    """The requests; and, of Weka documents, what nested times were taken to count from."""
    if traffic["kind"] == "synthetic":
        return _synthetic(traffic, engine_block_tokens), None
    trace_format = traffic.get("format", "mooncake")
    if trace_format != "mooncake":
        return _other_format(traffic, trace_format, engine_block_tokens)
    for name in ("trace_shared_prefix_ratio", "trace_num_prefix_groups", "agentic_lanes", "execution_model"):
        if traffic.get(name) is not None:
            raise Unsupported("trace shaping", f"traffic.{name}={traffic[name]!r}")
    rows: list[dict[str, Any]] = list(traffic.get("rows") or [])
    if traffic.get("path") is not None:
        with (base / traffic["path"]).open() as lines:
            rows = [json.loads(line) for line in lines if line.strip()]
    return _trace(rows, traffic), None


def _other_format(traffic: Mapping[str, Any], name: str, engine_block_tokens: int) -> tuple[Workload, str | None]:
    """Rows of the formats that the trace readers know."""
    from assets.ingest import FORMATS, TraceError, read_trace
    from assets.ingest.shape import as_queue
    from assets.inputs import workload_of

    if name not in FORMATS:
        raise Unsupported("trace formats", f"traffic.format={name!r}")
    concurrency, ratio = traffic.get("concurrency"), _time_ratio(traffic)
    lanes = traffic.get("agentic_lanes")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.jsonl"
        path.write_text("\n".join(json.dumps(row) for row in traffic["rows"]))
        try:
            trace = read_trace(
                path,
                format=name,
                block_tokens=traffic.get("block_size"),
                cut_tokens=engine_block_tokens,
                needs_timestamps=concurrency is None,
                strict=True,
            )
        except TraceError as problem:
            raise ConfigError(f"traffic.rows: {problem}") from None
    trace = as_queue(trace, file_order=lanes is not None)
    workload = workload_of(
        trace,
        len(trace),
        arrival_ns=_whole_ns(trace.arrival_ns / MS / ratio),
        faster=lambda ns: _whole_ns(ns / MS / ratio),
        concurrency=concurrency if lanes is None else lanes,
    )
    return workload, trace.notes.get("nested_timestamp_basis")


def _trace(rows: list[dict[str, Any]], traffic: Mapping[str, Any]) -> Workload:
    """Rows by time (ties in file order), the first arrival at 0. A session's later turns follow its earlier ones."""
    if not rows:
        raise ConfigError("traffic.rows: no request")
    for row in rows:
        if unknown := set(row) - ROW_FIELDS:
            raise Unsupported("trace fields", f"rows.{min(unknown)}")
    block, concurrency = traffic.get("block_size") or TRACE_BLOCK_TOKENS, traffic.get("concurrency")
    ratio = _time_ratio(traffic)
    numbers: dict[str, int] = {}
    session = np.array(
        [numbers.setdefault(row["session_id"], len(numbers)) if "session_id" in row else -1 for row in rows]
    )
    arrival, delay = np.zeros(len(rows)), np.zeros(len(rows))
    previous: dict[int, int] = {}
    for i, row in enumerate(rows):
        before = previous.get(int(session[i])) if session[i] >= 0 else None
        if before is None:
            if row.get("delay") is not None:
                raise ConfigError(f"traffic.rows[{i}].delay: a first turn has no turn to wait for")
            if row.get("timestamp") is None and concurrency is None:
                raise ConfigError(f"traffic.rows[{i}].timestamp: required in an open loop")
            arrival[i] = row.get("timestamp") or 0
        else:
            # Turns of a session arrive one after the other; in the file order they stay behind their first turn.
            arrival[i] = arrival[before]
            if row.get("delay") is not None:
                delay[i] = row["delay"]
            elif row.get("timestamp") is not None and rows[before].get("timestamp") is not None:
                delay[i] = row["timestamp"] - rows[before]["timestamp"]
        previous[int(session[i])] = i
        if row["input_length"] < 1:
            raise ConfigError(f"traffic.rows[{i}].input_length={row['input_length']}: must be positive")
        if row["input_length"] > len(row["hash_ids"]) * block:
            raise ConfigError(f"traffic.rows[{i}].hash_ids: {len(row['hash_ids'])} blocks of {block} hold fewer tokens")
    order = np.arange(len(rows)) if concurrency is not None else np.argsort(arrival, kind="stable")
    rows = [rows[i] for i in order]
    arrival = arrival[order] - arrival.min()
    return Workload(
        arrival_ns=_whole_ns(arrival / ratio),
        prompt_tokens=np.array([row["input_length"] for row in rows], np.int64),
        output_tokens=np.array([row["output_length"] for row in rows], np.int64),
        hash_offsets=_offsets([len(row["hash_ids"]) for row in rows]),
        hash_ids=np.array([h for row in rows for h in row["hash_ids"]], np.int64),
        hash_block_tokens=block,
        session=session[order] if numbers else None,
        delay_ns=_whole_ns(delay[order] / ratio) if numbers else None,
        concurrency=concurrency,
    )


def _synthetic(traffic: Mapping[str, Any], engine_block_tokens: int) -> Workload:
    """Equal prompts, all text fresh but for the shared leading blocks; `request_count` counts sessions (rule WL-7a)."""
    loads = [name for name in ("concurrency", "request_rate", "arrival_interval_ms") if traffic.get(name) is not None]
    if len(loads) != 1:
        raise ConfigError("traffic: exactly one of concurrency, request_rate and arrival_interval_ms is needed")
    if loads == ["request_rate"]:
        raise Unsupported("private generators", "traffic.request_rate draws from the recorded engine's own")
    share, groups = traffic.get("shared_prefix_ratio") or 0.0, traffic.get("num_prefix_groups") or 0
    if share > 0 and groups > 1:
        raise Unsupported(
            "private generators", "traffic.num_prefix_groups > 1 draws groups from the engine's generator"
        )
    prompt, turns = traffic["input_tokens"], traffic.get("turns_per_session") or 1
    sessions = traffic["request_count"]
    n = sessions * turns
    blocks = -(-prompt // engine_block_tokens)
    shared = min(blocks, math.floor(blocks * share + 0.5)) if groups else 0
    turn = np.tile(np.arange(turns), sessions)
    ratio = _time_ratio(traffic)
    starts = np.arange(sessions) * (traffic.get("arrival_interval_ms") or 0.0) / ratio
    think = (traffic.get("inter_turn_delay_ms") or 0.0) / ratio
    return Workload(
        arrival_ns=_whole_ns(np.repeat(starts, turns)),
        prompt_tokens=np.full(n, prompt, np.int64),
        output_tokens=np.full(n, traffic["output_tokens"], np.int64),
        hash_offsets=np.arange(n + 1, dtype=np.int64) * shared if shared else None,
        hash_ids=np.tile(np.arange(shared, dtype=np.int64), n) if shared else None,
        hash_block_tokens=engine_block_tokens,
        session=np.repeat(np.arange(sessions), turns) if turns > 1 else None,
        delay_ns=_whole_ns(np.where(turn > 0, think, 0.0)) if turns > 1 else None,
        concurrency=traffic.get("concurrency"),
    )


def _time_ratio(traffic: Mapping[str, Any]) -> float:
    """What arrivals and think times are divided by. A closed loop is not sped up, think times included."""
    return 1.0 if traffic.get("concurrency") is not None else traffic.get("arrival_speedup_ratio") or 1.0


def _whole_ns(ms: np.ndarray) -> np.ndarray:
    return np.floor(np.asarray(ms, np.float64) * MS + 0.5).astype(np.int64)


def _offsets(counts: Iterable[int]) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(np.array(list(counts), np.int64))])


def _count(field: str, value: Any, least: int = 1) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ConfigError(f"{field}={value!r}: must be a whole number of at least {least}")
    return value


def _optional_count(field: str, value: Any) -> int | None:
    return None if value is None else _count(field, value)


def _ratio(field: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < math.inf:
        raise ConfigError(f"{field}={value!r}: must be finite and not negative")
    return float(value)
