"""When things run by themselves. Off until someone switches them on."""

from __future__ import annotations

from collections.abc import Iterator

import dagster as dg

from assets.settings import TRACES
from pipelines.jobs import replay_job


@dg.schedule(
    job=replay_job,
    cron_schedule="0 3 * * *",
    execution_timezone="UTC",
    default_status=dg.DefaultScheduleStatus.STOPPED,
)
def nightly_replay(context: dg.ScheduleEvaluationContext) -> Iterator[dg.RunRequest]:
    """Every registered trace once a night. Keyed by night: a second tick of the same night starts nothing."""
    night = context.scheduled_execution_time.date().isoformat()
    assert TRACES.name is not None
    for key in context.instance.get_dynamic_partitions(TRACES.name):
        yield dg.RunRequest(run_key=f"{night}/{key}", partition_key=key)
