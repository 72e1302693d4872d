"""Nested bracketing on a grid whose rows end at different places (a staircase)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from perf_db.gpu.interpolate.nearest import Nearest, Roofline

MEASURED, INTERPOLATED, EXTRAPOLATED = 0, 1, 2


class Answer(NamedTuple):
    """Values of a batch of queries and how they came about."""

    value: NDArray[np.float64]
    kind: NDArray[np.uint8]


class Grid:
    """Latencies over d integer axes, outermost first.

    A query is bracketed on the outermost axis by the two nearest knots, each of which answers on the remaining axes.
    Two answers are blended; linearly, or linearly in the square root of the latency on the axis `sqrt_axis`, where cost
    goes with the square of the length. When only one of the two can answer (the other one's row ends earlier) that side
    is moved to the query by the ratio of rooflines. When neither can, or the query lies outside the knots of an axis,
    the utilisation of the nearest points decides (`Nearest`).

    Args:
        coords: int64, (n, d); no row twice.
        latency: float64, (n,), ms.
        rows: int64, (n,), any label per point; comes back from `explain`.
        roofline: see `perf_db.gpu.interpolate`.
        sqrt_axis: index of the axis that is blended in the square root, or None.
    """

    def __init__(
        self,
        coords: NDArray[np.int64],
        latency: NDArray[np.float64],
        rows: NDArray[np.int64],
        roofline: Roofline,
        *,
        sqrt_axis: int | None = None,
    ) -> None:
        order = np.lexsort(coords.T[::-1])
        self.coords = coords[order].astype(np.float64)
        self.latency = latency[order]
        self.rows = rows[order]
        self.roofline = roofline
        self.sqrt_axis = sqrt_axis
        # The tie-break of equally near points is the grid's own order.
        self.nearest = Nearest(self.coords, self.latency, roofline)
        self._knots: dict[tuple[int, int, int], tuple[NDArray[np.float64], NDArray[np.int64]]] = {}

    def __call__(self, query: NDArray[np.float64]) -> Answer:
        """Answer (m, d) queries; every one gets an answer."""
        value, kind = self._at(0, 0, len(self.coords), query)
        lost = np.isnan(value)
        if lost.any():
            value[lost] = self.nearest(query[lost])
            kind[lost] = EXTRAPOLATED
        return Answer(value, kind)

    def _split(self, level: int, lo: int, hi: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Knots of one axis inside rows lo..hi and where each one's rows start (with the end appended)."""
        key = (level, lo, hi)
        if key not in self._knots:
            knots, start = np.unique(self.coords[lo:hi, level], return_index=True)
            self._knots[key] = knots, np.append(start + lo, hi).astype(np.int64)
        return self._knots[key]

    def _at(
        self, level: int, lo: int, hi: int, query: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.uint8]]:
        """Answers of the rows lo..hi on the axes from `level` on; NaN where they have none."""
        knots, start = self._split(level, lo, hi)
        x = query[:, level]
        below = np.searchsorted(knots, x, side="right") - 1
        above = np.searchsorted(knots, x, side="left")
        n = len(knots)
        if level == self.coords.shape[1] - 1:
            inside = (below >= 0) & (above < n)
            a, b = np.clip(below, 0, n - 1), np.clip(above, 0, n - 1)
            value = self._blend(level, self.latency[lo + a], self.latency[lo + b], knots[a], knots[b], x)
            kind = np.where(a == b, MEASURED, INTERPOLATED).astype(np.uint8)
            return np.where(inside, value, np.nan), kind
        left, right = np.full(len(x), np.nan), np.full(len(x), np.nan)
        left_kind, right_kind = np.zeros(len(x), np.uint8), np.zeros(len(x), np.uint8)
        for k in np.union1d(below[below >= 0], above[above < n]):
            asks = (below == k) | (above == k)
            pinned = query[asks]
            pinned[:, level] = knots[k]
            value, kind = self._at(level + 1, int(start[k]), int(start[k + 1]), pinned)
            for side, kinds, mine in ((left, left_kind, below), (right, right_kind, above)):
                here = mine[asks] == k
                at = np.flatnonzero(asks)[here]
                side[at], kinds[at] = value[here], kind[here]
        a, b = np.clip(below, 0, n - 1), np.clip(above, 0, n - 1)
        value = self._blend(level, left, right, knots[a], knots[b], x)
        kind = np.maximum(np.maximum(left_kind, right_kind), np.where(a == b, MEASURED, INTERPOLATED).astype(np.uint8))
        bracketed = (below >= 0) & (above < n)
        value = np.where(bracketed, value, np.nan)
        one = bracketed & (np.isnan(left) != np.isnan(right))
        if one.any():
            near = query[one]
            near[:, level] = np.where(np.isnan(left[one]), knots[b[one]], knots[a[one]])
            known = np.where(np.isnan(left[one]), right[one], left[one])
            value[one] = known * self.roofline(query[one]) / self.roofline(near)
            kind[one] = EXTRAPOLATED
        return value, kind

    def _blend(
        self,
        level: int,
        low: NDArray[np.float64],
        high: NDArray[np.float64],
        x0: NDArray[np.float64],
        x1: NDArray[np.float64],
        x: NDArray[np.float64],
    ) -> NDArray[np.float64]:
        share = np.divide(x - x0, x1 - x0, out=np.zeros_like(x), where=x1 != x0)
        if level == self.sqrt_axis:
            root = np.sqrt(low)
            blended = (root + (np.sqrt(high) - root) * share) ** 2
        else:
            blended = low + (high - low) * share
        # An exact knot is its own latency, not what the blend makes of it.
        return np.where(x1 == x0, low, blended)

    def explain(self, point: NDArray[np.float64]) -> list[tuple[int, float]]:
        """Labels of the points that answer one query and their shares of the answer (they sum to 1)."""
        found = self._explain(0, 0, len(self.coords), point)
        if found is None:
            index, weight, _ = self.nearest.weights(point[None, :])
            parts = weight[0] * self.nearest.utilisation[index[0]]
            found = dict(zip(index[0].tolist(), (parts / parts.sum()).tolist()))
        total = sum(found.values())
        return [(int(self.rows[i]), share / total) for i, share in found.items() if share > 0]

    def _explain(self, level: int, lo: int, hi: int, point: NDArray[np.float64]) -> dict[int, float] | None:
        """Point index -> part of the value; the parts sum to the value up to the blend's curvature."""
        knots, start = self._split(level, lo, hi)
        x = point[level]
        below = int(np.searchsorted(knots, x, side="right")) - 1
        above = int(np.searchsorted(knots, x, side="left"))
        if below < 0 or above >= len(knots):
            return None
        sides: list[tuple[int, dict[int, float]]] = []
        for k in dict.fromkeys((below, above)):
            if level == len(point) - 1:
                sides.append((k, {lo + k: float(self.latency[lo + k])}))
                continue
            pinned = point.copy()
            pinned[level] = knots[k]
            inner = self._explain(level + 1, int(start[k]), int(start[k + 1]), pinned)
            if inner is not None:
                sides.append((k, inner))
        if not sides:
            return None
        if len(sides) == 1:
            return sides[0][1]
        share = (x - knots[below]) / (knots[above] - knots[below])
        mixed: dict[int, float] = {}
        for (_, inner), weight in zip(sides, (1.0 - share, share)):
            for i, part in inner.items():
                mixed[i] = mixed.get(i, 0.0) + weight * part
        return mixed

    def distance(self, query: NDArray[np.float64]) -> NDArray[np.float64]:
        """Octaves to the nearest measured point."""
        return self.nearest.weights(query)[2]
