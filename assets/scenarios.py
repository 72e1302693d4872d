"""A suite of scenarios as an asset: one partition per suite, its scenarios as rows inside one step."""

# No `from __future__ import annotations`: Dagster resolves the annotations of an asset's parameters itself.

from collections.abc import Sequence
from typing import Any

import dagster as dg
from pydantic import ConfigDict, Field

from assets.desk.matrix.one import ANOMALY, CRASHED, DIFFERS, FAILED
from assets.desk.matrix.ratios import cells, ratios
from assets.desk.matrix.registry import recall_suite
from assets.desk.matrix.run import Outcome, run_matrix
from assets.desk.matrix.trends import Trend, trends
from assets.identity import sources_digest
from assets.metadata import picture
from assets.plots_compare import Line, Lines
from assets.settings import input_faults
from perf_db.store import Store
from perf_db.tables import SCENARIOS

SUITES = dg.DynamicPartitionsDefinition(name="suite")
# Numbers in metadata become trend lines in the UI; more than these would bury the page.
WITH_FIGURES = 24
_CHECKS = {
    "every_scenario_was_replayed": ((FAILED, CRASHED), "no scenario failed or crashed"),
    "no_law_is_broken": ((ANOMALY,), "no scenario's run breaks a law"),
    "results_are_as_accepted": ((DIFFERS,), "every scenario with a baseline is the same, or within its tolerances"),
}


class MatrixSettings(dg.Config):
    """What to run. Strict, as all settings are."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    force: bool = Field(default=False, description="run every scenario, changed or not")
    only: list[str] = Field(default_factory=list, description="patterns of scenario names; none: all")
    keep: str = Field(default="", pattern="^(|all|failed|none)$", description="whose rows; empty: as the suite says")
    workers: int = Field(default=0, ge=0, description="processes; 0: one per core")


@dg.asset(
    name=SCENARIOS.name,
    description=f"One row is {SCENARIOS.row_is}.",
    group_name="matrix",
    kinds={"numba", "duckdb"},
    partitions_def=SUITES,
    code_version=sources_digest("sim")[:12],
    pool="engine",
    check_specs=[
        dg.AssetCheckSpec(name, asset=SCENARIOS.name, blocking=True, description=claim)
        for name, (_, claim) in _CHECKS.items()
    ],
)
def scenarios(
    context: dg.AssetExecutionContext, config: MatrixSettings, store: dg.ResourceParam[Store]
) -> dg.MaterializeResult:
    """Run what changed since its last result, and hold every scenario against its baseline."""
    with input_faults():
        known = recall_suite(store.root, context.partition_key)
        outcome = run_matrix(
            known.load(),
            store,
            known.baselines,
            only=config.only,
            force=config.force,
            keep=config.keep or None,
            workers=config.workers or None,
            say=lambda row: context.log.info(f"{row['status']}: {row['scenario']}"),
        )
    context.instance.add_run_tags(context.run.run_id, {"tracemill/matrix_id": outcome.matrix_id})
    found = trends(store, outcome.suite)
    return dg.MaterializeResult(
        metadata={
            "dagster/row_count": len(outcome.all_rows),
            "matrix_id": outcome.matrix_id,
            "run": len(outcome.rows),
            "stood": len(outcome.standing),
            **{status: outcome.count(status) for status in sorted({row["status"] for row in outcome.all_rows})},
            "results": _table(outcome, found),
            **_ratios(store, outcome.suite),
            "trends": picture(_pictures(found), "trends of TTFT, E2E and throughput over the executions"),
            **_figures(found),
        },
        check_results=[_check(name, outcome, statuses) for name, (statuses, _) in _CHECKS.items()],
    )


def _check(name: str, outcome: Outcome, statuses: tuple[str, ...]) -> dg.AssetCheckResult:
    bad = [row for row in outcome.all_rows if row["status"] in statuses]
    told = "\n".join(f"- **{row['scenario']}** {row['status']}: {_why(row)}" for row in bad)
    return dg.AssetCheckResult(
        check_name=name,
        passed=not bad,
        severity=dg.AssetCheckSeverity.ERROR,
        metadata={"scenarios": len(bad), "which": dg.MetadataValue.md(told or "none")},
    )


def _why(row: dict[str, Any]) -> str:
    parts = (row["input_change"], row["mechanism"], row["explanation"])
    return "; ".join(str(part).strip().splitlines()[-1] for part in parts if part)


def _table(outcome: Outcome, found: Sequence[Trend]) -> dg.TableMetadataValue:
    latest = {(t.scenario, t.metric): t for t in found}
    records = []
    for row in outcome.all_rows:
        name = row["scenario"].partition(".")[2]
        record: dict[str, str | int | float | bool] = {"scenario": name, "status": row["status"]}
        for metric, title in (("ttft", "TTFT p99, ms"), ("output_throughput", "output tokens/s")):
            trend = latest.get((row["scenario"], metric))
            record[title] = round(trend.values[-1], 3) if trend else ""
        # What explains a difference stands with the check that fails: here it would make every row a paragraph.
        record["mechanism"] = row["mechanism"] or ""
        records.append(dg.TableRecord(record))
    return dg.MetadataValue.table(records)


def _ratios(store: Store, suite: str) -> dict[str, dg.TableMetadataValue]:
    """What ratios of prefill to decode workers are worth; nothing of a suite without separate pools."""
    records = [dg.TableRecord(cells(row)) for row in ratios(store, suite)]
    return {"prefill_to_decode": dg.MetadataValue.table(records)} if records else {}


def _pictures(found: Sequence[Trend]) -> list[Lines]:
    drawn = []
    for metric, title in (("ttft", "TTFT p99"), ("e2e_latency", "E2E p99"), ("output_throughput", "output throughput")):
        lines = [
            Line(t.scenario.partition(".")[2], list(range(1, len(t.values) + 1)), t.relative)
            for t in found
            if t.metric == metric
        ]
        # Those that moved are drawn last, on top, and named first.
        lines.sort(key=lambda line: -max(abs(y - 100) for y in line.y))
        top = max((y for line in lines for y in line.y), default=100.0)
        low = min((y for line in lines for y in line.y), default=100.0)
        floor = max(0.0, min(low, 95.0) - 0.1 * (max(top, 105.0) - min(low, 95.0)))
        title = f"{title}, % of the oldest execution shown"
        drawn.append(Lines(title, lines, "execution", low=round(floor), counted=True))
    return drawn


def _figures(found: Sequence[Trend]) -> dict[str, float]:
    names = sorted({t.scenario for t in found})[:WITH_FIGURES]
    unit = {"ttft": "ttft_p99_ms", "e2e_latency": "e2e_p99_ms", "output_throughput": "output_tokens_per_s"}
    return {f"{t.scenario} {unit[t.metric]}": round(t.values[-1], 6) for t in found if t.scenario in names}
