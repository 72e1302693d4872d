"""The sensor that turns new files in the warehouse's inbox into partitions, and has each prepared once."""

from __future__ import annotations

import dagster as dg

from assets.inbox import FOLDER, Seen, look
from assets.settings import INBOX
from pipelines.jobs import inbox_job
from pipelines.options import warehouse_root


@dg.sensor(
    job=inbox_job,
    minimum_interval_seconds=30,
    default_status=dg.DefaultSensorStatus.STOPPED,
    description="Prepares each new trace in the warehouse's inbox once, whatever it is called.",
)
def inbox_traces(context: dg.SensorEvaluationContext) -> dg.SensorResult:
    """One run per new content. The run key is the digest, so a second asking, by whatever name, starts nothing."""
    inbox = warehouse_root(None) / FOLDER
    before = Seen.of(context.cursor)
    found, seen = look(inbox, before)
    if not found:
        waiting = len(seen.states) - len(seen.digests)
        why = f"{inbox}: nothing new" + (f"; {waiting} file(s) may still be written" if waiting else "")
        return dg.SensorResult(skip_reason=dg.SkipReason(why), cursor=seen.text())
    return dg.SensorResult(
        run_requests=[
            dg.RunRequest(
                run_key=each.digest,
                partition_key=each.key,
                run_config={"ops": {"inbox_trace": {"config": {"file": each.name, "digest": each.digest}}}},
                tags={"tracemill/file": each.name[:250]},
            )
            for each in found
        ],
        dynamic_partitions_requests=[INBOX.build_add_request([each.key for each in found])],
        cursor=seen.text(),
    )
