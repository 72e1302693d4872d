"""A trace from the inbox as an asset: prepared once, under a partition that is named after its content."""

# No `from __future__ import annotations`: Dagster resolves the annotations of an asset's parameters itself.

import dagster as dg
from pydantic import ConfigDict, Field

from assets.identity import sources_digest
from assets.inbox import FOLDER, TEMPLATE, file_of, prepared_path
from assets.ingest.ingest import ingest
from assets.ingest.prepared import read_prepared
from assets.metadata import column_schema
from assets.partitions import Recipe, remember
from assets.settings import INBOX, TRACES, input_faults
from assets.trace_page import limits_check, limits_spec, page
from perf_db.store import Store
from perf_db.tables import TRACES as TABLE
from sim.config.traffic import QuarantineLimits

# Pictures and prefix reuse look at all rows at once; beyond this many ids the page does without.
MOST_IDS = 60_000_000


class Arrived(dg.Config):
    """Which file of the inbox, and what it holds. Strict: dg.Config alone would swallow a misspelt name."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    file: str = Field(description="name in the inbox; another name is found by the digest")
    digest: str = Field(description="blake2b of the file's bytes, 32 hex digits")
    warn_above: float = Field(default=1.0, ge=0, le=1, description="share of bad rows that is worth a warning")
    fail_above: float = Field(default=0.5, ge=0, le=1, description="share of bad rows that fails the check")


@dg.asset(
    partitions_def=INBOX,
    group_name="inbox",
    kinds={"parquet"},
    code_version=sources_digest("assets")[:12],
    check_specs=[
        dg.AssetCheckSpec(
            "every_row_accounted_for", asset="inbox_trace", description="rows read = clean + quarantined"
        ),
        limits_spec("inbox_trace"),
    ],
)
def inbox_trace(
    context: dg.AssetExecutionContext, config: Arrived, store: dg.ResourceParam[Store]
) -> dg.MaterializeResult:
    """Rows and bad rows of a file in the inbox, prepared for replays. The file itself stays where it is."""
    key, root = context.partition_key, store.root
    out = prepared_path(root, key, config.digest)
    with input_faults():
        about = ingest(file_of(root / FOLDER, config.file, config.digest), out, expected=config.digest)
        counts = about["counts"]
        trace = read_prepared(out, needs_timestamps=None, needs_output=False, most_ids=MOST_IDS)
    if (template := root / TEMPLATE).is_file():
        # With a run configuration beside the inbox, the trace can be replayed by the name of its partition.
        remember(root, key, Recipe(template.absolute(), (f"traffic.source.path={out}",)))
        assert TRACES.name is not None
        context.instance.add_dynamic_partitions(TRACES.name, [key])
    accounted = counts["rows_read"] == counts["clean"] + counts["quarantined"] == len(trace) + len(trace.quarantine)
    limits = QuarantineLimits(warn_above=config.warn_above, fail_above=config.fail_above)
    return dg.MaterializeResult(
        data_version=dg.DataVersion(config.digest),
        metadata={
            "dagster/row_count": counts["clean"],
            "dagster/column_schema": column_schema(TABLE),
            "file": dg.MetadataValue.path(str(out)),
            "source": about["path"],
            "format": about["format"],
            "rows_read": counts["rows_read"],
            "quarantined": counts["quarantined"],
            **page(trace),
        },
        check_results=[
            dg.AssetCheckResult(
                check_name="every_row_accounted_for",
                passed=accounted,
                metadata={k: counts[k] for k in ("rows_read", "clean", "quarantined")},
            ),
            limits_check(counts["rows_read"], trace.quarantine.reasons(), limits),
        ],
    )
