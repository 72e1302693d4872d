"""The Dagster instance of a warehouse: its run history, event log and settings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dagster import DagsterInstance

SETTINGS = """\
# Written by tracemill where it is missing; yours to edit from then on.
telemetry: {enabled: false}
nux: {enabled: false}
concurrency:
  pools: {default_limit: 1, granularity: op}
"""


def dagster_home(root: Path) -> Path:
    """The instance folder under `root`, made on first use. Dagster wants it absolute."""
    home = root.absolute() / "dagster"
    home.mkdir(parents=True, exist_ok=True)
    settings = home / "dagster.yaml"
    if not settings.exists():
        settings.write_text(SETTINGS)
    return home


def open_instance(root: Path) -> DagsterInstance:
    """The instance that `tracemill ui` shows for the same folder."""
    from dagster import DagsterInstance

    return DagsterInstance.from_config(str(dagster_home(root)))
