"""`tracemill replay`: one configuration, or one case file, through the engine."""

from __future__ import annotations

import json
from pathlib import Path

import click

from pipelines.exits import naming
from pipelines.options import warehouse_root
from pipelines.progress import progress_bar

FILE = click.Path(dir_okay=False, path_type=Path)


@click.command()
@click.argument("config", required=False, type=FILE)
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a field: profile=parity.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of the summary.")
@click.option(
    "-o",
    "-w",
    "--output",
    "--warehouse",
    "root",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder of the results.  [default: $TRACEMILL_WAREHOUSE or ./warehouse]",
)
@click.option("--case", type=FILE, help="Replay a recorded case file instead; prints, writes nothing.")
@click.option("--summary-only", is_flag=True, help="With --case: leave out the rows of single requests.")
def replay(
    config: Path | None,
    overrides: tuple[str, ...],
    as_json: bool,
    root: Path | None,
    case: Path | None,
    summary_only: bool,
) -> None:
    """Replay CONFIG and write every table.

    CONFIG is a YAML file: traffic, engine, timing, load (docs/configuration.md). The results land in the warehouse,
    one DuckDB file over all runs.
    """
    if (config is None) == (case is None):
        raise click.UsageError("give a configuration file, or --case FILE")
    if case is not None:
        _replay_case(case, summary_only=summary_only, as_json=as_json, overrides=overrides)
        return
    assert config is not None
    from assets.replay_run import run_replay
    from assets.views import open_store
    from pipelines.compiling import compile_for
    from sim.config import load_run_config

    settings = load_run_config(config, overrides=overrides)
    folder = warehouse_root(root or (config.parent / settings.output if settings.output else None))
    for warning in settings.warnings:
        click.echo(f"warning: {warning}", err=True)
    store = open_store(folder)
    with (
        naming(config),
        progress_bar("reading", "B") as reading,
        progress_bar("replay", "request") as progress,
    ):
        report = run_replay(
            settings,
            store,
            base=config.parent,
            name=config.stem,
            reading=reading,
            compiling=lambda: compile_for([settings]),
            progress=progress,
        )
    for warning in report.warnings:
        if warning not in settings.warnings:
            click.echo(f"warning: {warning}", err=True)
    if as_json:
        answer = {
            "run_id": report.run_id,
            "replay_id": report.replay_id,
            "database": str(report.database),
            "summary": report.summary,
            "metrics": report.metrics,
            "seconds": report.seconds,
        }
        click.echo(json.dumps(answer, indent=1))
        return
    from pipelines.summary import next_steps, summary_text

    click.echo(summary_text(report.run, report.metrics, store))
    click.echo(next_steps(report.database, report.run))


def _replay_case(case: Path, *, summary_only: bool, as_json: bool, overrides: tuple[str, ...]) -> None:
    if not as_json:
        raise click.UsageError("--case prints JSON only; add --json")
    if overrides:
        raise click.UsageError("--set changes configurations, not case files")
    from assets.replay_case import answer_case

    click.echo(json.dumps(answer_case(case, summary_only=summary_only), indent=1))
