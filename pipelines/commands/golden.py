"""`tracemill golden check`: recorded answers of other engines against ours."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import click

from pipelines.exits import DIFFERENT


@click.group()
def golden() -> None:
    """Compare with recorded answers of other engines."""


@golden.command()
@click.argument("path", type=click.Path(exists=True, path_type=Path))
@click.option("--engine", type=click.Choice(["fast", "reference"]), default="fast", show_default=True)
@click.option("--profile", type=click.Choice(["vllm", "parity"]), help="Profile of vLLM cases.")
def check(path: Path, engine: Literal["fast", "reference"], profile: Literal["vllm", "parity"] | None) -> None:
    """Replay every case file in PATH and compare; exit code 1 when one differs."""
    from assets.golden.check import check_dir

    report = check_dir(path, engine=engine, profile=profile, echo=lambda result: click.echo(result.line))
    click.echo(report.closing)
    if report.exit_code:
        raise SystemExit(DIFFERENT)
