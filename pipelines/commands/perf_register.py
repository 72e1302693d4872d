"""`tracemill perf register`: versions of performance data as partitions in the Dagster UI."""

from __future__ import annotations

from pathlib import Path

import click

from pipelines.commands.perf import perf_root
from pipelines.options import warehouse, warehouse_root


@click.command()
@click.option("--system", help="Only this GPU system.")
@click.option("--backend", help="Only this backend, or library of collectives.")
@click.option("--version", help="Only this version.")
@perf_root
@warehouse
def register(
    system: str | None, backend: str | None, version: str | None, perf_root: Path | None, root: Path | None
) -> None:
    """Add versions of performance data to the partitions that `tracemill ui` offers."""
    from perf_db.gpu.quality import chosen_versions
    from perf_db.gpu.source import OPTION, open_root
    from pipelines.instance import open_instance
    from pipelines.perf_partitions import register_versions

    held = open_root(perf_root, option=OPTION)
    chosen = chosen_versions(held, system=system, backend=backend, version=version)
    folder = warehouse_root(root)
    with open_instance(folder) as instance:
        keys = register_versions(instance, folder, held, chosen)
    for key in keys:
        click.echo(key)
    click.echo(f"{len(keys)} partition(s) of perf_tables: materialise them in the UI (tracemill ui)")
