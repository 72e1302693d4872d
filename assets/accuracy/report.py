"""What predictions and measurements say together: cells, the worst rows, and why some rows have no prediction.

A report is a pure function of rows of `ground_truth` and `accuracy`, so it can be rebuilt from the stored tables, cell
by cell, at any time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from assets.accuracy.statistics import RESAMPLES, ErrorFigures, distances, error_figures, loaded_half
from assets.accuracy.truth import DEPLOYMENT, PASS, REQUEST

Row = Mapping[str, Any]
WORST = 20
LOADS = ((1, 8), (9, 32), (33, 128), (129, None))
PASS_SIZES = ((1, 16), (17, 128), (129, 1024), (1025, None))
OURS = "tracemill"

# How rows are gathered into cells: the name of the slice, and the columns of its label.
SLICES: dict[str, tuple[str, ...]] = {
    "all": (),
    "backend": ("backend",),
    "model": ("backend", "model_family"),
    "system": ("backend", "system"),
    "load": ("backend", "load"),
    "version": ("backend", "backend_version"),
    "backend × model × system × load": ("backend", "model_family", "system", "load"),
}
# Of a predictor's rows by how they were come by: fitted ones say nothing about what is foretold.
STANDING = "standing"


@dataclass(frozen=True)
class Cell:
    """Figures of one slice of the rows, of one predictor and metric."""

    predictor: str
    metric: str
    statistic: str
    slice: str
    label: dict[str, Any]
    figures: ErrorFigures
    provisional: bool = False  # all answers: priced with another engine's scheduler

    def as_json(self) -> dict[str, Any]:
        head = {k: getattr(self, k) for k in ("predictor", "metric", "statistic", "slice", "label", "provisional")}
        return {**head, **self.figures.as_json()}


@dataclass(frozen=True)
class Report:
    """One truth set held against its predictions.

    Attributes:
        grain, grains: the finest one; grain -> rows that are scored.
        cells: figures of slices; in the common slices every predictor is scored on the same rows.
        worst: rows with the largest error of our own, with what the prediction rests on.
        reasons: (predictor, reason) -> rows without a prediction.
        shapes: per-request truth: how far the distributions lie apart, loaded and unloaded halves apart.
        passes: per-pass truth: median signed error by kind of pass and by size.
        repeats: rows that repeat another and are not scored.
        provisional: rows priced with another engine's scheduler.
    """

    truth_set: str
    grain: str
    grains: dict[str, int]
    n_rows: int
    repeats: int
    provisional: int
    cells: list[Cell]
    worst: list[dict[str, Any]]
    reasons: dict[tuple[str, str], int]
    shapes: list[dict[str, Any]]
    passes: list[dict[str, Any]]

    def as_json(self) -> dict[str, Any]:
        return {
            "truth_set": self.truth_set,
            "grain": self.grain,
            "grains": self.grains,
            "n_rows": self.n_rows,
            "repeats_not_scored": self.repeats,
            "provisional": self.provisional,
            "cells": [cell.as_json() for cell in self.cells],
            "worst": self.worst,
            "without_prediction": [
                {"predictor": p, "reason": r, "n_rows": n} for (p, r), n in sorted(self.reasons.items())
            ],
            "distributions": self.shapes,
            "passes": self.passes,
        }

    def cell(self, predictor: str, metric: str, slice_: str = "all", **label: Any) -> Cell | None:
        """The cell of that name, or None. Figures of single requests go before those of all of them together."""
        found = [
            cell
            for cell in self.cells
            if (cell.predictor, cell.metric, cell.slice, cell.label) == (predictor, metric, slice_, label)
        ]
        return min(found, key=lambda cell: cell.statistic != "value", default=None)


def build(
    truth: Sequence[Row],
    accuracy: Sequence[Row],
    *,
    seed: int = 1,
    resamples: int = RESAMPLES,
    keep: Callable[[Row], bool] | None = None,
) -> Report:
    """
    Args:
        truth: rows of `ground_truth` of one set.
        accuracy: rows of `accuracy` about it, of any predictors.
        keep: which rows of the truth to look at; None: all. Repeats are never scored.
    """
    wanted = [row for row in truth if keep is None or keep(row)]
    scored = [row for row in wanted if not row["repeat_of"]]
    about = {(r["row_id"], r["metric"], r["statistic"]): {**r, "load": load_of(r["concurrency"])} for r in scored}
    answers: dict[str, dict[tuple[str, str, str], Row]] = {}
    for row in accuracy:
        key = (row["row_id"], row["metric"], row["statistic"])
        if key in about:
            answers.setdefault(row["predictor"], {})[key] = row
    grains = {grain: sum(row["grain"] == grain for row in scored) for grain in (REQUEST, PASS, DEPLOYMENT)}
    grains = {grain: n for grain, n in grains.items() if n}
    cells = _cells(about, answers, seed, resamples)
    cells += _common(about, answers, seed, resamples)
    ours = answers.get(OURS, {})
    return Report(
        truth_set=str(wanted[0]["truth_set"]) if wanted else "",
        grain=next(iter(grains), DEPLOYMENT),
        grains=grains,
        n_rows=len(scored),
        repeats=len(wanted) - len(scored),
        provisional=sum(bool(row["provisional"]) for row in ours.values()),
        cells=cells,
        worst=_worst(about, answers),
        reasons=_reasons(about, answers),
        shapes=_shapes(_of_grain(about, REQUEST), answers),
        passes=_passes(_of_grain(about, PASS), answers),
    )


def _of_grain(about: Mapping[Any, Row], grain: str) -> dict[Any, Row]:
    return {key: row for key, row in about.items() if row["grain"] == grain}


def load_of(concurrency: int | None) -> str:
    """The bucket of a closed loop's clients."""
    return "unknown" if concurrency is None else bucket(concurrency, LOADS)


def bucket(value: int, bounds: Sequence[tuple[int, int | None]]) -> str:
    for low, high in bounds:
        if high is None or value <= high:
            return f"{low}+" if high is None else f"{low}-{high}"
    raise AssertionError("the last bucket has no end")


def _cells(about: Mapping[Any, Row], answers: Mapping[str, Mapping[Any, Row]], seed: int, n: int) -> list[Cell]:
    cells = []
    for predictor in sorted(answers):
        for name, columns in SLICES.items():
            gathered: dict[tuple[Any, ...], list[Any]] = {}
            for key, row in about.items():
                gathered.setdefault((key[1], key[2], *(row[c] for c in columns)), []).append(key)
            for (metric, statistic, *label), keys in sorted(gathered.items(), key=lambda item: str(item[0])):
                found = answers[predictor]
                told = [found[key] for key in keys if _answered(found.get(key))]
                figures = _figures(keys, about, found, seed, n)
                provisional = bool(told) and all(row["provisional"] for row in told)
                cells.append(Cell(predictor, metric, statistic, name, dict(zip(columns, label)), figures, provisional))
    return [*cells, *_by_standing(about, answers, seed, n)]


def _by_standing(about: Mapping[Any, Row], answers: Mapping[str, Mapping[Any, Row]], seed: int, n: int) -> list[Cell]:
    """Rows by the standing that our predictions have on them, every predictor on the same rows."""
    gathered: dict[tuple[Any, ...], list[Any]] = {}
    for key, row in answers.get(OURS, {}).items():
        gathered.setdefault((key[1], key[2], row["standing"]), []).append(key)
    if len({standing for _, _, standing in gathered}) < 2:
        return []
    return [
        Cell(predictor, metric, statistic, STANDING, {STANDING: standing}, _figures(keys, about, found, seed, n))
        for predictor, found in sorted(answers.items())
        for (metric, statistic, standing), keys in sorted(gathered.items())
    ]


def _common(about: Mapping[Any, Row], answers: Mapping[str, Mapping[Any, Row]], seed: int, n: int) -> list[Cell]:
    """Each other predictor beside ours on the rows that both answer, by backend."""
    cells = []
    for other in sorted(answers.keys() - {OURS}):
        pair = {name: answers[name] for name in (OURS, other) if name in answers}
        if len(pair) < 2:
            continue
        gathered: dict[tuple[Any, ...], list[Any]] = {}
        for key, row in about.items():
            if all(_answered(found.get(key)) for found in pair.values()):
                gathered.setdefault((key[1], key[2], row["backend"]), []).append(key)
        for (metric, statistic, backend), keys in sorted(gathered.items(), key=lambda item: str(item[0])):
            for predictor, found in pair.items():
                figures = _figures(keys, about, found, seed, n)
                label = {"backend": backend, "rows_of": other}
                provisional = all(found[key]["provisional"] for key in keys)
                cells.append(Cell(predictor, metric, statistic, "rows both answer", label, figures, provisional))
    return cells


def _answered(row: Row | None) -> bool:
    return row is not None and row["prediction"] is not None


def _figures(
    keys: Iterable[Any], about: Mapping[Any, Row], found: Mapping[Any, Row], seed: int, n: int
) -> ErrorFigures:
    keys = list(keys)
    good = [key for key in keys if _answered(found.get(key))]
    return error_figures(
        np.array([about[key]["value"] for key in good], float),
        np.array([found[key]["prediction"] for key in good], float),
        [about[key]["deployment_group"] for key in good],
        [about[key]["model_family"] for key in good],
        n_rows=len(keys),
        seed=seed,
        resamples=n,
    )


def _worst(about: Mapping[Any, Row], answers: Mapping[str, Mapping[Any, Row]]) -> list[dict[str, Any]]:
    ours = [(key, row) for key, row in answers.get(OURS, {}).items() if row["signed_error"] is not None]
    ranked = sorted(ours, key=lambda item: (-abs(item[1]["signed_error"]), item[0]))[:WORST]
    shown = (
        *("backend", "backend_version", "model", "system", "tp", "prompt_tokens", "output_tokens", "concurrency"),
        *("n_prefill", "prefill_tokens", "prefill_kv_tokens", "n_decode", "decode_kv_tokens"),
    )
    found = []
    for key, row in ranked:
        others = {name: rows[key]["prediction"] for name, rows in answers.items() if name != OURS and key in rows}
        about_row = about[key]
        found.append(
            {
                "row_id": key[0],
                "metric": key[1],
                **{name: about_row[name] for name in shown},
                **{
                    name: row[name]
                    for name in ("truth", "prediction", "signed_error", "extrapolated_share", "provisional")
                },
                "others": others,
                "evidence": row["evidence_json"],
            }
        )
    return found


def _reasons(about: Mapping[Any, Row], answers: Mapping[str, Mapping[Any, Row]]) -> dict[tuple[str, str], int]:
    counted: dict[tuple[str, str], int] = {}
    for predictor, rows in answers.items():
        for key in about:
            row = rows.get(key)
            if _answered(row):
                continue
            reason = "not_asked" if row is None else str(row["reason"])
            counted[predictor, reason] = counted.get((predictor, reason), 0) + 1
    return counted


def _shapes(about: Mapping[Any, Row], answers: Mapping[str, Mapping[Any, Row]]) -> list[dict[str, Any]]:
    halves = _halves(about)
    found = []
    for predictor, rows in sorted(answers.items()):
        for metric in sorted({key[1] for key in about}):
            keys = [key for key in about if key[1] == metric and _answered(rows.get(key))]
            parts = {"all": keys}
            if halves:
                parts |= {name: [k for k in keys if halves.get(k[0]) == name] for name in ("loaded", "unloaded")}
            for half, members in parts.items():
                truth = np.array([about[key]["value"] for key in members], float)
                told = np.array([rows[key]["prediction"] for key in members], float)
                if len(truth):
                    about_half = {"predictor": predictor, "metric": metric, "half": half, "n_rows": len(truth)}
                    median = float(np.median(np.abs(told / truth - 1)))
                    total = float(told.sum() / truth.sum() - 1)
                    found.append({**about_half, **distances(truth, told), "median_ape": median, "total_error": total})
    return found


def _halves(about: Mapping[Any, Row]) -> dict[str, str]:
    """row_id -> loaded or unloaded, from arrivals and measured latencies; {} where they are not known."""
    lasting = [(key[0], row) for key, row in about.items() if key[1] == "e2e" and row["arrival_ns"] is not None]
    if len(lasting) < 2:
        return {}
    arrival = np.array([row["arrival_ns"] for _, row in lasting], np.int64)
    end = arrival + np.rint(np.array([row["value"] for _, row in lasting]) * 1e6).astype(np.int64)
    loaded = loaded_half(arrival, end)
    return {name: "loaded" if is_loaded else "unloaded" for (name, _), is_loaded in zip(lasting, loaded)}


def pass_tokens(row: Row) -> int:
    """Tokens that a pass computes."""
    return (row["prefill_tokens"] or 0) + (row["n_decode"] or 0)


def pass_kind(row: Row) -> str:
    if row["n_prefill"] and row["n_decode"]:
        return "mixed"
    return "prefill-only" if row["n_prefill"] else "decode-only"


def _passes(about: Mapping[Any, Row], answers: Mapping[str, Mapping[Any, Row]]) -> list[dict[str, Any]]:
    found = []
    for predictor, rows in sorted(answers.items()):
        gathered: dict[tuple[str, str], list[float]] = {}
        for key, row in about.items():
            told = rows.get(key)
            if told is None or told["signed_error"] is None:
                continue
            size = bucket(pass_tokens(row), PASS_SIZES)
            for cell in ((pass_kind(row), "all"), (pass_kind(row), size)):
                gathered.setdefault(cell, []).append(told["signed_error"])
        sizes = ["all", *(bucket(low, PASS_SIZES) for low, _ in PASS_SIZES)]
        for (kind, size), errors in sorted(gathered.items(), key=lambda item: (item[0][0], sizes.index(item[0][1]))):
            spread = {"p10": float(np.quantile(errors, 0.1)), "p90": float(np.quantile(errors, 0.9))}
            head = {"predictor": predictor, "kind": kind, "tokens": size, "n_rows": len(errors)}
            found.append({**head, "median_signed_error": float(np.median(errors)), **spread})
    return found
