"""`tracemill perf tune`: measured passes of a deployment as corrections of its prices."""

from __future__ import annotations

import json
from pathlib import Path

import click

from pipelines.options import NewFile

FILE = click.Path(dir_okay=False, exists=True, path_type=Path)


@click.command()
@click.argument("config", type=FILE)
@click.argument("observations", type=FILE)
@click.option("-o", "--output", required=True, type=NewFile(), help="The snapshot.")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a field of CONFIG.")
@click.option("--min-observations", default=5, show_default=True, help="Iterations of a kind before it is corrected.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def tune(
    config: Path, observations: Path, output: Path, overrides: tuple[str, ...], min_observations: int, as_json: bool
) -> None:
    """Make a snapshot from OBSERVATIONS (forward-pass metrics, one JSON object a line) for the prices of CONFIG.

    Name it as timing.snapshot in CONFIG to use it. It fits this deployment and these data, and no others.
    """
    from assets.perf_tune import UNUSABLE, tune_snapshot
    from perf_db.gpu.snapshot import Options
    from sim.config import load_run_config

    tuned = tune_snapshot(
        load_run_config(config, overrides=overrides),
        observations,
        base=config.parent,
        options=Options(min_observations=min_observations),
    )
    tuned.snapshot.save(output)
    stores = {kind: len(store.entries) for kind, store in tuned.snapshot.corrections.stores.items()}
    if as_json:
        answer = {
            "snapshot": str(output), "counts": tuned.counts, "stores": stores,
            "native_error": tuned.native_error, "corrected_error": tuned.corrected_error,
        }  # fmt: skip
        click.echo(json.dumps(answer))
        return
    kept = ", ".join(f"{n} {kind}" for kind, n in stores.items())
    click.echo(f"{output}: {tuned.counts['used']} iterations used ({kept})")
    for name, why in UNUSABLE.items():
        if tuned.counts[name]:
            click.echo(f"left out: {tuned.counts[name]} {why}")
    click.echo(f"median error {tuned.native_error:.1%} before, {tuned.corrected_error:.1%} with the corrections")
