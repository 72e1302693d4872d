"""How tokens reach the experts' ranks and come back.

Before the experts (`pre`) and after them, by backend, with x tokens of `hidden` h on this rank, T tensor parallel, D
attention data parallel and R = Et Ee ranks that share the experts:

* vLLM: T > 1: an all-reduce of h x over R (the one before stands for the reduction of attention's output); D > 1:
  also an all-gather before, a reduce-scatter after, of h x D over R.
* SGLang: T > 1 and D > 1: a reduce-scatter of h x over T and an all-gather of h x D over R, mirrored after; T > 1
  alone: an all-reduce; D > 1 alone: an all-gather, a reduce-scatter after.
* TensorRT-LLM: on compute capability 10 with D > 1: where the ranks share one NVLink rack and experts are not split,
  the measured all-to-all (prepare and dispatch before, combine after), else an all-gather in the experts' precision
  and a reduce-scatter after; elsewhere as SGLang with one of T and D above 1.
"""

from __future__ import annotations

import numpy as np

from perf_db.gpu import quant
from perf_db.gpu.deployment import Deployment
from perf_db.gpu.hardware import Hardware
from perf_db.gpu.interpolate.curve import Curve
from perf_db.gpu.ops.base import Floats, Operator, Phase, Shape, Share, Tables
from perf_db.gpu.ops.collectives import Collective

ALL_TO_ALL = "all_to_all"
RACK = 64  # GPUs of a rack from which on its fabric carries all-to-alls


class AllToAll:
    """One exchange of tokens between expert-parallel ranks over a rack's fabric: curves over tokens of this rank."""

    def __init__(
        self, parts: tuple[str, ...], hidden: int, active: int, experts: int, moe: str, tables: Tables
    ) -> None:
        d = tables.deployment
        self.link: str | None = "intra_node" if d.moe_ep <= tables.hardware.gpus_per_node else "inter_node"
        # The table knows three widths: bfloat16, fp8, nvfp4.
        width = "nvfp4" if moe == "nvfp4" else "fp8" if quant.GEMM[moe].flops == "fp8" else "bfloat16"
        where = {"hidden_size": hidden, "topk": active, "num_experts": experts, "moe_ep_size": d.moe_ep}
        self.curves = []
        for part in parts:
            key = {"moe_dtype": width, "op_name": f"alltoall_{part}", **where}
            frame = tables.rows("trtllm_alltoall", key | {"kernel_source": "NVLinkTwoSided"})
            if not frame.height:
                tables.missing("trtllm_alltoall", {"moe_dtype": width}, key)
            frame = frame.unique(["num_tokens"], keep="first", maintain_order=True)
            x, latency, label = (frame[c].to_numpy() for c in ("num_tokens", "latency", "label"))
            self.curves.append(Curve(x, latency, label, lambda tokens: tokens))

    def __call__(self, tokens: Floats) -> Floats:
        return sum((curve(tokens) for curve in self.curves), np.zeros(tokens.shape))

    def explain(self, tokens: float) -> list[Share]:
        at = np.array([tokens])
        costs = [float(curve(at)[0]) for curve in self.curves]
        return [
            (label, share * cost / sum(costs))
            for curve, cost in zip(self.curves, costs)
            for label, share in curve.explain(tokens)
        ]


Step = tuple[Collective | AllToAll, float]  # what, and its size per token of this rank


class Dispatch(Operator):
    """The collectives on one side of the experts."""

    kind = "dispatch"

    def __init__(self, name: str, scale: float, steps: list[Step]) -> None:
        super().__init__(name, scale)
        self.steps = steps
        links = [collective.link for collective, _ in steps if collective.link]
        self.link = "inter_node" if "inter_node" in links else (links[0] if links else None)

    def ms(self, tokens: Floats) -> Floats:
        return sum((collective(size * tokens) for collective, size in self.steps), np.zeros(tokens.shape))

    def explain(self, tokens: float) -> list[Share]:
        at = np.array([tokens])
        costs = [float(collective(size * at)[0]) for collective, size in self.steps]
        total = sum(costs) or 1.0
        return [
            (label, share * cost / total)
            for (collective, size), cost in zip(self.steps, costs)
            for label, share in collective.explain(size * tokens)
        ]


def exchanges(shape: Shape, d: Deployment, hardware: Hardware) -> list[tuple[str, int, float]]:
    """Exchanges of one side, in order: operation, ranks, elements per token of this rank."""
    hidden, before, moe = float(shape["hidden"]), bool(shape["before"]), str(shape["quant"])
    rack = hardware.gpus_per_rack >= RACK and d.moe_tp == 1
    if d.backend == "trtllm" and d.dp > 1 and hardware.sm // 10 == 10 and rack:
        return [(ALL_TO_ALL, d.moe_ep, hidden)]
    ranks = d.moe_tp * d.moe_ep
    gather = ("all_gather" if before else "reduce_scatter", ranks, hidden * d.dp)
    reduce = ("custom_all_reduce", ranks, hidden)
    planned: list[tuple[str, int, float]] = []
    if d.backend == "vllm":
        planned = ([reduce] if d.tp > 1 else []) + ([gather] if d.dp > 1 else [])
    elif d.backend == "sglang" and d.tp > 1 and d.dp > 1:
        inner = ("reduce_scatter" if before else "all_gather", d.tp, hidden)
        planned = [inner, gather] if before else [gather, inner]
    elif d.backend == "trtllm" and d.dp > 1 and hardware.sm // 10 == 10 and before:
        # The tokens travel in the experts' precision.
        shrunk = quant.precision(moe, quant.GEMM, "expert").bytes / quant.MESSAGE_BYTES["half"]
        planned = [("all_gather", ranks, hidden * d.dp * shrunk)]
    elif d.dp > 1:
        planned = [gather]
    elif d.tp > 1:
        planned = [reduce]
    return [each for each in planned if each[1] > 1]


def steps(shape: Shape, tables: Tables) -> list[Step]:
    """The measured exchanges of one side, in order."""
    planned = exchanges(shape, tables.deployment, tables.hardware)
    if planned and planned[0][0] == ALL_TO_ALL:
        parts = ("prepare", "dispatch") if shape["before"] else ("combine",)
        hidden, active, experts = (int(shape[name]) for name in ("hidden", "active", "experts"))
        return [(AllToAll(parts, hidden, active, experts, str(shape["quant"]), tables), 1.0)]
    return [(Collective(operation, over, tables), size) for operation, over, size in planned]


def build(name: str, scale: float, shape: Shape, tables: Tables, phase: Phase) -> Operator:
    """From `{kind: dispatch, hidden:, active:, experts:, before: true | false, quant: moe}`."""
    return Dispatch(name, scale, steps(shape, tables))
