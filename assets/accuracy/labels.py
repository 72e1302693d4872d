"""What the labels of a measured deployment mean: names of checkpoints, precisions and parallel degrees set right.

Published tables label runs loosely: a checkpoint under an old name, the precision of the experts given for the whole
model, a number of GPUs written as a product. Each rule here mends one such fault and leaves a note, which becomes part
of the evidence of the prediction.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

ALIASES = {
    "meta-llama/Llama-3.1-70B": "meta-llama/Meta-Llama-3.1-70B",
    "meta-llama/Llama-3.1-8B-Instruct": "meta-llama/Meta-Llama-3.1-8B",
    "nvidia/Llama-3.1-8B-Instruct-FP8": "meta-llama/Meta-Llama-3.1-8B",
    "nvidia/Qwen3-32B-NVFP4": "Qwen/Qwen3-32B",
    "zhipuai/GLM-5": "zai-org/GLM-5",
}
# Checkpoints whose experts are stored with a scale per block, whatever the label says.
BLOCK_SCALED = ("MiniMax", "235B")
HOPPER, BLACKWELL = ("h100_sxm", "h200_sxm"), ("b200_sxm", "b300_sxm", "gb200", "gb300")
NODE_GPUS = 8


@dataclass
class Labels:
    """A deployment as asked of the performance data; what is None is left to the checkpoint.

    Attributes:
        moe_fallbacks: expert precisions to try in turn where the first is not in the data.
        borrow: other backends whose tables to try where this one's lack the model.
        clients: of the whole engine; None if the table does not say.
        exact_lengths: prompts and outputs are as long as labelled, rather than drawn up to that.
        notes: rules that changed something.
    """

    model: str
    system: str
    backend: str
    tp: int
    pp: int
    dp: int
    moe_tp: int | None
    moe_ep: int | None
    gemm: str | None
    moe: str | None
    kv_cache: str | None
    prompt_tokens: int
    output_tokens: int
    clients: int | None
    exact_lengths: bool
    moe_fallbacks: tuple[str, ...] = ()
    borrow: tuple[str, ...] = ()
    notes: list[str] = field(default_factory=list)


def mended(row: Mapping[str, Any]) -> Labels:
    """Labels of a row of `ground_truth` of grain deployment, set right."""
    given = str(row["model"])
    labels = Labels(
        model=ALIASES.get(given, given),
        system=str(row["system"]),
        backend=str(row["backend"]),
        tp=row["tp"] or 1,
        pp=row["pp"] or 1,
        dp=max(row["attention_dp"] or 1, 1),
        moe_tp=row["moe_tp"] or None,
        moe_ep=row["moe_ep"] or None,
        gemm=row["gemm_quant"],
        moe=row["moe_quant"],
        kv_cache=None,
        prompt_tokens=row["prompt_tokens"],
        output_tokens=row["output_tokens"],
        clients=row["concurrency"],
        exact_lengths=row["origin"] == "lab_runs",
    )
    if labels.model != given:
        labels.notes.append(f"checkpoint {given} is {labels.model}")
    _precisions(labels, given)
    _degrees(labels)
    _load(labels, row)
    _kv_cache(labels)
    return labels


def _precisions(labels: Labels, given: str) -> None:
    if "gpt-oss" in labels.model:
        labels.gemm = "bfloat16"
        if labels.system in BLACKWELL:
            labels.moe, labels.moe_fallbacks = "w4a8_mxfp4_mxfp8", ("w4a16_mxfp4",)
            labels.borrow = ("trtllm", "sglang")
        else:
            labels.moe = "w4a16_mxfp4"
            labels.borrow = () if labels.backend == "vllm" else ("vllm",)
        labels.notes.append("mxfp4 quantises the experts only")
    elif "Kimi" in labels.model and labels.gemm in ("int4_wo", "nvfp4"):
        labels.gemm = "bfloat16"
        labels.notes.append("only the experts are quantised")
    elif labels.backend == "vllm" and labels.moe == "fp8" and any(name in labels.model for name in BLOCK_SCALED):
        labels.moe, labels.moe_fallbacks = "fp8_block", ("fp8",)
        labels.notes.append("block-scaled checkpoint: experts in fp8_block")
    elif labels.moe == "fp8":
        labels.moe_fallbacks = ("fp8_block",)
    elif labels.moe == "fp8_block":
        labels.moe_fallbacks = ("fp8",)
    if given.endswith("-FP8") and given in ALIASES and not labels.gemm:
        labels.gemm = "fp8"
        labels.notes.append("precision is in the checkpoint's name")


def _degrees(labels: Labels) -> None:
    if labels.dp > 1 and labels.tp == labels.dp:
        # N GPUs written as tensor width N, data width N and expert width N x N.
        labels.tp, labels.moe_tp, labels.moe_ep = 1, 1, labels.dp
        labels.notes.append(f"{labels.dp} GPUs: attention data parallel, experts over all")
    elif labels.tp in (16, 64) and (labels.moe_tp or 1) * (labels.moe_ep or 1) == labels.tp:
        wide = (labels.moe_tp or 1) >= (labels.moe_ep or 1)
        labels.tp = round(labels.tp**0.5)
        labels.moe_tp, labels.moe_ep = (labels.tp, 1) if wide else (1, labels.tp)
        labels.notes.append(f"{labels.tp} GPUs, written as their square")


def _load(labels: Labels, row: Mapping[str, Any]) -> None:
    if not labels.exact_lengths:
        return
    if labels.backend == "vllm" and labels.prompt_tokens % 1000 == 0 and labels.clients:
        labels.clients = max(1, round(labels.clients * labels.tp / NODE_GPUS))
        labels.notes.append("concurrency is the sum over the engines of a node")
    if "Kimi" in labels.model and (labels.prompt_tokens, labels.output_tokens) in (
        (1024, 1024),
        (1024, 8192),
        (8192, 1024),
    ):
        labels.exact_lengths = False
        labels.notes.append("a dashboard run: lengths are drawn")


def _kv_cache(labels: Labels) -> None:
    # Not in the tables; what the measured queueing times admit.
    if labels.backend == "trtllm" or labels.system != "h100_sxm":
        labels.kv_cache = "fp8"
