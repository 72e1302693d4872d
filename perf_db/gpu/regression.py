"""Pass times by regression on observed passes, for deployments without a native model.

One plane per kind of iteration over two features: the critical attention, and the tokens all ranks push through the
dense layers. Slopes cannot be negative, the intercept is free. Running sums make an update cost the same however much
has been seen.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from perf_db.gpu.errors import PerfDataError
from perf_db.gpu.forward_jsonl import Observation, RankWork

Role = Literal["prefill", "decode", "aggregated"]
CAPACITY, GRID, LEAST, FLOOR_MS = 64, 4, 5, 1e-6
RIDGE, PIVOT, FLAT = 1e-9, 1e-12, 1e-12


@dataclass(frozen=True, slots=True)
class Weights:
    """Of the features: KV tokens read, attention pairs, tokens."""

    kv: float = 1.0
    pairs: float = 1.0
    tokens: float = 1.0


def features(ranks: tuple[RankWork, ...], role: Role, weights: Weights) -> tuple[float, float]:
    """(critical attention: the most of any rank, tokens of all ranks)."""
    attention, tokens = 0.0, 0
    for work in ranks:
        here = 0.0
        if role != "decode" and work.num_prefill_requests > 0 and work.sum_prefill_tokens > 0:
            n, t, kv = work.num_prefill_requests, float(work.sum_prefill_tokens), float(work.sum_prefill_kv_tokens)
            here += weights.kv * kv + weights.pairs * (kv * t / n + t * t / (2.0 * n) + t / 2.0)
            tokens += work.sum_prefill_tokens
        if role != "prefill":
            here += weights.kv * float(work.sum_decode_kv_tokens)
            tokens += work.num_decode_requests
        attention = max(attention, here)
    return attention, weights.tokens * float(tokens)


@dataclass(slots=True)
class Plane:
    """Rows of one kind, their running sums, and the plane through them."""

    rows: list[tuple[float, float, float]] = field(default_factory=list)  # features and ms, oldest first
    mean: np.ndarray = field(default_factory=lambda: np.zeros(3))
    scatter: np.ndarray = field(default_factory=lambda: np.zeros((3, 3)))  # sums of products about the mean

    def add(self, row: tuple[float, float, float]) -> None:
        """Take a row in; a full store gives up the oldest row of the fullest cell."""
        self.rows.append(row)
        self._insert(row)
        if len(self.rows) > CAPACITY:
            self._remove(self.rows.pop(self._oldest_of_the_fullest()))

    def _insert(self, row: tuple[float, float, float]) -> None:
        before = np.array(row) - self.mean
        self.mean = self.mean + before / len(self.rows)
        self.scatter = self.scatter + np.outer(before, np.array(row) - self.mean)

    def _remove(self, row: tuple[float, float, float]) -> None:
        n, held = len(self.rows), self.scatter.diagonal().copy()
        after = np.array(row) - self.mean
        self.mean = self.mean - after / n
        self.scatter = self.scatter - np.outer(after, np.array(row) - self.mean)
        left = self.scatter.diagonal()
        # What is left of a sum that lost nearly all its mass is rounding.
        if (left < 0).any() or (left < 1e-10 * held).any():
            self._rebuild()

    def _rebuild(self) -> None:
        data = np.array(self.rows).reshape(-1, 3)
        self.mean = data.mean(axis=0) if len(data) else np.zeros(3)
        self.scatter = (data - self.mean).T @ (data - self.mean)

    def _oldest_of_the_fullest(self) -> int:
        at = np.log1p(np.array([row[:2] for row in self.rows]))
        low, high = at.min(axis=0), at.max(axis=0)
        width = np.where(high > low, high - low, 1.0)
        cell = np.minimum(((at - low) / width * GRID).astype(int), GRID - 1) @ np.array([GRID, 1])
        sizes = np.bincount(cell, minlength=GRID * GRID)
        return int(np.flatnonzero(cell == sizes.argmax())[0])

    def fit(self) -> tuple[float, float, float] | None:
        """(intercept, slope per attention, slope per token), or None: too few rows, or nothing that depends on them.

        Least squares over standardised features for each subset of them; the feasible one with the smallest residual.
        """
        n = len(self.rows)
        if n < LEAST:
            return None
        spread = np.sqrt(np.maximum(self.scatter.diagonal()[:2], 0.0) / n)
        active = [k for k in (0, 1) if spread[k] > FLAT * max(1.0, abs(self.mean[k]))]
        best: tuple[float, np.ndarray] | None = None
        for chosen in ([], [0], [1], [0, 1]):
            if not set(chosen) <= set(active):
                continue
            slopes = np.zeros(2)
            if chosen:
                solved = _solve(self.scatter, spread, chosen)
                if (solved < 0).any():
                    continue
                slopes[chosen] = solved / spread[chosen]
            rest = float(
                self.scatter[2, 2] - 2.0 * slopes @ self.scatter[:2, 2] + slopes @ self.scatter[:2, :2] @ slopes
            )
            if best is None or rest < best[0]:
                best = rest, slopes
        if best is None or not (best[1] > 0).any():
            return None
        slopes = best[1]
        return float(self.mean[2] - slopes @ self.mean[:2]), float(slopes[0]), float(slopes[1])


def _solve(scatter: np.ndarray, spread: np.ndarray, chosen: list[int]) -> np.ndarray:
    """Slopes of the chosen standardised features; a ridge only where the plain system is singular."""
    scale = spread[chosen]
    left = scatter[np.ix_(chosen, chosen)] / np.outer(scale, scale)
    right = scatter[chosen, 2] / scale
    if abs(np.linalg.det(left)) < PIVOT * max(1.0, float(np.abs(left).max()) ** len(chosen)):
        left = left + np.eye(len(chosen)) * RIDGE * max(1.0, float(np.abs(left.diagonal()).sum()))
    return np.linalg.solve(left, right)


STORES: dict[str, tuple[str, ...]] = {
    "prefill": ("prefill",),
    "decode": ("decode",),
    "aggregated": ("decode", "mixed", "across_ranks", "prefill"),
}


class Regression:
    """Pass times of one role.

    Stores: a prefill worker's pure prefills; a decode worker's pure decodes; an aggregated worker's pure decodes,
    iterations that hold a rank with both, iterations whose ranks do different things, and pure prefills.
    """

    def __init__(self, role: Role, weights: Weights | None = None) -> None:
        self.role: Role = role
        self.weights = weights or Weights()
        self.planes = {name: Plane() for name in STORES[role]}

    def store_of(self, ranks: tuple[RankWork, ...]) -> str | None:
        """Name of the store that an iteration belongs to; None for none of this role's."""
        prefills = [w.num_prefill_requests > 0 and w.sum_prefill_tokens > 0 for w in ranks]
        decodes = [w.num_decode_requests > 0 for w in ranks]
        if any(p and d for p, d in zip(prefills, decodes, strict=True)):
            found = "mixed"
        elif any(prefills) and any(decodes):
            found = "across_ranks"
        elif any(prefills):
            found = "prefill"
        elif any(decodes):
            found = "decode"
        else:
            return None
        return found if found in self.planes else None

    def observe(self, each: Observation) -> bool:
        """Take an iteration in. False when it says nothing to this role."""
        name = self.store_of(each.ranks)
        if name is None or not (math.isfinite(each.wall_time_ms) and each.wall_time_ms > 0):
            return False
        self.planes[name].add((*features(each.ranks, self.role, self.weights), each.wall_time_ms))
        return True

    def predict(self, ranks: tuple[RankWork, ...]) -> float | None:
        """Milliseconds of an iteration; None where its store is not ready: no other store answers in its place."""
        name = self.store_of(ranks)
        fitted = None if name is None else self.planes[name].fit()
        if fitted is None:
            return None
        attention, tokens = features(ranks, self.role, self.weights)
        return max(fitted[0] + fitted[1] * attention + fitted[2] * tokens, FLOOR_MS)

    def summary(self) -> dict[str, Any]:
        """Rows and fitted plane of each store."""
        return {name: {"rows": len(plane.rows), "plane": plane.fit()} for name, plane in self.planes.items()}

    def arrays(self) -> dict[str, np.ndarray]:
        """As a timing model takes them: planes of prefill, decode and mixed passes of one rank; NaN: not ready.

        Raises:
            PerfDataError: no store is ready.
        """
        planes = np.full((3, 3), np.nan)
        for row, name in enumerate(("prefill", "decode", "mixed")):
            fitted = self.planes[name].fit() if name in self.planes else None
            if fitted is not None:
                planes[row] = fitted
        if np.isnan(planes).all():
            counts = ", ".join(f"{name} {len(plane.rows)}" for name, plane in self.planes.items())
            raise PerfDataError(
                "outside_data",
                f"the observations hold too few passes to fit ({counts}): a store needs {LEAST}, and a time that grows "
                "with the work; record more of them",
            )
        return {
            "planes": planes,
            "weights": np.array([self.weights.kv, self.weights.pairs, self.weights.tokens]),
        }
