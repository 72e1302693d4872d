"""The desk's examination of a replay as an asset: one check for every law and every sign of trouble."""

# No `from __future__ import annotations`: Dagster resolves the annotations of an asset's parameters itself.

import dagster as dg

from assets.checks import LAWS as FIRST_LAWS
from assets.desk.anomalies import Anomaly, claims, examine
from assets.metadata import column_schema
from assets.settings import TRACES
from perf_db.store import Store
from perf_db.tables import ANOMALIES, RESULT_TABLES

# The first laws are checks of the tables themselves, which have been asked by now.
_CLAIMS = {name: claim for name, claim in claims().items() if name not in {law.name for law in FIRST_LAWS}}


@dg.asset(
    name=ANOMALIES.name,
    deps=["replay", *RESULT_TABLES],
    description=f"One row is {ANOMALIES.row_is}.",
    group_name="tracemill",
    kinds={"duckdb"},
    partitions_def=TRACES,
    metadata={"dagster/column_schema": column_schema(ANOMALIES)},
    check_specs=[
        dg.AssetCheckSpec(name, asset=ANOMALIES.name, blocking=severity == "error", description=claim)
        for name, (severity, _, claim) in _CLAIMS.items()
    ],
)
def anomalies(context: dg.AssetExecutionContext, store: dg.ResourceParam[Store]) -> dg.MaterializeResult:
    """Examine the partition's latest replay, and note what is found."""
    found = {a.check_name: a for a in examine(store, _latest_run(context))}
    return dg.MaterializeResult(
        metadata={"found": len(found), "findings": dg.MetadataValue.md(_list(found))},
        check_results=[_result(name, severity, found.get(name)) for name, (severity, _, _) in _CLAIMS.items()],
    )


def _latest_run(context: dg.AssetExecutionContext) -> str:
    wanted = dg.AssetRecordsFilter(asset_key=dg.AssetKey("replay"), asset_partitions=[context.partition_key])
    records = context.instance.fetch_materializations(wanted, limit=1).records
    if not records or records[0].asset_materialization is None:
        raise dg.Failure(description=f"{context.partition_key} has not been replayed yet: materialise replay first")
    return str(records[0].asset_materialization.metadata["run_id"].value)


def _result(name: str, severity: str, anomaly: Anomaly | None) -> dg.AssetCheckResult:
    return dg.AssetCheckResult(
        check_name=name,
        passed=anomaly is None,
        severity=dg.AssetCheckSeverity.ERROR if severity == "error" else dg.AssetCheckSeverity.WARN,
        metadata=_about(anomaly) if anomaly else None,
    )


def _about(anomaly: Anomaly) -> dict[str, str]:
    return {
        "table": anomaly.table_name,
        "worst row": anomaly.row_key,
        "rows": str(anomaly.n_rows),
        "explanation": anomaly.explanation,
    }


def _list(found: dict[str, Anomaly]) -> str:
    return (
        "\n".join(f"- **{a.check_name}** ({a.severity}): {a.row_key}: {a.explanation}" for a in found.values())
        or "none"
    )
