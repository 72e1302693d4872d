"""Everything the code location offers. No computation, no file access, no environment lookups at import."""

from __future__ import annotations

import dagster as dg

from assets import anomalies, performance, regression, replay, traces
from pipelines.jobs import replay_job
from pipelines.resources import store_resource
from pipelines.schedules import nightly_replay


@dg.definitions
def defs() -> dg.Definitions:
    return dg.Definitions(
        assets=dg.load_assets_from_modules([traces, performance, replay, anomalies, regression]),
        jobs=[replay_job],
        schedules=[nightly_replay],
        resources={"store": store_resource},
    )
