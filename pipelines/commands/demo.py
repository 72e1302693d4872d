"""`tracemill demo`: the shipped trace through the whole Dagster graph, in this process."""

from __future__ import annotations

from pathlib import Path

import click

from pipelines.exits import DIFFERENT, INTERNAL
from pipelines.options import warehouse, warehouse_root

CONFIG = Path(__file__).parents[2] / "examples" / "demo.yaml"


@click.command()
@warehouse
def demo(root: Path | None) -> None:
    """Replay the trace that ships with the project: trace, engine, tables, checks, summary."""
    if not CONFIG.exists():
        raise click.ClickException(f"{CONFIG} is missing: the demo runs from a clone of the repository")
    from pipelines.compiling import compile_kernels

    compile_kernels()
    click.echo("Materialising trace -> performance -> replay -> tables -> metrics with Dagster ...", err=True)
    from pipelines.materialize import materialize

    folder = warehouse_root(root)
    result = materialize(folder, CONFIG)
    click.echo(result.text())
    if result.fault:
        raise SystemExit(INTERNAL)  # trace and configuration are ours
    if not result.passed:
        raise SystemExit(DIFFERENT)
    from assets.views import open_store
    from pipelines.commands.runs import stored_run
    from pipelines.summary import next_steps, summary_text

    store = open_store(folder)
    row, metrics = stored_run(store, result.run_id)
    click.echo("\n" + summary_text(row, metrics, store) + "\n" + next_steps(store.database, row))
