"""Accuracy as assets: measurements, the constants fitted to them, and predictions beside them, a partition per set."""

# No `from __future__ import annotations`: Dagster resolves the annotations of an asset's parameters itself.

from pathlib import Path
from typing import Any

import dagster as dg
from pydantic import ConfigDict, Field

from assets.accuracy import watch
from assets.accuracy.drift import drift_text
from assets.accuracy.registry import Watched, recall
from assets.accuracy.report import OURS
from assets.accuracy.study import Study, pictures
from assets.accuracy.text import report_text
from assets.calibration.snapshot import load
from assets.metadata import MAX_PICTURE_BYTES, column_schema
from assets.plots import markdown
from assets.settings import input_faults
from perf_db.store import Store
from perf_db.tables import ACCURACY, CALIBRATIONS, GROUND_TRUTH

TRUTHS = dg.DynamicPartitionsDefinition(name="truth")
_SHARED: dict[str, Any] = {"group_name": "accuracy", "kinds": {"duckdb"}, "partitions_def": TRUTHS}


class CalibrationSettings(dg.Config):
    """Whether to fit anew."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    renew: bool = Field(default=False, description="fit even if there is a snapshot; a drift check leaves it alone")


@dg.asset(
    name=GROUND_TRUTH.name,
    description=f"One row is {GROUND_TRUTH.row_is}.",
    metadata={"dagster/column_schema": column_schema(GROUND_TRUTH)},
    **_SHARED,
)
def ground_truth(context: dg.AssetExecutionContext, store: dg.ResourceParam[Store]) -> dg.MaterializeResult:
    """Observe: read the partition's measurements."""
    with input_faults():
        found = watch.observe(_watched(context, store), store)
    repeats = sum(row["repeat_of"] is not None for row in found.rows)
    about: dict[str, Any] = {"figures": len(found.rows), "repeats": repeats, "format": found.form, "grain": found.grain}
    return dg.MaterializeResult(metadata={**about, **{f"set aside: {k}": n for k, n in found.set_aside.items()}})


@dg.asset(
    name=CALIBRATIONS.name,
    deps=[GROUND_TRUTH.name],
    description=f"One row is {CALIBRATIONS.row_is}.",
    metadata={"dagster/column_schema": column_schema(CALIBRATIONS)},
    check_specs=[
        dg.AssetCheckSpec("is_identified", asset=CALIBRATIONS.name, description="the data say what every constant is"),
    ],
    **_SHARED,
)
def calibrations(
    context: dg.AssetExecutionContext, config: CalibrationSettings, store: dg.ResourceParam[Store]
) -> dg.MaterializeResult:
    """Calibrate: fit constants, unless there is a snapshot and nobody wants another."""
    with input_faults():
        watched = _watched(context, store)
        if Path(watched.snapshot).exists() and not config.renew:
            kept = load(Path(watched.snapshot))
            warnings, made = kept.provenance.get("warnings", []), kept
        else:
            fitted = watch.calibrate(watched, watch.observe(watched, store), store)
            warnings, made = list(fitted.warnings), fitted.snapshot
    errors = {f"held-out error {k}, %": 100 * v for k, v in made.held_out().items()}
    return dg.MaterializeResult(
        metadata={"snapshot": made.digest, **made.host_constants, **errors, "warnings": len(warnings)},
        check_results=[
            dg.AssetCheckResult(
                check_name="is_identified",
                passed=not warnings,
                severity=dg.AssetCheckSeverity.WARN,
                metadata={str(i): text for i, text in enumerate(warnings)},
            )
        ],
    )


@dg.asset(
    name=ACCURACY.name,
    deps=[GROUND_TRUTH.name, CALIBRATIONS.name],
    description=f"One row is {ACCURACY.row_is}.",
    metadata={"dagster/column_schema": column_schema(ACCURACY)},
    check_specs=[
        dg.AssetCheckSpec("no_row_is_lost", asset=ACCURACY.name, description="each has a prediction or a reason"),
        dg.AssetCheckSpec(
            "has_not_drifted",
            asset=ACCURACY.name,
            description="not worse than the snapshot's held-out error by two points and by a tenth",
        ),
    ],
    **_SHARED,
)
def accuracy(context: dg.AssetExecutionContext, store: dg.ResourceParam[Store]) -> dg.MaterializeResult:
    """Replay and compare: predictions with the snapshot's constants, beside the measurements."""
    with input_faults():
        watched = _watched(context, store)
        study, snapshot, drift = watch.compare(watched, watch.observe(watched, store), store)
    lost = sum(n for (who, reason), n in study.report.reasons.items() if (who, reason) == (OURS, "not_asked"))
    alerts = [row["metric"] for row in drift if row["alert"]]
    return dg.MaterializeResult(
        metadata={"snapshot": snapshot.digest, **_figures(study), **_shown(study, drift)},
        check_results=[
            dg.AssetCheckResult(check_name="no_row_is_lost", passed=not lost, metadata={"rows": lost}),
            dg.AssetCheckResult(
                check_name="has_not_drifted",
                passed=not alerts,
                severity=dg.AssetCheckSeverity.WARN,
                metadata={"drifted": ", ".join(alerts) or "nothing", "metrics compared": len(drift)},
            ),
        ],
    )


def _watched(context: dg.AssetExecutionContext, store: Store) -> Watched:
    return recall(store.root, context.partition_key)


def _figures(study: Study) -> dict[str, float]:
    """The figures worth a trend line, in percent."""
    found = {}
    for cell in study.report.cells:
        if cell.predictor == OURS and cell.slice == "all" and cell.figures.mape.value is not None:
            found[f"{cell.metric} MAPE, %"] = 100 * cell.figures.mape.value
            found[f"{cell.metric} bias, %"] = 100 * (cell.figures.bias.value or 0.0)
    return found


def _shown(study: Study, drift: list[dict[str, Any]]) -> dict[str, Any]:
    text = report_text(study.report, slices=("all", "standing", "backend", "rows both answer"))
    shown: dict[str, Any] = {"report": dg.MetadataValue.md(f"```text\n{text}\n\n{drift_text(drift)}\n```")}
    predicted = any(row["predictor"] == OURS and row["prediction"] is not None for row in study.accuracy)
    picture = markdown(pictures(study), "predicted against measured") if predicted else ""
    if 0 < len(picture) <= MAX_PICTURE_BYTES:
        shown["errors"] = dg.MetadataValue.md(picture)
    return shown
