"""When things run by themselves. Off until someone switches them on."""

from __future__ import annotations

from collections.abc import Iterator

import dagster as dg

from assets.scenarios import SUITES
from assets.settings import TRACES
from pipelines.jobs import matrix_job, replay_job


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


@dg.schedule(
    job=matrix_job,
    cron_schedule="0 2 * * *",
    execution_timezone="UTC",
    default_status=dg.DefaultScheduleStatus.STOPPED,
)
def nightly_matrix(context: dg.ScheduleEvaluationContext) -> Iterator[dg.RunRequest]:
    """Every registered suite once a night, all of its scenarios: what did not change must give the same again."""
    night = context.scheduled_execution_time.date().isoformat()
    assert SUITES.name is not None
    everything = {"ops": {"scenarios": {"config": {"force": True}}}}
    for key in context.instance.get_dynamic_partitions(SUITES.name):
        yield dg.RunRequest(run_key=f"{night}/{key}", partition_key=key, run_config=everything)
