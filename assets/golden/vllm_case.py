"""Case files recorded from vLLM's own scheduler (profile `vllm`) -> engine spec and workload."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import numpy as np

from sim.config import ConfigError
from sim.inputs import Workload
from sim.spec import EngineSpec, FixedTiming, FlatTiming, Speculation, Timing

MS = 1_000_000  # ns
DEFAULTS: dict[str, Any] = {
    "block_size": 16,
    "num_gpu_blocks": 1024,
    "max_num_seqs": 256,
    "max_num_batched_tokens": 8192,
    "max_model_len": 32768,
    "enable_prefix_caching": True,
    "enable_chunked_prefill": True,
    "async_scheduling": None,
    "watermark": 0.0,
    "reserve_full_isl": True,
    "speculative": None,
    "concurrency": None,
    "boundary_arrivals": None,
    "prefill_schedule_interval": 1,
    "dp_size": 1,
    "max_passes": 100_000,
    "pass_ms": {"prefill": 1.0, "decode": 1.0},
}
NOTES = {"name", "purpose", "rules", "profile", "requests", "expected"}


class VllmCase(NamedTuple):
    """What a case file asks for; `names[i]` is the case's id of workload row i."""

    spec: EngineSpec
    workload: Workload
    names: tuple[str, ...]


def load(case: Mapping[str, Any], profile: Literal["vllm", "parity"] = "vllm") -> VllmCase:
    """Read one case.

    Raises:
        ConfigError: a field nobody knows.
    """
    if unknown := set(case) - set(DEFAULTS) - NOTES:
        raise ConfigError(f"{min(unknown)}: unknown field; remove it or check the spelling")
    given = {**DEFAULTS, **case}
    requests = list(enumerate(given["requests"]))
    if given["concurrency"] is None:
        requests.sort(key=lambda numbered: round(numbered[1].get("arrival_ms", 0) * MS))
    spec = EngineSpec(
        profile=profile,
        timing=_timing(given["pass_ms"]),
        dp=given["dp_size"],
        block_tokens=given["block_size"],
        blocks=given["num_gpu_blocks"],
        max_num_seqs=given["max_num_seqs"],
        max_batched_tokens=given["max_num_batched_tokens"],
        max_model_len=given["max_model_len"],
        prefix_caching=given["enable_prefix_caching"],
        chunked_prefill=given["enable_chunked_prefill"],
        async_scheduling=_async(given),
        speculation=_speculation(given["speculative"], [str(r["id"]) for _, r in requests]),
        prefill_schedule_interval=given["prefill_schedule_interval"],
        watermark=given["watermark"],
        reserve_full_isl=given["reserve_full_isl"],
        boundary_arrivals=given["boundary_arrivals"] if profile == "vllm" else None,
    )
    prompts = [_tokens(request, index, spec.block_tokens) for index, request in requests]
    known = [_shared(request, prompt) for (_, request), prompt in zip(requests, prompts, strict=True)]
    workload = Workload(
        arrival_ns=np.array([round(r.get("arrival_ms", 0) * MS) for _, r in requests], np.int64),
        prompt_tokens=np.array([len(p) for p in prompts], np.int64),
        output_tokens=np.array([r["output_len"] for _, r in requests], np.int64),
        hash_offsets=np.concatenate([[0], np.cumsum([len(k) for k in known])]).astype(np.int64),
        hash_ids=np.array([token for k in known for token in k], np.int64),
        hash_block_tokens=1,
        hashed_tokens=np.array([len(k) for k in known], np.int64),
        # The recorded engine is one rank of a group: the others stay idle.
        pinned_rank=np.zeros(len(requests), np.int64) if spec.dp > 1 else None,
        concurrency=given["concurrency"],
    )
    return VllmCase(spec, workload, tuple(str(r["id"]) for _, r in requests))


def _async(given: Mapping[str, Any]) -> bool:
    """Unset: on, unless drafts come from n-grams (6.3)."""
    if given["async_scheduling"] is not None:
        return bool(given["async_scheduling"])
    return not given["speculative"] or given["speculative"]["method"] != "ngram"


def _speculation(drafts: Mapping[str, Any] | None, names: list[str]) -> Speculation | None:
    """Accepted drafts are scripted, by request id or for all others."""
    if not drafts:
        return None
    count, scripts = drafts["num_speculative_tokens"], drafts["accept"]
    scripted = tuple(tuple(scripts.get(name, scripts.get("*", [count]))) for name in names)
    return Speculation(drafts["method"], count, (1.0,) * count, scripted=scripted)


def _timing(cost: Mapping[str, float]) -> Timing:
    return FlatTiming(cost["flat"]) if "flat" in cost else FixedTiming(cost["prefill"], cost["decode"])


def _tokens(request: Mapping[str, Any], index: int, block: int) -> list[int]:
    """The prompt's tokens: given, or spelled by block ids, or a group's leading tokens and then private ones."""
    if "prompt_token_ids" in request:
        return list(request["prompt_token_ids"])
    length = request["prompt_len"]
    if "hash_ids" in request:
        tokens = [h * block + j for h in request["hash_ids"] for j in range(block)]
        if len(tokens) < length:
            raise ConfigError(f"requests[{index}].hash_ids: fewer tokens than prompt_len={length}")
        return tokens[:length]
    shared, group = request.get("prefix_len", 0), request.get("prefix_group", 0)
    return [10_000_000 * (group + 1) + j if j < shared else 1_000_000_000 + 100_000 * index + j for j in range(length)]


def _shared(request: Mapping[str, Any], prompt: list[int]) -> list[int]:
    """The leading tokens that may equal somebody else's: all of them, then the scripted output, or just the group's."""
    if script := request.get("output_token_ids"):
        return prompt + list(script[: request["output_len"]])
    if "prompt_token_ids" in request or "hash_ids" in request:
        return prompt
    return prompt[: request.get("prefix_len", 0)]
