"""`tracemill evidence`: runs and what is to be said about them, in a folder that proves itself."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pipelines.commands.baseline import baselines_folder, recorded
from pipelines.commands.matrix import only_option, suite_option
from pipelines.exits import DIFFERENT
from pipelines.options import warehouse, warehouse_root

if TYPE_CHECKING:
    from assets.desk.evidence import Scenario
    from perf_db.store import Store


@click.command()
@click.argument("runs", nargs=-1)
@click.option("-o", "--output", type=click.Path(file_okay=False, path_type=Path), help="Folder of the pack.")
@click.option("--suite", help="Compare the last results of a suite's scenarios with their baselines.")
@only_option
@click.option(
    "--bench",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Measurements of host performance: what tracemill bench -o wrote.",
)
@click.option(
    "--golden",
    type=click.Path(exists=True, path_type=Path),
    help="Folder of recorded answers of other engines, to be checked with this engine.",
)
@click.option(
    "--check",
    "pack",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Make the pack in this folder again from its raw tables, and compare cell by cell.",
)
@suite_option
@baselines_folder
@warehouse
def evidence(
    runs: tuple[str, ...],
    output: Path | None,
    suite: str | None,
    only: tuple[str, ...],
    bench: Path | None,
    golden: Path | None,
    pack: Path | None,
    scenarios: Path,
    folder: Path,
    root: Path | None,
) -> None:
    """Write an evidence pack about RUNS: BASE HEAD, or several such pairs one after the other (HEAD of the first may be
    left out). Each is "last", a name, the beginning of an id, or baseline:NAME.

    It holds evidence.md for a pull request, evidence.json for programs, and the raw tables both follow from.
    """
    from assets.desk import evidence as packs

    if pack is not None:
        if runs or suite or output:
            raise click.UsageError("--check takes a folder and nothing else")
        faults = packs.rebuild(pack)
        click.echo("\n".join(faults) or f"{pack}: every cell follows from its raw tables")
        if faults:
            raise SystemExit(DIFFERENT)
        return
    if bool(runs) == bool(suite):
        raise click.UsageError("give BASE and HEAD, --suite NAME, or --check DIR")
    if output is None:
        raise click.UsageError("give a folder for the pack: -o DIR")
    from assets.views import open_store

    store = open_store(warehouse_root(root))
    words = ["tracemill", "evidence"]
    missing: dict[str, str] = {}
    if suite:
        found, missing = _of_suite(store, suite, only, scenarios, folder)
        words += ["--suite", suite, *(w for pattern in only for w in ("--only", pattern))]
    else:
        found = _of_pairs(store, runs, folder)
        words += [side.run["run_id"] for s in found for side in (s.base, s.head)]
    host, answers = _host(bench), _golden(golden)
    words += ["--bench", bench.name] if bench else []
    words += ["--golden", golden.name] if golden else []
    command = shlex.join([*words, "-o", output.name])
    data = packs.build(found, output, command=command, missing=missing, host=host, golden=answers)
    same = sum(s["diff"]["same"] for s in data["scenarios"])
    verdict = "the same rows" if same else "different"
    if suite or len(found) > 1:
        verdict = f"{same} of {len(found)} the same"
    n = sum(len(side) for s in data["scenarios"] for side in s["anomalies"].values() if side is not None)
    click.echo(f"{output / packs.PAGE}: {verdict}; anomalies: {n}")
    for name, why in missing.items():
        click.echo(f"not compared: {name}: {why}", err=True)


def _of_pairs(store: Store, runs: tuple[str, ...], folder: Path) -> list[Scenario]:
    from assets.desk.evidence import Scenario

    words = (*runs, "last") if len(runs) == 1 else runs
    if len(words) % 2:
        raise click.UsageError(f"{len(words)} runs are no pairs: give BASE HEAD, BASE HEAD, …")
    sides = [recorded(store, word, folder) for word in words]
    found: dict[str, Scenario] = {}
    for base, head in zip(sides[::2], sides[1::2], strict=True):
        # Pairs of the same name are told apart by their place.
        name = head.run["name"] if head.run["name"] not in found else f"{head.run['name']} ({len(found) + 1})"
        found[name] = Scenario(name, base, head)
    return list(found.values())


def _of_suite(
    store: Store, suite: str, only: tuple[str, ...], scenarios: Path, folder: Path
) -> tuple[list[Scenario], dict[str, str]]:
    """Pairs to compare, and the scenarios that have none -> why."""
    from assets.desk import baselines
    from assets.desk.evidence import Scenario
    from assets.desk.matrix.plan import last_rows
    from assets.desk.matrix.suite import find_suite, load_suite
    from assets.desk.pair import Recorded

    loaded = load_suite(find_suite(suite, scenarios))
    last = last_rows(store, loaded.name)
    found, missing = [], {}
    for scenario in loaded.chosen(only):
        name, row = scenario.name, last.get(scenario.name)
        if row is None:
            missing[name] = "never run"
        elif row["run_id"] is None:
            missing[name] = f"{row['status']}: {str(row['explanation']).strip().splitlines()[-1]}"
        elif name not in baselines.names(folder):
            missing[name] = "no baseline"
        else:
            kept = baselines.load(folder, name)
            base = baselines.rows_of(kept, store) or kept.recorded
            found.append(Scenario(name, base, Recorded.of_store(store, row["run_id"])))
    return found, missing


def _host(bench: Path | None) -> Any:
    if bench is None:
        return None
    from assets.desk.host import BenchError
    from assets.desk.host_summary import summarise

    try:
        measured = json.loads(bench.read_text(encoding="utf-8"))
        summarise(measured)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BenchError(f"{bench} holds no measurements: {error}; make them with: tracemill bench -o FILE") from error
    return measured


def _golden(golden: Path | None) -> Any:
    if golden is None:
        return None
    from assets.desk.golden_summary import collect
    from pipelines.compiling import compile_kernels

    compile_kernels()
    return collect(golden)
