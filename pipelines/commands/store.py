"""`tracemill store`: looking after the warehouse."""

from __future__ import annotations

from pathlib import Path

import click

from pipelines.options import warehouse, warehouse_root


@click.group()
def store() -> None:
    """Rebuild or tidy the warehouse."""


@store.command()
@warehouse
def rebuild(root: Path | None) -> None:
    """Make the DuckDB file anew from the committed runs, for instance after moving the folder."""
    from assets.views import open_store

    target = open_store(warehouse_root(root))
    target.rebuild()
    click.echo(f"{len(target.runs())} run(s) in {target.database}")


@store.command()
@warehouse
def sweep(root: Path | None) -> None:
    """Remove what killed writers left behind."""
    from assets.views import open_store

    removed = open_store(warehouse_root(root)).sweep()
    click.echo(f"{len(removed)} leftover(s) removed")
