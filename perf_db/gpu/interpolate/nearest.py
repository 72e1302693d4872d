"""Beyond the frontier of a grid: the utilisation of the nearest measured points."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Roofline = Callable[[NDArray[np.float64]], NDArray[np.float64]]

_CHUNK = 4_000_000  # distances held at once


class Nearest:
    """Utilisation (roofline / latency) transferred from the four nearest points in joint log2 space.

    With d_i their distances and R the distance of the fifth nearest, the weights are ((R - d_i) / (R d_i))^2, all equal
    when every one of them is zero. A coordinate of 0 (no cached prefix) lies far from every other one.
    """

    def __init__(self, coords: NDArray[np.float64], latency: NDArray[np.float64], roofline: Roofline) -> None:
        self.roofline = roofline
        self.place = _octaves(coords)
        self.utilisation = roofline(coords) / latency

    def weights(self, query: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
        """Four point indices and weights per query (rows sum to 1), and the distance of the nearest, in octaves."""
        count = min(4, len(self.place))
        index = np.empty((len(query), count), np.int64)
        weight = np.empty((len(query), count))
        first = np.empty(len(query))
        step = max(1, _CHUNK // max(1, len(self.place)))
        at = _octaves(query)
        for lo in range(0, len(query), step):
            part = at[lo : lo + step]
            distance = np.sqrt(((part[:, None, :] - self.place[None, :, :]) ** 2).sum(axis=2))
            # Stable: of points equally far the one that comes first in the grid's order is nearer.
            order = np.argsort(distance, axis=1, kind="stable")[:, : count + 1]
            d = np.take_along_axis(distance, order, axis=1)
            radius = d[:, -1:]
            near = np.maximum(d[:, :count], 1e-300)
            with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                w = ((radius - near) / (radius * near)) ** 2
            total = w.sum(axis=1, keepdims=True)
            w = np.where(total > 0, w, 1.0)
            index[lo : lo + step] = order[:, :count]
            weight[lo : lo + step] = w / w.sum(axis=1, keepdims=True)
            first[lo : lo + step] = d[:, 0]
        return index, weight, first

    def __call__(self, query: NDArray[np.float64]) -> NDArray[np.float64]:
        """Latencies, ms."""
        index, weight, _ = self.weights(query)
        return self.roofline(query) / (weight * self.utilisation[index]).sum(axis=1)


def _octaves(coords: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.log2(np.maximum(coords, 1e-9))
