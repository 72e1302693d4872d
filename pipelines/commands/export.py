"""`tracemill export`: the tables of a run as files."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import click

from pipelines.options import warehouse, warehouse_root


@click.command()
@click.argument("run", default="last")
@click.option("-o", "--output", type=click.Path(file_okay=False, path_type=Path), help="Folder.  [default: RUN]")
@click.option("--format", "style", type=click.Choice(["csv", "parquet"]), default="csv", show_default=True)
@click.option("--table", "tables", multiple=True, help="Only this table; may be given several times.  [default: all]")
@warehouse
def export(
    run: str, output: Path | None, style: Literal["csv", "parquet"], tables: tuple[str, ...], root: Path | None
) -> None:
    """Write the tables of RUN ("last", a name, the beginning of an id) as CSV or parquet files."""
    from assets.views import open_store
    from perf_db.export import export_run

    store = open_store(warehouse_root(root))
    run_id = store.resolve(run)
    target = output or Path(run_id)
    for path, n_rows in export_run(store, run_id, target, format=style, tables=tables or None):
        click.echo(f"{path}  {n_rows:,} rows")
