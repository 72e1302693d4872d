"""The best constants of an objective that is a staircase: schedules jump when a boundary passes an arrival."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

# A step below half a percent sees only the stairs.
SIMPLEX = 0.1
GENERATIONS, MEMBERS = 60, 8
ENOUGH = 1e-4


def search(
    objective: Callable[[np.ndarray], float], centre: np.ndarray, reach: np.ndarray, *, seed: int
) -> tuple[np.ndarray, float]:
    """Differential evolution over `centre` ± `reach`, then the simplex method from its best.

    Stops early where a generation's members agree.

    Returns:
        The best point and its objective.
    """
    from scipy.optimize import differential_evolution

    box = list(zip(centre - reach, centre + reach))
    wide = differential_evolution(
        objective, box, maxiter=GENERATIONS, popsize=MEMBERS, seed=seed, polish=False, tol=1e-3, init="sobol"
    )
    near = descend(objective, wide.x, SIMPLEX)
    again = descend(objective, near[0], 2 * SIMPLEX)  # a fresh simplex leaves a step that the first one got stuck on
    return min((near, again), key=lambda each: each[1])


def descend(
    objective: Callable[[np.ndarray], float], start: np.ndarray, simplex: float, *, most: int = 1_000
) -> tuple[np.ndarray, float]:
    """The simplex method from `start`, with a first simplex of that size."""
    from scipy.optimize import minimize

    corners = np.vstack([start, start + simplex * np.eye(len(start))])
    found = minimize(
        objective,
        start,
        method="Nelder-Mead",
        options={"maxfev": most, "xatol": 1e-3, "fatol": ENOUGH, "initial_simplex": corners, "adaptive": True},
    )
    return found.x, float(found.fun)
