"""Held-out errors of a model whose terms were chosen, too: groups of rows are kept whole, inside and outside."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from assets.calibration.host_model import HOST_CONSTANTS, LoopRows, fit, predict

FOLDS, OUTER_FOLDS = 6, 4
GAIN = 0.01  # share of both held-out errors, on average, that a term must take away to be taken
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
        terms = select(train, wanted)
        if progress is not None:
            progress(f"terms chosen on {len(train)} rows: {', '.join(terms) or 'none'}")
        return terms

    return _by_fold(rows, fold, chosen)


def select(
    rows: LoopRows, candidates: Sequence[str], *, gain: float = GAIN, most: int = MOST, seed: int = 3
) -> tuple[str, ...]:
    """Terms by forward selection: each time the one that lowers the held-out error most, until none is worth it."""
    scored = _Scored(rows, seed)
    terms: tuple[str, ...] = ()
    best = scored.error(terms)
    while len(terms) < most:
        tried = {name: scored.error((*terms, name)) for name in candidates if name not in terms}
        if not tried:
            break
        name = min(tried, key=lambda each: tried[each])
        if tried[name] > best - gain:
            break
        terms, best = (*terms, name), tried[name]
        scored.keep(terms)
    return terms


class _Scored:
    """Held-out errors of sets of terms on the same rows; each search sets out from the fits of the terms kept."""

    def __init__(self, rows: LoopRows, seed: int) -> None:
        fold = folds(rows.group.tolist(), FOLDS, seed)
        self._sides = [(rows.take(fold != j), rows.take(fold == j)) for j in range(int(fold.max()) + 1)]
        self._kept: list[dict[str, float]] = [{} for _ in self._sides]

    def error(self, terms: Sequence[str]) -> float:
        """Mean of the logarithms of both MAPEs, an odd row counting no more than `ODD`: a twentieth less of one is as
        good as a twentieth less of the other, though TTFT is off by more."""
        off: tuple[list[np.ndarray], list[np.ndarray]] = ([], [])
        for (train, test), start in zip(self._sides, self._kept):
            told = predict(test, fit(train, terms, start=start))
            for each, t, truth in zip(off, told, (test.truth_ttft_ms, test.truth_tpot_ms)):
                known = np.isfinite(truth)
                each.append(np.minimum(np.abs(t[known] / truth[known] - 1), ODD))
        return float(np.mean([np.log(np.concatenate(each).mean()) for each in off]))

    def keep(self, terms: Sequence[str]) -> None:
        """Set out from the fits of these terms from now on."""
        self._kept = [fit(train, terms, start=start) for (train, _), start in zip(self._sides, self._kept)]


def mape(told: np.ndarray, truth: np.ndarray, *, most: float = np.inf) -> float:
    """Mean absolute percentage error of the measured rows, as a share; each counts `most` at most."""
    known = np.isfinite(truth)
    return float(np.mean(np.minimum(np.abs(told[known] / truth[known] - 1), most)))


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
