"""`tracemill matrix`: many scenarios from one file, each held against its baseline."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pipelines.commands.baseline import author_of, baselines_folder
from pipelines.instance import home_option, open_instance
from pipelines.options import warehouse, warehouse_root

if TYPE_CHECKING:
    from assets.desk.matrix.plan import Planned
    from assets.desk.matrix.suite import Suite

LINE = 110  # letters of an explanation in a list


def suite_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--scenarios DIR`: where suites are looked up by name; the command receives `scenarios`."""
    return click.option(
        "--scenarios",
        type=click.Path(file_okay=False, path_type=Path),
        default=Path("examples/scenarios"),
        show_default=True,
        help="Folder in which suites are looked up by name.",
    )(command)


def only_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--only PATTERN`, repeatable."""
    return click.option("--only", multiple=True, metavar="PATTERN", help="Only scenarios that fit: 'chat.*'.")(command)


@click.group()
def matrix() -> None:
    """Run suites of scenarios: grids over traces, engines, loads and timing."""


@matrix.command()
@click.argument("suite")
@only_option
@click.option("--force", is_flag=True, help="Run all of them, not only those whose inputs changed or that failed.")
@click.option(
    "--keep",
    type=click.Choice(["all", "failed", "none"]),
    help="Whose requests, passes and the like are kept; metrics and evidence always are.  [default: as the suite says]",
)
@click.option("--workers", type=click.IntRange(1, 256), help="Processes.  [default: one per core]")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")
@suite_option
@baselines_folder
@warehouse
def run(
    suite: str,
    only: tuple[str, ...],
    force: bool,
    keep: str | None,
    workers: int | None,
    as_json: bool,
    scenarios: Path,
    folder: Path,
    root: Path | None,
) -> None:
    """Run SUITE (a name in the folder of scenarios, or a file): what changed since its last result, or has none.

    Exit code 0: every scenario is the same as its baseline, within its tolerances, or has none. 1: one differs or
    breaks a law. 2: one could not be replayed, and that is the input's fault. 70: one met a defect of ours.
    """
    from assets.desk.matrix.run import run_matrix
    from assets.views import open_store
    from pipelines.compiling import compile_for

    loaded = _load(suite, scenarios)
    compile_for(scenario.config for scenario in loaded.chosen(only))
    done = 0

    def say(row: dict[str, Any]) -> None:
        nonlocal done
        done += 1
        if not as_json:
            click.echo(line_of(row))

    outcome = run_matrix(
        loaded, open_store(warehouse_root(root)), folder, only=only, force=force, keep=keep, workers=workers, say=say
    )
    if as_json:
        told = {
            "suite": outcome.suite,
            "matrix_id": outcome.matrix_id,
            "run": [row["scenario"] for row in outcome.rows],
            "scenarios": outcome.all_rows,
        }
        click.echo(json.dumps(told, indent=1, default=str))
    else:
        click.echo(_closing(outcome.all_rows, len(outcome.rows), len(outcome.standing)))
    if outcome.exit_code:
        raise SystemExit(outcome.exit_code)


@matrix.command("list")
@click.argument("suite", required=False)
@suite_option
def list_(suite: str | None, scenarios: Path) -> None:
    """List the suites, or the scenarios of SUITE with their places."""
    from assets.desk.matrix.suite import AXES, no_suites, suite_names
    from pipelines.tables import text_table
    from sim.config import ConfigError

    if suite is None:
        names = suite_names(scenarios)
        if not names:
            raise ConfigError(no_suites(scenarios))
        rows: list[list[Any]] = []
        for name in names:
            loaded = _load(name, scenarios)
            rows.append([name, len(loaded.scenarios), loaded.keep, loaded.about])
        click.echo(text_table(("suite", "scenarios", "keep", "about"), rows))
        return
    listed = [[s.name, *(s.places.get(axis) for axis in AXES)] for s in _load(suite, scenarios).scenarios]
    click.echo(text_table(("scenario", *AXES), listed))


@matrix.command()
@click.argument("suite")
@only_option
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list instead of text.")
@suite_option
@baselines_folder
@warehouse
def status(suite: str, only: tuple[str, ...], as_json: bool, scenarios: Path, folder: Path, root: Path | None) -> None:
    """Show the last result of every scenario of SUITE, and which would be run now, and why. Runs nothing."""
    from assets.desk.matrix.plan import plan
    from assets.views import open_store

    planned = plan(_load(suite, scenarios), open_store(warehouse_root(root)), folder, only=only)
    if as_json:
        click.echo(json.dumps([_status_row(p) for p in planned], indent=1, default=str))
        return
    from pipelines.tables import text_table

    names = ("scenario", "last", "to_run", "run_id", "mechanism", "input_change")
    click.echo(text_table(names, [[_status_row(p)[n] for n in names] for p in planned]))
    n = sum(bool(p.reasons) for p in planned)
    click.echo(f"{n} of {len(planned)} to run" if n else f"all {len(planned)} results stand")


@matrix.command()
@click.argument("suite")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list, every column of view pool_ratios, instead.")
@suite_option
@warehouse
def ratios(suite: str, as_json: bool, scenarios: Path, root: Path | None) -> None:
    """Compare the ratios of prefill to decode workers in SUITE: figures per GPU, both pools, and which one limits.

    Of the last run of every scenario with separate pools, the best first. Runs nothing.
    """
    from assets.desk.matrix import ratios as of_suite
    from assets.views import open_store
    from pipelines.tables import text_table
    from sim.config import ConfigError

    loaded = _load(suite, scenarios)
    rows = of_suite.ratios(open_store(warehouse_root(root)), loaded.name)
    if as_json:
        click.echo(json.dumps(rows, indent=1, default=str))
        return
    if not rows:
        raise ConfigError(
            f"no run of {suite} has separate pools; run it first (tracemill matrix run {suite}), or give scenarios "
            "with engine.mode=disaggregated"
        )
    shown = [of_suite.cells(row) for row in rows]
    click.echo(text_table(list(shown[0]), [list(row.values()) for row in shown]))
    click.echo("latencies, transfers and waits in ms, these and shares of time as means over the run")
    if any(row["limited_by"] is None for row in rows):
        click.echo(f"– rows were not kept: tracemill matrix run {suite} --force --keep all")


@matrix.command()
@click.argument("suite")
@only_option
@click.option("--reason", default="", help="Why they are right; required.")
@click.option("--author", help="Who accepts them.  [default: $TRACEMILL_AUTHOR, git's user.name, or the login]")
@suite_option
@baselines_folder
@warehouse
def accept(
    suite: str,
    only: tuple[str, ...],
    reason: str,
    author: str | None,
    scenarios: Path,
    folder: Path,
    root: Path | None,
) -> None:
    """Make the last result of every scenario of SUITE that is new or differs its baseline.

    As `baseline accept` does, one after the other; the first that is refused ends it.
    """
    from assets.desk import baselines
    from assets.desk.matrix.plan import last_rows
    from assets.views import open_store

    store = open_store(warehouse_root(root))
    loaded = _load(suite, scenarios)
    last = last_rows(store, loaded.name)
    chosen = [s.name for s in loaded.chosen(only)]
    if never := [name for name in chosen if name not in last or last[name]["run_id"] is None]:
        raise baselines.BaselineError(f"no result yet of {', '.join(never)}; run: tracemill matrix run {suite}")
    n = 0
    for name in chosen:
        row = last[name]
        held = baselines.load(folder, name) if name in baselines.names(folder) else None
        if held is not None and held.recorded.run["result_digest"] == row["result_digest"]:
            continue
        made, diff = baselines.accept(
            store, row["run_id"], folder=folder, reason=reason, author=author or author_of(), name=name
        )
        why = (
            f": {', '.join(diff.input_change)}; {diff.mechanism.name if diff.mechanism else 'no pass'}" if diff else ""
        )
        click.echo(f"accepted {folder / made.name}{why}")
        n += 1
    click.echo(f"{n} accepted, {len(chosen) - n} as they were; commit {folder}" if n else "nothing to accept")


@matrix.command()
@click.argument("suite")
@suite_option
@home_option
@baselines_folder
@warehouse
def register(suite: str, scenarios: Path, home: Path | None, folder: Path, root: Path | None) -> None:
    """Make SUITE a partition in the Dagster UI, for the nightly schedule and the sensor of changes."""
    from pipelines.suites import register_suite

    loaded = _load(suite, scenarios)
    where = warehouse_root(root)
    with open_instance(where, home) as instance:
        key = register_suite(instance, where, loaded.path, folder)
    click.echo(f"{key}: choose this partition of asset scenarios in the UI (tracemill ui), or switch on nightly_matrix")


def line_of(row: Mapping[str, Any]) -> str:
    """A scenario's result on one line, with what explains it."""
    text = f"{row['status']:<8} {row['scenario']}"
    if row["input_change"] or row["mechanism"]:
        text += f": {row['input_change']}; {row['mechanism'] or 'no mechanism'}"
    if row["explanation"]:
        said = str(row["explanation"]).strip().splitlines()[-1]
        text += f": {said if len(said) <= LINE else said[: LINE - 1] + '…'}"
    return text


def _closing(rows: Sequence[Mapping[str, Any]], run_now: int, standing: int) -> str:
    counts: dict[str, int] = {}
    for row in rows:
        counts[row["status"]] = counts.get(row["status"], 0) + 1
    told = ", ".join(f"{n} {status}" for status, n in sorted(counts.items())) or "no scenario"
    stood = f"; {standing} stood, their inputs being the same" if standing else ""
    return f"{run_now} run{stood}. {told}"


def _status_row(planned: Planned) -> dict[str, Any]:
    last = planned.last or {}
    return {
        "scenario": planned.scenario.name,
        "last": last.get("status", "never run"),
        "to_run": ", ".join(planned.reasons) or None,
        "run_id": last.get("run_id"),
        "mechanism": last.get("mechanism"),
        "input_change": last.get("input_change"),
        "explanation": last.get("explanation"),
    }


def _load(suite: str, scenarios: Path) -> Suite:
    from assets.desk.matrix.suite import find_suite, load_suite

    return load_suite(find_suite(suite, scenarios))
