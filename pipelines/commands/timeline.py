"""`tracemill timeline`: a run as a trace for Perfetto."""

from __future__ import annotations

from pathlib import Path

import click

from pipelines.commands.baseline import baselines_folder, recorded
from pipelines.options import NewFile, warehouse, warehouse_root


@click.command()
@click.argument("run", default="last")
@click.option(
    "-o",
    "--output",
    type=NewFile(),
    required=True,
    help="File to write: trace.json.gz is packed with gzip, any name without .gz is plain JSON.",
)
@click.option("--from", "from_s", type=float, help="Start of the window, seconds of virtual time.")
@click.option("--to", "to_s", type=float, help="End of the window.")
@click.option(
    "--max-events",
    type=click.IntRange(min=1),
    default=500_000,
    show_default=True,
    help="Where there would be more, the window ends sooner.",
)
@baselines_folder
@warehouse
def timeline(
    run: str,
    output: Path,
    from_s: float | None,
    to_s: float | None,
    max_events: int,
    folder: Path,
    root: Path | None,
) -> None:
    """Write passes, requests, KV pool and queues of RUN as Chrome trace events; open the file in ui.perfetto.dev.

    RUN is "last", a name, the beginning of an id, or baseline:NAME.
    """
    from assets.desk.timeline import write_timeline
    from assets.views import open_store

    side = recorded(open_store(warehouse_root(root)), run, folder)
    done = write_timeline(side, output, from_s=from_s, to_s=to_s, max_events=max_events)
    click.echo(
        f"{output}: {done.n_passes:,} passes and {done.n_requests:,} requests, {done.n_events:,} events, "
        f"{done.from_ns / 1e9:,.3f} to {done.to_ns / 1e9:,.3f} s"
    )
    if done.cut:
        click.echo(f"cut at {done.to_ns / 1e9:,.3f} s by --max-events; --from goes on from there", err=True)
