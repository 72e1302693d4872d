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
        return None if times is None else self._compared(*times)

    def _compared(self, first: np.ndarray, last: np.ndarray) -> np.ndarray:
        log = self.log
        apart = (first - log.first_s, last - log.last_s, (last - first) - (log.last_s - log.first_s))
        # A request that got no token in the replay is as wrong as can be.
        return np.array(
            [
                np.where(scale > 0, np.nan_to_num(difference * scale, nan=WORST), 0.0)
                for difference, scale in zip(apart, self._scales())
            ]
        )

    def _scales(self) -> np.ndarray:
        """Residual per second of difference, shape (3, n); 0 where nothing is compared."""
        log = self.log
        decoding = self.rows & (log.output_tokens > FEW_TOKENS)
        parts = (
            (log.ttft_s, self.rows, 1.0),
            (log.e2e_s, self.rows, LATENCY_WEIGHT),
            (log.last_s - log.first_s, decoding, LATENCY_WEIGHT),
        )
        return np.array([compared * weight / np.hypot(self.pass_s, JITTER * size) for size, compared, weight in parts])

    def n_compared(self, weights: np.ndarray | None = None) -> float:
        """Residuals that count, requests by their weights."""
        per_request = self.rows * 2 + (self.rows & (self.log.output_tokens > FEW_TOKENS))
        return float(per_request.sum() if weights is None else per_request @ weights)

    def slopes(self, u: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
        """(residuals, shape (3, n); their slopes in the logarithms of the free constants, shape (3, n, free)), as long
        as the schedule stays the same. None if the replay cannot be completed."""
        timing = self.timing(u)
        found = self.replayer.traced(timing)
        if found is None:
            return None
        residuals = self._compared(found.first_s, found.last_s)
        gains = pass_slopes(timing, found.held)[self.free]
        # What has been gained by a moment: within a pass it grows with time, between passes it stays.
        moments = np.stack([found.start_s, found.end_s], axis=1).reshape(-1)
        grown = np.repeat(np.cumsum(gains, axis=1), 2, axis=1)
        grown[:, 0::2] -= gains

        def by(moment: np.ndarray) -> np.ndarray:
            known = np.nan_to_num(moment)
            return np.array([np.interp(known, moments, row) for row in grown]).T

        sent, first, last = (by(t) for t in (self.log.arrival_s, found.first_s, found.last_s))
        spans = (first - sent, last - sent, last - first)
        scaled = [span * scale[:, None] for span, scale in zip(spans, self._scales())]
        return residuals, np.array(scaled)

    def misfit(self, u: np.ndarray, weights: np.ndarray | None = None) -> float:
        """Mean absolute residual.

        Args:
            weights: shape (n,), how often each request counts; None: once.
        """
        found = self.residuals(u)
        if found is None:
            return WORST
        each = np.abs(found).sum(0)
        return float((each.sum() if weights is None else each @ weights) / max(self.n_compared(weights), 1.0))

    def prior(self, u: np.ndarray) -> float:
        return float(self.pull * np.sum(((u - self.centre) / self.spread) ** 2))

    def __call__(self, u: np.ndarray, weights: np.ndarray | None = None) -> float:
        outside = np.sum(np.clip(self.bounds[:, 0] - u, 0, None) + np.clip(u - self.bounds[:, 1], 0, None))
        return self.misfit(u, weights) + self.prior(u) + float(outside)


def pass_slopes(timing: PassCostTiming, held: np.ndarray) -> np.ndarray:
    """What every pass gains, s, per logarithm of each constant: shape (constants, passes).

    Args:
        held: shape (5, passes), as `replayer.HELD`.
    """
    n, tokens, cached, decoding, kv = held
    prefill, any_work = n > 0, (n + decoding) > 0
    work = timing.token_us * 1e-3 * (tokens + decoding)
    w = timing.weights_ms
    longer = np.maximum((w**4 + work**4) ** 0.75, 1e-30)
    pairs = np.where(prefill, tokens * (cached + 0.5 * tokens) / np.maximum(n, 1), 0.0)
    gains = (
        timing.base_ms * any_work,
        w**4 / longer * any_work,
        work**4 / longer * any_work,
        timing.attention_pair_ns * 1e-6 * pairs,
        timing.decode_request_us * 1e-3 * decoding,
        timing.kv_token_ns * 1e-6 * kv,
        timing.prefill_pass_ms * prefill,
    )
    return np.array(gains) * 1e-3
