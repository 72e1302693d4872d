"""`tracemill sql`: a read-only query over every run."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from pipelines.options import warehouse, warehouse_root

SHOWN_ROWS = 1_000  # of a table for people; the other formats give every row


@click.command()
@click.argument("query", required=False)
@click.option("--format", "style", type=click.Choice(["table", "csv", "json"]), default="table", show_default=True)
@warehouse
def sql(query: str | None, style: str, root: Path | None) -> None:
    """Run QUERY (or standard input) over all tables and views; nothing can be changed.

    Tables: runs, requests, spans, bursts, passes, evidence, pressure, quarantine, admissions, chunks, acceptance,
    metrics (docs/tables.md).
    """
    from assets.views import open_store
    from perf_db.sqlsafe import run_sql
    from pipelines import tables

    if query is None:
        query = sys.stdin.read()
    most = SHOWN_ROWS + 1 if style == "table" else None
    names, rows = run_sql(open_store(warehouse_root(root)), query, most=most)
    if style == "csv":
        click.echo(tables.csv_text(names, rows), nl=False)
    elif style == "json":
        click.echo(tables.json_lines(names, rows), nl=False)
    else:
        click.echo(tables.text_table(names, rows[:SHOWN_ROWS]))
        if len(rows) > SHOWN_ROWS:
            click.echo(f"only the first {SHOWN_ROWS:,} rows are shown; all of them: --format csv", err=True)
