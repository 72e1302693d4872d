"""The diff of a replay as an asset: against its baseline where there is one, else against the replay before."""

# No `from __future__ import annotations`: Dagster resolves the annotations of an asset's parameters itself.

from pathlib import Path

import dagster as dg
from pydantic import ConfigDict, Field

from assets.desk import baselines
from assets.desk.diff import Diff, diff_runs
from assets.desk.pair import Recorded
from assets.desk.text import diff_text
from assets.diff_plots import diff_pictures
from assets.metadata import picture
from assets.settings import TRACES, input_faults
from perf_db.store import Store


class DiffSettings(dg.Config):
    """What to compare with."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    baselines: str = Field(default="baselines", description="folder of the baselines")


@dg.asset(
    name="diff",
    deps=["replay", "anomalies"],
    description="What changed since the accepted replay, or the one before: inputs, mechanism, where the time went.",
    group_name="tracemill",
    kinds={"duckdb"},
    partitions_def=TRACES,
    check_specs=[
        dg.AssetCheckSpec("is_explained", asset="diff", description="what differs has an input change and a mechanism"),
        dg.AssetCheckSpec("is_as_accepted", asset="diff", description="the baseline's rows, or within its tolerances"),
    ],
)
def diff(
    context: dg.AssetExecutionContext, config: DiffSettings, store: dg.ResourceParam[Store]
) -> dg.MaterializeResult:
    """Compare the partition's latest replay."""
    with input_faults():
        ids = _replays(context, store)
        if not ids:
            raise dg.Failure(description=f"{context.partition_key} has not been replayed yet: materialise replay first")
        head = Recorded.of_store(store, ids[0])
        name, folder = head.run["name"].replace(" ", "-"), Path(config.baselines)
        if name in baselines.names(folder):
            kept = baselines.load(folder, name)
            found = baselines.check(kept, head, store)
            base = baselines.rows_of(kept, store)
            return _result(found.diff, f"baseline {name}", base, head, accepted=found.passed)
        if len(ids) > 1:
            base = Recorded.of_store(store, ids[1])
            return _result(diff_runs(base, head), f"run {ids[1]}", base, head, accepted=None)
    nothing = "nothing: the first replay of its trace, and no baseline of its name"
    return _result(None, nothing, None, head, accepted=None)


def _replays(context: dg.AssetExecutionContext, store: Store) -> list[str]:
    """The partition's runs that the store still holds, newest first; two are enough."""
    wanted = dg.AssetRecordsFilter(asset_key=dg.AssetKey("replay"), asset_partitions=[context.partition_key])
    kept = {run["run_id"] for run in store.runs()}
    made = [r.asset_materialization for r in context.instance.fetch_materializations(wanted, limit=20).records]
    ids = [str(m.metadata["run_id"].value) for m in made if m is not None]
    return [run_id for run_id in ids if run_id in kept][:2]


def _result(
    found: Diff | None, called: str, base: Recorded | None, head: Recorded, *, accepted: bool | None
) -> dg.MaterializeResult:
    explained = found is None or found.explained
    metadata = {"compared with": called, "run_id": head.run["run_id"], "same": found.same if found else "unknown"}
    if found is not None and not found.same:
        metadata |= {
            "input change": ", ".join(found.input_change),
            "mechanism": f"{found.mechanism.name}: {found.mechanism.detail}" if found.mechanism else "none",
            "diff": dg.MetadataValue.md(f"```text\n{diff_text(found)}\n```"),
        }
        if base is not None:
            metadata["pictures"] = picture(
                diff_pictures(found, base, head), "where the change came from, base and head"
            )
        metadata |= {f"{a.latency} change, ms": a.change_ns / 1e6 for a in found.attribution}
    return dg.MaterializeResult(
        metadata=metadata,
        check_results=[
            dg.AssetCheckResult(check_name="is_explained", passed=explained),
            dg.AssetCheckResult(
                check_name="is_as_accepted", passed=accepted is not False, metadata={"baseline": accepted is not None}
            ),
        ],
    )
