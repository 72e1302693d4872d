"""`tracemill runs`, `show`: what is in the warehouse."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from pipelines.options import warehouse, warehouse_root

COLUMNS = ("run_id", "name", "profile", "n_requests", "n_completed", "n_passes", "n_quarantined", "engine_ms")
# What tells two runs of a name apart, beside their configuration.
_DIGESTS = {"trace_digest": "trace", "performance_digest": "performance data", "engine_digest": "engine"}


@click.command()
@warehouse
def runs(root: Path | None) -> None:
    """List the runs in the warehouse, newest last.

    Column `other` says what differs from the oldest run of the same name: settings, trace, performance data, engine.
    """
    from assets.views import open_store
    from pipelines.tables import text_table

    store = open_store(warehouse_root(root))
    about = ", ".join((*COLUMNS, "config_json", *_DIGESTS))
    with store.connect() as con:
        rows = con.execute(f"SELECT {about} FROM runs ORDER BY run_id").fetchall()
    named = [dict(zip((*COLUMNS, "config_json", *_DIGESTS), row, strict=True)) for row in rows]
    oldest: dict[str, Mapping[str, Any]] = {}
    shown = []
    for row in named:
        first = oldest.setdefault(row["name"], row)
        shown.append([*(row[c] for c in COLUMNS), ", ".join(_others(first, row)) or None])
    click.echo(text_table((*COLUMNS, "other"), shown))


def _others(first: Mapping[str, Any], row: Mapping[str, Any]) -> Sequence[str]:
    """What was set otherwise, the last part of each field's name, and which digests differ."""
    if first["config_json"] == row["config_json"]:
        changed = []
    else:
        from assets.desk.inputs import settings

        changes = settings(json.loads(first["config_json"]), json.loads(row["config_json"]))
        changed = [f"{c.field.rpartition('.')[2]}={c.head}" for c in changes]
    return [*changed, *(word for column, word in _DIGESTS.items() if first[column] != row[column])]


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
    click.echo(summary_text(row, metrics, store))
    click.echo(next_steps(store.database, row))


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
