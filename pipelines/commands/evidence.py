"""`tracemill evidence`: two runs and what is to be said about them, in a folder that proves itself."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from pipelines.commands.baseline import baselines_folder, recorded
from pipelines.exits import DIFFERENT
from pipelines.options import warehouse, warehouse_root


@click.command()
@click.argument("base", required=False)
@click.argument("head", default="last")
@click.option("-o", "--output", type=click.Path(file_okay=False, path_type=Path), help="Folder of the pack.")
@click.option(
    "--check",
    "pack",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Make the pack in this folder again from its raw tables, and compare cell by cell.",
)
@baselines_folder
@warehouse
def evidence(
    base: str | None, head: str, output: Path | None, pack: Path | None, folder: Path, root: Path | None
) -> None:
    """Write an evidence pack about runs BASE and HEAD ("last", a name, the beginning of an id, baseline:NAME).

    It holds evidence.md for a pull request, evidence.json for programs, and the raw tables both follow from.
    """
    if (pack is None) == (base is None):
        raise click.UsageError("give BASE, HEAD and -o DIR, or --check DIR")
    from assets.desk import evidence as packs

    if pack is not None:
        faults = packs.rebuild(pack)
        click.echo("\n".join(faults) or f"{pack}: every cell follows from its raw tables")
        if faults:
            raise SystemExit(DIFFERENT)
        return
    if output is None or base is None:
        raise click.UsageError("give a folder for the pack: -o DIR")
    from assets.views import open_store

    store = open_store(warehouse_root(root))
    sides = [recorded(store, word, folder) for word in (base, head)]
    command = shlex.join(["tracemill", "evidence", *(side.run["run_id"] for side in sides), "-o", output.name])
    data = packs.build(sides[0], sides[1], output, command=command)
    (scenario,) = data["scenarios"]
    verdict = "the same rows" if scenario["diff"]["same"] else "different"
    n = sum(len(found) for found in scenario["anomalies"].values())
    click.echo(f"{output / packs.PAGE}: {verdict}; anomalies: {n}")
