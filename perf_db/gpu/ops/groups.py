"""Groups of operators: two streams at once."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from perf_db.gpu.ops.base import Floats, Operator, Share


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
        measured = [(op, ms, rows) for op, ms in slower if (rows := op.explain(tokens))]
        total = sum(ms for _, ms, _ in measured) or 1.0
        return [(label, share * ms / total) for _, ms, rows in measured for label, share in rows]
