"""Named selections of assets."""

from __future__ import annotations

import dagster as dg

# One process for the whole graph: each further one would cost seconds of imports for tenths of work.
replay_job = dg.define_asset_job(
    "replay_graph",
    selection=dg.AssetSelection.groups("tracemill"),
    executor_def=dg.in_process_executor,
    description="Trace, performance, replay, tables, metrics and checks of one trace.",
)
