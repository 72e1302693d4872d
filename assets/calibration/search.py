"""The best constants of an objective that is a staircase: schedules jump when a boundary passes an arrival.

Differences of the objective see the stairs. So slopes are taken from the passes instead: as long as the schedule stays
the same, a latency is a sum over the passes inside it, and what it gains from a constant is the sum of what those
passes gain. Steps of that kind, from many starts, find the valley; the simplex method goes to its bottom.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from assets.calibration.objective import Objective

STARTS, STEPS = 16, 12
BEST = 2  # starts that the simplex method goes on from
SIMPLEX = 0.08  # of a logarithm; a step below half a percent sees only the stairs
LONGEST = 0.7  # step of one logarithm
ENOUGH = 1e-4


def search(objective: Objective, *, seed: int) -> list[tuple[np.ndarray, float]]:
    """Points where searches came to rest, with their objectives, the best first. Starts are drawn from the priors; the
    first is their centre."""
    rng = np.random.default_rng(seed)
    width = np.minimum(objective.spread, 1.0)
    starts = objective.centre + width * np.vstack([np.zeros(len(width)), rng.standard_normal((STARTS - 1, len(width)))])
    valleys = sorted((step_down(objective, start) for start in starts), key=lambda each: each[1])
    found = [descend(objective, at, SIMPLEX) for at, _ in valleys[:BEST]]
    return sorted([*found, *valleys], key=lambda each: each[1])


def step_down(
    objective: Objective, start: np.ndarray, weights: np.ndarray | None = None, *, steps: int = STEPS
) -> tuple[np.ndarray, float]:
    """Gauss-Newton steps with slopes from the passes, each halved until it helps.

    Args:
        weights: how often each request counts; None: once.
    """
    at, best = start, objective(start, weights)
    for _ in range(steps):
        found = objective.slopes(at)
        if found is None:
            break
        step = full_step(objective, at, *found, weights)
        for _ in range(4):
            there = objective(at + step, weights)
            if there < best:
                break
            step = step / 2
        else:
            break
        gained, at, best = best - there, at + step, there
        if gained < ENOUGH:
            break
    return at, best


def full_step(
    objective: Objective, at: np.ndarray, residuals: np.ndarray, slopes: np.ndarray, weights: np.ndarray | None
) -> np.ndarray:
    """Of the logarithms: towards the least mean absolute residual, the prior included."""
    r, j = residuals.reshape(-1), slopes.reshape(-1, slopes.shape[-1])
    counted = np.ones(len(r)) if weights is None else np.tile(weights, len(residuals))
    # |r| as a weighted square; the floor keeps residuals near zero from ruling the step.
    w = counted / np.maximum(np.abs(r), 0.05) / max(objective.n_compared(weights), 1.0)
    normal = j.T @ (w[:, None] * j) + 2 * objective.pull * np.diag(1 / objective.spread**2)
    pull = j.T @ (w * r) + 2 * objective.pull * (at - objective.centre) / objective.spread**2
    step = -np.linalg.solve(normal + 1e-9 * np.eye(len(at)), pull)
    return np.clip(step, -LONGEST, LONGEST)


def descend(
    objective: Callable[[np.ndarray], float], start: np.ndarray, simplex: float, *, most: int = 350
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
