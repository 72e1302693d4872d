"""`tracemill accuracy`: predictions beside measurements."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from pipelines.exits import DIFFERENT
from pipelines.options import warehouse, warehouse_root


def pairs(values: tuple[str, ...], option: str) -> dict[str, str]:
    """NAME=VALUE options as a mapping."""
    found = {}
    for text in values:
        name, sign, value = text.partition("=")
        if not name or not sign:
            raise click.BadParameter(f"{text!r}: write NAME=VALUE", param_hint=option)
        found[name] = value
    return found


def truth_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Options of every command that reads a file of measurements."""
    options = (
        click.option("--name", help="Name of the set.  [default: the file's]"),
        click.option("--format", "form", help="How the file is written.  [default: recognised by content]"),
        click.option(
            "--about", multiple=True, metavar="FACT=VALUE", help="What the file does not say: model, system, …"
        ),
        click.option(
            "--where", multiple=True, metavar="COLUMN=VALUE", help="Only rows that answer to it; != excludes."
        ),
        click.option(
            "--deployments",
            "engine",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            help="Run configuration of the engine that requests or passes were measured on; its traffic is not used.",
        ),
        click.option(
            "--prefixes",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            help="Trace of the same requests with prefix hashes, in the log's order.",
        ),
        click.option(
            "--perf-root",
            type=click.Path(exists=True, file_okay=False, path_type=Path),
            help="Folder of performance data.  [default: the perfdata extra]",
        ),
        click.option("--clean/--no-clean", default=True, show_default=True, help="Repair the performance data first."),
        click.option(
            "--term", "terms", multiple=True, help="Host constants to fit.  [default: chosen by held-out error]"
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


@click.command()
@click.argument("truth", metavar="GT")
@truth_options
@click.option(
    "--snapshot",
    "snapshot_file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Constants to predict with, as tracemill calibrate wrote them.",
)
@click.option("--drift", is_flag=True, help="Hold the errors against those of the snapshot; exit code 1 if it drifted.")
@click.option(
    "--register", "is_registered", is_flag=True, help="Offer GT as a partition: tracemill ui checks it weekly."
)
@click.option("-o", "--output", type=click.Path(file_okay=False, path_type=Path), help="Folder for the report's files.")
@warehouse
def accuracy(
    truth: str,
    name: str | None,
    form: str | None,
    about: tuple[str, ...],
    where: tuple[str, ...],
    engine: Path | None,
    prefixes: Path | None,
    perf_root: Path | None,
    clean: bool,
    terms: tuple[str, ...],
    snapshot_file: Path | None,
    drift: bool,
    is_registered: bool,
    output: Path | None,
    root: Path | None,
) -> None:
    """How right are we? GT is a file of measurements, or a stored set, whose report is then made again.

    Measured deployments are replayed as closed loops and priced from performance data; measured requests and passes by
    the engine of --deployments. Rows without a prediction are counted with the reason.
    """
    from assets.accuracy.drift import check, drift_text
    from assets.accuracy.study import evaluate, stored, write_files
    from assets.accuracy.text import report_text
    from assets.calibration.snapshot import load
    from assets.views import open_store

    store = open_store(warehouse_root(root))
    path = Path(truth)
    if is_registered:
        options = {"form": form, "about": pairs(about, "--about"), "where": list(where), "terms": list(terms)}
        files = {"deployments": engine, "prefixes": prefixes, "perf_root": perf_root}
        _register(warehouse_root(root), path, name or path.stem, snapshot_file, files, options)
        return
    if drift and snapshot_file is None:
        raise click.BadParameter("needs the --snapshot to hold the errors against", param_hint="--drift")
    snapshot = None if snapshot_file is None else load(snapshot_file)
    if not path.is_file():
        study = stored(store, truth)
    else:
        from assets.accuracy.importers import read_truth
        from assets.accuracy.sources import about_of, engine_of, filter_of, prefixes_of

        found = read_truth(path, about=about_of(name or path.stem, pairs(about, "--about")), form=form)
        study = evaluate(
            found,
            store,
            spec=None if engine is None else engine_of(engine)[0],
            snapshot=snapshot,
            prefixes=None if prefixes is None else prefixes_of(prefixes, found),
            perf_root=perf_root,
            clean=clean,
            terms=terms or None,
            keep=filter_of(where),
            progress=lambda text: click.echo(text, err=True),
        )
        if found.set_aside:
            aside = ", ".join(f"{n:,} {reason}" for reason, n in found.set_aside.items())
            click.echo(f"set aside at reading: {aside}")
    click.echo(report_text(study.report))
    if output is not None:
        click.echo("\nwritten: " + ", ".join(str(each) for each in write_files(study, output)))
    if drift and snapshot is not None:
        rows = check(study, snapshot, store)
        click.echo("\n" + (drift_text(rows) or "nothing to compare: no metric of the snapshot was predicted"))
        if any(row["alert"] for row in rows):
            raise SystemExit(DIFFERENT)


def _register(
    root: Path, truth: Path, name: str, snapshot: Path | None, files: dict[str, Path | None], options: dict[str, Any]
) -> None:
    from assets.accuracy.registry import Watched
    from pipelines.instance import open_instance
    from pipelines.truths import register_truth

    if snapshot is None:
        raise click.BadParameter("needs the --snapshot that constants are kept in", param_hint="--register")
    whole: dict[str, Any] = {k: None if path is None else str(path.absolute()) for k, path in files.items()}
    watched = Watched(name, str(truth.absolute()), str(snapshot.absolute()), **whole, **options)
    with open_instance(root) as instance:
        key = register_truth(instance, root, watched)
    click.echo(
        f"{key}: choose this partition of the job accuracy_graph in the UI (tracemill ui); the schedule drift_check "
        "runs it every week once it is switched on"
    )
