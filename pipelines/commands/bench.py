"""`tracemill bench`: host performance of this installation against another one, or of two configurations."""

from __future__ import annotations

import json
from pathlib import Path

import click

from pipelines.exits import DIFFERENT


@click.command()
@click.argument("config", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--vs",
    "other",
    type=click.Path(exists=True, path_type=Path),
    help="The base: a checkout, a virtual environment or an interpreter.  [default: this installation]",
)
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a field, on both sides.")
@click.option("--base-set", multiple=True, metavar="KEY=VALUE", help="Override a field of the base only.")
@click.option("--head-set", multiple=True, metavar="KEY=VALUE", help="Override a field of the head only.")
@click.option(
    "--rounds",
    type=click.IntRange(1, 1000),
    default=5,
    show_default=True,
    help="Each runs base and head twice, turn about.",
)
@click.option(
    "--fail-above",
    type=click.FloatRange(min=0, min_open=True),
    metavar="RATIO",
    help="Exit code 1 if the engine takes more than RATIO times as long as the base, beyond the noise.",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Keep the measurements, for an evidence pack.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")
def bench(
    config: Path,
    other: Path | None,
    overrides: tuple[str, ...],
    base_set: tuple[str, ...],
    head_set: tuple[str, ...],
    rounds: int,
    fail_above: float | None,
    output: Path | None,
    as_json: bool,
) -> None:
    """Replay CONFIG by this installation (the head) and by another (the base), turn about, and compare host times.

    Exit code 1: with one configuration both sides predict different rows, or --fail-above is exceeded.
    """
    if other is None and not (base_set or head_set):
        raise click.UsageError("say what to compare with: --vs PATH, or --base-set and --head-set")
    from assets.desk import host
    from assets.desk.host_summary import DIFFERENT as OTHER_ROWS
    from assets.desk.host_summary import summarise, summary_text

    base_words, head_words = (*overrides, *base_set), (*overrides, *head_set)
    if other is not None:
        base, head = host.other_arm(other, base_words), host.own_arm(head_words)
    else:
        base = host.own_arm(base_words, f"with {', '.join(base_set) or 'nothing set'}")
        head = host.own_arm(head_words, f"with {', '.join(head_set) or 'nothing set'}")
    measured = host.measure(config, base, head, rounds=rounds, say=lambda text: click.echo(text, err=True))
    found = summarise(measured)
    if output is not None:
        output.write_text(json.dumps(measured, indent=1) + "\n", encoding="utf-8")
    click.echo(json.dumps(found, indent=1) if as_json else summary_text(found))
    engine = found["figures"]["engine_ms"]
    too_slow = fail_above is not None and engine["ratio"]["median"] > fail_above and engine["verdict"] == "slower"
    if too_slow or (found["same_configuration"] and found["predictions"] == OTHER_ROWS):
        raise SystemExit(DIFFERENT)
