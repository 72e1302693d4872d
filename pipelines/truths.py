"""Registering measurements as partitions, and looking at them again by the clock."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import dagster as dg

from assets.accuracy.registry import Watched, remember
from assets.accuracy_graph import TRUTHS
from pipelines.alerts import alert_on_failure

accuracy_job = dg.define_asset_job(
    "accuracy_graph",
    selection=dg.AssetSelection.groups("accuracy"),
    executor_def=dg.in_process_executor,
    hooks={alert_on_failure},
    description="Observe, calibrate, replay, compare: one set of measurements.",
)


def register_truth(instance: dg.DagsterInstance, store_root: Path, watched: Watched) -> str:
    """Make a set a partition and remember its options. Returns the key."""
    remember(store_root, watched)
    assert TRUTHS.name is not None
    instance.add_dynamic_partitions(TRUTHS.name, [watched.name])
    return watched.name


@dg.schedule(
    job=accuracy_job,
    cron_schedule="0 4 * * 1",
    execution_timezone="UTC",
    default_status=dg.DefaultScheduleStatus.STOPPED,
)
def drift_check(context: dg.ScheduleEvaluationContext) -> Iterator[dg.RunRequest]:
    """Every registered set once a week against its snapshot. Keyed by day: a second tick of the day starts nothing."""
    day = context.scheduled_execution_time.date().isoformat()
    assert TRUTHS.name is not None
    for key in context.instance.get_dynamic_partitions(TRUTHS.name):
        yield dg.RunRequest(run_key=f"{day}/{key}", partition_key=key)
