"""Tables of measured deployments (parquet or CSV): one run per row, with its mean TTFT and TPOT.

A run that was published twice repeats another to four digits under the same model family and system; it is kept, names
the row it repeats in `repeat_of`, and is scored once. Predictions of another estimator in a file beside it
(`peer_baseline*.csv`) come along as recorded answers.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, TypeGuard

from assets.accuracy.importers.about import About
from assets.accuracy.truth import DEPLOYMENT, TruthError, TruthSet, recorded_row, truth_row

FIGURES = {"ttft": "silicon_ttft_ms", "tpot": "silicon_tpot_ms"}
# Read where a table has them.
MORE_FIGURES = {"itl": "silicon_itl_ms", "e2e": "silicon_e2e_ms", "output_throughput": "silicon_output_tokens_per_s"}
NEEDED = ("id", "backend", "model_path", "system", "isl", "osl", *FIGURES.values())
LABELS = {
    "model": "model_path",
    "model_family": "model_family",
    "system": "system",
    "backend": "backend",
    "backend_version": "backend_version",
    "mode": "mode",
    "precision": "precision",
    "gemm_quant": "gemm_quant_mode",
    "moe_quant": "moe_quant_mode",
    "tp": "tp_size",
    "pp": "pp_size",
    "attention_dp": "attention_dp_size",
    "moe_tp": "moe_tp_size",
    "moe_ep": "moe_ep_size",
    "prompt_tokens": "isl",
    "output_tokens": "osl",
    "origin": "origin",
    "measured_on": "measured_on",
}
TEXTS = (
    *("id", "group", "model_path", "model_family", "system", "backend", "backend_version", "mode", "precision"),
    *("gemm_quant_mode", "moe_quant_mode", "origin", "measured_on"),
)
PEER = "peer_baseline*.csv"
# Recorded predictors: the name in `accuracy`, and the columns that hold its answers.
RECORDED = {
    "reference_silicon": {"ttft": "predicted_ttft_ms", "tpot": "predicted_tpot_ms"},
    "reference_hybrid": {"ttft": "hybrid_ttft_ms", "tpot": "hybrid_tpot_ms"},
}
DIGITS = 4


def recognise(path: Path, head: bytes) -> bool:
    if path.suffix == ".csv":
        return FIGURES["ttft"].encode() in head.splitlines()[0] if head.strip() else False
    if path.suffix != ".parquet":
        return False
    import pyarrow.parquet as pq

    return FIGURES["ttft"] in pq.read_schema(path).names


def read(path: Path, about: About) -> TruthSet:
    """
    Raises:
        TruthError: a column is missing, or a label names no deployment.
    """
    found = _table(path)
    missing = [name for name in NEEDED if name not in found[0]] if found else []
    if missing:
        raise TruthError(f"{path}: column {', '.join(missing)} is missing; it has {', '.join(found[0])}")
    rows: list[dict[str, Any]] = []
    unusable = 0
    repeats = _repeats(found)
    for line, run in enumerate(found, 1):
        figures = {name: run.get(field) for name, field in (FIGURES | MORE_FIGURES).items()}
        usable = {k: float(v) for k, v in figures.items() if _is_measured(v)}
        if not usable:
            unusable += 1
            continue
        labels = {name: run.get(field) for name, field in LABELS.items()}
        for metric, value in usable.items():
            rows.append(
                truth_row(
                    about.truth_set,
                    str(run["id"]),
                    metric,
                    value,
                    grain=DEPLOYMENT,
                    statistic="mean",
                    clock="client",
                    group=str(run.get("group") or _deployment(run)),
                    source=path.name,
                    source_line=line,
                    repeat_of=repeats.get(str(run["id"])),
                    concurrency=_clients(run),
                    **{k: v or None for k, v in labels.items()},
                )
            )
    aside = {"not_measured": unusable} if unusable else {}
    return TruthSet(about.truth_set, rows, "silicon", recorded=_recorded(path, rows), set_aside=aside)


def _clients(run: dict[str, Any]) -> int | None:
    """Clients of one engine: batch x ranks where the clients are not given, or are the sum over several engines."""
    clients, batch = run.get("concurrency"), run.get("batch_size")
    of_engine = batch * max(run.get("attention_dp_size") or 1, 1) if batch else None
    return of_engine if of_engine and (not clients or of_engine < clients) else clients or None


def _table(path: Path) -> list[dict[str, Any]]:
    import polars as pl

    try:
        if path.suffix == ".csv":
            # A version such as 0.20 is no number.
            known = pl.read_csv(path, n_rows=0).columns
            texts = {name: pl.String for name in TEXTS if name in known}
            frame = pl.read_csv(path, infer_schema_length=None, schema_overrides=texts)
        else:
            frame = pl.read_parquet(path)
    except pl.exceptions.PolarsError as error:
        raise TruthError(f"{path}: cannot be read as a table ({error})") from error
    return frame.to_dicts()


def _deployment(run: dict[str, Any]) -> str:
    """What no two deployments share."""
    names = [f for f in LABELS.values() if f not in ("isl", "osl", "origin", "measured_on")]
    return "|".join(str(run.get(name) or "") for name in names)


def _repeats(runs: list[dict[str, Any]]) -> dict[str, str]:
    """id -> the run it repeats. Of repeats the first by origin, attention-DP ranks and id stands for all."""
    kept: dict[tuple[Any, ...], str] = {}
    found = {}
    ranked = sorted(
        runs,
        key=lambda r: (r.get("mode") or "", r.get("origin") or "", r.get("attention_dp_size") or -1, str(r["id"])),
    )
    for run in ranked:
        values = tuple(_rounded(run.get(field)) for field in FIGURES.values())
        if None in values:
            continue
        family = run.get("model_family") or run["model_path"]
        key = (*values, family, run["system"], run["backend"], run.get("mode"))
        first = kept.setdefault(key, str(run["id"]))
        if first != str(run["id"]):
            found[str(run["id"])] = first
    return found


def _is_measured(value: Any) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and math.isfinite(value) and value > 0


def _rounded(value: Any) -> float | None:
    return float(f"{value:.{DIGITS - 1}e}") if isinstance(value, int | float) and math.isfinite(value) else None


def _recorded(path: Path, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Answers of other estimators, as rows of `accuracy`."""
    files = sorted(path.parent.glob(PEER))
    if not files:
        return []
    answers = {str(row["id"]): row for row in _table(files[0])}
    found = []
    for predictor, fields in RECORDED.items():
        for row in rows:
            answer = answers.get(row["row_id"])
            if answer is None or row["metric"] not in fields:
                continue
            value = answer.get(fields[row["metric"]])
            if predictor == "reference_hybrid" and value is None:  # written only where the other mode refuses
                value = answer.get(RECORDED["reference_silicon"][row["metric"]])
            told = float(value) if _is_measured(value) else None
            found.append(recorded_row(row, predictor, told, reason="refused_by_estimator"))
    return found
