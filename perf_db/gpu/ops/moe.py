"""Routed experts: both expert GEMMs and the activation between them, as one measured kernel."""

from __future__ import annotations

import functools

import numpy as np

from perf_db.gpu import quant
from perf_db.gpu.hardware import Hardware
from perf_db.gpu.interpolate.curve import Curve
from perf_db.gpu.ops.base import Floats, Operator, Phase, Shape, Share, Tables
from perf_db.gpu.quant import Precision

# How tokens spread over experts, when the asked spread was not measured.
FALLBACK_DISTRIBUTIONS = ("uniform", "balanced")
LOW_LATENCY = "min_latency"  # kernels for tiny batches only; what a whole batch range needs is another kernel's rows


class Moe(Operator):
    """A curve over tokens. The tokens of all attention-data-parallel ranks enter one expert pool."""

    kind = "moe"

    def __init__(self, name: str, scale: float, shape: Shape, tables: Tables) -> None:
        super().__init__(name, scale)
        d = tables.deployment
        self.precision = quant.precision(shape["quant"], quant.GEMM, "expert")
        self.pool = d.dp
        self.hidden, self.inter = int(shape["hidden"]), int(shape["inter"])
        self.active, self.experts = int(shape["active"]), int(shape["experts"])
        self.tp, self.ep = d.moe_tp, d.moe_ep
        self.hardware: Hardware = tables.hardware
        precision = {"moe_dtype": self.precision.name}
        dims = {
            "topk": self.active,
            "num_experts": self.experts,
            "hidden_size": self.hidden,
            "inter_size": self.inter,
            "moe_tp_size": self.tp,
            "moe_ep_size": self.ep,
        }
        asked = str(shape["distribution"])
        frame = tables.rows("moe", precision | dims | {"distribution": [asked, *FALLBACK_DISTRIBUTIONS]})
        frame = frame.filter(~frame["kernel_source"].str.contains(LOW_LATENCY)) if frame.height else frame
        present = set(frame["distribution"].unique()) if frame.height else set()
        self.distribution = next((name for name in (asked, *FALLBACK_DISTRIBUTIONS) if name in present), "")
        if not self.distribution:
            tables.missing("moe", precision, dims | {"distribution": asked})
        frame = frame.filter(frame["distribution"] == self.distribution)
        # One kernel, the one that comes first: a curve that changes kernels midway means nothing.
        frame = frame.filter(frame["kernel_source"] == frame["kernel_source"][0])
        frame = frame.unique(["num_tokens"], keep="first", maintain_order=True)
        limit = functools.partial(
            roofline,
            hidden=self.hidden, inter=self.inter, active=self.active, experts=self.experts, tp=self.tp, ep=self.ep,
            precision=self.precision, hardware=tables.hardware,
        )  # fmt: skip
        self.curve = Curve(
            frame["num_tokens"].to_numpy(), frame["latency"].to_numpy(), frame["label"].to_numpy(), limit
        )

    def ms(self, tokens: Floats) -> Floats:
        return self.curve(tokens * self.pool)

    def explain(self, tokens: float) -> list[Share]:
        return self.curve.explain(tokens * self.pool)


def roofline(
    tokens: Floats,
    *,
    hidden: int,
    inter: int,
    active: int,
    experts: int,
    tp: int,
    ep: int,
    precision: Precision,
    hardware: Hardware,
) -> Floats:
    """Limit of both expert GEMMs, gated, on one rank, ms."""
    routed = tokens * active
    compute = 2.0 * 3.0 * routed * hidden * inter / ep / tp / hardware.flops[precision.flops]
    touched = np.minimum(experts / ep, routed / ep)
    moved = 2.0 * routed / ep * hidden + 3.0 * routed / ep * inter / tp + 3.0 * hidden * inter / tp * touched
    return np.maximum(compute, precision.bytes * moved / hardware.mem_bw) * 1000.0


def build(name: str, scale: float, shape: Shape, tables: Tables, phase: Phase) -> Operator:
    """From `{kind: moe, hidden:, inter:, active:, experts:, quant:, distribution:}`."""
    return Moe(name, scale, shape, tables)
