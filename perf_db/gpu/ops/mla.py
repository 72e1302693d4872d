"""Multi-head latent attention (MLA): as one module with its projections, or kernel and products one by one.

A cached prefix p before s new tokens: the table is asked at the full length S = s + p, and the answer multiplied by
(S^2 - p^2) / S^2, as for plain attention. Decode takes one look. Rooflines as in `perf_db.gpu.ops.dsa`, without an
indexer and with every key attended to; those of the kernel alone leave the weights out.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import numpy as np

from perf_db.gpu import quant
from perf_db.gpu.hardware import Hardware
from perf_db.gpu.interpolate.curve import Curve
from perf_db.gpu.ops.base import Floats, Knots, Operator, Phase, Shape, Share, Tables
from perf_db.gpu.ops.dsa import Sizes, context_roofline, generation_roofline
from perf_db.gpu.ops.modules import Module, module_rows

if TYPE_CHECKING:
    import polars as pl

DENSE = 2**62  # keys kept by attention that keeps all


class Mla(Module):
    """A module table, or a kernel table, without an axis for the prefix."""

    prefix_axis = False

    def context_ms(self, requests: Floats, new: Floats, prefix: Floats) -> Floats:
        full = new + prefix
        return self.lookup(requests, full) * ((full * full - prefix * prefix) / (full * full))

    def lookup(self, requests: Floats, length: Floats) -> Floats:
        return self.grid(self.at(requests, length, np.zeros(requests.shape))).value

    def knots(self) -> tuple[Knots, Knots, Knots, Knots]:
        batch, length, _, longest = super().knots()
        return batch, length, np.zeros(1, np.int64), longest

    def reach(self, phase: Phase, requests: Floats, length: Floats, prefix: Floats):  # type: ignore[no-untyped-def]
        return super().reach(phase, requests, length + prefix, np.zeros(requests.shape))

    def explain_pass(self, phase: Phase, requests: float, length: float, prefix: float) -> list[Share]:
        return super().explain_pass(phase, requests, length + prefix, 0.0)


class Absorption(Operator):
    """One of the two products that fold the KV up-projection into queries (pre) and outputs (post) in decode."""

    kind = "bmm"

    def __init__(self, name: str, scale: float, shape: Shape, tables: Tables) -> None:
        super().__init__(name, scale)
        heads, inner, outer = int(shape["heads"]), int(shape["inner"]), int(shape["outer"])
        side = f"mla_gen_{shape['side']}"
        # Weights in fp8 are multiplied in fp8 where that was measured.
        asked = quant.precision(shape["quant"], quant.GEMM, "GEMM")
        dtypes = ["fp8", "bfloat16"] if asked.flops == "fp8" else ["bfloat16"]
        where = {"op_name": side, "num_heads": heads, "bmm_dtype": dtypes}
        frame = tables.rows("mla_bmm", where)
        present = set(frame["bmm_dtype"].unique()) if frame.height else set()
        dtype = next((each for each in dtypes if each in present), None)
        if dtype is None:
            tables.missing("mla_bmm", {"bmm_dtype": dtypes[-1]}, {"op_name": side, "num_heads": heads})
        frame = frame.filter(frame["bmm_dtype"] == dtype).unique(["num_tokens"], keep="first", maintain_order=True)
        limit = functools.partial(
            self._roofline, heads=heads, inner=inner, outer=outer, dtype=str(dtype), hardware=tables.hardware
        )
        self.curve = Curve(
            frame["num_tokens"].to_numpy(), frame["latency"].to_numpy(), frame["label"].to_numpy(), limit
        )

    @staticmethod
    def _roofline(tokens: Floats, *, heads: int, inner: int, outer: int, dtype: str, hardware: Hardware) -> Floats:
        compute = 2.0 * tokens * heads * inner * outer / hardware.flops[dtype]
        moved = quant.GEMM[dtype].bytes * heads * (inner * outer + tokens * (inner + outer))
        return np.maximum(compute, moved / hardware.mem_bw) * 1000.0

    def ms(self, tokens: Floats) -> Floats:
        return self.curve(tokens)

    def explain(self, tokens: float) -> list[Share]:
        return self.curve.explain(tokens)


def build_module(name: str, scale: float, shape: Shape, tables: Tables, phase: Phase) -> Operator:
    """From `{kind: mla_module, heads:, hidden:, q_lora:, kv_lora:, rope:, nope:, v_dim:, quant:}`."""
    table = f"mla_{phase}_module"
    gemm = quant.precision(shape["quant"], quant.GEMM, "GEMM")
    d = tables.deployment
    key = {"op_name": table, "mla_dtype": d.fmha, "kv_cache_dtype": d.kv_cache, "gemm_type": gemm.name}
    frame = module_rows(table, key, int(shape["heads"]), tables)
    return _attention(name, scale, shape, tables, phase, _flat(frame))


def build_kernel(name: str, scale: float, shape: Shape, tables: Tables, phase: Phase) -> Operator:
    """From `{kind: mla, heads:, hidden:, q_lora:, kv_lora:, rope:, nope:, v_dim:, quant:}`."""
    d = tables.deployment
    key = {"mla_dtype": d.fmha, "kv_cache_dtype": d.kv_cache}
    frame = module_rows(f"{phase}_mla", key, int(shape["heads"]), tables)
    return _attention(name, scale, {**shape, "q_lora": 0, "hidden": 0}, tables, phase, _flat(frame))


def build_absorption(name: str, scale: float, shape: Shape, tables: Tables, phase: Phase) -> Operator:
    """From `{kind: mla_bmm, side: pre | post, heads:, inner:, outer:, quant:}`."""
    return Absorption(name, scale, shape, tables)


def _flat(frame: pl.DataFrame) -> pl.DataFrame:
    """Prompts without cached tokens; decode rows have none by another name."""
    return frame.filter(frame["step"] == 0) if (frame["isl"] > 1).any() else frame


def _attention(name: str, scale: float, shape: Shape, tables: Tables, phase: Phase, frame: pl.DataFrame) -> Operator:
    dims = {key: int(shape[key]) for key in ("hidden", "q_lora", "kv_lora", "rope", "nope", "v_dim")}
    sizes = Sizes(
        **dims,
        index_heads=0,
        index_dim=0,
        topk=DENSE,
        kv_bytes=quant.KV_BYTES[tables.deployment.kv_cache],
        gemm=quant.precision(shape["quant"], quant.GEMM, "GEMM"),
        fmha=quant.precision(tables.deployment.fmha, quant.FMHA, "attention"),
        hardware=tables.hardware,
    )
    roofline = context_roofline if phase == "context" else generation_roofline
    limit = functools.partial(roofline, sizes=sizes)
    return Mla(name, scale, phase, int(shape["heads"]), frame, limit, sqrt=True)
