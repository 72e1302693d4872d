"""Gated delta attention: a state of fixed size instead of a KV cache, so its cost goes with tokens, not with lengths.

Two kernels per layer, a short convolution and the delta rule. Prefill takes the curve of one sequence of as many tokens
as the pass has, decode the curve of single tokens over the batch.
"""

from __future__ import annotations

import functools

import numpy as np

from perf_db.gpu.hardware import Hardware
from perf_db.gpu.interpolate.curve import Curve
from perf_db.gpu.ops.base import Floats, Operator, Phase, Shape, Share, Tables

CONVOLUTION = "conv1d"  # in the name of its kernels; the other kernel of a phase is the delta rule


class GatedDelta(Operator):
    """Both kernels of one layer over tokens."""

    kind = "linear_attention"

    def __init__(self, name: str, scale: float, shape: Shape, tables: Tables, phase: Phase) -> None:
        super().__init__(name, scale)
        heads = {
            "num_k_heads": int(shape["k_heads"]),
            "num_v_heads": int(shape["v_heads"]),
            "head_k_dim": int(shape["k_dim"]),
            "head_v_dim": int(shape["v_dim"]),
        }
        where = {"phase": phase, "d_model": int(shape["hidden"]), "d_conv": int(shape["conv"]), **heads}
        frame = tables.rows("gdn", where)
        one = "batch_size" if phase == "context" else "seq_len"
        frame = frame.filter(frame[one] == 1) if frame.height else frame
        along = "seq_len" if phase == "context" else "batch_size"
        limit = functools.partial(
            roofline,
            keys=heads["num_k_heads"] * heads["head_k_dim"],
            values=heads["num_v_heads"] * heads["head_v_dim"],
            state=heads["num_v_heads"] * heads["head_k_dim"] * heads["head_v_dim"] if phase == "generation" else 0,
            hardware=tables.hardware,
        )
        self.curves: list[Curve] = []
        kernels = frame["kernel_source"].unique(maintain_order=True).to_list() if frame.height else []
        for convolution in (True, False):
            mine = next((k for k in kernels if (CONVOLUTION in k) == convolution), None)
            if mine is None:
                tables.missing("gdn", {}, where | {"kernel": "convolution" if convolution else "delta rule"})
            rows = frame.filter(frame["kernel_source"] == mine).unique([along], keep="first", maintain_order=True)
            self.curves.append(
                Curve(rows[along].to_numpy(), rows["latency"].to_numpy(), rows["label"].to_numpy(), limit)
            )

    def ms(self, tokens: Floats) -> Floats:
        return sum((curve(tokens) for curve in self.curves), np.zeros(tokens.shape))

    def explain(self, tokens: float) -> list[Share]:
        at = np.array([tokens])
        costs = [float(curve(at)[0]) for curve in self.curves]
        return [
            (label, share * cost / sum(costs))
            for curve, cost in zip(self.curves, costs)
            for label, share in curve.explain(tokens)
        ]


def roofline(tokens: Floats, *, keys: int, values: int, state: int, hardware: Hardware) -> Floats:
    """Bytes of queries, keys and values in, results out, and in decode the float32 state both ways."""
    moved = tokens * (2.0 * (2 * keys + 2 * values) + 8.0 * state)
    return moved / hardware.mem_bw * 1000.0


def build(name: str, scale: float, shape: Shape, tables: Tables, phase: Phase) -> Operator:
    """From `{kind: gated_delta, hidden:, k_heads:, v_heads:, k_dim:, v_dim:, conv:}`."""
    return GatedDelta(name, scale, shape, tables, phase)
