"""`tracemill perf time`: where the time of a run went, operator by operator."""

from __future__ import annotations

import json
from pathlib import Path

import click

from pipelines.options import warehouse, warehouse_root
from pipelines.tables import text_table

COLUMNS = ("role", "phase", "operator", "n_lookups", "total_ms", "share")


@click.command()
@click.argument("run", default="last")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
@warehouse
def time(run: str, as_json: bool, root: Path | None) -> None:
    """Time of RUN ("last", a name, the beginning of an id) by phase and operator, the largest share first.

    The same is in the view time_by_operator; operators need prices of estimation_mode op_level.
    """
    from assets.views import open_store

    store = open_store(warehouse_root(root))
    run_id = store.resolve(run)
    with store.connect() as con:
        rows = con.execute(
            f"SELECT {', '.join(COLUMNS)} FROM time_by_operator WHERE run_id = ? "
            "ORDER BY total_ms DESC, phase, operator",
            [run_id],
        ).fetchall()
    if as_json:
        for row in rows:
            click.echo(json.dumps(dict(zip(COLUMNS, row, strict=True))))
        return
    shown = [(*row[:4], f"{row[4]:,.1f}", f"{row[5] or 0:.2%}") for row in rows]
    click.echo(f"run {run_id}")
    click.echo(text_table(COLUMNS, shown))
