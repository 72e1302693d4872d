"""The trace as an asset: source file in, validated canonical rows out, bad rows set aside."""

# No `from __future__ import annotations`: Dagster resolves the annotations of an asset's parameters itself.

import dagster as dg

from assets.identity import sources_digest
from assets.inputs import prepare
from assets.metadata import PREVIEW_ROWS, column_schema, preview
from assets.partitions import partition_key
from assets.settings import TRACES, RunSettings, input_faults, recipe_of
from assets.trace_page import limits_check, limits_spec, made_up_page, page
from assets.trace_table import trace_rows, write_trace
from perf_db.schema import SchemaError
from perf_db.store import Store
from perf_db.tables import QUARANTINE
from perf_db.tables import TRACES as TABLE
from sim.config.traffic import QuarantineLimits, Trace


@dg.asset(
    partitions_def=TRACES,
    group_name="tracemill",
    kinds={"parquet"},
    code_version=sources_digest("assets")[:12],
    check_specs=[
        dg.AssetCheckSpec("schema", asset="trace", blocking=True, description="the rows match the declared table"),
        dg.AssetCheckSpec(
            "every_row_accounted_for", asset="trace", blocking=True, description="rows read = clean + quarantined"
        ),
        limits_spec("trace"),
    ],
)
def trace(
    context: dg.AssetExecutionContext, config: RunSettings, store: dg.ResourceParam[Store]
) -> dg.MaterializeResult:
    """Requests as the source gives them: arrival, lengths, prefix identity. Bad rows are set aside, with a reason."""
    key = context.partition_key
    with input_faults():
        recipe = recipe_of(context, config, store)
        loaded = recipe.load()
        # More bad rows than allowed are a failed check with a page to look at, not a step without one.
        inputs = prepare(loaded, base=recipe.base, keep_limits=False)
    facts = inputs.provenance
    found = partition_key(facts["path"], facts["digest"])
    if found != key:
        raise dg.Failure(
            f"{recipe.config_file} reads the trace {found}, but this partition is {key}: the file has changed, or the "
            "configuration is of another trace. Register it anew: tracemill register CONFIG",
            allow_retries=False,
        )
    try:
        rows = trace_rows(inputs, source=f"trace {key!r}")
    except SchemaError as error:
        raise dg.Failure(str(error), allow_retries=False) from error
    path = write_trace(store.root, key, rows)
    set_aside = list(zip(*(inputs.quarantine[name] for name in QUARANTINE.column_names), strict=True))
    accounted = facts["rows_read"] == facts["clean"] + facts["quarantined"] and len(set_aside) == facts["quarantined"]
    source = loaded.traffic.source
    limits = source.quarantine if isinstance(source, Trace) else QuarantineLimits()
    shown = made_up_page(rows) if inputs.trace is None else page(inputs.trace)
    first_rows = rows.slice(0, PREVIEW_ROWS).to_pylist()
    return dg.MaterializeResult(
        data_version=dg.DataVersion(facts["digest"]),
        metadata={
            "dagster/row_count": rows.num_rows,
            "dagster/column_schema": column_schema(TABLE),
            **shown,
            "file": dg.MetadataValue.path(str(path)),
            "source": facts["path"] or "made up",
            "format": facts["format"],
            "rows_read": facts["rows_read"],
            "quarantined": facts["quarantined"],
            "lineage": dg.MetadataValue.json(facts["lineage"]),
            "first_rows": preview(TABLE, [list(row.values()) for row in first_rows]),
        },
        check_results=[
            dg.AssetCheckResult(check_name="schema", passed=True, metadata={"rows": rows.num_rows}),
            dg.AssetCheckResult(
                check_name="every_row_accounted_for",
                passed=accounted,
                metadata={k: facts[k] for k in ("rows_read", "clean", "quarantined")},
            ),
            limits_check(facts["rows_read"], facts.get("reasons", {}), limits),
        ],
    )
