"""`tracemill accuracy`: predictions beside measurements."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from pipelines.exits import DIFFERENT
from pipelines.options import warehouse, warehouse_root
from pipelines.truth_options import TruthOptions, truth_options


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
    given: TruthOptions,
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
    from assets.accuracy.sources import engine_of
    from assets.accuracy.study import evaluate, stored, write_files
    from assets.accuracy.text import constants_text, report_text
    from assets.calibration.snapshot import fitted_to_another, load
    from assets.views import open_store

    store = open_store(warehouse_root(root))
    path = Path(truth)
    if is_registered:
        _register(warehouse_root(root), path, given, snapshot_file)
        return
    if drift and snapshot_file is None:
        raise click.BadParameter("needs the --snapshot to hold the errors against", param_hint="--drift")
    snapshot = None if snapshot_file is None else load(snapshot_file)
    if not path.is_file():
        study = stored(store, truth)
    else:
        found = given.read(path)
        spec, identity = (None, {}) if given.engine is None else engine_of(given.engine)
        if snapshot is not None and (warning := fitted_to_another(snapshot, identity, str(snapshot_file))):
            click.echo(f"warning: {warning}", err=True)
        study = evaluate(
            found,
            store,
            spec=spec,
            snapshot=snapshot,
            prefixes=given.prefixes_of(found),
            perf_root=given.perf_root,
            clean=given.clean,
            terms=given.terms or None,
            keep=given.keep(),
            progress=lambda text: click.echo(text, err=True),
        )
        if found.set_aside:
            aside = ", ".join(f"{n:,} {reason}" for reason, n in found.set_aside.items())
            click.echo(f"set aside at reading: {aside}")
    file = None if snapshot_file is None else str(snapshot_file)
    click.echo(constants_text(study.report, study.accuracy, file))
    click.echo(report_text(study.report))
    if output is not None:
        click.echo("\nwritten: " + ", ".join(str(each) for each in write_files(study, output, snapshot=file)))
    if drift and snapshot is not None:
        rows = check(study, snapshot, store)
        click.echo("\n" + (drift_text(rows) or "nothing to compare: no metric of the snapshot was predicted"))
        if any(row["alert"] for row in rows):
            raise SystemExit(DIFFERENT)


def _register(root: Path, truth: Path, given: TruthOptions, snapshot: Path | None) -> None:
    from assets.accuracy.registry import Watched
    from pipelines.instance import open_instance
    from pipelines.truths import register_truth

    if snapshot is None:
        raise click.BadParameter("needs the --snapshot that constants are kept in", param_hint="--register")
    if not truth.is_file():
        raise click.BadParameter(
            f"{truth}: no such file; a registered set is read again from its file every time", param_hint="GT"
        )
    given.keep()  # says what is wrong with it now, not in next week's run
    found = given.read(truth)
    files = {"deployments": given.engine, "prefixes": given.prefixes, "perf_root": given.perf_root}
    whole: dict[str, Any] = {k: None if path is None else str(path.absolute()) for k, path in files.items()}
    options: dict[str, Any] = {"about": given.facts, "where": list(given.where), "terms": list(given.terms)}
    watched = Watched(found.name, str(truth.absolute()), str(snapshot.absolute()), form=given.form, **whole, **options)
    with open_instance(root) as instance:
        key = register_truth(instance, root, watched)
    click.echo(
        f"{key}: choose this partition of the job accuracy_graph in the UI (tracemill ui); the schedule drift_check "
        "runs it every week once it is switched on"
    )
