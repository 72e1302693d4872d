"""`tracemill perf diff`: what differs between two states of performance data, and who is reached by it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from pipelines.commands.perf import perf_root
from pipelines.exits import DIFFERENT
from pipelines.options import warehouse, warehouse_root

_COUNTED = (
    ("rows", "n_rows"), ("points", "n_points"), ("slices", "n_slices"), ("grid", "coverage"), ("holes", "n_holes"),
    ("falling pairs", "n_falling"), ("spikes", "n_spikes"), ("repeated rows", "n_duplicates"),
    ("host-bound slices", "n_host_bound"), ("smallest", "min_value"), ("largest", "max_value"),
)  # fmt: skip
_TOLD = (
    ("keys", "key_columns"), ("shape", "axes"), ("precisions", "precisions"), ("unit", "unit"), ("faults", "faults"),
)  # fmt: skip
_STATES = ("added", "removed", "changed")
_WIDTH = max(len(label) for label, _ in (*_TOLD, *_COUNTED))


@click.command()
@click.argument("before")
@click.argument("after")
@click.option("--deployment", "named", multiple=True, metavar="MODEL@SYSTEM/BACKEND[:tp=2,...]", help="Priced on both.")
@click.option("--run", help="Show which evidence of this replay rests on changed rows (last, a name, an id).")
@click.option("--points", default=5, show_default=True, help="How many changed points to show per table.")
@click.option("--clean/--no-clean", default=True, show_default=True, help="Repairs on, for the prices.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of text.")
@perf_root
@warehouse
def diff(
    before: str,
    after: str,
    named: tuple[str, ...],
    run: str | None,
    points: int,
    clean: bool,
    as_json: bool,
    perf_root: Path | None,
    root: Path | None,
) -> None:
    """Compare performance data BEFORE and AFTER: folders, parquet files, `extra`, or SYSTEM|BACKEND|VERSION.

    Exit code 0: the same. 1: they differ.
    """
    from perf_db.gpu.diff import diff as compare
    from perf_db.gpu.diff import side_of
    from perf_db.gpu.effects import effects, parse_deployment, usual_deployments

    asked = [parse_deployment(text) for text in named]
    a, b = side_of(before, perf_root), side_of(after, perf_root)
    found = compare(a, b)
    if not asked and a.file is None and b.file is None:
        asked = usual_deployments(_touched(a, b, found))
    priced = list(effects(a, b, asked, clean=clean)) if not found.is_empty else []
    reached = None
    if run is not None:
        from assets.perf_diff import reach
        from assets.views import open_store

        reached = reach(open_store(warehouse_root(root)), run, found, a, b)
    if as_json:
        click.echo(json.dumps(_as_json(before, after, found, priced, reached, points), indent=1, default=str))
    else:
        click.echo(_text(before, after, found, priced, reached, points, bool(named)))
    if not found.is_empty:
        raise SystemExit(DIFFERENT)


def _touched(a: Any, b: Any, found: Any) -> list[tuple[str, str]]:
    """(system, backend) of all files that differ."""
    touched = []
    for each in found.files:
        for side in (a, b):
            path = side.files().get(each["file"])
            if path is not None:
                version = side.version_of(path)
                touched.append((version.system, version.backend))
    return touched


def _as_json(before: str, after: str, found: Any, priced: list[Any], reached: Any, points: int) -> dict[str, Any]:
    return {
        "before": before,
        "after": after,
        "same": found.is_empty,
        "files": [each | {"examples": _examples(found, each["file"], points)} for each in found.files],
        "unchanged_files": len(found.same),
        "facts": found.facts,
        "effects": priced,
        "reach": reached,
    }


def _examples(found: Any, name: str, n: int) -> list[dict[str, Any]]:
    """Changed points, the largest changes first."""
    import polars as pl

    changed = found.points.get(name)
    if changed is None:
        return []
    size = (pl.col("after") / pl.col("before")).log().abs().fill_null(0)
    rows: list[dict[str, Any]] = changed.sort(size, descending=True, maintain_order=True).head(n).to_dicts()
    return rows


def _text(before: str, after: str, found: Any, priced: list[Any], reached: Any, points: int, everybody: bool) -> str:
    if found.is_empty:
        return f"{before} and {after} hold the same: {len(found.same)} table(s)"
    lines = [f"{len(found.files)} table(s) differ, {len(found.same)} are the same"]
    for each in found.files:
        lines += ["", *_file(each, _examples(found, each["file"], points))]
    for name, fields in found.facts.items():
        lines += ["", name, *(f"  {key or 'file'}: {was!r} -> {now!r}" for key, (was, now) in fields.items())]
    if priced:
        lines += ["", *_effects(priced, everybody)]
    if reached is not None:
        lines += ["", *_reach(reached)]
    return "\n".join(lines)


def _file(each: dict[str, Any], examples: list[dict[str, Any]]) -> list[str]:
    lines = [f"{each['file']}: {each['state']}"]
    for label, name in (*_TOLD, *_COUNTED):
        was, now = each[name]
        # Of a file on one side only what it has, not what it lacks.
        if was != now and (each["state"] == "changed" or was or now):
            lines.append(_pair(label, was, now))
    if counts := each.get("points"):
        ratio, counted = counts["ratio"], ", ".join(f"{counts[state]:,} {state}" for state in _STATES)
        if ratio["median"] is not None:
            counted += f", x {ratio['min']:.3g} to x {ratio['max']:.3g}, median x {ratio['median']:.4g}"
        lines.append(f"  {'':<{_WIDTH}} {counted}")
    for point in examples:
        was, now = (_value(point[side]) for side in ("before", "after"))
        lines.append(f"    {point['state']}: {was} -> {now}  {point['slice']} {point['point']}")
    return lines


def _pair(label: str, was: Any, now: Any) -> str:
    return f"  {label:<{_WIDTH}} {_value(was)} -> {_value(now)}"


def _value(value: Any) -> str:
    if value is None or value == "":
        return "–"
    if isinstance(value, float):
        return f"{value:.5g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _effects(priced: list[Any], everybody: bool) -> list[str]:
    from pipelines.tables import text_table

    rows, refused, unmoved = [], [], []
    for each in priced:
        if each["passes"] and not any(line["change"] for line in each["passes"]):
            unmoved.append(f"{each['deployment']}: no change")
            continue
        for line in each["passes"]:
            what = f"{line['requests']} x {line['tokens']:,} {'new' if line['pass'] == 'prefill' else 'KV'} tokens"
            change = f"{line['change']:+.2%}"
            rows.append((each["deployment"], line["pass"], what, line["before_ms"], line["after_ms"], change))
        # Of the usual deployments those that neither side can price say nothing.
        if not each["passes"] and (everybody or "priced" in (each["before"], each["after"])):
            refused.append(f"{each['deployment']}: before {each['before']}; after {each['after']}")
    lines = ["predicted effect"]
    if rows:
        lines.append(text_table(("deployment", "pass", "of", "before ms", "after ms", "change"), rows))
    said = unmoved + refused
    return lines + (said if rows or said else ["  no deployment can be priced on both sides"])


def _reach(reached: dict[str, Any]) -> list[str]:
    from pipelines.tables import text_table

    lines = [f"reached by run {reached['run_id']}"]
    for name, side in reached["rests_on"].items():
        lines.append(
            f"  {name}: the run read {'the file ' + side if side != 'neither' else 'neither of the two files'}"
        )
    if reached["note"]:
        lines.append(f"  {reached['note']}")
    lines.append(
        f"  {reached['cells_hit']:,} of {reached['cells']:,} evidence cells ({reached['lookups']:,} lookups) rest on "
        f"{reached['rows_hit']:,} changed row(s): {reached['resting_ms']:,.1f} of {reached['total_ms']:,.1f} ms, "
        f"{reached['share']:.2%}"
    )
    names = ("role", "phase", "cell", "n_lookups", "operator", "resting_ms", "row_no", "before", "after", "point")
    if reached["lines"]:
        lines.append(text_table(names, [tuple(line[n] for n in names) for line in reached["lines"]]))
    return lines
