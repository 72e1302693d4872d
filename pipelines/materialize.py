"""The whole graph for one configuration, in this process, on the instance of a warehouse."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import dagster as dg

from assets.views import open_store
from pipelines.instance import open_instance
from pipelines.partitions import register


@dataclass(frozen=True)
class Materialized:
    """What came of it.

    Attributes:
        run_id: the run in the warehouse, '' when none was committed.
        rows: (asset, rows) of every materialised table.
        checks: (asset, check, passed).
        fault: why a step failed, None when all went through.
    """

    partition: str
    run_id: str
    rows: tuple[tuple[str, int], ...]
    checks: tuple[tuple[str, str, bool], ...]
    fault: str | None

    @property
    def passed(self) -> bool:
        return self.fault is None and all(passed for _, _, passed in self.checks)

    def text(self) -> str:
        """Tables and checks, and a line per failed check."""
        tables = ", ".join(f"{name} {rows:,}" for name, rows in self.rows)
        good = sum(passed for _, _, passed in self.checks)
        shown = textwrap.fill(f"tables        {tables}", 100, subsequent_indent=" " * 14)
        lines = [shown, f"checks        {good} of {len(self.checks)} passed"]
        lines += [f"  FAILED {asset}: {check}" for asset, check, passed in self.checks if not passed]
        return "\n".join([*lines, f"  FAILED {self.fault}"] if self.fault else lines)


def materialize(root: Path, config_file: Path, overrides: Sequence[str] = ()) -> Materialized:
    """Register the configuration's trace and materialise its partition.

    Raises:
        ConfigError, TraceError: the configuration or its trace cannot be used; nothing was started.
    """
    from pipelines.definitions import defs

    with open_instance(root) as instance:
        key = register(instance, root, config_file, overrides)
        result = (
            defs()
            .resolve_job_def("replay_graph")
            .execute_in_process(
                instance=instance,
                partition_key=key,
                resources={"store": open_store(root)},
                # The event log keeps everything; the terminal belongs to the summary.
                run_config={"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}},
                raise_on_error=False,
            )
        )
    return Materialized(key, *_facts(result))


def _facts(
    result: dg.ExecuteInProcessResult,
) -> tuple[str, tuple[tuple[str, int], ...], tuple[tuple[str, str, bool], ...], str | None]:
    run_id, rows = "", []
    for event in result.get_asset_materialization_events():
        metadata = event.step_materialization_data.materialization.metadata
        name = event.asset_key.to_user_string() if event.asset_key else ""
        if "dagster/row_count" in metadata:
            rows.append((name, int(str(metadata["dagster/row_count"].value))))
        if "run_id" in metadata:
            run_id = str(metadata["run_id"].value)
    checks = [
        (each.asset_key.to_user_string(), each.check_name, each.passed) for each in result.get_asset_check_evaluations()
    ]
    faults = [_why(event) for event in result.all_events if event.is_step_failure]
    return run_id, tuple(rows), tuple(checks), faults[0] if faults else None


def _why(event: dg.DagsterEvent) -> str:
    """The sentence of a failure that we raised on purpose, else Dagster's account of the exception."""
    failure = event.step_failure_data
    ours = failure.user_failure_data
    return (ours.description if ours else None) or failure.error_display_string
