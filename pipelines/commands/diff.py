"""`tracemill diff`: what changed between two runs, why, and what it amounts to."""

from __future__ import annotations

import json
from pathlib import Path

import click

from pipelines.commands.baseline import baselines_folder, recorded
from pipelines.exits import DIFFERENT
from pipelines.options import warehouse, warehouse_root


@click.command()
@click.argument("base")
@click.argument("head", default="last")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")
@click.option("--all", "everything", is_flag=True, help="Show every figure, not the usual ones only.")
@baselines_folder
@warehouse
def diff(base: str, head: str, as_json: bool, everything: bool, folder: Path, root: Path | None) -> None:
    """Compare run HEAD with run BASE ("last", a name, the beginning of an id, baseline:NAME).

    Without HEAD it is the last run.

    Exit code 0: the same rows. 1: they differ.
    """
    from assets.desk.diff import diff_runs
    from assets.views import open_store

    store = open_store(warehouse_root(root))
    found = diff_runs(recorded(store, base, folder), recorded(store, head, folder))
    if as_json:
        click.echo(json.dumps(found.as_json(), indent=1, default=str))
    else:
        from assets.desk.text import diff_text

        click.echo(diff_text(found, everything=everything))
    if not found.same:
        raise SystemExit(DIFFERENT)
