"""Everything the code location offers. No computation, no file access, no environment lookups at import."""

from __future__ import annotations

import dagster as dg

from assets import (
    accuracy_graph,
    anomalies,
    inbox_trace,
    perf_data,
    performance,
    regression,
    replay,
    scenarios,
    traces,
)
from pipelines.inbox import inbox_traces
from pipelines.jobs import inbox_job, matrix_job, performance_job, replay_job
from pipelines.resources import store_resource
from pipelines.schedules import nightly_matrix, nightly_replay
from pipelines.suites import changed_scenarios
from pipelines.truths import accuracy_job, drift_check


@dg.definitions
def defs() -> dg.Definitions:
    modules = [traces, inbox_trace, performance, replay, anomalies, regression, scenarios, perf_data, accuracy_graph]
    return dg.Definitions(
        assets=dg.load_assets_from_modules(modules),
        jobs=[replay_job, inbox_job, matrix_job, performance_job, accuracy_job],
        schedules=[nightly_replay, nightly_matrix, drift_check],
        sensors=[changed_scenarios, inbox_traces],
        resources={"store": store_resource},
    )
