"""Exit codes, and the one place where an exception becomes a message."""

from __future__ import annotations

import errno
import os
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

OK = 0
DIFFERENT = 1  # a check failed, a golden case differs
BAD_INPUT = 2  # configuration, trace, a missing file, a deployment that cannot serve its load
INTERNAL = 70  # a defect of ours
INTERRUPTED = 130  # Ctrl-C, as shells count it


@contextmanager
def naming(config: Path) -> Iterator[None]:
    """Put the configuration's file before faults that are found where its name is not known."""
    from perf_db.gpu.errors import PerfDataError
    from sim.config import ConfigError

    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"{config}: {error}") from error
    except PerfDataError as error:
        raise PerfDataError(error.reason, f"{config}: {error}") from error


class Guarded(click.Group):
    """A command group whose commands may raise: people see one readable error, scripts see the exit code."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (click.exceptions.Exit, click.Abort, click.ClickException, BrokenPipeError):
            raise  # click's own business
        except KeyboardInterrupt as stopped:
            click.echo("interrupted", err=True)
            raise SystemExit(INTERRUPTED) from stopped
        except Exception as error:
            raise SystemExit(report(error)) from error


def report(error: Exception) -> int:
    """Say what went wrong on stderr; return the exit code that tells scripts whose fault it was."""
    message = _users_fault(error)
    if message is None:
        click.echo("".join(traceback.format_exception(error)), err=True, nl=False)
        click.echo("internal error: a defect in tracemill, not in your input; please report the lines above", err=True)
        return INTERNAL
    if os.environ.get("TRACEMILL_TRACEBACK"):
        click.echo("".join(traceback.format_exception(error)), err=True, nl=False)
    click.echo(f"error: {message}", err=True)
    return BAD_INPUT


def _users_fault(error: Exception) -> str | None:
    """The message when the person who typed the command can mend it, else None."""
    if isinstance(error, OSError) and error.filename is not None:
        return f"{os.fspath(error.filename)}: {error.strerror}"
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EROFS):
        return f"{error}; nothing is left behind: make room, or name another folder with -w"
    if isinstance(error, MemoryError):
        return f"not enough memory ({error}): fewer ranks, blocks or requests, or a larger machine"
    # Late: pydantic costs a tenth of a second, and most commands end well.
    from assets.errors import INPUT_ERRORS

    return str(error) if isinstance(error, INPUT_ERRORS) else None
