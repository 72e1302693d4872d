"""Statistics of many latencies, exact: the answer does not depend on the order of the samples.

Nanoseconds are whole numbers, so their sums and squares are taken in integers. Quotients (TPOT, rates) are doubles;
their sum is taken exactly and rounded once, like `math.fsum`, but on arrays.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from typing import NamedTuple

import numpy as np

PERCENTILES = {"median": 50, "p75": 75, "p90": 90, "p95": 95, "p99": 99}

# Samples are cut into limbs so small that a chunk of products, added as doubles, stays below 2**53 and is exact.
_CHUNK = 1 << 15  # short enough to stay in the processor's cache
_INT_LIMB = 15
_FLOAT_LIMB = 24


class Distribution(NamedTuple):
    """Figures of one metric; every field but `n` is None where there is no sample. Rule MR-5."""

    n: int
    mean: float | None = None
    min: float | None = None
    max: float | None = None
    median: float | None = None
    p75: float | None = None
    p90: float | None = None
    p95: float | None = None
    p99: float | None = None
    std: float | None = None

    def stats(self) -> dict[str, float | None]:
        """Everything but the count, by name."""
        return dict(zip(self._fields[1:], self[1:], strict=True))


NOTHING = Distribution(0)


def rank(n: int, percentile: int) -> int:
    """Index of a percentile among n sorted values: (n - 1) * p / 100, halves up, no interpolation (rule MR-6)."""
    return (2 * (n - 1) * percentile + 100) // 200


def exact_int_sum(values: np.ndarray) -> int:
    """Sum of int64 values, which may exceed 64 bits."""
    if not len(values):
        return 0
    if max(abs(int(values.min())), abs(int(values.max()))) < 2**62 // len(values):
        return int(values.sum())
    return sum((int((part >> 32).sum()) << 32) + int((part & 0xFFFFFFFF).sum()) for part, _ in _chunks(values, None, 0))


def exact_square_sum(values: np.ndarray, weights: np.ndarray | None = None) -> int:
    """Sum of weight * value**2 over non-negative int64 values, which usually exceeds 64 bits."""
    total = 0
    for part, weight in _chunks(values, weights, 2 * _INT_LIMB):
        limbs = []
        for _ in range(-(-int(part.max()).bit_length() // _INT_LIMB)):
            limbs.append((part & ((1 << _INT_LIMB) - 1)).astype(np.float64))
            part = part >> _INT_LIMB
        for i, left in enumerate(limbs):
            left = left if weight is None else left * weight
            for j in range(i, len(limbs)):
                both = int(np.dot(left, limbs[j]))
                total += both << (_INT_LIMB * (i + j) + (j > i))
    return total


def exact_float_sum(values: np.ndarray, weights: np.ndarray | None = None) -> float:
    """Sum of weight * value over finite doubles, rounded once."""
    total = Fraction(0)
    for part, weight in _chunks(values, weights, _FLOAT_LIMB):
        # Scaling by a power of two, cutting off whole numbers and the rest of the cut are all exact.
        scale = _FLOAT_LIMB - math.frexp(max(abs(float(part.min())), abs(float(part.max()))))[1]
        rest = np.ldexp(part, scale)
        while rest.any():
            whole = np.trunc(rest)
            rest -= whole
            added = whole.sum() if weight is None else np.dot(whole, weight)
            total += Fraction(int(added)) / Fraction(2) ** scale
            rest = np.ldexp(rest, _FLOAT_LIMB)
            scale += _FLOAT_LIMB
    return float(total)


def _chunks(
    values: np.ndarray, weights: np.ndarray | None, bits: int
) -> Iterator[tuple[np.ndarray, np.ndarray | None]]:
    """Pieces short enough that `bits`-bit numbers times the weights add up below 2**53."""
    if weights is None:
        for at in range(0, len(values), _CHUNK):
            yield values[at : at + _CHUNK], None
        return
    step = min(_CHUNK, 1 << max(0, 53 - bits - int(weights.max(initial=1)).bit_length()))
    for at in range(0, len(values), step):
        yield values[at : at + step], weights[at : at + step].astype(np.float64)


def of_ns(values: np.ndarray, unit_ns: int = 1_000_000) -> Distribution:
    """Distribution of non-negative whole nanoseconds, in units of `unit_ns`. Overwrites `values`."""
    n = len(values)
    if n == 0:
        return NOTHING
    least, most = int(values.min()), int(values.max())
    marks = [int(x) / unit_ns for x in _percentiles(values)]
    total = exact_int_sum(values)
    values -= least
    std = _std(n, total - least * n, exact_square_sum(values)) / unit_ns
    return Distribution._make([n, total / (n * unit_ns), least / unit_ns, most / unit_ns, *marks, std])


def of_floats(values: np.ndarray) -> Distribution:
    """Distribution of doubles. Overwrites `values`."""
    n = len(values)
    if n == 0:
        return NOTHING
    least, most = float(values.min()), float(values.max())
    marks = [float(x) for x in _percentiles(values)]
    mean = exact_float_sum(values) / n
    values -= mean
    values *= values
    std = math.sqrt(exact_float_sum(values) / n)
    return Distribution._make([n, mean, least, most, *marks, std])


class Weighted(NamedTuple):
    """Samples of which many are equal: whole nanoseconds in ascending order, and how many samples lie at or below."""

    values: np.ndarray
    weights: np.ndarray
    upto: np.ndarray

    @classmethod
    def sorted(cls, values: np.ndarray, weights: np.ndarray, order: np.ndarray | None = None) -> Weighted:
        """Samples counted `weights` (> 0) times each; `order` is the argsort of `values`, if already known."""
        order = np.argsort(values) if order is None else order
        weights = weights[order]
        return cls(values[order], weights, np.cumsum(weights))

    def where(self, mask: np.ndarray) -> Weighted:
        """Only some of the rows."""
        weights = self.weights[mask]
        return Weighted(self.values[mask], weights, np.cumsum(weights))

    def sample(self, index: int) -> int:
        """Sample number `index` in ascending order."""
        return int(self.values[np.searchsorted(self.upto, index, side="right")])


def of_weighted_ns(samples: Weighted, unit_ns: int = 1_000_000) -> Distribution:
    """Distribution of weighted nanoseconds, in units of `unit_ns`."""
    if not len(samples.values):
        return NOTHING
    values, weights = samples.values, samples.weights
    n, least = int(samples.upto[-1]), int(values[0])
    above = values - least
    if int(above[-1]) * int(weights.max()) < 2**62:
        total = exact_int_sum(above * weights)
    else:
        total = sum(a * w for a, w in zip(above.tolist(), weights.tolist()))
    std = _std(n, total, exact_square_sum(above, weights)) / unit_ns
    marks = [samples.sample(rank(n, p)) / unit_ns for p in PERCENTILES.values()]
    mean = (total + least * n) / (n * unit_ns)
    return Distribution._make([n, mean, least / unit_ns, int(values[-1]) / unit_ns, *marks, std])


def of_weighted_rates(samples: Weighted) -> Distribution:
    """Distribution of 1 / gap in 1/s, over the gaps that are not zero."""
    zeros = int(np.searchsorted(samples.values, 0, side="right"))
    values, weights = samples.values[zeros:], samples.weights[zeros:]
    if not len(values):
        return NOTHING
    skipped = int(samples.upto[zeros - 1]) if zeros else 0
    n = int(samples.upto[-1]) - skipped
    rates = 1e9 / values
    mean = exact_float_sum(rates, weights) / n
    least, most = float(rates[-1]), float(rates[0])
    rates -= mean
    rates *= rates
    std = math.sqrt(exact_float_sum(rates, weights) / n)
    # The largest gap is the smallest rate, so ranks count from the other end.
    marks = [1e9 / samples.sample(skipped + n - 1 - rank(n, p)) for p in PERCENTILES.values()]
    return Distribution._make([n, mean, least, most, *marks, std])


def _percentiles(values: np.ndarray) -> list:
    """The marks of PERCENTILES. Partially sorts `values` in place: a third of the price of sorting."""
    ranks = [rank(len(values), p) for p in PERCENTILES.values()]
    values.partition(ranks)
    return [values[k] for k in ranks]


def _std(n: int, total: int, squares: int) -> float:
    return math.sqrt((n * squares - total * total) / (n * n))
