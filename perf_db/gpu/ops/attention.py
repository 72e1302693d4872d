"""Multi-head, grouped-query and windowed attention, prefill and decode."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from perf_db.gpu import quant
from perf_db.gpu.hardware import Hardware
from perf_db.gpu.interpolate.grid import EXTRAPOLATED, Grid
from perf_db.gpu.ops.base import AttentionOperator, Floats, Knots, Operator, Phase, Shape, Share, Tables
from perf_db.gpu.ops.lanes import lane_order, named_lanes

if TYPE_CHECKING:
    import polars as pl

SPREAD = (9, 11)  # decode attention is the mean over KV lengths from 9/10 to 11/10 of the asked one
LOOKUPS = 5
EXTRAS_WEIGHT = 1.1  # rope, KV write and QK norm run beside attention; slightly more than their own time


class _Heads:
    """Shape of attention on one rank: query heads, KV heads, head size, window (0: none), bytes of a KV element."""

    def __init__(self, shape: Shape, tables: Tables) -> None:
        self.heads = int(shape["heads"])
        self.kv_heads = int(shape["kv_heads"])
        self.size = int(shape["head_size"])
        self.window = int(shape.get("window", 0))
        self.kv_cache = tables.deployment.kv_cache
        self.kv_bytes = quant.KV_BYTES[self.kv_cache]

    def where(self) -> dict[str, int]:
        # A model with one KV head per query head is stored under 0 KV heads, whatever their number.
        return {"head_dim": self.size, "window_size": self.window}

    @property
    def grouped(self) -> bool:
        return self.heads != self.kv_heads

    def kv(self, heads: Floats) -> Floats:
        """KV heads of measured points: the slice's, or one per query head."""
        return np.full_like(heads, self.kv_heads) if self.grouped else heads


class ContextAttention(AttentionOperator):
    """Prefill. The table is causal attention without cached prefix, axes heads, length, batch.

    With a prefix p before s new tokens the table is asked at the full length S = s + p and the answer multiplied by
    (S^2 - p^2) / S^2. On top come rope, the write of K and V and, where the model has one, the QK norm: streaming
    kernels over one token each (the reference does not scale them with tokens, so they are nearly their constant).
    """

    source = "mixed"

    def __init__(self, name: str, scale: float, shape: Shape, tables: Tables) -> None:
        super().__init__(name, scale)
        self.head = _Heads(shape, tables)
        self.fmha = quant.precision(tables.deployment.fmha, quant.FMHA, "attention")
        self.hardware = tables.hardware
        frame = _slice(
            "context_attention", {"attn_dtype": self.fmha.name, "kv_cache_dtype": self.head.kv_cache}, self.head, tables
        )
        coords = frame.select("num_heads", "isl", "batch_size").to_numpy()
        self.grid = Grid(
            coords, frame["latency"].to_numpy(), frame["label"].to_numpy(), self._roofline_of_points, sqrt_axis=1
        )
        self.extras = EXTRAS_WEIGHT * self._extras(bool(shape.get("qk_norm", False)))

    def _roofline_of_points(self, at: Floats) -> Floats:
        heads, length, requests = at.T
        return context_roofline(heads, self.head.kv(heads), self.head, requests, length, self.fmha.flops, self.hardware)

    def _extras(self, qk_norm: bool) -> float:
        """One token's worth of rope, KV write and QK norm, ms."""
        mem = self.hardware.memory_ms
        q = self.head.heads * self.head.size
        k = v = self.head.kv_heads * self.head.size
        rope = 2.0 * mem(2.0 * (q + k))
        write = mem(self.head.kv_bytes * k) + mem(self.head.kv_bytes * v)
        norm = 2.0 * (2.0 * mem(2.0 * q) + 2.0 * mem(2.0 * k)) if qk_norm else 0.0
        return rope + write + norm

    def at(self, requests: Floats, length: Floats) -> Floats:
        """Coordinates of the grid for queries at this rank's head count."""
        return np.stack([np.full(requests.shape, float(self.head.heads)), length, requests], axis=-1)

    def lookup(self, requests: Floats, length: Floats) -> Floats:
        return self.grid(self.at(requests, length)).value

    def context_ms(self, requests: Floats, new: Floats, prefix: Floats) -> Floats:
        full = new + prefix
        share = (full * full - prefix * prefix) / (full * full)
        return self.lookup(requests, full) * share + self.extras

    def knots(self) -> tuple[Knots, Knots, Knots, Knots]:
        return knots_of(self.grid, self.head.heads, batch_axis=2, length_axis=1)

    def reach(self, phase: Phase, requests: Floats, length: Floats, prefix: Floats) -> tuple[NDArray[np.uint8], Floats]:
        return reach_of(self.grid, self.at(requests, length + prefix))

    def explain_pass(self, phase: Phase, requests: float, length: float, prefix: float) -> list[Share]:
        return self.grid.explain(np.array([self.head.heads, length + prefix, requests], np.float64))


class GenerationAttention(AttentionOperator):
    """Decode, one new token per request. Axes heads, batch, KV length (`isl` + `step`).

    Requests of a batch differ in length, so the price is the mean of five looks, at KV lengths spread evenly from 0.9
    to 1.1 of the asked one: both ends are rounded down, and so are the three between them. Latencies are raised to the
    roofline.
    """

    looks = LOOKUPS

    def __init__(self, name: str, scale: float, shape: Shape, tables: Tables) -> None:
        super().__init__(name, scale)
        self.head = _Heads(shape, tables)
        self.hardware = tables.hardware
        frame = _slice("generation_attention", {"kv_cache_dtype": self.head.kv_cache}, self.head, tables)
        frame = frame.with_columns((frame["isl"] + frame["step"]).alias("kv"))
        frame = frame.unique(["num_heads", "batch_size", "kv"], keep="first", maintain_order=True)
        coords = frame.select("num_heads", "batch_size", "kv").to_numpy()
        latency = np.maximum(frame["latency"].to_numpy(), self._roofline_of_points(coords.astype(np.float64)))
        self.grid = Grid(coords, latency, frame["label"].to_numpy(), self._roofline_of_points)

    def _roofline_of_points(self, at: Floats) -> Floats:
        heads, requests, kv = at.T
        return generation_roofline(heads, self.head.kv(heads), self.head, requests, kv, self.hardware)

    def at(self, requests: Floats, kv: Floats) -> Floats:
        """Coordinates of the grid for queries at this rank's head count."""
        return np.stack([np.full(requests.shape, float(self.head.heads)), requests, kv], axis=-1)

    def lookup(self, requests: Floats, length: Floats) -> Floats:
        return self.grid(self.at(requests, length)).value

    def generation_ms(self, requests: Floats, kv: Floats) -> Floats:
        total = np.zeros(requests.shape)
        for length in spread(kv):
            total += self.lookup(requests, length)
        return total / LOOKUPS

    def knots(self) -> tuple[Knots, Knots, Knots, Knots]:
        return knots_of(self.grid, self.head.heads, batch_axis=1, length_axis=2)

    def reach(self, phase: Phase, requests: Floats, length: Floats, prefix: Floats) -> tuple[NDArray[np.uint8], Floats]:
        worst, octaves = np.zeros(requests.shape, np.uint8), np.zeros(requests.shape)
        for at in spread(length):
            kind, far = reach_of(self.grid, self.at(requests, at))
            worst, octaves = np.maximum(worst, kind), np.maximum(octaves, far)
        return worst, octaves

    def explain_pass(self, phase: Phase, requests: float, length: float, prefix: float) -> list[Share]:
        looks = [
            (self.grid.explain(self.at(np.array([requests]), at)[0]), float(self.lookup(np.array([requests]), at)[0]))
            for at in spread(np.array([length]))
        ]
        total = sum(ms for _, ms in looks)
        return [(label, share * ms / total) for shares, ms in looks for label, share in shares]


def knots_of(grid: Grid, heads: int, *, batch_axis: int, length_axis: int) -> tuple[Knots, Knots, Knots, Knots]:
    """Knots of a grid (heads first, no prefix axis) at one head count; all of the grid's when it was not measured."""
    here = grid.coords[grid.coords[:, 0] == heads]
    points = (here if len(here) else grid.coords).astype(np.int64)
    batch = np.unique(points[:, batch_axis])
    longest = np.array([points[points[:, batch_axis] == b, length_axis].max() for b in batch], np.int64)
    return batch, np.unique(points[:, length_axis]), np.zeros(1, np.int64), longest


def reach_of(grid: Grid, query: Floats) -> tuple[NDArray[np.uint8], Floats]:
    """Kind of each answer, and its distance in octaves where it is extrapolated."""
    kind = grid(query).kind
    octaves = np.zeros(len(query))
    beyond = kind == EXTRAPOLATED
    if beyond.any():
        octaves[beyond] = grid.distance(query[beyond])
    return kind, octaves


def spread(kv: Floats) -> list[Floats]:
    """The five KV lengths that decode attention is averaged over; at least 1."""
    low, high = np.floor(kv * SPREAD[0] / 10), np.floor(kv * SPREAD[1] / 10)
    return [np.maximum(np.floor(low + (high - low) * i / (LOOKUPS - 1)), 1.0) for i in range(LOOKUPS)]


def context_roofline(
    heads: Floats, kv_heads: Floats, head: _Heads, requests: Floats, length: Floats, flops: str, hardware: Hardware
) -> Floats:
    """Causal attention over whole prompts of `length`, ms. A window shorter than the prompt bounds the scores."""
    scores = 2.0 * requests * length * length * heads * head.size
    if head.window:
        windowed = 4.0 * requests * length * head.window * heads * head.size
        scores = np.where(head.window < length, windowed, scores)
    moved = 2.0 * requests * 2.0 * heads * length * head.size + head.kv_bytes * requests * 2.0 * kv_heads * length * (
        head.size
    )
    return np.maximum(scores / hardware.flops[flops], moved / hardware.mem_bw) * 1000.0


def generation_roofline(
    heads: Floats, kv_heads: Floats, head: _Heads, requests: Floats, kv: Floats, hardware: Hardware
) -> Floats:
    """One token per request against `kv` - 1 cached ones (at most the window), ms."""
    cached = kv - 1.0
    if head.window:
        cached = np.minimum(cached, float(head.window))
    scores = 4.0 * requests * heads * head.size * cached
    moved = requests * (4.0 * heads * head.size + 2.0 * kv_heads * cached * head.size * head.kv_bytes)
    return np.maximum(scores / hardware.flops["bfloat16"], moved / hardware.mem_bw) * 1000.0


def _slice(table: str, precision: dict[str, str], head: _Heads, tables: Tables) -> pl.DataFrame:
    """Rows of the first lane that has this attention."""
    import polars as pl

    frame = tables.rows(table, precision | head.where())
    if frame.height:
        single = pl.col("num_heads") == pl.col("num_key_value_heads")
        mine = ~single & (pl.col("num_key_value_heads") == head.kv_heads) if head.grouped else single
        frame = frame.filter(mine)
    if not frame.height:
        shape = {"num_heads": head.heads, "num_key_value_heads": head.kv_heads, **head.where()}
        tables.missing(table, precision, shape)
    named = named_lanes()
    lanes = pl.col("kernel_source").is_in(list(named))
    frame = frame.with_columns(pl.when(lanes).then(pl.col("kernel_source")).otherwise(pl.lit("default")).alias("lane"))
    phase: Phase = "context" if table.startswith("context") else "generation"
    order = lane_order(tables.deployment.backend, tables.hardware.sm, phase)
    present = set(frame["lane"].unique())
    lane = next((name for name in order if name in present), None)
    if lane is None:
        tables.missing(table, precision, {"lane": " or ".join(order)})
    axes = ["num_heads", "batch_size", "isl"] + (["step"] if phase == "generation" else [])
    return frame.filter(pl.col("lane") == lane).unique(axes, keep="first", maintain_order=True)


def build(name: str, scale: float, shape: Shape, tables: Tables, phase: Phase) -> Operator:
    """From `{kind: attention, heads: ..., kv_heads: ..., head_size: ..., window: ..., qk_norm: ...}`."""
    cls = ContextAttention if phase == "context" else GenerationAttention
    return cls(name, scale, shape, tables)
