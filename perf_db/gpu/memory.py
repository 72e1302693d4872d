"""How many KV blocks one rank of a deployment holds.

    TensorRT-LLM:   budget = (capacity - weights - activations - runtime - communication) * fraction
    vLLM, SGLang:   budget = capacity * fraction - (weights + activations + runtime + communication)

* weights: every projection, the embedding and the experts of the prefill list, divided over pipeline stages;
* activations: 2 bytes * batched tokens * H d * c(T), c by kind of model and tensor parallelism, plus, where experts are
  spread over ranks in the latent-attention class, a dispatch workspace of 4 tokens h D E K / (Ee 128) bytes; SGLang
  takes 15 % more; never less than 70 MiB (SGLang 90 MiB);
* runtime: `misc.other_mem` of the hardware file (SGLang 20 % more); communication: `misc.nccl_mem` at this TP;
* tokens = floor(budget / KV bytes per token), blocks = floor(tokens / block size).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from perf_db.gpu import quant
from perf_db.gpu.architecture import Architecture, architecture_of, operators_of, precisions_of, symbols_of
from perf_db.gpu.deployment import Deployment, check
from perf_db.gpu.errors import PerfDataError
from perf_db.gpu.formulas import evaluate
from perf_db.gpu.hardware import Hardware, load_hardware
from perf_db.gpu.load import version_key
from perf_db.gpu.models import Model, load_model
from perf_db.gpu.source import PerfRoot

MIB = 2**20
# Activation factor by tensor parallelism 1, 2, 4, 8; another degree takes that of the next lower one.
ACTIVATIONS: dict[str, dict[str, tuple[float, float, float, float]]] = {
    "dense": {"sglang": (14.0, 8.5, 6.5, 6.5), "other": (11.0, 6.5, 5.0, 5.0)},
    "hybrid": {"sglang": (13.0, 8.0, 6.5, 6.5), "other": (10.0, 6.0, 5.0, 5.0)},
    "moe": {"sglang": (28.0, 17.0, 13.0, 13.0), "other": (22.0, 13.0, 10.0, 10.0)},
}
SGLANG_ACTIVATIONS, SGLANG_RUNTIME = 1.15, 1.2
LEAST_ACTIVATIONS = {"sglang": 90 * MIB, "other": 70 * MIB}
FRACTION = {"trtllm": 0.9, "sglang": 0.88}
VLLM_FRACTIONS = (("0.22", 0.92), ("0", 0.90))  # from this version on


@dataclass(frozen=True, slots=True)
class Capacity:
    """Bytes of one rank, and what is left of them for the KV cache."""

    gpu_bytes: int
    weights_bytes: int
    activation_bytes: int
    runtime_bytes: int
    comm_bytes: int
    kv_bytes: int  # budget of the KV cache
    kv_bytes_per_token: int
    block_tokens: int
    kv_tokens: int
    blocks: int
    fraction: float


def default_fraction(backend: str, version: str) -> float:
    """Share of memory a backend takes unless told otherwise: of what is free (TensorRT-LLM), of all (the others)."""
    if backend in FRACTION:
        return FRACTION[backend]
    return next(share for since, share in VLLM_FRACTIONS if version_key(version) >= version_key(since))


def capacity(
    deployment: Deployment,
    root: PerfRoot,
    *,
    max_batched_tokens: int,
    fraction: float | None = None,
    block_tokens: int = 16,
    static_activations: bool = True,
) -> Capacity:
    """Bytes and blocks of one rank.

    Args:
        deployment, root: what, and where its facts are; no operator table is needed.
        max_batched_tokens: the engine's token budget of one pass.
        fraction: share of memory; None takes the backend's default.
        block_tokens: tokens of one KV block.
        static_activations: False leaves activations out of SGLang's static pool, as its newer versions do.

    Raises:
        PerfDataError: `no_memory` when not one block is left, naming the parts.
    """
    if block_tokens < 1 or max_batched_tokens < 1:
        raise ValueError(f"block_tokens={block_tokens}, max_batched_tokens={max_batched_tokens}: both are at least 1")
    model, hardware = load_model(root, deployment.model), load_hardware(root, deployment.system)
    check(deployment, model)
    architecture = architecture_of(model)
    symbols = _symbols(deployment, model, architecture, hardware)
    sglang = deployment.backend == "sglang"
    weights = weight_bytes(deployment, model, architecture, symbols)
    activations = _activation_bytes(deployment, architecture, symbols, max_batched_tokens)
    runtime = hardware.other_mem * (SGLANG_RUNTIME if sglang else 1.0)
    comm = _comm_bytes(hardware, deployment.tp)
    share = default_fraction(deployment.backend, deployment.version) if fraction is None else fraction
    counted = activations if static_activations or not sglang else 0.0
    used = weights + counted + runtime + comm
    if deployment.backend == "trtllm":
        budget = (hardware.mem_capacity - used) * share
    else:
        budget = hardware.mem_capacity * share - used
    per_token = int(evaluate(architecture.memory["kv_bytes_per_token"], symbols))
    tokens = math.floor(math.floor(budget) / per_token)
    if tokens < block_tokens:
        parts = {"weights": weights, "activations": counted, "runtime": runtime, "communication": comm}
        named = ", ".join(f"{name} {size / 2**30:.2f}" for name, size in parts.items())
        raise PerfDataError(
            "no_memory",
            f"{deployment.label}: no KV block fits into {hardware.mem_capacity / 2**30:.2f} GiB at fraction {share}: "
            f"{named} GiB; raise tp, pp or moe_ep, lower max_batched_tokens={max_batched_tokens}, or take a smaller "
            "precision",
        )
    return Capacity(
        gpu_bytes=hardware.mem_capacity,
        weights_bytes=int(weights),
        activation_bytes=int(activations),
        runtime_bytes=int(runtime),
        comm_bytes=comm,
        kv_bytes=math.floor(budget),
        kv_bytes_per_token=per_token,
        block_tokens=block_tokens,
        kv_tokens=tokens,
        blocks=tokens // block_tokens,
        fraction=share,
    )


def kv_bytes_per_token(deployment: Deployment, root: PerfRoot) -> int:
    """KV bytes that one token takes on one rank; nothing has to fit anywhere.

    Raises:
        PerfDataError: the model or the system is unknown.
    """
    model, hardware = load_model(root, deployment.model), load_hardware(root, deployment.system)
    architecture = architecture_of(model)
    symbols = _symbols(deployment, model, architecture, hardware)
    return int(evaluate(architecture.memory["kv_bytes_per_token"], symbols))


def weight_bytes(deployment: Deployment, model: Model, architecture: Architecture, symbols: Mapping[str, Any]) -> float:
    """Bytes of weights on one rank."""
    listed = operators_of(architecture.operators, symbols, "context", precisions_of(deployment, model))
    return sum(_weights_of(shape, deployment) for shape in _flat(listed)) / deployment.pp


def _flat(shapes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Operators without their groups; of two ways to price the same weights the second, which lists them singly."""
    flat: list[dict[str, Any]] = []
    for shape in shapes:
        if shape["kind"] == "overlap":
            flat += _flat(shape["a"]) + _flat(shape["b"])
        elif shape["kind"] == "fallback":
            flat += _flat(shape["second"])
        else:
            flat.append(shape)
    return flat


def _weights_of(shape: Mapping[str, Any], deployment: Deployment) -> float:
    def width() -> float:
        return quant.precision(shape["quant"], quant.GEMM, "weight").bytes

    match shape["kind"]:
        case "embedding":
            return 2.0 * shape["vocab"] * shape["hidden"] * shape["scale"]
        case "gemm":
            return width() * shape["n"] * shape["k"] * shape["scale"]
        case "moe":
            elements = 3.0 * shape["hidden"] * shape["inter"] * shape["experts"]
            return width() * elements / deployment.moe_ep / deployment.moe_tp * shape["scale"]
    return width() * shape["weights"] * shape["scale"] if "weights" in shape else 0.0


def _activation_bytes(
    deployment: Deployment, architecture: Architecture, symbols: Mapping[str, Any], tokens: int
) -> float:
    side = "sglang" if deployment.backend == "sglang" else "other"
    factors = ACTIVATIONS[architecture.memory.get("activations", "moe" if symbols["E"] else "dense")][side]
    factor = factors[max(i for i, degree in enumerate((1, 2, 4, 8)) if degree <= deployment.tp)]
    # A latent-attention model has no head size of its own: H d is its hidden size there.
    width = symbols["h"] if symbols["kv_lora"] else symbols["H"] * symbols["d"]
    need = 2.0 * tokens * width * factor
    if symbols["kv_lora"] and symbols["E"]:
        need += tokens * symbols["h"] * deployment.dp * symbols["E"] * symbols["K"] / deployment.moe_ep / 128 * 4
    if side == "sglang":
        need *= SGLANG_ACTIVATIONS
    return max(need, LEAST_ACTIVATIONS[side])


def _comm_bytes(hardware: Hardware, tp: int) -> int:
    known = [degree for degree in hardware.nccl_mem if degree <= tp]
    return hardware.nccl_mem[max(known)] if known else 0


def _symbols(deployment: Deployment, model: Model, architecture: Architecture, hardware: Hardware) -> dict[str, Any]:
    d = deployment
    degrees = {"T": d.tp, "D": d.dp, "P": d.pp, "Et": d.moe_tp, "Ee": d.moe_ep}
    extra = {
        "backend": d.backend,
        "sm": hardware.sm,
        "architecture": model.classes[0],
        "kv_bytes": quant.KV_BYTES[d.kv_cache],
    }
    return symbols_of(architecture, model, degrees, extra)
