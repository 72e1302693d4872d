"""What assets are given to work with."""

from __future__ import annotations

from pathlib import Path

import dagster as dg

from assets.views import open_store
from perf_db.store import Store
from pipelines.options import warehouse_root


@dg.resource(
    config_schema={"root": dg.Field(str, default_value="", description="empty: $TRACEMILL_WAREHOUSE, else ./warehouse")}
)
def store_resource(context: dg.InitResourceContext) -> Store:
    """The warehouse, looked up when a run starts."""
    root = context.resource_config["root"]
    return open_store(warehouse_root(Path(root) if root else None))
