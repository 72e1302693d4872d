"""`tracemill validate`: a configuration or a trace, looked at without running anything."""

from __future__ import annotations

from pathlib import Path

import click

CONFIG_ENDINGS = {".yaml", ".yml"}


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a field of a configuration.")
@click.option("--format", "form", help="Format of a trace.  [default: found out]")
def validate(file: Path, overrides: tuple[str, ...], form: str | None) -> None:
    """Check FILE, a configuration (.yaml) or a trace, without running it."""
    if file.suffix.lower() in CONFIG_ENDINGS:
        _configuration(file, overrides)
    else:
        _trace(file, form)


def _configuration(file: Path, overrides: tuple[str, ...]) -> None:
    from assets.inputs import prepare
    from sim.config import load_run_config

    inputs = prepare(load_run_config(file, overrides=overrides), base=file.parent)
    for warning in inputs.warnings:
        click.echo(f"warning: {warning}", err=True)
    click.echo(f"{file}: ready to replay {len(inputs.workload):,} requests on {inputs.spec.ranks} rank(s)")


def _trace(file: Path, form: str | None) -> None:
    from assets.ingest import read_trace

    trace = read_trace(file, format=form)
    counts = trace.counts
    click.echo(f"{file}: {trace.format} ({trace.why})")
    click.echo(f"{counts.rows_read:,} rows read = {counts.clean:,} clean + {counts.quarantined:,} quarantined")
    for reason, n in trace.quarantine.reasons().items():
        line = trace.quarantine.source_line[trace.quarantine.reason.index(reason)]
        click.echo(f"  {reason}: {n:,}, first in line {line}")
