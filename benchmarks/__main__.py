"""Command line of the benchmarks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from benchmarks.machine import describe
from benchmarks.process import TRACEMILL, run
from benchmarks.report import report
from benchmarks.rounds import compare
from benchmarks.workloads import Workload, workloads

SECTIONS = ("engines", "growth", "startup", "large", "ingest")
FILE = click.Path(dir_okay=False, path_type=Path)


def _say(text: str) -> None:
    click.echo(text, err=True)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("sections", nargs=-1, type=click.Choice([*SECTIONS, "report"]))
@click.option(
    "--peer-python",
    type=FILE,
    envvar="TRACEMILL_PEER_PYTHON",
    help="Interpreter of an environment with the wheel ai-dynamo-runtime; without it, ours alone.",
)
@click.option(
    "--mooncake", type=FILE, envvar="TRACEMILL_MOONCAKE", help="The public Mooncake conversation trace, for workload h."
)
@click.option("--rounds", default=5, show_default=True, type=click.IntRange(1), help="Rounds per workload.")
@click.option("--only", help="Only these workloads, such as a,g1600.")
@click.option("--quick", is_flag=True, help="A hundredth of everything, to try the benchmark itself.")
@click.option(
    "-o",
    "--output",
    default="build/benchmarks",
    show_default=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder of RESULTS.md and results.json.",
)
def main(
    sections: tuple[str, ...],
    peer_python: Path | None,
    mooncake: Path | None,
    rounds: int,
    only: str | None,
    quick: bool,
    output: Path,
) -> None:
    """Measure SECTIONS (default: all) and write a report.

    \b
    engines  both engines turn about on workloads a, b, c, d, d64, e, f, ngram, mtp8, g,
             g1600, h
    growth   cost against concurrency, the length of a trace and the size of separate pools
    startup  compilation, --help, a small replay
    large    ten million requests to disk
    ingest   preparing large traces
    report   write the report of an earlier measurement again

    Sections and workloads that are not asked for stay as they are in the output folder.
    """
    chosen, notes = _chosen(peer_python, mooncake, only, quick)
    results = _earlier(output)
    if sections != ("report",):
        # Compiling is measured by itself.
        drafts = "engines" in (sections or SECTIONS) and any(work.rates for work in chosen.values())
        run([*TRACEMILL, "warmup", *(["--speculation"] if drafts else [])])
    for section in SECTIONS:
        if section not in (sections or SECTIONS):
            continue
        taken = {"machine": describe(), "quick": quick}
        if section == "engines":
            kept = results.get("engines", {}).get("workloads", {}) if only else {}
            for note in notes:
                _say(note)
            peer = None if peer_python is None else peer_python.absolute()  # resolving would leave its environment
            measured = {key: compare(work, rounds=rounds, peer_python=peer, say=_say) for key, work in chosen.items()}
            results[section] = {**taken, "notes": notes, "workloads": {**kept, **measured}}
        elif section == "growth":
            from benchmarks.growth import growth

            results[section] = {**taken, **growth(quick=quick, say=_say)}
        elif section == "startup":
            from benchmarks.startup import startup

            results[section] = {**taken, **startup(quick=quick, say=_say)}
        elif section == "ingest":
            from benchmarks.ingest import sizes

            results[section] = {**taken, "runs": sizes(quick=quick, say=_say)}
        else:
            from benchmarks.large import large

            results[section] = {**taken, "runs": large(quick=quick, say=_say)}
        _write(output, results)
    _write(output, results)
    click.echo(f"{output / 'RESULTS.md'}")


def _chosen(
    peer_python: Path | None, mooncake: Path | None, only: str | None, quick: bool
) -> tuple[dict[str, Workload], list[str]]:
    """Workloads to compare, and what cannot be compared and why."""
    notes = []
    if peer_python is None:
        notes.append("The other engine was not measured: --peer-python was not given.")
    elif not peer_python.exists():
        raise click.BadParameter(f"{peer_python} does not exist", param_hint="--peer-python")
    if mooncake is None:
        notes.append("Workload h was left out: --mooncake was not given.")
    elif not mooncake.exists():
        raise click.BadParameter(f"{mooncake} does not exist", param_hint="--mooncake")
    chosen = workloads(mooncake, scale=0.01 if quick else 1.0)
    if only is not None:
        wanted = only.split(",")
        if unknown := sorted(set(wanted) - set(chosen)):
            raise click.BadParameter(f"{', '.join(unknown)}; there are {', '.join(chosen)}", param_hint="--only")
        chosen = {key: chosen[key] for key in wanted}
    return chosen, notes


def _earlier(output: Path) -> dict[str, Any]:
    file = output / "results.json"
    return dict(json.loads(file.read_text())) if file.exists() else {}


def _write(output: Path, results: dict[str, Any]) -> None:
    output.mkdir(parents=True, exist_ok=True)
    (output / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    (output / "RESULTS.md").write_text(report(results))


if __name__ == "__main__":
    main(prog_name="python -m benchmarks")
