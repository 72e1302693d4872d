"""`tracemill baseline`: what was accepted, and whether it still holds."""

from __future__ import annotations

import getpass
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pipelines.exits import DIFFERENT
from pipelines.options import warehouse, warehouse_root

if TYPE_CHECKING:
    from assets.desk.baselines import Check
    from assets.desk.pair import Recorded
    from perf_db.store import Store

PREFIX = "baseline:"


def baselines_folder(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--baselines DIR`: where baselines are kept; the command receives `folder`."""
    return click.option(
        "--baselines",
        "folder",
        type=click.Path(file_okay=False, path_type=Path),
        default=Path("baselines"),
        show_default=True,
        help="Folder of the baselines.",
    )(command)


def recorded(store: Store, word: str, folder: Path) -> Recorded:
    """The run a person means: `baseline:NAME`, or anything the store resolves."""
    from assets.desk.baselines import BaselineError, load, rows_of
    from assets.desk.pair import Recorded

    if not word.startswith(PREFIX):
        return Recorded.of_store(store, word)
    kept = load(folder, word.removeprefix(PREFIX))
    rows = rows_of(kept, store)
    if rows is None:
        run_id = kept.recorded.run["run_id"]
        raise BaselineError(f"the rows of {word} are in run {run_id}, which {store.root} does not hold")
    return rows


@click.group()
def baseline() -> None:
    """Accept runs as reference for later ones, and check them."""


@baseline.command()
@click.argument("run", default="last")
@click.option("--reason", default="", help="Why it is right; required.")
@click.option("--name", help="Name of the baseline.  [default: the run's]")
@click.option("--author", help="Who accepts it.  [default: $TRACEMILL_AUTHOR, git's user.name, or the login]")
@click.option(
    "--tolerance",
    "tolerances",
    multiple=True,
    metavar="FIGURE=SHARE",
    help="Largest relative change that is no difference: ttft.p99=0.01, ttft=0.01 or *=0.001.",
)
@baselines_folder
@warehouse
def accept(
    run: str,
    reason: str,
    name: str | None,
    author: str | None,
    tolerances: tuple[str, ...],
    folder: Path,
    root: Path | None,
) -> None:
    """Make RUN ("last", a name, the beginning of an id) the baseline of its name.

    Refused without a reason, when the difference from the baseline before cannot be explained, and when the run breaks
    a law. What it changes is recorded with it.
    """
    from assets.desk import baselines
    from assets.desk.text import diff_text
    from assets.views import open_store

    made, diff = baselines.accept(
        open_store(warehouse_root(root)),
        run,
        folder=folder,
        reason=reason,
        author=author or author_of(),
        name=name,
        tolerances=_tolerances(tolerances) if tolerances else None,
    )
    if diff is not None:
        click.echo(diff_text(diff) + "\n")
    where = "its metrics only: the run is large, keep it" if made.pinned else "with its tables"
    click.echo(f"accepted {made.recorded.run['run_id']} as {folder / made.name} ({where}); commit that folder")


@baseline.command()
@click.argument("which", nargs=-1)
@click.option("--run", help="The run to check.  [default: the latest of the baseline's run name]")
@baselines_folder
@warehouse
def check(which: tuple[str, ...], run: str | None, folder: Path, root: Path | None) -> None:
    """Hold the latest runs against the baselines WHICH, or all of them.

    Exit code 0: each holds the accepted rows, or its figures are within their tolerances. 1: one differs.
    """
    from assets.desk import baselines
    from assets.desk.pair import Recorded
    from assets.views import open_store

    store = open_store(warehouse_root(root))
    wanted = which or tuple(baselines.names(folder))
    if not wanted:
        raise baselines.BaselineError(
            f"no baselines in {folder}; make one with: tracemill baseline accept RUN --reason …"
        )
    passed = True
    for name in wanted:
        kept = baselines.load(folder, name)
        head = Recorded.of_store(store, run) if run else baselines.latest_run(store, kept)
        found = baselines.check(kept, head, store)
        click.echo(_verdict(found))
        passed &= found.passed
    if not passed:
        raise SystemExit(DIFFERENT)


@baseline.command()
@click.argument("which", nargs=-1)
@baselines_folder
def history(which: tuple[str, ...], folder: Path) -> None:
    """Who accepted what, when and why."""
    from assets.desk import baselines
    from pipelines.tables import text_table

    names = ("baseline", "accepted_at", "author", "reason", "input_change", "mechanism", "run_id")
    rows = [
        [entry[n] for n in names]
        for name in which or baselines.names(folder)
        for entry in baselines.load(folder, name).history
    ]
    click.echo(text_table(names, rows))


def _verdict(found: Check) -> str:
    from assets.desk.text import diff_text

    name, run_id = found.baseline.name, found.run["run_id"]
    if found.same:
        return f"same     {name}: run {run_id} holds the accepted rows"
    if found.passed:
        return f"within   {name}: run {run_id} moves {len(found.moved)} figures, all within their tolerances"
    what = f"DIFFERS  {name}: run {run_id}"
    if found.baseline.tolerances:
        told = ", ".join(f"{f.metric} {f.stat}" for f in found.beyond[:8])
        what += f"; beyond tolerance: {told}" + (" …" if len(found.beyond) > 8 else "")
    if found.diff is None:
        return f"{what}\nthe baseline's rows are not here, so only figures could be compared"
    return f"{what}\n\n{diff_text(found.diff)}\n"


def _tolerances(given: tuple[str, ...]) -> dict[str, float]:
    found = {}
    for text in given:
        figure, _, share = text.partition("=")
        try:
            found[figure] = float(share)
        except ValueError:
            found[figure] = -1.0
        if not figure or not 0 <= found[figure] < float("inf"):
            raise click.BadParameter(f"{text!r}: write FIGURE=SHARE, such as ttft.p99=0.01", param_hint="--tolerance")
    return found


def author_of() -> str:
    """Who is at the keyboard: $TRACEMILL_AUTHOR, git's user.name, or the login."""
    if named := os.environ.get("TRACEMILL_AUTHOR"):
        return named
    try:
        asked = subprocess.run(["git", "config", "user.name"], capture_output=True, text=True, check=False)
        return asked.stdout.strip() or getpass.getuser()
    except OSError:
        return getpass.getuser()
