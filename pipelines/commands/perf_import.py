"""`tracemill perf import`: a person's own measurements into a folder of performance data."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

_TEXT = (("gemm", "gemm_quant_mode"), ("moe", "moe_quant_mode"), ("kv-cache", "kv_cache_dtype"))
_DEGREES = ("tp", "pp", "dp", "moe-tp", "moe-ep")


def _identity(command: Any) -> Any:
    """Options that say whose iterations JSON lines hold."""
    for name in reversed(_DEGREES):
        command = click.option(f"--{name}", type=click.IntRange(1), help="Of the engine; JSON lines only.")(command)
    for name, _ in reversed(_TEXT):
        command = click.option(f"--{name}", help="Precision; JSON lines only.  [default: bfloat16]")(command)
    return command


@click.command(name="import")
@click.argument("source", type=click.Path(exists=True, path_type=Path))
@click.argument("dest", type=click.Path(file_okay=False, path_type=Path))
@click.option("--system", help="GPU system it was measured on, h200_sxm.")
@click.option("--backend", help="Serving backend, vllm.")
@click.option("--version", help="Its version.")
@click.option("--model", help="Checkpoint; JSON lines only.")
@_identity
@click.option("--replace", is_flag=True, help="Replace files that are there with other contents.")
@click.option("--dry-run", is_flag=True, help="Only check, and say what would happen.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per file.")
def import_(source: Path, dest: Path, replace: bool, dry_run: bool, as_json: bool, **about: Any) -> None:
    """Check SOURCE and bring it into DEST, a folder that --perf-root takes (made when it is not there).

    SOURCE: a folder with systems/; files <table>_perf.parquet with --system, --backend and --version; whole-forward
    pairs <name>.parquet + <name>.metadata.json; or forward-pass metrics <name>.jsonl with the engine's identity.
    """
    from perf_db.gpu.imports import import_data, missing_hardware
    from pipelines.tables import text_table

    names = dict(_TEXT) | {name: name.replace("-", "_") for name in _DEGREES}
    renamed = {key: names.get(key.replace("_", "-"), key) for key in about}
    identity = {renamed[key]: value for key, value in about.items() if value is not None}
    found = import_data(source, dest, identity=identity, replace=replace, dry_run=dry_run)
    if as_json:
        for each in found:
            click.echo(json.dumps(asdict(each)))
        return
    click.echo(text_table(("file", "rows", "state", "digest"), [(e.target, e.rows, e.state, e.digest) for e in found]))
    fresh = sum(each.state != "same" for each in found)
    click.echo(f"\n{fresh} of {len(found)} file(s) {'would be' if dry_run else 'were'} brought into {dest}")
    for system in [] if dry_run else missing_hardware(dest):
        click.echo(f"note: {dest}/systems/{system}.yaml is not there; nothing of {system} can be priced before it is")
