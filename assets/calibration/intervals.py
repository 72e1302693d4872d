"""How far the data pin a constant down.

The fit is repeated on requests drawn with replacement, each time with priors moved by a draw of their own spread. What
the data decide stays put; what only the prior decides moves as far as the prior does. The scatter of the logarithms
gives the interval, by Student's t for the number of repetitions.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from assets.calibration.objective import Objective
from assets.calibration.search import SIMPLEX, descend

LEVEL = 0.95
WIDE = 0.25  # half-width of an interval, as a share, from which on a constant is not called known
OF_PRIOR = 0.5  # share of its prior's spread from which on the prior, not the data, says what it is
STEPS = 400


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


def intervals(objective: Objective, best: np.ndarray, *, repeats: int, seed: int) -> list[Interval]:
    """One interval per free constant, around `best`."""
    from scipy.stats import t

    rng = np.random.default_rng(seed)
    compared = np.flatnonzero(objective.rows)
    centre = objective.centre.copy()
    found = []
    for _ in range(repeats):
        drawn = rng.choice(compared, len(compared))
        weights = np.bincount(drawn, minlength=len(objective.log)).astype(float)
        objective.__dict__["centre"] = centre + objective.spread * rng.standard_normal(len(centre))
        try:
            at, _ = descend(lambda u, w=weights: objective(u, w), best, SIMPLEX, most=STEPS)  # type: ignore[misc]
        finally:
            objective.__dict__["centre"] = centre
        found.append(at)
    scatter = np.std(found, axis=0, ddof=1)
    reach = float(t.ppf((1 + LEVEL) / 2, repeats - 1))
    bounds = objective.bounds
    out = []
    for k, (u, s) in enumerate(zip(best, scatter)):
        half = float(np.expm1(reach * s))
        at_bound = bool(min(u - bounds[k, 0], bounds[k, 1] - u) < 1e-3)
        identified = half <= WIDE and s < OF_PRIOR * objective.spread[k] and not at_bound
        out.append(Interval(float(np.exp(u - reach * s)), float(np.exp(u + reach * s)), half, identified))
    return out
