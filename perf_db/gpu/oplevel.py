"""The operator-level price of a forward pass."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from perf_db.gpu.deployment import Deployment
from perf_db.gpu.source import PerfRoot

Phase = Literal["context", "generation"]
Milliseconds = NDArray[np.float64]

MEASURED, INTERPOLATED, EXTRAPOLATED = 0, 1, 2


class OpCost(NamedTuple):
    """One line of a breakdown."""

    op: str
    ms: float  # all layers
    source: str  # silicon, empirical, mixed


class LineageRow(NamedTuple):
    """One raw row that takes part in an answer."""

    op: str
    file: str  # relative to the root
    row: int  # 0-based, in file order
    share: float  # of the operator's time; the shares of an operator sum to 1


class Axes(NamedTuple):
    """The knots of the attention grid of one phase, at this deployment's head count."""

    batch: NDArray[np.int64]  # ascending
    length: NDArray[np.int64]  # ascending; new tokens in context (prompt), KV length in generation
    prefix: NDArray[np.int64]  # ascending; [0] where the prefix is no axis of the table
    frontier: NDArray[np.int64]  # per batch: the longest length that was measured at prefix 0


class Coverage(NamedTuple):
    """How an attention lookup is answered; arrays of the broadcast shape of the query."""

    kind: NDArray[np.uint8]  # MEASURED, INTERPOLATED or EXTRAPOLATED
    octaves: NDArray[np.float64]  # distance to the nearest measured point in log2 space; 0 unless EXTRAPOLATED


class OpLevel:
    """Prices passes of one deployment. Arguments are int64 arrays that broadcast together, answers are float64 ms.

    Args:
        deployment: what is priced.
        root: where the tables are.
        clean: apply the repairs of `perf_db.gpu.clean`; False reproduces the tables as they are.
        factors: what-if factors by operator name, operator kind or link (`intra_node`, `inter_node`).

    Raises:
        PerfDataError: the deployment cannot be priced; see `.reason`.
    """

    def __init__(
        self, deployment: Deployment, root: PerfRoot, *, clean: bool, factors: Mapping[str, float] | None = None
    ) -> None:
        raise NotImplementedError

    def shared(self, phase: Phase, tokens: ArrayLike) -> Milliseconds:
        """All operators but attention and logits, at `tokens` tokens on this rank."""
        raise NotImplementedError

    def logits(self, phase: Phase, rows: ArrayLike) -> Milliseconds:
        """The logits GEMM at `rows` rows; 0 where the operator list has none in this phase."""
        raise NotImplementedError

    def context_attention(self, requests: ArrayLike, new: ArrayLike, prefix: ArrayLike) -> Milliseconds:
        """Attention of `requests` requests with `new` new tokens each after `prefix` cached ones; all layers."""
        raise NotImplementedError

    def generation_attention(self, requests: ArrayLike, kv: ArrayLike) -> Milliseconds:
        """Decode attention at KV length `kv` per request (new token included); all layers."""
        raise NotImplementedError

    def lookup(self, phase: Phase, requests: ArrayLike, length: ArrayLike) -> Milliseconds:
        """One look into the attention grid, all layers, as the compiled arrays take their nodes from it.

        generation: at one KV length, before the five of them are averaged. context: at a full prompt without prefix,
        before extras: `context_attention(n, s, p) = lookup(n, s + p) * ((s+p)^2 - p^2) / (s+p)^2 + constant` where the
        prefix is no axis of the table (`axes(phase).prefix` is [0]); elsewhere this is the value at prefix 0.
        """
        raise NotImplementedError

    def prefill(self, requests: ArrayLike, new: ArrayLike, prefix: ArrayLike) -> Milliseconds:
        """A pass that only prefills."""
        raise NotImplementedError

    def decode(self, requests: ArrayLike, kv: ArrayLike) -> Milliseconds:
        """A pass that only decodes; every request verifies `nextn + 1` tokens."""
        raise NotImplementedError

    def mixed(
        self, np_: ArrayLike, prefill_tokens: ArrayLike, prefill_kv: ArrayLike, nd: ArrayLike, decode_kv: ArrayLike
    ) -> Milliseconds:
        """A pass given by its totals (replay form, one forward)."""
        raise NotImplementedError

    def breakdown(
        self, phase: Phase, requests: int, new_or_kv: int, prefix: int = 0
    ) -> list[OpCost]:
        """One pass, operator by operator."""
        raise NotImplementedError

    def lineage(self, phase: Phase, requests: int, new_or_kv: int, prefix: int = 0) -> list[LineageRow]:
        """Which raw rows answer one pass."""
        raise NotImplementedError

    def axes(self, phase: Phase) -> Axes:
        """The attention grid's knots."""
        raise NotImplementedError

    def coverage(self, phase: Phase, requests: ArrayLike, new_or_kv: ArrayLike, prefix: ArrayLike = 0) -> Coverage:
        """Whether attention at these coordinates is measured, interpolated or extrapolated."""
        raise NotImplementedError
