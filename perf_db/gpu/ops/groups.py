"""Groups of operators: two streams at once, or one of two ways to price the same work."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from perf_db.gpu.errors import PerfDataError
from perf_db.gpu.ops.base import AttentionOperator, Floats, Operator, Share


class Overlap(Operator):
    """Two lists on two streams: the slower one counts. Scales and factors are those of the members."""

    kind = "overlap"

    def __init__(self, name: str, a: list[Operator], b: list[Operator]) -> None:
        super().__init__(name, 1.0)
        self.streams = (a, b)
        sources = {op.source for op in (*a, *b)}
        self.source = sources.pop() if len(sources) == 1 else "mixed"

    def ms(self, tokens: Floats) -> Floats:
        first, second = (sum((op.total(tokens) for op in stream), np.zeros(tokens.shape)) for stream in self.streams)
        return np.maximum(first, second)

    def apply(self, factors: Mapping[str, float]) -> set[str]:
        taken = super().apply(factors)
        for op in (*self.streams[0], *self.streams[1]):
            taken |= op.apply(factors)
        return taken

    def explain(self, tokens: float) -> list[Share]:
        at = np.array([tokens])
        sums = [[(op, float(op.total(at)[0])) for op in stream] for stream in self.streams]
        slower = max(sums, key=lambda stream: sum(ms for _, ms in stream))
        total = sum(ms for _, ms in slower) or 1.0
        return [(label, share * ms / total) for op, ms in slower for label, share in op.explain(tokens)]


class Chain(AttentionOperator):
    """Several operators that stand for one attention: members that depend on tokens, and one on lengths."""

    def __init__(self, name: str, members: list[Operator]) -> None:
        super().__init__(name, 1.0)
        self.members = members
        self.core = next(op for op in members if isinstance(op, AttentionOperator))
        self.prefix_axis = self.core.prefix_axis
        sources = {op.source for op in members}
        self.source = sources.pop() if len(sources) == 1 else "mixed"

    def _around(self, tokens: Floats) -> Floats:
        return sum((op.total(tokens) for op in self.members if op is not self.core), np.zeros(tokens.shape))

    def context_ms(self, requests: Floats, new: Floats, prefix: Floats) -> Floats:
        core = self.core.scale * self.core.factor * self.core.context_ms(requests, new, prefix)
        return core + self._around(requests * new)

    def generation_ms(self, requests: Floats, kv: Floats) -> Floats:
        return self.core.scale * self.core.factor * self.core.generation_ms(requests, kv) + self._around(requests)

    def apply(self, factors: Mapping[str, float]) -> set[str]:
        taken = super().apply(factors)
        for op in self.members:
            taken |= op.apply(factors)
        return taken


KINDS = ("overlap", "fallback")


Members = Callable[[Sequence[Mapping[str, Any]]], list[Operator]]


def build(name: str, shape: Mapping[str, Any], members: Members) -> Operator:
    """From `{kind: overlap, a: [...], b: [...]}` or `{kind: fallback, first: [one], second: [...]}`."""
    if shape["kind"] == "overlap":
        return Overlap(name, members(shape["a"]), members(shape["b"]))
    try:
        (module,) = members(shape["first"])
        return module
    except PerfDataError as error:
        if error.reason not in ("missing_table", "missing_precision", "missing_shape"):
            raise
        return Chain(name, members(shape["second"]))
