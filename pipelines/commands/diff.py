"""`tracemill diff`: what changed between two runs, why, and what it amounts to."""

from __future__ import annotations

import json
from pathlib import Path

import click

from pipelines.exits import DIFFERENT
from pipelines.options import warehouse, warehouse_root


@click.command()
@click.argument("base")
@click.argument("head", default="last")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")
@click.option("--all", "everything", is_flag=True, help="Show every figure, not the usual ones only.")
@warehouse
def diff(base: str, head: str, as_json: bool, everything: bool, root: Path | None) -> None:
    """Compare run HEAD with run BASE ("last", a name, the beginning of an id).

    Exit code 0: the same rows. 1: they differ.
    """
    from assets.desk.diff import diff_runs
    from assets.desk.pair import Recorded
    from assets.views import open_store

    store = open_store(warehouse_root(root))
    found = diff_runs(Recorded.of_store(store, base), Recorded.of_store(store, head))
    if as_json:
        click.echo(json.dumps(found.as_json(), indent=1, default=str))
    else:
        from assets.desk.text import diff_text

        click.echo(diff_text(found, everything=everything))
    if not found.same:
        raise SystemExit(DIFFERENT)
