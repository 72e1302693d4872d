"""`tracemill runs`, `show`: what is in the warehouse."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from pipelines.options import warehouse, warehouse_root

COLUMNS = ("run_id", "name", "profile", "n_requests", "n_completed", "n_passes", "n_quarantined", "engine_ms")


@click.command()
@warehouse
def runs(root: Path | None) -> None:
    """List the runs in the warehouse, newest last."""
    from assets.views import open_store
    from pipelines.tables import text_table

    store = open_store(warehouse_root(root))
    with store.connect() as con:
        rows = con.execute(f"SELECT {', '.join(COLUMNS)} FROM runs ORDER BY run_id").fetchall()
    click.echo(text_table(COLUMNS, rows))


@click.command()
@click.argument("run", default="last")
@warehouse
def show(run: str, root: Path | None) -> None:
    """Show the summary of RUN again: "last", a name, or the beginning of a run id."""
    from assets.views import open_store
    from pipelines.summary import next_steps, summary_text

    store = open_store(warehouse_root(root))
    run_id = store.resolve(run)
    row, metrics = stored_run(store, run_id)
    click.echo(summary_text(row, metrics))
    click.echo(next_steps(store.database, run_id))


def stored_run(store: Any, run_id: str) -> tuple[dict[str, Any], list[tuple[Any, ...]]]:
    """(row of `runs`, rows of `metrics`) of a committed run."""
    with store.connect() as con:
        cursor = con.execute("SELECT * FROM runs WHERE run_id = ?", [run_id])
        names = [d[0] for d in cursor.description]
        row = dict(zip(names, cursor.fetchone(), strict=True))
        metrics = con.execute(
            "SELECT scope, metric, stat, value, unit, n FROM metrics WHERE run_id = ?", [run_id]
        ).fetchall()
    return row, metrics
