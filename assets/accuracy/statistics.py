"""Error figures of predictions against measurements, with intervals over deployment groups.

All errors are shares (0.1 = 10 %). An absolute percentage error (APE) is |prediction / truth - 1|; bias is
median(prediction / truth) - 1, so it has a sign and no outlier moves it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

RESAMPLES = 1_000
LEVEL = 0.95


@dataclass(frozen=True, slots=True)
class Figure:
    """One figure and the interval that resampling whole groups gives it; None where there are too few groups."""

    value: float | None
    low: float | None = None
    high: float | None = None

    def as_json(self) -> dict[str, float | None]:
        return {"value": self.value, "low": self.low, "high": self.high}


@dataclass(frozen=True, slots=True)
class ErrorFigures:
    """What the errors of a set of rows say together.

    Attributes:
        n_rows: rows that were measured.
        n_answered: rows with a prediction.
        n_groups: deployment groups among the answered rows.
        mape, median_ape, p90_ape, bias: as the module says; over answered rows.
        balanced_mape: mean over models of each model's MAPE, so that a model with many rows counts once.
        total_error: sum of predictions / sum of truths - 1.
    """

    n_rows: int
    n_answered: int
    n_groups: int
    mape: Figure
    median_ape: Figure
    p90_ape: Figure
    bias: Figure
    balanced_mape: Figure
    total_error: Figure

    @property
    def coverage(self) -> float | None:
        return self.n_answered / self.n_rows if self.n_rows else None

    def as_json(self) -> dict[str, Any]:
        figures = ("mape", "median_ape", "p90_ape", "bias", "balanced_mape", "total_error")
        counts = {"n_rows": self.n_rows, "n_answered": self.n_answered, "n_groups": self.n_groups}
        return {**counts, "coverage": self.coverage, **{name: getattr(self, name).as_json() for name in figures}}


def error_figures(
    truth: np.ndarray,
    prediction: np.ndarray,
    groups: Sequence[Any],
    models: Sequence[Any],
    *,
    n_rows: int | None = None,
    seed: int = 1,
    resamples: int = RESAMPLES,
) -> ErrorFigures:
    """Figures of answered rows.

    Args:
        truth, prediction: shape (n,), positive.
        groups: n labels; a resample draws whole groups with replacement.
        models: n labels for the balanced mean.
        n_rows: measured rows, those without a prediction included; None: n.
    """
    n = len(truth)
    if not n:
        none = Figure(None)
        return ErrorFigures(n_rows or 0, 0, 0, none, none, none, none, none, none)
    ratio = np.asarray(prediction, float) / np.asarray(truth, float)
    codes, n_groups = _codes(groups)
    model_codes, n_models = _codes(models)
    weights = _resampled(n_groups, resamples, seed)[:, codes] if n_groups > 1 else np.zeros((0, n))
    weights = np.vstack([np.ones((1, n)), weights])  # row 0: the rows as they are
    ape = np.abs(ratio - 1)
    count = weights.sum(1)
    figures = {
        "mape": weights @ ape / count,
        "median_ape": _weighted_quantile(ape, weights, 0.5),
        "p90_ape": _weighted_quantile(ape, weights, 0.9),
        "bias": _weighted_quantile(ratio, weights, 0.5) - 1,
        "balanced_mape": _balanced(ape, weights, model_codes, n_models),
        "total_error": (weights @ np.asarray(prediction, float)) / (weights @ np.asarray(truth, float)) - 1,
    }
    return ErrorFigures(
        n_rows=n if n_rows is None else n_rows,
        n_answered=n,
        n_groups=n_groups,
        **{name: _figure(values) for name, values in figures.items()},
    )


def distances(truth: np.ndarray, prediction: np.ndarray) -> dict[str, float]:
    """How far two distributions of one latency lie apart, whichever request had which value.

    Returns:
        ks: largest difference of the two cumulative shares (0 to 1).
        wasserstein: mean shift of mass, as a share of the mean truth.
    """
    from scipy.stats import ks_2samp, wasserstein_distance

    if not len(truth) or not len(prediction):
        return {}
    moved = float(wasserstein_distance(truth, prediction)) / float(np.mean(truth))
    return {"ks": float(ks_2samp(truth, prediction, method="asymp").statistic), "wasserstein": moved}


def loaded_half(arrival_ns: np.ndarray, end_ns: np.ndarray) -> np.ndarray:
    """Which requests met more company on arrival than the median request did: shape (n,), bool.

    Company of a request is the number of others that had arrived and not ended.
    """
    began, ended = np.sort(arrival_ns), np.sort(end_ns)
    company = np.searchsorted(began, arrival_ns, "left") - np.searchsorted(ended, arrival_ns, "right")
    return company > np.median(company)


def _codes(labels: Sequence[Any]) -> tuple[np.ndarray, int]:
    order: dict[Any, int] = {}
    codes = np.array([order.setdefault(label, len(order)) for label in labels], np.int64)
    return codes, len(order)


def _resampled(n_groups: int, resamples: int, seed: int) -> np.ndarray:
    """How often each group is drawn in each resample: shape (resamples, n_groups)."""
    rng = np.random.default_rng(seed)
    return rng.multinomial(n_groups, np.full(n_groups, 1 / n_groups), size=resamples).astype(float)


def _weighted_quantile(values: np.ndarray, weights: np.ndarray, share: float) -> np.ndarray:
    """Value at rank (n - 1) * share of the rows repeated by their weights, halves up; shape (len(weights),)."""
    order = np.argsort(values, kind="stable")
    below = np.cumsum(weights[:, order], axis=1)
    rank = np.floor((below[:, -1] - 1) * share + 0.5)
    place = (below <= rank[:, None]).sum(axis=1)
    return values[order][np.minimum(place, len(values) - 1)]


def _balanced(ape: np.ndarray, weights: np.ndarray, codes: np.ndarray, n_models: int) -> np.ndarray:
    member = np.zeros((len(ape), n_models))
    member[np.arange(len(ape)), codes] = 1
    sums, counts = (weights * ape) @ member, weights @ member
    with np.errstate(invalid="ignore", divide="ignore"):
        means = sums / counts
    return np.nanmean(np.where(counts > 0, means, np.nan), axis=1)


def _figure(values: np.ndarray) -> Figure:
    if len(values) < 2:
        return Figure(float(values[0]))
    low, high = np.quantile(values[1:], [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Figure(float(values[0]), float(low), float(high))
