"""`tracemill perf ...`: prices of forward passes on named GPUs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pipelines.exits import DIFFERENT
from pipelines.tables import text_table

if TYPE_CHECKING:
    from assets.perf_show import DeploymentPage

perf_root = click.option(
    "--perf-root",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Folder with systems/ and model_configs/; without it the optional tables' own.",
)


@click.group()
def perf() -> None:
    """What a forward pass costs on a named GPU, and what that rests on."""


@perf.command()
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--failed", is_flag=True, help="List only what does not agree.")
@perf_root
def check(folder: Path, failed: bool, perf_root: Path | None) -> None:
    """Compare recorded figures of another estimator in FOLDER with ours; exit code 1 when one differs."""
    from assets.golden.perf_check import Outcome, check_dir
    from perf_db.gpu.source import OPTION, open_root

    def echo(outcome: Outcome) -> None:
        if not failed or outcome.status == "failed":
            click.echo(outcome.line)

    report = check_dir(folder, open_root(perf_root, option=OPTION), echo=echo)
    for kind, worst in report.worst.items():
        click.echo(f"{kind:<12} off by {worst:.1e} at most")
    click.echo(f"{report.figures:,} figures compared")
    click.echo(report.closing)
    if report.exit_code:
        raise SystemExit(DIFFERENT)


@perf.command()
@click.argument("model")
@click.option("--system", required=True, help="GPU system, h200_sxm.")
@click.option("--backend", default="vllm", show_default=True)
@click.option("--version", help="Version of the data; default: the current one.")
@click.option("--tp", default=1, show_default=True, help="Tensor parallel ranks.")
@click.option("--pp", default=1, show_default=True, help="Pipeline stages.")
@click.option("--dp", default=1, show_default=True, help="Attention-data-parallel ranks.")
@click.option("--moe-tp", type=int, help="Ranks that split every expert.")
@click.option("--moe-ep", type=int, help="Ranks that share out the experts.")
@click.option("--gemm", help="Precision of projections; default: the checkpoint's.")
@click.option("--moe", help="Precision of experts; default: the checkpoint's.")
@click.option("--kv-cache", help="Precision of the KV cache; default: the checkpoint's.")
@click.option("--fmha", help="Precision of attention compute; default: bfloat16.")
@click.option("--nextn", default=0, show_default=True, help="Draft tokens verified per decode request.")
@click.option("--clean/--no-clean", default=True, show_default=True, help="Repair known faults of the tables.")
@click.option("--factor", "factors", multiple=True, metavar="NAME=X", help="What if: an operator, kind or link.")
@click.option("--max-tokens", default=8192, show_default=True, help="Token budget of a pass, for the KV capacity.")
@click.option("--plot", type=click.Path(dir_okay=False, path_type=Path), help="Write the curves as an SVG picture.")
@click.option("--json", "as_json", is_flag=True, help="The same as JSON.")
@perf_root
def show(
    model: str, perf_root: Path | None, plot: Path | None, as_json: bool, max_tokens: int, clean: bool,
    factors: tuple[str, ...], **named: Any,
) -> None:  # fmt: skip
    """Prefill and decode curves of MODEL as a table, operator by operator, and how many KV blocks fit."""
    from assets.perf_show import parse_factors, show_deployment

    what_if = parse_factors(factors)
    page = show_deployment(model, perf_root, max_tokens=max_tokens, clean=clean, factors=what_if, **named)
    click.echo(json.dumps(page.as_dict(), indent=2) if as_json else _text(page))
    if plot is not None:
        page.write_plot(plot)
        click.echo(f"\ncurves: {plot}", err=as_json)


def _text(page: DeploymentPage) -> str:
    parts = [page.label]
    for phase, curves in page.curves.items():
        parts.append(f"{phase}, ms per pass (* beyond the measured points)\n{text_table(curves.head, curves.cells)}")
    for phase, (which, lines) in page.breakdown.items():
        total = sum(line.ms for line in lines)
        rows = [(line.op, f"{line.ms:,.4f}", f"{line.ms / total:.1%}", line.source) for line in lines]
        table = text_table(("operator", "ms, all layers", "share", "source"), [*rows, ("all", f"{total:,.4f}", "", "")])
        parts.append(f"{phase}: {which}\n{table}")
    parts += [f"{phase} cannot be priced: {why}" for phase, why in page.refused.items()]
    if page.capacity is None:
        parts.append(page.no_capacity)
    else:
        room = page.capacity
        sizes = ("gpu_bytes", "weights_bytes", "activation_bytes", "runtime_bytes", "comm_bytes", "kv_bytes")
        gib = [(name.removesuffix("_bytes").replace("_", " "), f"{getattr(room, name) / 2**30:,.2f}") for name in sizes]
        tail = f"{room.blocks:,} KV blocks of {room.block_tokens} tokens at {room.kv_bytes_per_token:,} bytes per token"
        parts.append(f"{text_table(('memory of one rank', 'GiB'), gib)}\n{tail}")
    source = page.provenance["source"]
    origin = " ".join(filter(None, (source["distribution"], source["version"]))) or f"a {source['kind']} of yours"
    cleaning = "on" if page.provenance["clean"] else "off"
    parts.append(f"from {len(source['files'])} files of {origin}, cleaning {cleaning}")
    return "\n\n".join(parts)
