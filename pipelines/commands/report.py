"""`tracemill report`: a run, or the difference of two, as one HTML file."""

from __future__ import annotations

import os
from pathlib import Path

import click

from pipelines.commands.baseline import baselines_folder, recorded
from pipelines.options import NewFile, warehouse, warehouse_root


@click.command()
@click.argument("runs", nargs=-1)
@click.option(
    "-o",
    "--output",
    type=NewFile(),
    required=True,
    help="The HTML file; written anew if it is there.",
)
@baselines_folder
@warehouse
def report(runs: tuple[str, ...], output: Path, folder: Path, root: Path | None) -> None:
    """Write a page about RUN, or about BASE and HEAD, that needs no network and no server.

    Each is "last", a name, the beginning of an id, or baseline:NAME. Without any: the last run.
    """
    if len(runs) > 2:
        raise click.UsageError(f"give one run or two, not {len(runs)}")
    from assets.desk.report.of_diff import diff_page
    from assets.desk.report.of_run import run_page
    from assets.views import open_store

    store = open_store(warehouse_root(root))
    sides = [recorded(store, word, folder) for word in runs or ("last",)]
    text = run_page(sides[0]) if len(sides) == 1 else diff_page(sides[0], sides[1])
    aside = output.with_name(f".{output.name}.{os.getpid()}")
    try:
        aside.write_text(text, encoding="utf-8")
        os.replace(aside, output)
    finally:
        aside.unlink(missing_ok=True)
    what = " and ".join(side.run["run_id"] for side in sides)
    click.echo(f"{output}: {what} ({output.stat().st_size / 1e6:.1f} MB, self-contained)")
