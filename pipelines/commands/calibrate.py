"""`tracemill calibrate`: constants fitted to measurements, with what they are worth."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pipelines.options import NewFile, warehouse, warehouse_root
from pipelines.truth_options import TruthOptions, pairs, truth_options

if TYPE_CHECKING:
    from assets.calibration.constants import Constant
    from assets.calibration.run import Calibrated


@click.command()
@click.argument("truth", metavar="GT", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@truth_options
@click.option("-o", "--output", required=True, type=NewFile(), help="Snapshot to write.")
@click.option("--free", multiple=True, metavar="NAME", help="Only these constants of a pass cost move.")
@click.option("--fix", multiple=True, metavar="NAME=VALUE", help="A constant of a pass cost that does not move.")
@click.option("--prior", multiple=True, metavar="NAME=VALUE[:SPREAD]", help="Value before the data; spread of its log.")
@click.option("--bound", multiple=True, metavar="NAME=LOW:HIGH", help="Bounds of a constant.")
@click.option(
    "--data-sheet",
    multiple=True,
    metavar="FACT=VALUE",
    help="Priors from one GPU's weight_bytes, kv_bytes_per_token, flops_per_token, bandwidth and flops.",
)
@click.option("--train-share", type=float, default=0.5, show_default=True, help="Of the requests, by arrival, to fit.")
@click.option("--repeats", type=click.IntRange(40), help="Of the fit, for the intervals.  [default: 200]")
@click.option("--seed", type=int, default=1, show_default=True)
@warehouse
def calibrate(
    truth: Path,
    given: TruthOptions,
    output: Path,
    free: tuple[str, ...],
    fix: tuple[str, ...],
    prior: tuple[str, ...],
    bound: tuple[str, ...],
    data_sheet: tuple[str, ...],
    train_share: float,
    repeats: int | None,
    seed: int,
    root: Path | None,
) -> None:
    """Fit constants to GT and write them as a snapshot.

    From a log of requests: what a pass costs, fitted by replaying the log on the engine of --deployments, its later
    part kept away and foretold. From a table of deployments: the host model, cross-validated over deployment groups.
    """
    from assets.accuracy.sources import engine_of
    from assets.accuracy.study import CACHE
    from assets.accuracy.truth import REQUEST
    from assets.calibration.run import calibrate_deployments, calibrate_requests, grain_of
    from assets.calibration.snapshot import save
    from assets.views import open_store
    from perf_db.tables import CALIBRATIONS

    if not 0 < train_share < 1:
        raise click.BadParameter("must lie between 0 and 1", param_hint="--train-share")
    store = open_store(warehouse_root(root))
    found = given.read(truth)
    say = lambda text: click.echo(text, err=True)  # noqa: E731
    if grain_of(found) == REQUEST:
        if given.engine is None:
            raise click.BadParameter(
                "a log of requests needs the engine it was measured on", param_hint="--deployments"
            )
        spec, identity = engine_of(given.engine)
        made = calibrate_requests(
            found,
            spec,
            identity=identity,
            constants=_constants(found, spec, free, fix, prior, bound, data_sheet, train_share),
            prefixes=given.prefixes_of(found),
            train_share=train_share,
            seed=seed,
            repeats=repeats,
            progress=say,
        )
    else:
        made = calibrate_deployments(
            found,
            perf_root=given.perf_root,
            cache=store.root / CACHE,
            clean=given.clean,
            terms=given.terms or None,
            keep=given.keep(),
            seed=seed,
            progress=say,
        )
    save(made.snapshot, output)
    store.note(CALIBRATIONS, made.snapshot.digest, made.rows)
    click.echo(_text(made))
    click.echo(f"\nwritten: {output}, snapshot {made.snapshot.digest}")


def _constants(
    found: Any,
    spec: Any,
    free: tuple[str, ...],
    fix: tuple[str, ...],
    prior: tuple[str, ...],
    bound: tuple[str, ...],
    data_sheet: tuple[str, ...],
    train_share: float,
) -> tuple[Constant, ...] | None:
    """Priors as a person gave them; None: those with the scale of the log."""
    if not (free or fix or prior or bound or data_sheet):
        return None
    import numpy as np

    from assets.calibration.constants import NAMES, DataSheet, from_data_sheet, with_choices
    from assets.calibration.pass_cost import log_priors
    from assets.calibration.request_log import from_truth

    for option, given in (("--free", free), ("--fix", fix), ("--prior", prior), ("--bound", bound)):
        _insist_on_constants(option, given, NAMES)
    if data_sheet:
        facts = {k: _number(v, f"--data-sheet {k}") for k, v in pairs(data_sheet, "--data-sheet").items()}
        if missing := [n for n in DataSheet.__slots__ if n not in facts]:
            raise click.BadParameter(f"{', '.join(missing)} missing; all five are needed", param_hint="--data-sheet")
        known = from_data_sheet(DataSheet(**facts))
    else:
        log = from_truth(found)
        fitted = np.arange(len(log)) < round(train_share * len(log))
        if not fitted.any():
            return None  # the calibration says that these are too few
        known = log_priors(log, spec, fitted)
    priors: dict[str, tuple[float, float | None]] = {}
    for name, text in pairs(prior, "--prior").items():
        value, _, spread = text.partition(":")
        priors[name] = (_number(value, "--prior"), _number(spread, "--prior") if spread else None)
    bounds = {}
    for name, text in pairs(bound, "--bound").items():
        low, _, high = text.partition(":")
        bounds[name] = (_number(low, "--bound"), _number(high, "--bound"))
    fixed = {name: _number(text, "--fix") for name, text in pairs(fix, "--fix").items()}
    chosen = with_choices(known, priors=priors, bounds=bounds, fixed=fixed)
    if free:
        held = {c.name: c.prior for c in chosen if c.name not in free}
        chosen = with_choices(chosen, fixed=held)
    return chosen


def _insist_on_constants(option: str, given: tuple[str, ...], known: tuple[str, ...]) -> None:
    from perf_db.gpu.names import nearest_first

    for text in given:
        name = text.partition("=")[0]
        if name not in known:
            names = ", ".join(nearest_first(name, known))
            raise click.BadParameter(f"{text}: no constant is called {name!r}; there are: {names}", param_hint=option)


def _number(text: str, option: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise click.BadParameter(f"{text!r} is no number", param_hint=option) from None


def _text(made: Calibrated) -> str:
    lines = [f"{'constant':34} {'value':>10} {'95 %':>24} {'before':>10}  unit"]
    for row in made.rows:
        interval = "–" if row["low"] is None else f"{row['low']:.4g} to {row['high']:.4g}"
        mark = "" if row["identified"] else "  not identified" if row["free"] else "  fixed"
        lines.append(
            f"{row['constant']:34} {row['value']:10.4g} {interval:>24} {row['prior']:10.4g}  {row['unit']}{mark}"
        )
    train, held = made.snapshot.provenance["train"], made.snapshot.provenance["held_out"]
    lines += ["", f"{'mean error, %':34} {'fitted':>10} {'held out':>10} {'held out, in sum':>18} {'median':>8}"]
    for name in held:
        line = f"{name:34} {100 * train[name]['mean']:10.2f} {100 * held[name]['mean']:10.2f}"
        if "total" in held[name]:
            line += f" {100 * held[name]['total']:+18.2f} {100 * held[name]['median']:8.2f}"
        lines.append(line)
    return "\n".join([*lines, *(f"warning: {text}" for text in made.warnings)])
