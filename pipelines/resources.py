"""What assets are given to work with."""

from __future__ import annotations

from pathlib import Path

import dagster as dg

from assets.views import open_store
from perf_db.store import Store
from pipelines.options import warehouse_root


class StoreResource(dg.ConfigurableResourceFactory[Store]):
    """The warehouse. An empty root means $TRACEMILL_WAREHOUSE, else ./warehouse, looked up when a run starts."""

    root: str = ""

    def create_resource(self, context: dg.InitResourceContext) -> Store:
        return open_store(warehouse_root(Path(self.root) if self.root else None))
