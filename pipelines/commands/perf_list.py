"""`tracemill perf list`: what can be priced."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pipelines.commands.perf import perf_root

if TYPE_CHECKING:
    from perf_db.gpu.catalog import Holding, Priced, WholePasses


@click.command(name="list")
@click.option("--model", help="Try the deployments of this model (or of all whose name contains it).")
@click.option("--system", help="Only this GPU system.")
@click.option("--backend", help="Only this backend.")
@click.option("--precision", help="Only this precision of projections and experts, fp8.")
@click.option("--tp", "degrees", type=click.IntRange(1), multiple=True, help="Tensor parallel degree; may be repeated.")
@click.option("--refused", is_flag=True, help="Also the deployments that cannot be priced, with the reason.")
@click.option("--all-versions", is_flag=True, help="Without --model: older versions of the data as well.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per line.")
@perf_root
def list_(
    model: str | None,
    system: str | None,
    backend: str | None,
    precision: str | None,
    degrees: tuple[int, ...],
    refused: bool,
    all_versions: bool,
    as_json: bool,
    perf_root: Path | None,
) -> None:
    """What can be priced: systems, backends and precisions with data; with --model its deployments, each one tried."""
    from perf_db.gpu.catalog import DEGREES, deployments, holdings, priceable_models, whole_passes
    from perf_db.gpu.embedded import embedded_deployments
    from perf_db.gpu.source import OPTION, open_root

    if perf_root is None and not _extra_is_there():
        wishes = {"system": system, "backend": backend, "gemm": precision}
        found = [each for each in embedded_deployments() if all(w in (None, each[k]) for k, w in wishes.items())]
        found = [each for each in found if model is None or model.casefold() in each["model"].casefold()]
        _embedded([each for each in found if not degrees or each["tp"] in degrees], as_json)
        return
    root = open_root(perf_root, option=OPTION)
    if model is None:
        held = (h for h in holdings(root, system=system, backend=backend) if h.current or all_versions)
        fits = (h for h in held if precision is None or precision in (*h.gemm, *h.moe))
        _show_holdings(fits, priceable_models(root), as_json)
        _show_whole_passes(list(whole_passes(root, system=system, backend=backend)), as_json)
        return
    tried = (
        each
        for name in priceable_models(root, model)
        for each in deployments(
            root, name, system=system, backend=backend, precision=precision, degrees=degrees or DEGREES
        )
    )
    _show_deployments((each for each in tried if each.phases or refused), as_json)


def _show_holdings(held: Iterable[Holding], names: list[str], as_json: bool) -> None:
    from pipelines.tables import text_table

    if as_json:
        for each in held:
            click.echo(json.dumps(asdict(each)))
        return
    head = ("system", "backend", "version", "files", "rows", "projections", "experts", "attention", "KV cache")
    rows = [
        (h.system, h.backend, h.version, h.files, h.rows, *map(" ".join, (h.gemm, h.moe, h.attention, h.kv_cache)))
        for h in held
    ]
    click.echo(text_table(head, rows))
    click.echo(f"\nmodels ({len(names)})")
    click.echo(
        textwrap.fill(", ".join(names), 118, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)
    )
    click.echo("\nwhich deployments of a model: tracemill perf list --model NAME [--system ... --backend ... --tp N]")


def _show_whole_passes(found: list[WholePasses], as_json: bool) -> None:
    from pipelines.tables import text_table

    if as_json:
        for each in found:
            click.echo(json.dumps(asdict(each)))
    elif found:
        names = ("model", "system", "backend", "version", "precision", "kv_cache", "tp", "dp", "rows", "cell", "file")
        click.echo("\nmeasured as whole passes (timing.fpm_parquet_path)")
        click.echo(text_table(names, [tuple(getattr(each, name) for name in names) for each in found]))


def _show_deployments(tried: Iterable[Priced], as_json: bool) -> None:
    from pipelines.tables import text_table

    if as_json:
        for each in tried:
            click.echo(json.dumps(asdict(each)))
        return
    head = (
        "model",
        "system",
        "backend",
        "version",
        "precision",
        "KV",
        "TP",
        "priced",
        "prefill to",
        "decode to",
        "refused",
    )
    rows = [_line(each) for each in tried]
    click.echo(text_table(head, rows))
    click.echo(
        f"\n{len(rows)} deployment(s). 'to': the longest measured prompt and KV length at the smallest batch, and the "
        "share of the batch x length grid that was measured; what lies beyond is extrapolated."
    )


def _line(each: Priced) -> tuple[Any, ...]:
    d = each.deployment
    precision = d.gemm if d.moe in (d.gemm, "bfloat16") else f"{d.gemm}, experts {d.moe}"

    def reach(found: tuple[int, float] | None) -> str | None:
        return None if found is None else f"{found[0]:,} ({found[1]:.0%})"

    return (
        d.model,
        d.system,
        d.backend,
        d.version,
        precision,
        d.kv_cache,
        d.tp,
        "+".join(each.phases) or None,
        reach(each.prefill),
        reach(each.decode),
        each.reason and f"{each.reason}: {each.message}",
    )


def _extra_is_there() -> bool:
    from perf_db.gpu.errors import PerfDataError
    from perf_db.gpu.source import open_root

    try:
        open_root()
    except PerfDataError:
        return False
    return True


def _embedded(found: list[dict[str, Any]], as_json: bool) -> None:
    from perf_db.gpu.source import INSTALL
    from pipelines.tables import text_table

    if as_json:
        for each in found:
            click.echo(json.dumps(each))
        return
    names = ("model", "system", "backend", "version", "tp")
    click.echo(text_table(names, [tuple(each[n] for n in names) for each in found]))
    click.echo(f"\nThese tables ship with tracemill. For all others: {INSTALL}, or --perf-root DIR")
