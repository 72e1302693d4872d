"""MiniMax sparse attention: grouped-query attention over the best blocks of keys, projections included.

Rooflines, per layer, with n query heads and g = n G / H KV heads of size d, index heads and their size i: weights
h d (2 n + 2 g) + h i; compute: 2 T weights at the projections' rate, 4 n d per query and key attended to at the
attention's rate, 2 i per query and key scored (only prompts longer than the kept keys are scored); memory: the weights
and the KV cache of the keys attended to.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np

from perf_db.gpu import quant
from perf_db.gpu.deployment import Deployment
from perf_db.gpu.hardware import Hardware
from perf_db.gpu.ops.base import Floats, Operator, Phase, Shape, Tables
from perf_db.gpu.ops.modules import Module, module_rows
from perf_db.gpu.quant import Precision


@dataclass(frozen=True, slots=True)
class Sizes:
    """Dimensions of one layer; see the module's docstring. `group`: query heads per KV head."""

    hidden: int
    head_size: int
    group: int
    index: int
    topk: int
    kv_bytes: int
    gemm: Precision
    fmha: Precision
    hardware: Hardware

    def time(self, heads: Floats, tokens: Floats, attended: Floats, scored: Floats, read: Floats) -> Floats:
        """max(compute, memory), ms; `read`: cached tokens whose keys and values are read."""
        kv_heads = np.maximum(heads / self.group, 1.0)
        weights = self.hidden * (self.head_size * (2 * heads + 2 * kv_heads) + self.index)
        flops = self.hardware.flops
        compute = (
            2.0 * tokens * weights / flops[self.gemm.flops]
            + 4.0 * heads * self.head_size * attended / flops[self.fmha.flops]
            + 2.0 * self.index * scored / flops["bfloat16"]
        )
        moved = self.gemm.bytes * weights + 2.0 * kv_heads * self.head_size * self.kv_bytes * read
        return np.maximum(compute, moved / self.hardware.mem_bw) * 1000.0


def context_roofline(at: Floats, *, sizes: Sizes) -> Floats:
    """Over (heads, prefix, new tokens, batch)."""
    heads, prefix, new, batch = at.T
    full = prefix + new
    low, high = np.minimum(prefix, sizes.topk), np.minimum(full, sizes.topk)
    beyond = np.maximum(full - sizes.topk, 0) - np.maximum(prefix - sizes.topk, 0)
    attended = batch * ((high * (high + 1) - low * (low + 1)) / 2 + sizes.topk * beyond)
    scored = np.where(full > sizes.topk, batch * new * full, 0.0)
    return sizes.time(heads, batch * new, attended, scored, batch * full)


def generation_roofline(at: Floats, *, sizes: Sizes) -> Floats:
    """Over (heads, batch, KV length)."""
    heads, batch, kv = at.T
    kept = batch * np.minimum(kv, sizes.topk)
    return sizes.time(heads, batch, kept, batch * kv, kept)


def sizes_of(shape: Shape, deployment: Deployment, hardware: Hardware) -> Sizes:
    """From the shape of `build`."""
    return Sizes(
        hidden=int(shape["hidden"]),
        head_size=int(shape["head_size"]),
        group=int(shape["group"]),
        index=int(shape["index"]),
        topk=int(shape["topk"]),
        kv_bytes=quant.KV_BYTES[deployment.kv_cache],
        gemm=quant.precision(shape["quant"], quant.GEMM, "GEMM"),
        fmha=quant.precision(deployment.fmha, quant.FMHA, "attention"),
        hardware=hardware,
    )


def build(name: str, scale: float, shape: Shape, tables: Tables, phase: Phase) -> Operator:
    """From `{kind: msa, heads:, hidden:, head_size:, group:, index:, topk:, quant:}`."""
    d = tables.deployment
    gemm = quant.precision(shape["quant"], quant.GEMM, "GEMM")
    table = f"msa_{phase}_module"
    key = {"op_name": table, "mla_dtype": d.fmha, "kv_cache_dtype": d.kv_cache, "gemm_type": gemm.name}
    heads = int(shape["heads"])
    sizes = sizes_of(shape, d, tables.hardware)
    roofline = context_roofline if phase == "context" else generation_roofline
    frame = module_rows(table, key, heads, tables)
    return Module(name, scale, phase, heads, frame, functools.partial(roofline, sizes=sizes), sqrt=False)
