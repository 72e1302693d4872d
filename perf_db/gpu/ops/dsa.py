"""DeepSeek sparse attention: latent attention over the `topk` best tokens, chosen by an indexer, projections included.

Rooflines, per layer, with n heads, T = batch x new tokens, S = prefix + new:

* weights read once: W = h q + h (c + r) + q x + h y + h i and, per head, q (d + r) + v h; q, c the ranks of the query
  and KV latents, r rope, d and v the head sizes, i indexer heads of size y, x = i y;
* compute: 2 T (W + n (q (d + r) + v h + c (d + v))) at the projections' rate; 2 n (2 c + r) per query and key attended
  to, at the attention's rate; 2 x per query and key scored by the indexer, at the fp8 rate;
* a query at position j attends to min(j, topk) keys. In prefill the indexer scores all S keys for every query, and
  nothing while S <= topk; in decode it scores always;
* memory: the weights; prefill: n (c + r) per cached and new token (each head has keys of its own), n 4 (d + r) per new
  token; decode: (c + r) per key attended to, y + 4 bytes per key scored.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np

from perf_db.gpu import quant
from perf_db.gpu.hardware import Hardware
from perf_db.gpu.ops.base import Floats, Operator, Phase, Shape, Tables
from perf_db.gpu.ops.modules import Module, module_rows
from perf_db.gpu.quant import Precision


@dataclass(frozen=True, slots=True)
class Sizes:
    """Dimensions of one layer; see the module's docstring."""

    hidden: int
    q_lora: int
    kv_lora: int
    rope: int
    nope: int
    v_dim: int
    index_heads: int
    index_dim: int
    topk: int
    kv_bytes: int
    gemm: Precision
    fmha: Precision
    hardware: Hardware

    @property
    def shared_weights(self) -> int:
        """Elements that do not depend on the heads of this rank."""
        indexer = self.q_lora * self.index_heads * self.index_dim + self.hidden * (self.index_dim + self.index_heads)
        return self.hidden * (self.q_lora + self.kv_lora + self.rope) + indexer

    @property
    def head_weights(self) -> int:
        """Elements per head: query up-projection and output projection."""
        return self.q_lora * (self.nope + self.rope) + self.v_dim * self.hidden

    @property
    def absorbed(self) -> int:
        """Elements per head of the KV up-projection, multiplied into queries and outputs."""
        return self.kv_lora * (self.nope + self.v_dim)

    def time(self, heads: Floats, tokens: Floats, attended: Floats, scored: Floats, moved: Floats) -> Floats:
        """max(compute, memory), ms; `moved`: bytes besides the weights."""
        dense = 2.0 * tokens * (self.shared_weights + heads * (self.head_weights + self.absorbed))
        core = 2.0 * heads * (2 * self.kv_lora + self.rope) * attended
        index = 2.0 * self.index_heads * self.index_dim * scored
        flops = self.hardware.flops
        fp8 = flops.get("fp8", flops["bfloat16"])  # GPUs without fp8 score in bfloat16
        compute = dense / flops[self.gemm.flops] + core / flops[self.fmha.flops] + index / fp8
        weights = self.gemm.bytes * (self.shared_weights + heads * self.head_weights)
        return np.maximum(compute, (weights + moved) / self.hardware.mem_bw) * 1000.0


def context_roofline(at: Floats, *, sizes: Sizes) -> Floats:
    """Over (heads, prefix, new tokens, batch)."""
    heads, prefix, new, batch = at.T
    full, tokens = prefix + new, batch * new
    low, high = np.minimum(prefix, sizes.topk), np.minimum(full, sizes.topk)
    beyond = np.maximum(full - sizes.topk, 0) - np.maximum(prefix - sizes.topk, 0)
    attended = batch * ((high * (high + 1) - low * (low + 1)) / 2 + sizes.topk * beyond)
    scored = np.where(full > sizes.topk, tokens * full, 0.0)
    latent = sizes.kv_bytes * (sizes.kv_lora + sizes.rope)
    moved = heads * (batch * latent * high + 4.0 * (sizes.nope + sizes.rope) * tokens)
    return sizes.time(heads, tokens, attended, scored, moved)


def generation_roofline(at: Floats, *, sizes: Sizes) -> Floats:
    """Over (heads, batch, KV length)."""
    heads, batch, kv = at.T
    kept = np.minimum(kv, sizes.topk)
    latent = sizes.kv_bytes * (sizes.kv_lora + sizes.rope)
    scored_bytes = sizes.index_dim + 4.0 if sizes.index_dim else 0.0
    moved = batch * (latent * kept + scored_bytes * kv)
    return sizes.time(heads, batch, batch * kept, batch * kv, moved)


DIMENSIONS = ("hidden", "q_lora", "kv_lora", "rope", "nope", "v_dim", "index_heads", "index_dim", "topk")


def build(name: str, scale: float, shape: Shape, tables: Tables, phase: Phase) -> Operator:
    """From `{kind: dsa, heads:, hidden:, q_lora:, kv_lora:, rope:, nope:, v_dim:, index_heads:, index_dim:, topk:}`."""
    d = tables.deployment
    gemm = quant.precision(shape["quant"], quant.GEMM, "GEMM")
    table = "dsa_context_module" if phase == "context" else "dsa_generation_module"
    key = {
        "op_name": table,
        "architecture": shape["module"],
        "mla_dtype": d.fmha,
        "kv_cache_dtype": d.kv_cache,
        "gemm_type": gemm.name,
    }
    heads = int(shape["heads"])
    dims = {key: int(shape[key]) for key in DIMENSIONS}
    sizes = Sizes(
        **dims,
        kv_bytes=quant.KV_BYTES[d.kv_cache],
        gemm=gemm,
        fmha=quant.precision(d.fmha, quant.FMHA, "attention"),
        hardware=tables.hardware,
    )
    roofline = context_roofline if phase == "context" else generation_roofline
    frame = module_rows(table, key, heads, tables)
    return Module(name, scale, phase, heads, frame, functools.partial(roofline, sizes=sizes), sqrt=False)
