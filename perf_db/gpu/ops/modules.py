"""Attention measured as one module, projections included: what DSA, MSA and MLA modules have in common.

Prefill axes: heads, cached prefix, new tokens, batch. Decode axes: heads, batch, KV length; one look, not the mean of
five that plain decode attention takes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from perf_db.gpu.interpolate.grid import EXTRAPOLATED, Grid
from perf_db.gpu.interpolate.nearest import Roofline
from perf_db.gpu.ops.base import AttentionOperator, Floats, Knots, Phase, Share, Tables

if TYPE_CHECKING:
    import polars as pl


class Module(AttentionOperator):
    """A module table of one phase at one head count.

    Args:
        heads: query heads on this rank.
        frame: the slice, one row per point.
        context_limit, generation_limit: rooflines over (heads, prefix, new, batch) and (heads, batch, kv); only the one
            of the phase is used.
        sqrt: blend the square root along the new tokens (prefill).
    """

    kind = "attention"
    prefix_axis = True
    looks = 1

    def __init__(
        self, name: str, scale: float, phase: Phase, heads: int, frame: pl.DataFrame, limit: Roofline, *, sqrt: bool
    ) -> None:
        super().__init__(name, scale)
        self.phase, self.heads = phase, heads
        if phase == "context":
            axes = ["num_heads", "step", "isl", "batch_size"]
        else:
            frame = frame.with_columns((frame["isl"] + frame["step"]).alias("kv"))
            axes = ["num_heads", "batch_size", "kv"]
        frame = frame.unique(axes, keep="first", maintain_order=True)
        self.grid = Grid(
            frame.select(axes).to_numpy(),
            frame["latency"].to_numpy(),
            frame["label"].to_numpy(),
            limit,
            sqrt_axis=2 if sqrt and phase == "context" else None,
        )

    def at(self, requests: Floats, length: Floats, prefix: Floats) -> Floats:
        """Coordinates in the grid of this phase."""
        heads = np.full(requests.shape, float(self.heads))
        columns = [heads, prefix, length, requests] if self.phase == "context" else [heads, requests, length]
        return np.stack(columns, axis=-1)

    def lookup(self, requests: Floats, length: Floats) -> Floats:
        return self.grid(self.at(requests, length, np.zeros(requests.shape))).value

    def context_ms(self, requests: Floats, new: Floats, prefix: Floats) -> Floats:
        return self.grid(self.at(requests, new, prefix)).value

    def generation_ms(self, requests: Floats, kv: Floats) -> Floats:
        return self.grid(self.at(requests, kv, np.zeros(requests.shape))).value

    def knots(self) -> tuple[Knots, Knots, Knots, Knots]:
        here = self.grid.coords[self.grid.coords[:, 0] == self.heads]
        points = (here if len(here) else self.grid.coords).astype(np.int64)
        batch_axis, length_axis = (3, 2) if self.phase == "context" else (1, 2)
        prefixes = np.unique(points[:, 1]) if self.phase == "context" else np.zeros(1, np.int64)
        bare = points[points[:, 1] == prefixes[0]] if self.phase == "context" else points
        batch = np.unique(points[:, batch_axis])
        longest = [bare[bare[:, batch_axis] == b, length_axis].max(initial=0) for b in batch]
        return batch, np.unique(points[:, length_axis]), prefixes, np.array(longest, np.int64)

    def reach(self, phase: Phase, requests: Floats, length: Floats, prefix: Floats) -> tuple[NDArray[np.uint8], Floats]:
        query = self.at(requests, length, prefix)
        kind = self.grid(query).kind
        octaves = np.zeros(len(query))
        beyond = kind == EXTRAPOLATED
        if beyond.any():
            octaves[beyond] = self.grid.distance(query[beyond])
        return kind, octaves

    def explain_pass(self, phase: Phase, requests: float, length: float, prefix: float) -> list[Share]:
        one = (np.array([requests]), np.array([length]), np.array([prefix]))
        return self.grid.explain(self.at(*one)[0])


def module_rows(table: str, key: Mapping[str, str], heads: int, tables: Tables) -> pl.DataFrame:
    """A slice of a module table, every head count included.

    Raises:
        PerfDataError: missing_table, missing_precision or missing_shape.
    """
    frame = tables.rows(table, key)
    if not frame.height:
        precision = {k: v for k, v in key.items() if k in ("mla_dtype", "kv_cache_dtype", "gemm_type", "architecture")}
        tables.missing(table, precision, {**key, "num_heads": heads})
    return frame
