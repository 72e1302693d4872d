"""An operator model by formula, with the interface of `perf_db.gpu.oplevel.OpLevel`: a measured staircase, smooth
outside."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from perf_db.gpu.deployment import Deployment
from perf_db.gpu.errors import PerfDataError
from perf_db.gpu.oplevel import Axes

BATCH = np.array([1, 2, 4, 8, 16])
CONTEXT = np.array([16, 64, 256, 1024, 4096])
GENERATION = np.array([2, 8, 32, 128, 512, 2048, 8192])
FRONTIER = np.array([4096, 4096, 4096, 1024, 256])
KV_FRONTIER = np.array([8192, 8192, 8192, 2048, 512])


class FakeOpLevel:
    """Prices of a made-up deployment; see `OpLevel` for what the methods mean.

    Args:
        noise: relative size of bumps on the measured nodes.
        prefix_axis: the prefix is an axis of the measured table, as for sparse attention.
        without: a phase that cannot be priced.
    """

    def __init__(
        self,
        *,
        nextn: int = 0,
        clean: bool = False,
        noise: float = 0.0,
        prefix_axis: bool = False,
        without: str | None = None,
    ) -> None:
        self.without = without
        self.deployment = Deployment("org/model", "gpu", "vllm", "1", nextn=nextn)
        self.clean, self.prefix_axis = clean, prefix_axis
        rng = np.random.default_rng(5)
        self.bumps = 1.0 + noise * rng.standard_normal((2, 64, 64))
        self.tables = SimpleNamespace(values=lambda table, column: [1, 2, 4, 8, 16, 64, 256] if table == "gemm" else [])

    def refusal(self, phase: str) -> PerfDataError | None:
        if phase != self.without:
            return None
        return PerfDataError("missing_precision", f"no {phase}_attention rows with attn_dtype=fp8")

    def shared(self, phase: str, tokens: Any) -> Any:
        assert phase != self.without
        x = np.asarray(tokens, float)
        return 2.0 + 0.01 * x + 0.3 * np.sin(x) * self.bumps[0, 0, 0] * (self.bumps[0, 1, 1] != 1.0)

    def logits(self, phase: str, rows: Any) -> Any:
        return 0.1 + 0.001 * np.asarray(rows, float)

    def _grid(self, which: int, batches: Any, knots: Any, power: float) -> Any:
        ideal = 0.2 + 1e-6 * batches[:, None] * knots[None].astype(float) ** power
        return ideal * self.bumps[which, : len(batches), : len(knots)]

    def _look(self, which: int, n: Any, x: Any, knots: Any, power: float, *, root: bool) -> Any:
        """Bilinear (in the root along the length) on the nodes; on, beyond them, as the ideal grows."""
        n, x = (np.asarray(v, float) for v in np.broadcast_arrays(n, x))
        table = self._grid(which, BATCH, knots, power)
        inner_n, inner_x = np.clip(n, BATCH[0], BATCH[-1]), np.clip(x, knots[0], knots[-1])
        i = np.clip(np.searchsorted(BATCH, inner_n, side="right") - 1, 0, len(BATCH) - 2)
        j = np.clip(np.searchsorted(knots, inner_x, side="right") - 1, 0, len(knots) - 2)
        f = (inner_n - BATCH[i]) / (BATCH[i + 1] - BATCH[i])
        g = (inner_x - knots[j]) / (knots[j + 1] - knots[j])
        low, high = (table[i, k] + (table[i + 1, k] - table[i, k]) * f for k in (j, j + 1))
        if root:
            value = (np.sqrt(low) + (np.sqrt(high) - np.sqrt(low)) * g) ** 2
        else:
            value = low + (high - low) * g
        return value * (n / inner_n) * (x / inner_x) ** power

    def lookup(self, phase: str, requests: Any, length: Any) -> Any:
        if phase == "context":
            return self._look(0, requests, length, CONTEXT, 2.0, root=True)
        return self._look(1, requests, length, GENERATION, 1.0, root=False)

    def context_attention(self, requests: Any, new: Any, prefix: Any) -> Any:
        n, s, p = (np.asarray(v, float) for v in np.broadcast_arrays(requests, new, prefix))
        if self.prefix_axis:
            return self.lookup("context", n, s) * (1.0 + p / 1000.0)
        full = s + p
        return self.lookup("context", n, full) * ((full * full - p * p) / (full * full)) + 0.25

    def generation_attention(self, requests: Any, kv: Any) -> Any:
        kv = np.asarray(kv, float)
        low, high = np.floor(kv * 9 / 10), np.floor(kv * 11 / 10)
        looks = [np.maximum(np.floor(low + (high - low) * i / 4), 1.0) for i in range(5)]
        return sum(self.lookup("generation", requests, at) for at in looks) / 5

    def prefill(self, requests: Any, new: Any, prefix: Any) -> Any:
        tokens = np.asarray(requests) * np.asarray(new)
        return (
            self.shared("context", tokens)
            + self.logits("context", requests)
            + self.context_attention(requests, new, prefix)
        )

    def decode(self, requests: Any, kv: Any) -> Any:
        b = np.asarray(requests) * (self.deployment.nextn + 1)
        return self.shared("generation", b) + self.logits("generation", b) + self.generation_attention(b, kv)

    def axes(self, phase: str) -> Axes:
        if phase == "context":
            prefix = np.array([0, 512, 4096]) if self.prefix_axis else np.array([0])
            return Axes(BATCH, CONTEXT, prefix, FRONTIER)
        return Axes(BATCH, GENERATION, np.array([0]), KV_FRONTIER)
