"""The Dagster instance of a warehouse: its run history, event log and settings."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

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


def open_instance(root: Path, home: Path | None = None) -> DagsterInstance:
    """An instance.

    Args:
        home: folder of another deployment's instance, with its dagster.yaml; None: the one that `tracemill ui` shows.
    """
    from dagster import DagsterInstance

    return DagsterInstance.from_config(str(home.absolute() if home else dagster_home(root)))


def home_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--dagster-home DIR`: the command receives `home`, None when nobody said."""
    return click.option(
        "--dagster-home",
        "home",
        type=click.Path(exists=True, file_okay=False, path_type=Path),
        help="Instance folder of another Dagster deployment.  [default: the warehouse's own]",
    )(command)
