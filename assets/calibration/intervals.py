"""How far the data pin a constant down.

The fit is repeated on blocks of requests drawn with replacement (neighbours share passes, so they are drawn together),
each time with priors moved by a draw of their own spread: one step from the optimum, with the slopes there. What the
data decide stays put; what only the prior decides moves as far as the prior does. To that comes how far apart the
points lie where searches came to rest that started from such draws, as far as they are about as good: the objective
is a staircase, and which stair a search ends on is chance. The scatter of the logarithms gives the interval.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from assets.calibration.objective import Objective
from assets.calibration.search import full_step

REACH = 1.96  # standard deviations
STAIRS = 2.0  # resampling with the slopes of one point misses half of the scatter: found on made-up logs
WIDE = 0.15  # half-width of an interval, as a share, from which on a constant is not called known
MEANING = (
    "constants that are not identified: predictions within the loads seen are fine; do not read these values as "
    "physics, and do not extrapolate with them"
)
OF_PRIOR = 0.5  # share of its prior's spread from which on the prior, not the data, says what it is


@dataclass(frozen=True, slots=True)
class Interval:
    """Of one constant.

    Attributes:
        low, high: ends at 95 %.
        half_width: share of the value.
        identified: whether the data say what it is.
    """

    low: float
    high: float
    half_width: float
    identified: bool


def redrawn(objective: Objective, best: np.ndarray, *, repeats: int, block: int, seed: int) -> np.ndarray:
    """Where `best` goes to with requests and priors drawn anew, shape (repeats, free).

    Args:
        block: neighbouring requests that are drawn together.
    """
    slopes = objective.slopes(best)
    assert slopes is not None, "the best point was replayed"
    rng = np.random.default_rng(seed)
    compared = np.flatnonzero(objective.rows)
    blocks = [compared[i : i + block] for i in range(0, len(compared), block)]
    found = []
    for _ in range(repeats):
        drawn = np.concatenate([blocks[i] for i in rng.integers(0, len(blocks), len(blocks))])
        weights = np.bincount(drawn, minlength=len(objective.log)).astype(float)
        moved = replace(objective)
        moved.__dict__["centre"] = objective.centre + objective.spread * rng.standard_normal(len(best))
        found.append(best + full_step(moved, best, *slopes, weights))
    return np.array(found)


def intervals(objective: Objective, best: np.ndarray, draws: np.ndarray, rests: Sequence[np.ndarray]) -> list[Interval]:
    """One interval per free constant, around `best`.

    Args:
        draws: of `redrawn`.
        rests: other points where searches came to rest, about as good.
    """
    variance = STAIRS**2 * np.mean((draws - np.mean(draws, axis=0)) ** 2, axis=0)
    if len(rests):
        variance = variance + np.mean([(at - best) ** 2 for at in rests], axis=0)
    bounds = objective.bounds
    out = []
    for k, (u, s) in enumerate(zip(best, np.sqrt(variance))):
        half = float(np.expm1(REACH * s))
        at_bound = bool(min(u - bounds[k, 0], bounds[k, 1] - u) < 1e-3)
        identified = half <= WIDE and s < OF_PRIOR * objective.spread[k] and not at_bound
        out.append(Interval(float(np.exp(u - REACH * s)), float(np.exp(u + REACH * s)), half, identified))
    return out
