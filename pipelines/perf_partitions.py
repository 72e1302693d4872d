"""Registering versions of performance data as partitions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import dagster as dg

from assets.perf_data import VERSIONS
from assets.perf_registry import remember_root
from perf_db.gpu.quality import PerfVersion
from perf_db.gpu.source import PerfRoot


def register_versions(
    instance: dg.DagsterInstance, store_root: Path, root: PerfRoot, versions: Sequence[PerfVersion]
) -> list[str]:
    """Make the versions partitions and remember where they are. Returns the keys, SYSTEM|BACKEND|VERSION."""
    remember_root(store_root, root, versions)
    keys = [version.key for version in versions]
    assert VERSIONS.name is not None
    instance.add_dynamic_partitions(VERSIONS.name, keys)
    return keys
