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
_CHUNK = 1 << 13  # fits the processor's cache, and is too short for BLAS to start threads on
_INT_LIMB = 15
_FLOAT_LIMB = 24
_BUCKET_BITS = 13  # of the first look at a percentile
_FEW = 4096  # values that may as well be sorted


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


def select(values: np.ndarray, ranks: list[int], weights: np.ndarray | None = None) -> list[int]:
    """Samples number `ranks` in ascending order, without sorting.

    Args:
        values: int64, at least one.
        ranks: indices below the number of samples.
        weights: how many samples each value stands for (> 0); None: one.
    """
    least, most = int(values.min()), int(values.max())
    shift = max(0, (most - least).bit_length() - _BUCKET_BITS)
    bucket = values - least
    bucket >>= shift
    upto = np.cumsum(np.bincount(bucket, weights)).astype(np.int64)
    found = np.searchsorted(upto, ranks, side="right").tolist()
    if shift == 0:
        return [least + b for b in found]
    answer = dict.fromkeys(ranks, 0)
    for b in set(found):
        inside = bucket == b
        below = int(upto[b - 1]) if b else 0
        here = [k for k, bucket_of_k in zip(ranks, found) if bucket_of_k == b]
        part, weight = values[inside], None if weights is None else weights[inside]
        if len(part) > _FEW:
            inner = select(part, [k - below for k in here], weight)
        else:
            order = np.argsort(part)
            count = np.arange(1, len(part) + 1) if weight is None else np.cumsum(weight[order])
            inner = [int(part[order[np.searchsorted(count, k - below, side="right")]]) for k in here]
        answer.update(zip(here, inner))
    return [answer[k] for k in ranks]


def of_ns(values: np.ndarray, unit_ns: int = 1_000_000) -> Distribution:
    """Distribution of non-negative whole nanoseconds, in units of `unit_ns`."""
    n = len(values)
    if n == 0:
        return NOTHING
    marks = [x / unit_ns for x in select(values, _ranks(n))]
    least, total = int(values.min()), exact_int_sum(values)
    std = _std(n, total - least * n, exact_square_sum(values - least)) / unit_ns
    return Distribution._make([n, total / (n * unit_ns), least / unit_ns, int(values.max()) / unit_ns, *marks, std])


def of_floats(values: np.ndarray) -> Distribution:
    """Distribution of non-negative doubles."""
    n = len(values)
    if n == 0:
        return NOTHING
    # The bits of non-negative doubles, read as integers, are in the same order.
    marks = np.array(select(values.view(np.int64), _ranks(n)), np.int64).view(np.float64).tolist()
    mean = exact_float_sum(values) / n
    apart = values - mean
    apart *= apart
    std = math.sqrt(exact_float_sum(apart) / n)
    return Distribution._make([n, mean, float(values.min()), float(values.max()), *marks, std])


def of_weighted_ns(values: np.ndarray, weights: np.ndarray, unit_ns: int = 1_000_000) -> Distribution:
    """Distribution of non-negative nanoseconds of which each stands for `weights` (> 0) samples."""
    if not len(values):
        return NOTHING
    n, least, most = int(weights.sum()), int(values.min()), int(values.max())
    above = values - least
    if (most - least) * int(weights.max()) < 2**62:
        total = exact_int_sum(above * weights)
    else:
        total = sum(a * w for a, w in zip(above.tolist(), weights.tolist()))
    std = _std(n, total, exact_square_sum(above, weights)) / unit_ns
    marks = [x / unit_ns for x in select(values, _ranks(n), weights)]
    return Distribution._make([n, (total + least * n) / (n * unit_ns), least / unit_ns, most / unit_ns, *marks, std])


def of_weighted_rates(values: np.ndarray, weights: np.ndarray) -> Distribution:
    """Distribution of 1 / gap in 1/s, over the weighted gaps that are not zero."""
    if len(values) and values.min() == 0:
        values, weights = values[values > 0], weights[values > 0]
    if not len(values):
        return NOTHING
    n = int(weights.sum())
    rates = 1e9 / values
    mean, least, most = exact_float_sum(rates, weights) / n, float(rates.min()), float(rates.max())
    rates -= mean
    rates *= rates
    std = math.sqrt(exact_float_sum(rates, weights) / n)
    # The largest gap is the smallest rate, so ranks count from the other end.
    marks = [1e9 / x for x in select(values, [n - 1 - k for k in _ranks(n)], weights)]
    return Distribution._make([n, mean, least, most, *marks, std])


def _ranks(n: int) -> list[int]:
    return [rank(n, p) for p in PERCENTILES.values()]


def _std(n: int, total: int, squares: int) -> float:
    return math.sqrt((n * squares - total * total) / (n * n))
