"""How wrong a replay of a log is, in units of what the log can tell.

A recorded time lies on a pass boundary of an engine whose passes jitter, so it is known to about one pass, plus a share
of the latency over which jitter adds up. Differences are divided by that; their mean absolute value is the objective,
which a few requests that another schedule served do not dominate.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from assets.calibration.constants import NAMES, Constant
from assets.calibration.replayer import Replayer
from assets.calibration.request_log import RequestLog
from sim.spec import PassCostTiming

JITTER = 0.01  # share of a latency
LATENCY_WEIGHT = 2.0  # decode and whole latency hold many passes, a first token few
FEW_TOKENS = 8  # decode times of shorter outputs are mostly rounding
WORST = 50.0  # of a replay that cannot be completed, in units of the objective


@dataclass(eq=False)
class Objective:
    """Residuals of the chosen rows of a log under a vector of constants.

    Attributes:
        rows: which requests are compared; all are replayed.
        pull: weight of a prior's squared standardised deviation.
    """

    replayer: Replayer
    log: RequestLog
    constants: tuple[Constant, ...]
    rows: np.ndarray
    pull: float

    @cached_property
    def free(self) -> np.ndarray:
        return np.array([i for i, c in enumerate(self.constants) if c.free])

    @cached_property
    def centre(self) -> np.ndarray:
        """Logarithms of the priors of the free constants."""
        return np.log([self.constants[i].prior for i in self.free])

    @cached_property
    def spread(self) -> np.ndarray:
        return np.array([self.constants[i].spread for i in self.free])

    @cached_property
    def bounds(self) -> np.ndarray:
        """Shape (free, 2), logarithms."""
        return np.log([(self.constants[i].low, self.constants[i].high) for i in self.free])

    @cached_property
    def pass_s(self) -> float:
        return self.log.pass_s(self.rows)

    def values(self, u: np.ndarray) -> np.ndarray:
        """All constants at the logarithms `u` of the free ones."""
        z = np.array([c.prior for c in self.constants])
        z[self.free] = np.exp(np.clip(u, self.bounds[:, 0], self.bounds[:, 1]))
        return z

    def timing(self, u: np.ndarray) -> PassCostTiming:
        return PassCostTiming(**dict(zip(NAMES, self.values(u).tolist())))

    def residuals(self, u: np.ndarray) -> np.ndarray | None:
        """Shape (3, n): first token, whole latency, decode time of every request of the log, in units of what is known;
        0 where nothing is compared. None if the replay cannot be completed."""
        times = self.replayer.times(self.timing(u))
        if times is None:
            return None
        first, last = times
        log = self.log
        decoding = self.rows & (log.output_tokens > FEW_TOKENS)
        parts = (
            (first - log.first_s, log.ttft_s, self.rows, 1.0),
            (last - log.last_s, log.e2e_s, self.rows, LATENCY_WEIGHT),
            ((last - first) - (log.last_s - log.first_s), log.last_s - log.first_s, decoding, LATENCY_WEIGHT),
        )
        found = np.zeros((len(parts), len(log)))
        for k, (difference, size, compared, weight) in enumerate(parts):
            known = np.hypot(self.pass_s, JITTER * size)
            # A request that got no token in the replay is as wrong as can be.
            found[k] = np.where(compared, weight * np.nan_to_num(difference / known, nan=WORST), 0.0)
        return found

    def misfit(self, u: np.ndarray, weights: np.ndarray | None = None) -> float:
        """Mean absolute residual.

        Args:
            weights: shape (n,), how often each request counts; None: once.
        """
        found = self.residuals(u)
        if found is None:
            return WORST
        counted = np.ones(len(self.log)) if weights is None else weights
        n = counted @ (self.rows * 2 + (self.rows & (self.log.output_tokens > FEW_TOKENS)))
        return float(np.abs(found).sum(0) @ counted / max(n, 1.0))

    def prior(self, u: np.ndarray) -> float:
        return float(self.pull * np.sum(((u - self.centre) / self.spread) ** 2))

    def __call__(self, u: np.ndarray, weights: np.ndarray | None = None) -> float:
        outside = np.sum(np.clip(self.bounds[:, 0] - u, 0, None) + np.clip(u - self.bounds[:, 1], 0, None))
        return self.misfit(u, weights) + self.prior(u) + float(outside)
