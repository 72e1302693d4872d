"""`tracemill trace`: look at a trace, or prepare a large one once for many replays."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

BARS = " ▁▂▃▄▅▆▇█"


@click.group()
def trace() -> None:
    """Look at a trace, or prepare a large one for many replays."""


def reading(command: Callable[..., Any]) -> Callable[..., Any]:
    """Options that say how a file is to be read, and `--json`."""
    return how_to_read(click.option("--json", "as_json", is_flag=True, help="One JSON object.")(command))


def how_to_read(command: Callable[..., Any]) -> Callable[..., Any]:
    """Options that say how a file is to be read."""
    options = (
        click.option("--format", "form", metavar="NAME", help="Format of the file.  [default: found out]"),
        click.option("--block-size", type=click.IntRange(1), metavar="TOKENS", help="Tokens per hash id."),
        click.option("--column", "columns", multiple=True, metavar="OURS=THEIRS", help="Name of a column in the file."),
        click.option("--time-unit", type=click.Choice(["s", "ms", "us", "ns"]), default="ms", help="Of named columns."),
        click.option(
            "--nested-basis", type=click.Choice(["auto", "relative", "absolute"]), default="auto", help="Of Weka."
        ),
        click.option("--strict", is_flag=True, help="The first bad row is an error."),
    )
    for option in reversed(options):
        command = option(command)
    return command


@trace.command()
@click.argument("file", type=click.Path(path_type=Path))
@reading
def show(file: Path, as_json: bool, **how: Any) -> None:
    """What FILE holds: counts, load over time, lengths, prefix reuse, bad rows."""
    from assets.ingest import read_trace
    from assets.trace_stats import trace_stats

    found = trace_stats(read_trace(file, needs_timestamps=None, **reading_options(**how)))
    click.echo(json.dumps(found, indent=1) if as_json else as_text(found))


@trace.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("-o", "--output", "out", type=click.Path(path_type=Path), help="Folder to make.  [default: FILE.trace]")
@reading
def ingest(file: Path, out: Path | None, as_json: bool, **how: Any) -> None:
    """Prepare FILE: rows and bad rows as parquet, in bounded memory. Replays take the folder as traffic.source.path."""
    from assets.ingest.ingest import ingest as prepare
    from pipelines.progress import progress_bar

    out = out or file.with_name(f"{file.name}.trace")
    with progress_bar("reading", "B") as progress:
        about = prepare(file, out, progress=progress, **reading_options(**how))
    if as_json:
        click.echo(json.dumps({**about, "output": str(out)}, indent=1))
        return
    counts = about["counts"]
    click.echo(f"{file}: {about['format']} ({about['why']})")
    click.echo(f"{counts['rows_read']:,} rows read = {counts['clean']:,} clean + {counts['quarantined']:,} quarantined")
    click.echo(f"prepared in {out}")


def reading_options(
    form: str | None, block_size: int | None, columns: tuple[str, ...], time_unit: str, nested_basis: str, strict: bool
) -> dict[str, Any]:
    """What `how_to_read` options come to, for `read_trace` and `ingest`."""
    from assets.ingest.generic import FIELDS

    pairs = [each.partition("=") for each in columns]
    for ours, equals, theirs in pairs:
        if not equals or not theirs or ours not in FIELDS:
            raise click.BadParameter(f"{ours}{equals}{theirs}: write OURS=THEIRS, OURS one of {', '.join(FIELDS)}")
    return {
        "format": form,
        "block_tokens": block_size,
        "columns": {ours: theirs for ours, _, theirs in pairs} or None,
        "time_unit": time_unit,
        "nested_basis": nested_basis,
        "strict": strict,
    }


def as_text(found: dict[str, Any]) -> str:
    """The statistics as a page of text."""
    counts, load, prefix, sessions = found["counts"], found["arrivals"], found["prefix"], found["sessions"]
    lines = [
        f"{found['path']}: {found['format']} ({found['why_this_format']})",
        "",
        f"rows        {counts['rows_read']:,} read = {counts['clean']:,} clean + {counts['quarantined']:,} quarantined",
        f"lines       {counts['lines']:,} = {counts['header']} header + {counts['blank']:,} blank "
        f"+ {counts['skipped']:,} skipped + {counts['records']:,} with rows",
    ]
    if sessions:
        turns = f"{sessions['turns']:,} turns, at most {sessions['most_turns']:,}"
        lines.append(f"sessions    {sessions['sessions']:,} with {turns}")
    if waits := found["waits"]:
        lines.append(
            f"waits       {waits['requests_that_wait']:,} requests wait for others of their session, "
            f"{waits['requests_that_wait_for_several']:,} of them for several; {waits['on_dispatch']:,} of "
            f"{waits['waits']:,} waits are for an arrival, the others for an end"
        )
    lines += _arrivals(load) if load else ["arrivals    none in the file"]
    for name in ("prompt_tokens", "output_tokens"):
        lines += ["", *_lengths(name.removesuffix("_tokens"), found[name])]
    lines.append("")
    if prefix is None:
        lines.append("prefixes    unknown: the trace says nothing about them")
    else:
        of = f"{prefix['reusable_blocks']:,} of {prefix['blocks']:,} blocks of {prefix['block_tokens']} tokens"
        best = f"at best {prefix['share_of_prompt_tokens']:.2%} of prompt tokens can be reused"
        lines.append(f"prefixes    {best} ({of}, infinite cache)")
    if found["quarantine"]:
        lines += ["", "set aside"]
        lines += [
            f"  {each['rows']:>9,}  {each['reason']}, first in line {each['first_line']}: {_cut(each['example'])}"
            for each in found["quarantine"]
        ]
    lines += [f"note        {each}" for each in found["warnings"] if "in quarantine" not in each]
    return "\n".join(lines)


def _arrivals(load: dict[str, Any]) -> list[str]:
    rate = "all at once" if load["mean_per_s"] is None else f"{load['mean_per_s']:.4g} per second on average"
    over_time = (
        f"{_spark(load['per_bucket'])}  requests per {load['bucket_s']:.4g} s, at most {max(load['per_bucket']):,}"
    )
    ties = f"{load['requests_in_ties']:,} share theirs with another, at most {load['largest_tie']:,} at one instant"
    return [
        f"arrivals    {load['requests']:,} over {load['span_s']:,.6g} s, {rate}",
        f"            {over_time}",
        f"ties        {load['distinct_times']:,} distinct times; {ties}",
    ]


def _lengths(name: str, found: dict[str, Any]) -> list[str]:
    figures = ", ".join(f"{each} {found[each]:,}" for each in ("min", "p50", "p90", "p99", "max"))
    most = max(each["requests"] for each in found["histogram"])
    rows = [
        f"  < {each['below']:>9,}  {each['requests']:>9,}  {'█' * round(40 * each['requests'] / most)}".rstrip()
        for each in found["histogram"]
    ]
    return [f"{name:<11} {found['total']:,} tokens, mean {found['mean']:,.1f}, {figures}", *rows]


def _spark(values: list[int]) -> str:
    most = max(values) or 1
    return "".join(BARS[-(-8 * each // most)] for each in values)


def _cut(text: str) -> str:
    return text if len(text) <= 70 else text[:67] + "..."
