"""`tracemill anomalies`: is anything wrong, or strange, with a run?"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click

from pipelines.exits import DIFFERENT
from pipelines.options import warehouse, warehouse_root


@click.command()
@click.argument("run", default="last")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list instead of text.")
@warehouse
def anomalies(run: str, as_json: bool, root: Path | None) -> None:
    """Examine RUN ("last", a name, the beginning of an id) and note what is found in table `anomalies`.

    Exit code 0: nothing. 1: something was found.
    """
    from assets.desk.anomalies import claims, examine
    from assets.views import open_store

    store = open_store(warehouse_root(root))
    run_id = store.resolve(run)
    found = examine(store, run_id)
    if as_json:
        click.echo(json.dumps([asdict(a) for a in found], indent=1))
    else:
        for a in found:
            rows = "1 row" if a.n_rows == 1 else f"{a.n_rows:,} rows"
            click.echo(f"{a.severity:<8} {a.check_name}  ({a.table_name}, {rows})")
            click.echo(f"         {a.row_key}: {a.explanation}")
        told = (
            f"{len(found)} of {len(claims())} checks found something" if found else f"{len(claims())} checks, all fine"
        )
        click.echo(f"run {run_id}: {told}")
    if found:
        raise SystemExit(DIFFERENT)
