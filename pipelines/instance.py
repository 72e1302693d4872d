"""The Dagster instance of a warehouse: its run history, event log and settings."""

from __future__ import annotations

from pathlib import Path

SETTINGS = """\
# Written by tracemill; edit freely, it is only written where it is missing.
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
