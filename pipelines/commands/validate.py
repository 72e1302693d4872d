"""`tracemill validate`: a configuration or a trace, looked at without running anything."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from pipelines.commands.trace import how_to_read, reading_options
from pipelines.exits import naming

CONFIG_ENDINGS = {".yaml", ".yml"}


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a field of a configuration.")
@how_to_read
def validate(file: Path, overrides: tuple[str, ...], strict: bool, **how: Any) -> None:
    """Check FILE, a configuration (.yaml) or a trace, without running it. What a replay refuses is refused here, too.

    The options about columns, formats and units are for traces; a configuration has fields for them.
    """
    if file.suffix.lower() in CONFIG_ENDINGS:
        _configuration(file, overrides, strict)
    else:
        _trace(file, reading_options(**how, strict=strict))


def _configuration(file: Path, overrides: tuple[str, ...], strict: bool) -> None:
    from assets.inputs import prepare
    from sim.config import load_run_config
    from sim.config.traffic import Trace

    config = load_run_config(file, overrides=overrides)
    if strict and isinstance(config.traffic.source, Trace):
        config = load_run_config(file, overrides=(*overrides, "traffic.source.strict=true"))
    with naming(file):
        inputs = prepare(config, base=file.parent)
    for warning in inputs.warnings:
        click.echo(f"warning: {warning}", err=True)
    click.echo(f"{file}: ready to replay {len(inputs.workload):,} requests on {inputs.spec.ranks} rank(s)")


def _trace(file: Path, how: dict[str, Any]) -> None:
    from assets.ingest import TraceError, read_trace
    from assets.quarantine_limits import judge
    from assets.trace_stats import conditions
    from sim.config.traffic import QuarantineLimits

    trace = read_trace(file, needs_timestamps=None, **how)
    counts = trace.counts
    click.echo(f"{file}: {trace.format} ({trace.why})")
    click.echo(f"{counts.rows_read:,} rows read = {counts.clean:,} clean + {counts.quarantined:,} quarantined")
    for reason, n in trace.quarantine.reasons().items():
        line = trace.quarantine.source_line[trace.quarantine.reason.index(reason)]
        click.echo(f"  {reason}: {n:,}, first in line {line}")
    for note in (*trace.warnings, *conditions(trace)):
        if "in quarantine" not in note:
            click.echo(f"note: {note}")
    if failed := judge(counts.rows_read, trace.quarantine.reasons(), QuarantineLimits()).failed:
        raise TraceError(f"{file}: {failed}; mend the file, or raise the limit in the configuration")
