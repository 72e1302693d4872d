"""`tracemill sql`: a read-only query over every run."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import click

from pipelines.options import warehouse, warehouse_root

SIZE = re.compile(r"[0-9]+(\.[0-9]+)?\s*[KMGT]i?B", re.IGNORECASE)
SHOWN_ROWS = 1_000  # of a table for people; the other formats give every row


@click.command()
@click.argument("query", required=False)
@click.option("--format", "style", type=click.Choice(["table", "csv", "json"]), default="table", show_default=True)
@click.option("--limit", type=click.IntRange(0), help="No more rows than this.  [default: 1000 in a table, else all]")
@click.option("--memory-limit", "memory", metavar="SIZE", help="Most memory for the query, as 500MB or 2GB.")
@warehouse
def sql(query: str | None, style: str, limit: int | None, memory: str | None, root: Path | None) -> None:
    """Run QUERY (or standard input) over all tables and views; nothing can be changed.

    Tables: runs, requests, spans, bursts, passes, evidence, pressure, quarantine, admissions, chunks, acceptance,
    handoffs, metrics (docs/tables.md).
    """
    from assets.views import open_store
    from perf_db.sqlsafe import answering
    from pipelines import tables

    if query is None:
        query = sys.stdin.read()
    if memory is not None and not SIZE.fullmatch(memory):
        raise click.BadParameter(f"{memory!r}: write a number and a unit, as 500MB or 2GB", param_hint="--memory-limit")
    store, most = open_store(warehouse_root(root)), limit
    if style == "table" and limit is None:
        most = SHOWN_ROWS + 1
    with answering(store, query, most=most, memory=memory) as (names, batches):
        if style == "csv":
            click.echo(tables.csv_text(names, []), nl=False)
            for rows in batches:
                click.echo(tables.csv_lines(rows), nl=False)
            return
        if style == "json":
            for rows in batches:
                click.echo(tables.json_lines(names, rows), nl=False)
            return
        every = [row for rows in batches for row in rows]
    shown = every if limit is not None else every[:SHOWN_ROWS]
    click.echo(tables.text_table(names, shown))
    if len(every) > len(shown):
        click.echo(f"only the first {SHOWN_ROWS:,} rows are shown; all of them: --format csv, or --limit", err=True)
