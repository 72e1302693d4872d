"""`tracemill register`: make a configuration's trace a partition in the Dagster UI."""

from __future__ import annotations

from pathlib import Path

import click

from pipelines.instance import home_option, open_instance
from pipelines.options import warehouse, warehouse_root


@click.command()
@click.argument("config", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a field of the configuration.")
@home_option
@warehouse
def register(config: Path, overrides: tuple[str, ...], home: Path | None, root: Path | None) -> None:
    """Add the trace of CONFIG to the partitions that `tracemill ui` offers."""
    from pipelines.partitions import register as add

    folder = warehouse_root(root)
    with open_instance(folder, home) as instance:
        key = add(instance, folder, config, overrides)
    click.echo(f"{key}: choose this partition in the UI (tracemill ui) and materialise it")
