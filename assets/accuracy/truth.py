"""Measured rows, whatever file they came from, in the columns of table `ground_truth`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from assets.ingest import TraceError
from perf_db.tables import GROUND_TRUTH

DEPLOYMENT, REQUEST, PASS = "deployment", "request", "pass"
UNITS = {"ttft": "ms", "tpot": "ms", "itl": "ms", "e2e": "ms", "output_throughput": "tokens/s", "pass": "ms"}
COLUMNS = GROUND_TRUTH.column_names
NULLABLE = frozenset(c.name for c in GROUND_TRUTH.columns if c.nullable)


class TruthError(TraceError):
    """A file of measurements cannot be used; the message names file, line, field and remedy."""


@dataclass(frozen=True)
class TruthSet:
    """Rows of `ground_truth` under one name.

    Attributes:
        name: of the set.
        rows: one mapping per measured figure, every declared column present.
        recorded: rows of `accuracy` that the file brings along: what other estimators answered.
        set_aside: reason -> rows of the file that could not be read.
        form: which importer read it.
    """

    name: str
    rows: list[dict[str, Any]]
    form: str
    recorded: list[dict[str, Any]] = field(default_factory=list)
    set_aside: dict[str, int] = field(default_factory=dict)

    @property
    def grain(self) -> str:
        return str(self.rows[0]["grain"]) if self.rows else DEPLOYMENT


def truth_row(
    truth_set: str,
    row_id: str,
    metric: str,
    value: float,
    *,
    grain: str,
    statistic: str,
    clock: str,
    group: str,
    source: str,
    source_line: int,
    **columns: Any,
) -> dict[str, Any]:
    """One row of `ground_truth`; columns that are not given are null."""
    given = {
        "truth_set": truth_set,
        "row_id": row_id,
        "grain": grain,
        "metric": metric,
        "statistic": statistic,
        "value": float(value),
        "unit": UNITS[metric],
        "clock": clock,
        "deployment_group": group,
        "source": source,
        "source_line": source_line,
        **columns,
    }
    unknown = given.keys() - set(COLUMNS)
    if unknown:
        raise KeyError(f"ground_truth has no column {', '.join(sorted(unknown))}")
    return {name: given.get(name) for name in COLUMNS}


def request_rows(
    truth_set: str,
    row_id: str,
    figures: Mapping[str, float | None],
    **about: Any,
) -> list[dict[str, Any]]:
    """Rows of one request: a row per figure that is known."""
    return [
        truth_row(truth_set, row_id, metric, value, grain=REQUEST, statistic="value", **about)
        for metric, value in figures.items()
        if value is not None
    ]


def recorded_row(
    row: Mapping[str, Any], predictor: str, value: float | None, *, reason: str | None = None
) -> dict[str, Any]:
    """A row of `accuracy` with what another estimator answered; `reason` where it answered nothing."""
    return predicted_row(row, predictor, value, standing="recorded", reason=reason if value is None else None)


def predicted_row(
    row: Mapping[str, Any],
    predictor: str,
    value: float | None,
    *,
    standing: str,
    reason: str | None = None,
    provisional: bool = False,
    extrapolated_share: float | None = None,
    evidence: Mapping[str, Any] | None = None,
    snapshot: str | None = None,
) -> dict[str, Any]:
    """A row of `accuracy`: what `predictor` says of a row of `ground_truth`, None for the `reason` given."""
    return {
        "truth_set": row["truth_set"],
        "predictor": predictor,
        "row_id": row["row_id"],
        "metric": row["metric"],
        "statistic": row["statistic"],
        "truth": row["value"],
        "prediction": value,
        "signed_error": None if value is None else value / row["value"] - 1,
        "standing": standing,
        "reason": reason,
        "provisional": provisional,
        "extrapolated_share": extrapolated_share,
        "evidence_json": None if evidence is None else json.dumps(evidence, sort_keys=True),
        "snapshot": snapshot,
    }


def throughput_row(truth_set: str, rows: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Output tokens per second of a whole log, from the first arrival to the last token; None where it cannot be told.

    A row of grain deployment: no single request has a throughput.
    """
    requests = [row for row in rows if row["grain"] == REQUEST and row["metric"] == "e2e"]
    told = {row["metric"] for row in rows if row["grain"] == DEPLOYMENT}
    known = all(row["arrival_ns"] is not None and row["output_tokens"] for row in requests)
    if len(requests) < 2 or not known or "output_throughput" in told:
        return None
    end_ns = max(row["arrival_ns"] + row["value"] * 1e6 for row in requests)
    lasting_s = (end_ns - min(row["arrival_ns"] for row in requests)) / 1e9
    made = sum(row["output_tokens"] for row in requests)
    columns = ("model", "model_family", "system", "backend", "backend_version", "tp", "concurrency", "measured_on")
    first = requests[0]
    return truth_row(
        truth_set, "whole-log", "output_throughput", made / lasting_s, grain=DEPLOYMENT, statistic="mean",
        clock=first["clock"], group=first["deployment_group"], source=first["source"],
        source_line=first["source_line"], **{name: first[name] for name in columns},
    )  # fmt: skip


def figures_of(rows: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, Mapping[str, Any]]]:
    """row_id -> metric -> row."""
    found: dict[str, dict[str, Mapping[str, Any]]] = {}
    for row in rows:
        found.setdefault(row["row_id"], {})[row["metric"]] = row
    return found
