"""`tracemill perf quality`: what the files of performance data hold, and what is wrong in them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from pipelines.commands.perf import perf_root
from pipelines.exits import DIFFERENT

SHOWN = (
    "file", "rows", "points", "grid", "falling", "spikes", "repeated", "widest", "host-bound", "holes", "unit",
)  # fmt: skip
WORST = 12


@click.command()
@click.option("--system", help="Only this GPU system.")
@click.option("--backend", help="Only this backend, or library of collectives.")
@click.option("--version", help="Only this version.")
@click.option("--table", "tables", multiple=True, help="Only this kind of table, gemm; may be repeated.")
@click.option("--worst", default=WORST, show_default=True, help="How many of the worst anomalies to show.")
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), help="Folder for the tables as parquet.")
@click.option("--repairs", is_flag=True, help="Also list what cleaning changes (in --out: all of it).")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per file.")
@perf_root
def quality(
    system: str | None,
    backend: str | None,
    version: str | None,
    tables: tuple[str, ...],
    worst: int,
    out: Path | None,
    repairs: bool,
    as_json: bool,
    perf_root: Path | None,
) -> None:
    """Read every file, count it and judge it. Exit code 1 when a file is not what its name says."""
    from assets.perf_quality import examine_versions, write_tables
    from perf_db.gpu.quality import chosen_versions
    from perf_db.gpu.source import OPTION, open_root
    from pipelines.progress import progress_bar

    root = open_root(perf_root, option=OPTION)
    chosen = chosen_versions(root, system=system, backend=backend, version=version, tables=tables)
    with progress_bar("reading", " versions") as progress:
        found = examine_versions(root, chosen, tables=tables or None, repairs=repairs, progress=progress)
    if out is not None:
        write_tables(out, found)
    if as_json:
        for row in found.tables:
            click.echo(json.dumps(row))
    else:
        _print(found, worst, repairs)
        if out is not None:
            click.echo(f"\ntables in {out}")
    if any(not row["valid"] for row in found.tables):
        raise SystemExit(DIFFERENT)


def _print(found: Any, worst: int, repairs: bool) -> None:
    from pipelines.tables import text_table

    click.echo(text_table(SHOWN, [_line(row) for row in found.tables]))
    bad = [row for row in found.tables if not row["valid"]]
    rows = sum(row["n_rows"] for row in found.tables)
    click.echo(f"\n{len(found.tables)} file(s), {rows:,} rows, {len(bad)} not what they say they are")
    for row in bad:
        click.echo(f"  {row['file']}: {row['faults']}")
    counts = found.anomalies.group_by("kind").len().sort("kind").rows()
    click.echo("anomalies: " + (", ".join(f"{kind} {n:,}" for kind, n in counts) or "none"))
    if worst and counts:
        click.echo("\nfurthest out of each kind")
        names = ("kind", "ratio", "value", "before", "after", "suggested", "file", "row_no", "slice", "point")
        click.echo(text_table(names, [_short(row) for row in found.worst(worst).select(names).rows()]))
    if repairs:
        kinds = found.repairs.group_by("table_name", "kind").len().sort("table_name", "kind").rows()
        click.echo("\ncleaning changes")
        click.echo(text_table(("table", "repair", "cells"), kinds))


def _short(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Without what all paths share."""
    return tuple(v.removeprefix("systems/data/") if isinstance(v, str) else v for v in row)


def _line(row: dict[str, Any]) -> tuple[Any, ...]:
    def share(n: int, of: int) -> str:
        return f"{n:,} ({n / of:.2%})" if of else "–"

    return (
        row["file"].removeprefix("systems/data/"),
        row["n_rows"],
        row["n_points"],
        "–" if row["coverage"] is None else f"{row['coverage']:.0%}",
        share(row["n_falling"], row["n_pairs"]),
        row["n_spikes"],
        row["n_duplicates"],
        "–" if row["widest_duplicate"] is None else f"{row['widest_duplicate']:.2f}x",
        row["n_host_bound"],
        row["n_holes"],
        row["unit"] or "bad file",
    )
