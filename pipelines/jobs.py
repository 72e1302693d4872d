"""Named selections of assets."""

from __future__ import annotations

import dagster as dg

from pipelines.alerts import alert_on_failure

# One process for the whole graph: each further one would cost seconds of imports for tenths of work.
replay_job = dg.define_asset_job(
    "replay_graph",
    selection=dg.AssetSelection.groups("tracemill"),
    executor_def=dg.in_process_executor,
    hooks={alert_on_failure},
    description="Trace, performance, replay, tables, metrics and checks of one trace.",
)

inbox_job = dg.define_asset_job(
    "inbox",
    selection=dg.AssetSelection.groups("inbox"),
    executor_def=dg.in_process_executor,
    hooks={alert_on_failure},
    description="One trace of the inbox, prepared for replays.",
)

# The step itself spreads its scenarios over processes.
matrix_job = dg.define_asset_job(
    "matrix",
    selection=dg.AssetSelection.groups("matrix"),
    executor_def=dg.in_process_executor,
    hooks={alert_on_failure},
    description="The scenarios of a suite, each held against its baseline.",
)

performance_job = dg.define_asset_job(
    "performance_data",
    selection=dg.AssetSelection.groups("performance_data"),
    executor_def=dg.in_process_executor,
    hooks={alert_on_failure},
    description="The files of a version of performance data, read, judged and shown.",
)
