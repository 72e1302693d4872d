"""Rules that join several fields.

They read the parsed file rather than the checked one, so that they can be reported together with plain faults: a rule
whose own fields are unusable stays silent, every other one speaks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, get_args

from sim.config.engine import (
    DEFAULT_BLOCK_SIZE,
    DEFAULT_BLOCKS,
    DEFAULT_MAX_BATCHED_TOKENS,
    DEFAULT_MAX_SEQUENCES,
    TRTLLM_BLOCK_SIZE,
)
from sim.config.host import IN_PASSES
from sim.config.timing import EstimationMode
from sim.config.traffic import MAPPED_FORMATS
from sim.models import max_context_tokens

WORKER = "engine.workers.aggregated"
BUDGET = f"{WORKER}.scheduler.max_batched_tokens"
SEQUENCES = f"{WORKER}.scheduler.max_sequences"
CHUNKED = f"{WORKER}.scheduler.chunked_prefill"
PREEMPTION = f"{WORKER}.scheduler.preemption_mode"
BLOCKS = f"{WORKER}.kv_cache.capacity.blocks"
BLOCK_SIZE = f"{WORKER}.kv_cache.block_size"
CONTEXT = "engine.context_length"
MODES = ("aggregated", "disaggregated")
POOLS = ("prefill", "decode")

ABSENT = object()


@dataclass(frozen=True, slots=True)
class Fault:
    """One line of the message. `value` is ABSENT where there is none to show."""

    field: str
    value: Any
    remedy: str


class Raw:
    """Dotted access to the parsed file."""

    def __init__(self, values: dict[str, Any]) -> None:
        self._values = values

    def get(self, path: str) -> Any:
        """The value, or ABSENT."""
        here: Any = self._values
        for part in path.split("."):
            if not isinstance(here, dict) or part not in here:
                return ABSENT
            here = here[part]
        return here

    def has(self, path: str) -> bool:
        return self.get(path) not in (ABSENT, None)

    def whole(self, path: str, default: int) -> int | None:
        """A positive integer, the default when absent, None when unusable (which is reported elsewhere)."""
        found = self.get(path)
        if found is ABSENT:
            return default
        return found if type(found) is int and 0 < found < 2**31 else None

    def number(self, path: str) -> float | None:
        found = self.get(path)
        return float(found) if type(found) in (int, float) else None


def context_tokens(raw: Raw) -> int | None:
    """Longest sequence as a number, or None for no limit, an unknown model or an unusable value."""
    found = raw.get(CONTEXT)
    if found == "max":
        model = raw.get("engine.model")
        return max_context_tokens(model) if isinstance(model, str) else None
    return found if type(found) is int and 0 < found < 2**31 else None


class OfRole(Raw):
    """The parsed file, its rules for workers read for another role than the aggregated one."""

    def __init__(self, values: dict[str, Any], role: str) -> None:
        super().__init__(values)
        self._role = f"engine.workers.{role}"

    def get(self, path: str) -> Any:
        return super().get(self.named(path))

    def named(self, text: str) -> str:
        """What is said of the aggregated workers, said of this role's."""
        return text.replace(WORKER, self._role)


def faults(values: dict[str, Any]) -> Iterator[Fault]:
    """Every joined rule that the file breaks."""
    raw = Raw(values)
    yield from _context(raw)
    yield from _roles(raw)
    yield from _host(raw)
    if raw.get("engine.mode") == "disaggregated":
        yield from _pools(raw)
        for role in POOLS:
            side = OfRole(values, role)
            for fault in _of_worker(side):
                yield Fault(side.named(fault.field), fault.value, side.named(fault.remedy))
    else:
        yield from _of_worker(raw)
    yield from _source(raw)
    yield from _load_fits_source(raw)
    yield from _stop_fits_source(raw)
    yield from _warmup(raw)
    yield from _router(raw)
    yield from _sla(raw)


def _roles(raw: Raw) -> Iterator[Fault]:
    """Which workers belong to the mode."""
    apart = raw.get("engine.mode") == "disaggregated"
    if not isinstance(raw.get("engine.workers"), dict) or raw.get("engine.mode") not in (ABSENT, *MODES):
        return
    wanted, others = (POOLS, ("aggregated",)) if apart else (("aggregated",), POOLS)
    for role in others:
        if raw.has(f"engine.workers.{role}"):
            remedy = f"engine.mode: {MODES[apart]} has no such workers; remove it, or use mode: {MODES[not apart]}"
            yield Fault(f"engine.workers.{role}", raw.get(f"engine.workers.{role}"), remedy)
    for role in wanted:
        if not raw.has(f"engine.workers.{role}"):
            yield Fault(f"engine.workers.{role}", ABSENT, "required; add it")
    names = ("engine.speculation", "engine.nextn")
    found = [name for name in names if raw.get(name) not in (ABSENT, None, 0)]
    ahead = [f"engine.workers.{role}.scheduler.async_scheduling" for role in POOLS]
    found += [name for name in ahead if raw.get(name) is True]
    if apart and found and raw.has("engine.conditional_disaggregation"):
        remedy = f"is not available with {found[0]}; keep one of them"
        yield Fault("engine.conditional_disaggregation", raw.get("engine.conditional_disaggregation"), remedy)
    alone = {
        "kv_transfer": "KV moves only between separate pools",
        "conditional_disaggregation": "without separate pools every prompt is prefilled where it decodes",
    }
    for name, why in alone.items():
        if not apart and raw.has(f"engine.{name}"):
            remedy = f"{why}; remove it, or use engine.mode: disaggregated"
            yield Fault(f"engine.{name}", raw.get(f"engine.{name}"), remedy)


def _host(raw: Raw) -> Iterator[Fault]:
    """Where constants of the host act, and where they cannot."""
    apart = raw.get("engine.mode") == "disaggregated"
    asked = [name for name in ("tokenization", "host") if _does_something(raw.get(f"engine.{name}"))]
    for name in asked:
        if apart:
            remedy = "is not modelled around separate pools; remove it"
        elif raw.get("profile") == "parity":
            remedy = "the reference simulator has none; remove it, or use profile: vllm"
        else:
            continue
        yield Fault(f"engine.{name}", raw.get(f"engine.{name}"), remedy)
    timing = raw.get(f"{WORKER}.timing.type")
    if apart or "host" not in asked or timing in (ABSENT, "default"):
        return
    inside = {"pass_cost": "write base_ms and prefill_pass_ms", "table": "add it to the table"}.get(
        str(timing), "add it to the timing"
    )
    for name in (*IN_PASSES, "factors", "snapshot"):
        value = raw.get(f"engine.host.{name}")
        if value not in (ABSENT, None, 0, {}):
            yield Fault(
                f"engine.host.{name}", value, f"acts on prices of timing.type: default; with {timing}, {inside}"
            )


def _does_something(section: Any) -> bool:
    return isinstance(section, dict) and any(value not in (None, 0, {}) for value in section.values())


def _pools(raw: Raw) -> Iterator[Fault]:
    """What the two pools must have in common, and what they do without."""
    default = TRTLLM_BLOCK_SIZE if raw.get("engine.backend") == "trtllm" else DEFAULT_BLOCK_SIZE
    sizes = [raw.whole(f"engine.workers.{role}.kv_cache.block_size", default) for role in POOLS]
    if all(sizes) and sizes[0] != sizes[1]:
        yield Fault(
            "engine.workers.decode.kv_cache.block_size",
            sizes[1],
            f"blocks are handed over whole; use that of the prefill workers, {sizes[0]}",
        )
    if not raw.has("engine.kv_transfer.bandwidth_gb_per_second") and not raw.number("engine.kv_transfer.fallback_ms"):
        idle = {"links": "share no link", "overlap": "overlap with nothing"}
        for name, what in idle.items():
            given = raw.get(f"engine.kv_transfer.{name}")
            if given not in (ABSENT, None, "none"):
                remedy = f"transfers that take no time {what}; give kv_transfer.bandwidth_gb_per_second, or fallback_ms"
                yield Fault(f"engine.kv_transfer.{name}", given, remedy)
    for role in POOLS:
        field = f"engine.workers.{role}.scheduler.async_scheduling"
        if raw.get(field) is True and raw.get("profile") == "parity":
            yield Fault(field, True, "separate pools choose synchronously in profile parity; use false, or remove it")
    field = "engine.workers.prefill.scheduler.async_scheduling"
    if raw.get(field) is True and raw.get("engine.kv_transfer.overlap") not in (ABSENT, None):
        yield Fault(field, True, "with kv_transfer.overlap no pass is chosen ahead there; use false, or remove it")


def _of_worker(raw: Raw) -> Iterator[Fault]:
    """Rules of one role's workers."""
    yield from _estimator(raw)
    profile, trtllm = raw.get("profile"), raw.get("engine.backend") == "trtllm"
    if trtllm != (profile == "trtllm"):
        remedy = "use trtllm, or leave it out" if trtllm else "goes with engine.backend: trtllm; use vllm or parity"
        yield Fault("profile", profile, remedy)
    elif trtllm:
        yield from _options_of_vllm(raw)
        yield from _not_in_trtllm(raw)
    elif profile in (ABSENT, "vllm"):
        yield from _as_vllm_refuses(raw)
        yield from _not_in_vllm(raw)
    elif profile == "parity":
        yield from _options_of_vllm(raw)
        yield from _not_in_vllm(raw)
    yield from _speculation(raw, trtllm)


def _context(raw: Raw) -> Iterator[Fault]:
    if raw.get(CONTEXT) != "max":
        return
    model = raw.get("engine.model")
    if not isinstance(model, str):
        yield Fault(CONTEXT, "max", "needs engine.model to look the limit up; name the model or give a number")
    elif max_context_tokens(model) is None:
        yield Fault(CONTEXT, "max", f"the limit of engine.model={model!r} is not known here; give a number")


def _estimator(raw: Raw) -> Iterator[Fault]:
    """What prices from performance data need to know."""
    timing = f"{WORKER}.timing"
    is_default = raw.get(f"{timing}.type") == "default"
    derived = raw.get(f"{WORKER}.kv_cache.capacity.type") == "default"
    if not is_default and not derived:
        return
    asker = "timing.type: default" if is_default else "kv_cache.capacity.type: default"
    for name, what in (("model", "the served model, such as Qwen/Qwen3-32B"), ("hardware", "such as b200_sxm")):
        if not raw.has(f"engine.{name}"):
            yield Fault(f"engine.{name}", ABSENT, f"required by {asker}: {what}; add it")
    if not is_default:
        return
    mode, older = raw.get("engine.estimation_mode"), raw.get(f"{timing}.forward_model")
    if raw.has("engine.estimation_mode") and older in get_args(EstimationMode) and mode != older:
        yield Fault(f"{timing}.forward_model", older, f"contradicts engine.estimation_mode={mode!r}; keep one of them")
    mode = mode if raw.has("engine.estimation_mode") else older
    needs = {"fpm_interpolation": "fpm_parquet_path", "fpm_regression": "fpm_jsonl_path"}
    for each, path in needs.items():
        # A table of passes can be made from metrics of a running engine as well.
        given = raw.has(f"{timing}.{path}") or raw.has(f"{timing}.fpm_jsonl_path")
        if mode == each and not given:
            yield Fault(f"{timing}.{path}", ABSENT, f"required by estimation_mode: {each}; name the file")
    if mode in needs and raw.get("engine.nextn") not in (ABSENT, None, 0):
        yield Fault("engine.nextn", raw.get("engine.nextn"), f"{mode} knows no drafts; use 0, or op_level")
    if mode in needs and raw.get(f"{timing}.factors") not in (ABSENT, {}):
        yield Fault(f"{timing}.factors", raw.get(f"{timing}.factors"), f"{mode} has no operators; remove them")
    yield from _of_no_use(raw, timing, mode)


def _of_no_use(raw: Raw, timing: str, mode: object) -> Iterator[Fault]:
    """Settings of one estimator beside another, which would read as if they held."""
    if mode in (ABSENT, None, "auto"):
        files = {"fpm_parquet_path": "fpm_interpolation", "fpm_jsonl_path": "fpm_regression"}
        mode = next((found for path, found in files.items() if raw.has(f"{timing}.{path}")), "op_level")
    unused = {
        "op_level": ("fpm_parquet_path", "fpm_jsonl_path", "fpm_cell"),
        "fpm_interpolation": ("data_version",),
        "fpm_regression": ("data_version", "perf_root", "fpm_parquet_path", "fpm_cell", "strict", "snapshot"),
    }
    for name in unused.get(str(mode), ()):
        given = raw.get(f"{timing}.{name}")
        if given not in (ABSENT, None, {}):
            yield Fault(f"{timing}.{name}", given, f"of no use to estimation_mode: {mode}; remove it")


def _as_vllm_refuses(raw: Raw) -> Iterator[Fault]:
    """What vLLM itself will not start with."""
    budget = raw.whole(BUDGET, DEFAULT_MAX_BATCHED_TOKENS)
    sequences = raw.whole(SEQUENCES, DEFAULT_MAX_SEQUENCES)
    context = context_tokens(raw)
    if budget and sequences and budget < sequences:
        yield Fault(
            BUDGET,
            budget,
            f"is below {SEQUENCES}={sequences}, which vLLM refuses; raise it to {sequences} or more, lower "
            "max_sequences, or use profile: parity",
        )
    if raw.get(CHUNKED) is False and budget and context and budget < context:
        yield Fault(
            BUDGET,
            budget,
            f"is below {CONTEXT}={context} while chunked_prefill is off, so long prompts could never run; raise it to "
            f"{context} or more, or turn chunked_prefill on",
        )
    if raw.get(PREEMPTION) == "fifo":
        yield Fault(PREEMPTION, "fifo", "vLLM preempts the latest request; use lifo, or profile: parity")
    derived = raw.get(f"{WORKER}.kv_cache.capacity.type") == "default" and not raw.has(BLOCKS)
    blocks = None if derived else raw.whole(BLOCKS, DEFAULT_BLOCKS)
    block_size = raw.whole(BLOCK_SIZE, DEFAULT_BLOCK_SIZE)
    if blocks and block_size and context and -(-context // block_size) > blocks:
        yield Fault(
            BLOCKS,
            blocks,
            f"cannot hold one sequence of {CONTEXT}={context} tokens: that takes {-(-context // block_size)} blocks of "
            f"{block_size}; raise blocks or lower context_length to {blocks * block_size}",
        )


def _options_of_vllm(raw: Raw) -> Iterator[Fault]:
    """Options that profile parity has no behaviour for."""
    neutral: dict[str, tuple[Any, ...]] = {
        "watermark": (0, 0.0),
        "reserve_full_isl": (None,),
        "boundary_arrivals": (None,),
    }
    for name, values in neutral.items():
        found = raw.get(f"{WORKER}.scheduler.{name}")
        if found is not ABSENT and found not in values:
            yield Fault(f"{WORKER}.scheduler.{name}", found, "exists only with profile: vllm; remove it")


def _not_in_trtllm(raw: Raw) -> Iterator[Fault]:
    """Options of vLLM's scheduler that TensorRT-LLM has no counterpart for."""
    neutral: dict[str, tuple[tuple[Any, ...], str]] = {
        "async_scheduling": ((None,), "TensorRT-LLM's own overlap is not modelled; remove it"),
        "prefill_schedule_interval": ((1,), "exists only with backend: vllm; remove it"),
        "preemption_mode": ((), "guaranteed_no_evict never preempts, max_utilization the latest one; remove it"),
    }
    for name, (values, remedy) in neutral.items():
        found = raw.get(f"{WORKER}.scheduler.{name}")
        if found is not ABSENT and found not in values:
            yield Fault(f"{WORKER}.scheduler.{name}", found, remedy)


def _not_in_vllm(raw: Raw) -> Iterator[Fault]:
    policy = raw.get(f"{WORKER}.scheduler.capacity_policy")
    if policy not in (ABSENT, None):
        yield Fault(f"{WORKER}.scheduler.capacity_policy", policy, "exists only with backend: trtllm; remove it")


def _speculation(raw: Raw, trtllm: bool) -> Iterator[Fault]:
    """What drafts go together with (8.1)."""
    nextn, accepted = raw.get("engine.nextn"), raw.get("engine.nextn_accepted")
    heads = nextn if type(nextn) is int and nextn > 0 else 0
    if heads and not raw.has("engine.nextn_accepted"):
        yield Fault("engine.nextn_accepted", ABSENT, f"required with engine.nextn={heads}; add it")
    elif not heads and raw.has("engine.nextn_accepted") and accepted != 0 and nextn in (ABSENT, None, 0):
        yield Fault("engine.nextn_accepted", accepted, "needs engine.nextn of 1 or more; add that, or remove this")
    elif heads and (raw.number("engine.nextn_accepted") or 0) > heads:
        yield Fault("engine.nextn_accepted", accepted, f"cannot exceed engine.nextn={heads}")
    if heads and raw.has("engine.speculation"):
        yield Fault("engine.nextn", nextn, "cannot be combined with engine.speculation; keep one of them")
    if not heads and not raw.has("engine.speculation"):
        return
    kind = raw.get("engine.speculation.kind") if raw.has("engine.speculation") else "mtp"
    ratio = f"{WORKER}.speedups.decode_speedup_ratio"
    if raw.has(ratio) and raw.number(ratio) not in (None, 1.0):
        yield Fault(ratio, raw.get(ratio), "must be 1 with speculative decoding, whose acceptance is the speed-up")
    timing, mode = raw.get(f"{WORKER}.timing.type"), raw.get("engine.estimation_mode")
    if mode in ("fpm_interpolation", "fpm_regression") or raw.has(f"{WORKER}.timing.fpm_parquet_path"):
        at, value = ("engine.estimation_mode", mode) if mode not in (ABSENT, None) else (f"{WORKER}.timing", ABSENT)
        yield Fault(at, value, "whole-forward data holds no passes with drafts; use op_level, or drop the drafts")
    if kind != "ngram":
        return
    if trtllm:
        yield Fault("engine.speculation.kind", kind, "goes with backend: vllm; use mtp or eagle")
    if raw.get(f"{WORKER}.scheduler.async_scheduling") is True:
        yield Fault(
            f"{WORKER}.scheduler.async_scheduling", True, "vLLM turns it off with ngram drafts; use false or remove it"
        )
    if timing == "table":
        yield Fault(
            f"{WORKER}.timing.type", timing, "measured without drafts; with ngram use fixed, polynomial or default"
        )


def _source(raw: Raw) -> Iterator[Fault]:
    at = "traffic.source"
    kind = raw.get(f"{at}.type")
    if kind == "trace":
        paths = raw.get(f"{at}.paths")
        if raw.has(f"{at}.path") and raw.has(f"{at}.paths"):
            yield Fault(f"{at}.paths", paths, "give either path or paths, not both")
        elif not raw.has(f"{at}.path") and not raw.has(f"{at}.paths"):
            yield Fault(f"{at}.path", ABSENT, "required for type: trace; add it")
        elif isinstance(paths, list) and len(paths) > 1:
            yield Fault(f"{at}.paths", paths, "one file only; join the files first")
        yield from _mapping(raw, at)
        return
    names = ("shared_prefix_ratio", "prefix_groups", "inter_turn_delay_ms")
    shape = f"{at}.session" if raw.has(f"{at}.session") else at
    if shape != at:
        for name in ("turns_per_session", *names):
            if raw.has(f"{at}.{name}"):
                yield Fault(f"{at}.{name}", raw.get(f"{at}.{name}"), f"give it here or in {at}.session, not in both")
    ratio = raw.number(f"{shape}.shared_prefix_ratio") or 0
    if ratio > 0 and raw.get(f"{shape}.prefix_groups") in (ABSENT, None, 0):
        yield Fault(f"{shape}.prefix_groups", 0, f"must be 1 or more when shared_prefix_ratio is {ratio:g}")
    output = "output_tokens" if kind == "synthetic" else "output_tokens_per_turn"
    zero_output = raw.get("traffic.zero_output")
    as_parity = raw.get("profile") in ("parity", "trtllm") and zero_output in (ABSENT, None)
    allowed = zero_output == "prefill_only" or as_parity
    if raw.get(f"{at}.{output}") == 0 and not allowed:
        yield Fault(
            f"{at}.{output}",
            0,
            "vLLM refuses requests for no tokens; use 1 or more, or traffic.zero_output: prefill_only",
        )


def _mapping(raw: Raw, at: str) -> Iterator[Fault]:
    """Which formats the settings of some of them belong to."""
    chosen = raw.get(f"{at}.format")
    for name in ("columns", "time_unit"):
        if raw.has(f"{at}.{name}") and chosen not in (ABSENT, None, *MAPPED_FORMATS):
            yield Fault(
                f"{at}.{name}", raw.get(f"{at}.{name}"), f"belongs to formats {', '.join(MAPPED_FORMATS)}; remove it"
            )
    if raw.has(f"{at}.time_unit") and chosen in (ABSENT, None) and not raw.has(f"{at}.columns"):
        yield Fault(
            f"{at}.time_unit", raw.get(f"{at}.time_unit"), "is for columns that are named; add columns or format"
        )
    basis = raw.get(f"{at}.nested_timestamp_basis")
    if basis not in (ABSENT, None, "auto") and chosen not in (ABSENT, None, "weka"):
        yield Fault(f"{at}.nested_timestamp_basis", basis, "belongs to format weka; remove it")


def _load_fits_source(raw: Raw) -> Iterator[Fault]:
    source, load = raw.get("traffic.source.type"), raw.get("traffic.load.type")
    if load == "trace_timestamps" and source in ("synthetic", "synthetic-session"):
        yield Fault(
            "traffic.load.type",
            load,
            f"source {source} has no timestamps; use concurrency, constant_rate, poisson, gamma, diurnal or burst",
        )
    if load not in ("constant_rate", "poisson", "gamma", "diurnal"):
        return
    requests, sessions = "traffic.load.requests_per_second", "traffic.load.sessions_per_second"
    wanted = {"synthetic": requests, "synthetic-session": sessions}.get(str(source))
    if raw.has(requests) and raw.has(sessions):
        yield Fault(sessions, raw.get(sessions), "give either requests_per_second or sessions_per_second, not both")
    elif not raw.has(requests) and not raw.has(sessions):
        yield Fault(wanted or requests, ABSENT, f"required for load {load}; add it")
    elif wanted and not raw.has(wanted):
        given = requests if wanted == sessions else sessions
        yield Fault(given, raw.get(given), f"source {source} counts in another unit; use {wanted}")


def _stop_fits_source(raw: Raw) -> Iterator[Fault]:
    source, load = raw.get("traffic.source.type"), raw.get("traffic.load.type")
    units = {"synthetic": "requests", "synthetic-session": "sessions", "trace": "requests"}
    unit = units.get(str(source))
    if unit is None:
        return
    other = "sessions" if unit == "requests" else "requests"
    for name in (other, f"{other}_per_load_unit"):
        if raw.has(f"traffic.stop.{name}"):
            yield Fault(f"traffic.stop.{name}", raw.get(f"traffic.stop.{name}"), f"source {source} counts in {unit}")
    if source == "synthetic" and raw.has("traffic.stop.turns"):
        yield Fault("traffic.stop.turns", raw.get("traffic.stop.turns"), f"source {source} has no turns; use requests")
    fixed, relative = f"traffic.stop.{unit}", f"traffic.stop.{unit}_per_load_unit"
    if raw.has(fixed) and raw.has(relative):
        yield Fault(relative, raw.get(relative), f"give either {unit} or {unit}_per_load_unit, not both")
    elif raw.has(relative) and load in ("burst", "trace_timestamps"):
        yield Fault(relative, raw.get(relative), f"load {load} has no unit to multiply; use {fixed}")
    elif (raw.number(relative) or 0) * _load_unit(raw) >= 2**31:
        yield Fault(relative, raw.get(relative), f"makes more {unit} than a run can number; lower it, or use {fixed}")
    elif source != "trace" and not raw.has(fixed) and not raw.has(relative):
        yield Fault(fixed, ABSENT, f"required: a {source} source never ends by itself; add it")


def _warmup(raw: Raw) -> Iterator[Fault]:
    at = "traffic.warmup"
    if not isinstance(raw.get(at), dict):
        return
    fixed, relative = f"{at}.requests", f"{at}.requests_per_load_unit"
    if raw.has(fixed) and raw.has(relative):
        yield Fault(relative, raw.get(relative), "give either requests or requests_per_load_unit, not both")
    elif not raw.has(fixed) and not raw.has(relative):
        yield Fault(fixed, ABSENT, "required: how many requests warm up; add it")
    elif raw.has(relative) and not _load_unit(raw):
        load = raw.get("traffic.load.type")
        yield Fault(relative, raw.get(relative), f"load {load} has no unit to multiply; use {fixed}")
    elif (raw.number(relative) or 0) * _load_unit(raw) >= 2**31:
        yield Fault(relative, raw.get(relative), f"makes more requests than a run can number; lower it, or use {fixed}")


def _router(raw: Raw) -> Iterator[Fault]:
    """Settings of a router that looks at cost, beside one that does not."""
    if raw.get("router.policy") not in (ABSENT, "round_robin"):
        return
    for name in ("overlap_credit", "prefill_load_scale"):
        given = raw.get(f"router.{name}")
        if given not in (ABSENT, None):
            yield Fault(f"router.{name}", given, "of no use to policy: round_robin; remove it, or use kv_aware")


def _load_unit(raw: Raw) -> float:
    """What a count per load unit is multiplied by, as far as the file gives it."""
    names = ("concurrency", "requests_per_second", "sessions_per_second")
    return max(raw.number(f"traffic.load.{name}") or 0 for name in names)


def _sla(raw: Raw) -> Iterator[Fault]:
    at = "evaluation.sla"
    if raw.has(f"{at}.e2e_ms") and (raw.has(f"{at}.ttft_ms") or raw.has(f"{at}.itl_ms")):
        yield Fault(f"{at}.e2e_ms", raw.get(f"{at}.e2e_ms"), "stands alone; remove ttft_ms and itl_ms, or this one")
