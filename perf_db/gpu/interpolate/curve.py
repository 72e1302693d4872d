"""One measured curve: linear inside, the end's utilisation held outside."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray


class Curve:
    """Latency over one axis.

    Outside the knots the utilisation (roofline / latency) of the end is held: the latency of the end point times the
    ratio of rooflines. `tail` > 1 takes the median utilisation of that many last points beyond the upper end.

    Args:
        x: int64, (n,), distinct.
        latency: float64, (n,), ms.
        rows: int64, (n,), any label per point.
        roofline: ms over the axis.
    """

    def __init__(
        self,
        x: NDArray[np.int64],
        latency: NDArray[np.float64],
        rows: NDArray[np.int64],
        roofline: Callable[[NDArray[np.float64]], NDArray[np.float64]],
        *,
        tail: int = 1,
    ) -> None:
        order = np.argsort(x, kind="stable")
        self.x = x[order].astype(np.float64)
        self.latency = latency[order]
        self.rows = rows[order]
        self.roofline = roofline
        self._tail = min(tail, len(self.x))
        used = slice(len(self.x) - self._tail, None)
        self._tail_utilisation = float(np.median(roofline(self.x[used]) / self.latency[used]))

    def __call__(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """Latencies, ms."""
        inside = np.interp(x, self.x, self.latency)
        beyond, before = x > self.x[-1], x < self.x[0]
        if beyond.any():
            inside[beyond] = self.roofline(x[beyond]) / self._tail_utilisation
        if before.any():
            inside[before] = self.latency[0] * self.roofline(x[before]) / self.roofline(self.x[:1])
        return inside

    def covers(self, x: NDArray[np.float64]) -> NDArray[np.bool_]:
        """Whether the curve was measured on both sides of x."""
        return (x >= self.x[0]) & (x <= self.x[-1])

    def explain(self, x: float) -> list[tuple[int, float]]:
        """Labels of the points that answer at x, with their shares of the answer."""
        if x > self.x[-1]:
            return [(int(row), 1.0 / self._tail) for row in self.rows[-self._tail :]]
        if x <= self.x[0]:
            return [(int(self.rows[0]), 1.0)]
        above = int(np.searchsorted(self.x, x, side="left"))
        if self.x[above] == x:
            return [(int(self.rows[above]), 1.0)]
        share = (x - self.x[above - 1]) / (self.x[above] - self.x[above - 1])
        parts = ((1.0 - share) * self.latency[above - 1], share * self.latency[above])
        return [(int(self.rows[above - 1 + i]), float(part / sum(parts))) for i, part in enumerate(parts)]
