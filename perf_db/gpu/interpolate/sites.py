"""A curve per measured site, and what to answer at a site that was not measured."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from perf_db.gpu.interpolate.curve import Curve

Site = tuple[int, ...]
GATE = 2.0  # octaves; a site further away says nothing
NEIGHBOURS = 4


class Sites:
    """The curve of one site: its own, or blended from its neighbours.

    A site that was measured uses its own curve. Another one takes, at each x, the four nearest sites (log2 distance, at
    most `GATE`) whose curve covers x, and blends their utilisation with weights 1 / distance^2. Where no curve
    in reach covers x, the four nearest answer with the utilisation they hold beyond their ends. The gate is lifted when
    the site exceeds the measured range on exactly one axis, upward (large vocabularies).

    Args:
        site: which site is asked for.
        curves: the measured ones.
        roofline: ms over x, at `site`.
    """

    def __init__(
        self,
        site: Site,
        curves: dict[Site, Curve],
        roofline: Callable[[NDArray[np.float64]], NDArray[np.float64]],
    ) -> None:
        self.site = site
        self.roofline = roofline
        self.own = curves.get(site)
        if self.own is not None:
            return
        known = np.array(list(curves), np.float64)
        distance = np.sqrt(((np.log2(known) - np.log2(np.array(site, np.float64))) ** 2).sum(axis=1))
        above = np.array(site) > known.max(axis=0)
        below = np.array(site) < known.min(axis=0)
        lifted = above.sum() == 1 and not below.any()
        near = np.flatnonzero(np.isfinite(distance) if lifted else distance <= GATE)
        order = near[np.argsort(distance[near], kind="stable")]
        every = list(curves.values())
        self.near = [(float(distance[i]), every[i]) for i in order]

    @property
    def answers(self) -> bool:
        """Whether anything at all can be said about this site."""
        return self.own is not None or bool(self.near)

    def __call__(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """Latencies, ms."""
        if self.own is not None:
            return self.own(x)
        utilisation = np.zeros(x.shape)
        for w, (_, curve) in zip(self._weights(x), self.near):
            if w.any():
                utilisation += w * curve.roofline(x) / curve(x)
        return self.roofline(x) / utilisation

    def _weights(self, x: NDArray[np.float64]) -> list[NDArray[np.float64]]:
        """Weights of the sites in reach, nearest first, up to the last that is used; they sum to 1 at every x."""
        covered = np.any([curve.covers(x) for _, curve in self.near], axis=0)
        taken = np.zeros(x.shape, np.int64)
        weights = []
        for distance, curve in self.near:
            use = (curve.covers(x) | ~covered) & (taken < NEIGHBOURS)
            taken += use
            weights.append(np.where(use, 1.0 / distance**2, 0.0))
            if (taken >= NEIGHBOURS).all():
                break
        total = np.sum(weights, axis=0)
        return [w / total for w in weights]

    def explain(self, x: float) -> list[tuple[int, float]]:
        """Labels of the points that answer at x, with their shares of the answer."""
        if self.own is not None:
            return self.own.explain(x)
        at = np.array([x])
        pairs = zip(self._weights(at), self.near)
        parts = [float(w[0] * curve.roofline(at)[0] / curve(at)[0]) for w, (_, curve) in pairs]
        total = sum(parts)
        return [
            (row, share * part / total)
            for part, (_, curve) in zip(parts, self.near)
            if part > 0
            for row, share in curve.explain(x)
        ]
