"""The replay as a materialisation: one step makes every result table of a trace, and its metrics."""

# No `from __future__ import annotations`: Dagster resolves the annotations of an asset's parameters itself.

from collections.abc import Iterator
from typing import Any

import dagster as dg

from assets import run_plots
from assets.checks import LAWS, Verdict, check_run
from assets.identity import sources_digest
from assets.metadata import column_schema, key_figures, picture, stored_preview
from assets.plots import Drawn, spark
from assets.replay_run import RunReport, run_replay
from assets.settings import TRACES, RunSettings, input_faults, recipe_of
from perf_db.commit import Commit
from perf_db.schema import Table
from perf_db.store import Store
from perf_db.tables import EVIDENCE, METRICS, QUARANTINE, RESULT_TABLES

CODE = sources_digest("sim")[:12]
# Where a column of a result comes from, for the UI's lineage view.
FROM_TRACE = {
    "request_id": "request_id",
    "external_id": "external_id",
    "source_line": "source_line",
    "session_id": "session_id",
    "turn": "turn",
    "arrival_ns": "arrival_ns",
    "prompt_tokens": "prompt_tokens",
    "requested_tokens": "output_tokens",
}


# What a table holds beside what the engine did: rows that were set aside, and the data that priced the passes.
_ALSO_FROM = {QUARANTINE.name: ("trace",), EVIDENCE.name: ("performance",)}


def _spec(table: Table) -> dg.AssetSpec:
    upstream = ["requests", "passes"] if table is METRICS else ["replay", *_ALSO_FROM.get(table.name, ())]
    return dg.AssetSpec(
        table.name,
        deps=upstream,
        description=f"One row is {table.row_is}.",
        group_name="tracemill",
        kinds={"parquet", "duckdb"},
        code_version=CODE,
        partitions_def=TRACES,
        metadata={"dagster/column_schema": column_schema(table)},
    )


@dg.multi_asset(
    name="replay_trace",
    specs=[
        dg.AssetSpec(
            "replay",
            deps=["trace", "performance"],
            description="One execution of the engine: identity, key figures, pictures.",
            group_name="tracemill",
            kinds={"numba"},
            code_version=CODE,
            partitions_def=TRACES,
        ),
        *(_spec(table) for table in RESULT_TABLES.values()),
    ],
    check_specs=[
        *(
            dg.AssetCheckSpec("schema", asset=name, blocking=True, description="the stored rows match the declaration")
            for name in RESULT_TABLES
        ),
        *(dg.AssetCheckSpec(law.name, asset=law.table, blocking=True, description=law.claim) for law in LAWS),
    ],
    partitions_def=TRACES,
    pool="engine",
    # A replay is a function of its inputs: only the disk or the machine can fail by chance.
    retry_policy=dg.RetryPolicy(max_retries=1, delay=5),
)
def replay_trace(
    context: dg.AssetExecutionContext, config: RunSettings, store: dg.ResourceParam[Store]
) -> Iterator[dg.MaterializeResult]:
    """Replay the partition's trace and commit every table."""
    with input_faults():
        recipe = recipe_of(context, config, store)
        report = run_replay(recipe.load(), store, base=recipe.base, name=recipe.name)
    for warning in report.warnings:
        context.log.warning(warning)
    tags = {"tracemill/run_id": report.run_id, "tracemill/replay_id": report.replay_id}
    context.instance.add_run_tags(context.run.run_id, tags)
    commit = store.commit(report.run_id)
    with store.connect() as con:
        verdicts = check_run(con, report.run_id)
        yield _replay_result(con, report)
        for table in RESULT_TABLES.values():
            yield _table_result(con, table, commit, [v for v in verdicts if v.law.table == table.name])


def _replay_result(con: Any, report: RunReport) -> dg.MaterializeResult:
    pool, queue = run_plots.timeline(con, report.run_id)
    panels: list[Drawn] = [pool, queue, run_plots.ttft_distribution(con, report.run_id)]
    panels.append(run_plots.pass_times(con, report.run_id))
    return dg.MaterializeResult(
        asset_key="replay",
        data_version=dg.DataVersion(str(report.run["result_digest"])),
        metadata={
            "kv_pool_over_time": dg.MetadataValue.md(spark(pool.y, "share of the KV pool in use over virtual time")),
            "queue_over_time": dg.MetadataValue.md(spark(queue.y, "waiting requests over virtual time")),
            "pictures": picture(panels, "KV pool, queue, TTFT and passes"),
            "run_id": report.run_id,
            "replay_id": report.replay_id,
            "result_digest": str(report.run["result_digest"]),
            "database": dg.MetadataValue.path(str(report.database)),
            "engine_seconds": round(report.run["engine_ms"] / 1e3, 3),
            "completed": report.run["n_completed"],
            "passes": report.run["n_passes"],
            **key_figures(report.metrics),
        },
    )


def _table_result(con: Any, table: Table, commit: Commit, verdicts: list[Verdict]) -> dg.MaterializeResult:
    stored = commit.table(table.name)
    assert stored is not None, f"a commit without table {table.name}"
    declared = {c.name: c.dtype.value for c in table.columns}
    metadata: dict[str, Any] = {
        "dagster/row_count": stored.n_rows,
        "dagster/column_schema": column_schema(table),
        "bytes": stored.n_bytes,
        "digest": stored.digest,
        "first_rows": stored_preview(con, table, commit.run_id),
    }
    if table.name == "requests":
        metadata["dagster/column_lineage"] = _lineage()
    schema = dg.AssetCheckResult(
        check_name="schema",
        asset_key=table.name,
        passed=dict(stored.columns) == declared,
        metadata={"columns": len(stored.columns)},
    )
    return dg.MaterializeResult(
        asset_key=table.name,
        data_version=dg.DataVersion(stored.digest),
        metadata=metadata,
        check_results=[schema, *(_law_result(v) for v in verdicts)],
    )


def _law_result(verdict: Verdict) -> dg.AssetCheckResult:
    return dg.AssetCheckResult(
        check_name=verdict.law.name,
        asset_key=verdict.law.table,
        passed=verdict.passed,
        metadata={"rows_that_break_it": verdict.n_broken, "first": verdict.example or "none"},
    )


def _lineage() -> dg.TableColumnLineage:
    return dg.TableColumnLineage(
        {ours: [dg.TableColumnDep(asset_key="trace", column_name=theirs)] for ours, theirs in FROM_TRACE.items()}
    )
