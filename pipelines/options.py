"""Options that several commands share."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])

WAREHOUSE_HELP = "Folder of the results.  [default: $TRACEMILL_WAREHOUSE or ./warehouse]"


class NewFile(click.Path):
    """A file to write, in a folder that is there: said before the work is done, not after."""

    def __init__(self) -> None:
        super().__init__(dir_okay=False, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        path = Path(os.fsdecode(super().convert(value, param, ctx)))
        if not path.parent.is_dir():
            self.fail(f"the folder {path.parent} does not exist; make it, or write elsewhere", param, ctx)
        return path


def warehouse(command: Command) -> Command:
    """`-w DIR`: where results live; the command receives `root`, None when nobody said."""
    return click.option(
        "-w", "--warehouse", "root", type=click.Path(file_okay=False, path_type=Path), help=WAREHOUSE_HELP
    )(command)


def warehouse_root(root: Path | None) -> Path:
    """The results folder as an absolute path: option, environment, `./warehouse`, in that order."""
    return (root or Path(os.environ.get("TRACEMILL_WAREHOUSE") or "warehouse")).absolute()
