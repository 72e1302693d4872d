"""Options that several commands share."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])

WAREHOUSE_HELP = "Folder of the results.  [default: $TRACEMILL_WAREHOUSE or ./warehouse]"


def warehouse(command: Command) -> Command:
    """`-w DIR`: where results live; the command receives `root`, None when nobody said."""
    return click.option(
        "-w", "--warehouse", "root", type=click.Path(file_okay=False, path_type=Path), help=WAREHOUSE_HELP
    )(command)


def warehouse_root(root: Path | None) -> Path:
    """The results folder as an absolute path: option, environment, `./warehouse`, in that order."""
    return (root or Path(os.environ.get("TRACEMILL_WAREHOUSE") or "warehouse")).absolute()
