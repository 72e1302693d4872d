"""Held-out errors of a model whose terms were chosen, too: groups of rows are kept whole, inside and outside."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from assets.calibration.host_model import HOST_CONSTANTS, LoopRows, fit, predict

FOLDS, OUTER_FOLDS = 6, 4
GAIN = 0.0015  # a term must lower the sum of both held-out MAPEs by so much to be taken
OUTER_GAIN = 0.002
MOST = 8
ODD = 1.0  # APE from which on a row weighs no more: a run labelled wrongly must not choose terms


def folds(groups: Sequence[str], k: int, seed: int) -> np.ndarray:
    """Fold of every row, shape (n,): whole groups, the largest first into the smallest fold; `seed` orders equals."""
    names, sizes = np.unique(np.asarray(groups), return_counts=True)
    order = np.random.default_rng(seed).permutation(len(names))
    ranked = order[np.argsort(-sizes[order], kind="stable")]
    filled, fold = np.zeros(k), {}
    for i in ranked:
        smallest = int(filled.argmin())
        fold[names[i]] = smallest
        filled[smallest] += sizes[i]
    return np.array([fold[g] for g in groups])


@dataclass(frozen=True, slots=True, eq=False)
class HeldOut:
    """Predictions of rows by constants that never saw their group.

    Attributes:
        ttft_ms, tpot_ms: shape (n,).
        fold: shape (n,).
        terms: of every fold.
        constants: of every fold.
    """

    ttft_ms: np.ndarray
    tpot_ms: np.ndarray
    fold: np.ndarray
    terms: list[tuple[str, ...]]
    constants: list[dict[str, float]]


def held_out(rows: LoopRows, terms: Sequence[str], *, k: int = FOLDS, seed: int = 3) -> HeldOut:
    """Cross-validated predictions with given terms."""
    fold = folds(rows.group.tolist(), k, seed)
    return _by_fold(rows, fold, lambda train: tuple(terms))


def nested(
    rows: LoopRows,
    candidates: Sequence[str] | None = None,
    *,
    k: int = OUTER_FOLDS,
    seed: int = 11,
    progress: Callable[[str], None] | None = None,
) -> HeldOut:
    """Cross-validated predictions whose terms were chosen without the scored groups as well."""
    fold = folds(rows.group.tolist(), k, seed)
    wanted = tuple(candidates or HOST_CONSTANTS)

    def chosen(train: LoopRows) -> tuple[str, ...]:
        terms = select(train, wanted, gain=OUTER_GAIN)
        if progress is not None:
            progress(f"terms chosen on {len(train)} rows: {', '.join(terms) or 'none'}")
        return terms

    return _by_fold(rows, fold, chosen)


def select(
    rows: LoopRows, candidates: Sequence[str], *, gain: float = GAIN, most: int = MOST, seed: int = 3
) -> tuple[str, ...]:
    """Terms by forward selection: each time the one that lowers the held-out error most, until none is worth it."""
    terms: tuple[str, ...] = ()
    best = _score(rows, terms, seed)
    while len(terms) < most:
        tried = {name: _score(rows, (*terms, name), seed) for name in candidates if name not in terms}
        if not tried:
            break
        name = min(tried, key=lambda each: tried[each])
        if tried[name] > best - gain:
            break
        terms, best = (*terms, name), tried[name]
    return terms


def mape(told: np.ndarray, truth: np.ndarray, *, most: float = np.inf) -> float:
    """Mean absolute percentage error of the measured rows, as a share; each counts `most` at most."""
    known = np.isfinite(truth)
    return float(np.mean(np.minimum(np.abs(told[known] / truth[known] - 1), most)))


def _score(rows: LoopRows, terms: tuple[str, ...], seed: int) -> float:
    found = held_out(rows, terms, seed=seed)
    pairs = ((found.ttft_ms, rows.truth_ttft_ms), (found.tpot_ms, rows.truth_tpot_ms))
    return sum(mape(told, truth, most=ODD) for told, truth in pairs)


def _by_fold(rows: LoopRows, fold: np.ndarray, choose: Callable[[LoopRows], tuple[str, ...]]) -> HeldOut:
    ttft, tpot = np.zeros(len(rows)), np.zeros(len(rows))
    terms, constants = [], []
    for j in range(int(fold.max()) + 1):
        train = rows.take(fold != j)
        chosen = choose(train)
        fitted = fit(train, chosen)
        ttft[fold == j], tpot[fold == j] = predict(rows.take(fold == j), fitted)
        terms.append(chosen)
        constants.append(fitted)
    return HeldOut(ttft, tpot, fold, terms, constants)
