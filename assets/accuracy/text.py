"""A report as text for people."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from assets.accuracy.report import OURS, STANDING, Cell, Report
from assets.accuracy.statistics import Figure
from assets.accuracy.truth import DEPLOYMENT, PASS

SHORT = {"output_throughput": "tok/s"}  # metrics in tables
_SLICES = ("all", STANDING, "backend", "rows both answer", "model", "system", "load", "version")


def constants_text(report: Report, rows: Iterable[Mapping[str, Any]], snapshot: str | None = None) -> str:
    """Which constants our predictions were made with.

    Args:
        rows: of `accuracy`.
        snapshot: what to call the file that was given.
    """
    ours = [row for row in rows if row["predictor"] == OURS and row["prediction"] is not None]
    used = sorted({str(row["snapshot"])[:12] for row in ours if row["snapshot"]})
    said = []
    if used:
        said.append("of snapshot " + ", ".join(used) + (f" ({snapshot})" if snapshot else ""))
    own = {row["standing"] for row in ours if not row["snapshot"]}
    if own & {"held_out", "in_sample"}:
        said.append("fitted here, to deployment groups other than the scored one")
    if own - {"held_out", "in_sample"}:
        said.append("none (not calibrated)" if set(report.grains) == {DEPLOYMENT} else "the configuration's own timing")
    return f"constants: {'; '.join(said) or 'none, nothing was predicted'}"


def report_text(report: Report, *, slices: Iterable[str] = _SLICES) -> str:
    """Figures of every slice, the worst rows, and what could not be predicted."""
    lines = [
        f"{report.truth_set}: {_counts(report)}"
        + (f", {report.repeats:,} repeats not scored" if report.repeats else "")
        + (
            f", {report.provisional:,} priced provisionally, with another engine's scheduler"
            if report.provisional
            else ""
        ),
        "errors in %: MAPE [95 % of resamples of whole deployment groups], median APE, p90 APE, bias; balanced: mean "
        "of the models' MAPEs; total: sum of predictions against sum of measurements",
    ]
    for name in slices:
        cells = [cell for cell in report.cells if cell.slice == name]
        # A slice of one part says what the whole has said.
        if cells and (name == "all" or len({str(cell.label) for cell in cells}) > 1 or "rows_of" in cells[0].label):
            lines += ["", name, *_table(cells)]
    if report.shapes:
        lines += ["", "distributions", *_shapes(report)]
    if report.passes:
        lines += ["", "passes: median signed error, 10th and 90th percentile, in %", *_passes(report)]
    if report.reasons:
        lines += ["", "without a prediction"]
        lines += [f"  {predictor:20} {reason:28} {n:6,}" for (predictor, reason), n in sorted(report.reasons.items())]
    if report.worst:
        lines += ["", "largest errors", *_worst(report)]
    return "\n".join(lines)


def _counts(report: Report) -> str:
    """How many figures of what."""
    parts = [
        f"{n:,} measured figures of {'passes' if grain == PASS else grain + 's'}" for grain, n in report.grains.items()
    ]
    return ", ".join([*parts[:1], *(part.replace(" measured figures", "") for part in parts[1:])])


def percent(value: float | None, *, sign: bool = False) -> str:
    if value is None:
        return "–"
    return f"{100 * value:+.1f}" if sign else f"{100 * value:.1f}"


def _interval(figure: Figure) -> str:
    if figure.value is None:
        return "–"
    if figure.low is None or figure.high is None:
        return percent(figure.value)
    return f"{percent(figure.value)} [{percent(figure.low)}, {percent(figure.high)}]"


def _table(cells: Iterable[Cell]) -> list[str]:
    """A line per label and metric: our figures, and other predictors' in columns beside them."""
    cells = list(cells)
    peers = sorted({cell.predictor for cell in cells} - {OURS})
    of_requests = {cell.metric for cell in cells if cell.statistic == "value"}
    by_line: dict[tuple[str, str, str], dict[str, Cell]] = {}
    for cell in cells:
        label = " · ".join(map(str, cell.label.values()))
        by_line.setdefault((label, cell.metric, cell.statistic), {})[cell.predictor] = cell
    if all("rows_of" in cell.label for cell in cells):
        peers = [_PEER] if cells else []
    head = f"  {'':46} {'metric':12} {'rows':>6} {'cover':>6}  {'MAPE':22} {'median':>7} {'p90':>7} {'bias':>7} "
    lines = [head + f"{'balanced':>8} {'total':>7}" + "".join(f"   {peer[:24]:>24}" for peer in peers)]
    if peers:
        lines.append(" " * len(lines[0].split(peers[0][:24])[0].rstrip()) + "".join(f"{_BESIDE:>27}" for _ in peers))
    for (label, metric, statistic), found in by_line.items():
        ours = found.get(OURS)
        plain = statistic == "value" or (statistic == "mean" and metric not in of_requests)
        name = SHORT.get(metric, metric) + ("" if plain else f" {statistic}")
        marked = label + (" · provisional" if ours is not None and ours.provisional else "")
        lines.append(
            f"  {marked[:46]:46} {name:12} {_ours(ours)}" + "".join(f"   {_beside(found, p):>24}" for p in peers)
        )
    return lines


_PEER = "the other"  # where every line has one of its own, named by the label
_BESIDE = "rows  MAPE  median   bias"


def _ours(cell: Cell | None) -> str:
    if cell is None:
        return f"{0:6,} {0:>6}  {'–':22} {'–':>7} {'–':>7} {'–':>7} {'–':>8} {'–':>7}"
    f = cell.figures
    cover = "–" if f.coverage is None else f"{100 * f.coverage:.0f}"
    return (
        f"{f.n_answered:6,} {cover:>6}  {_interval(f.mape):22} {percent(f.median_ape.value):>7} "
        f"{percent(f.p90_ape.value):>7} {percent(f.bias.value, sign=True):>7} {percent(f.balanced_mape.value):>8} "
        f"{percent(f.total_error.value, sign=True):>7}"
    )


def _beside(found: Mapping[str, Cell], peer: str) -> str:
    cell = next((c for name, c in found.items() if name != OURS), None) if peer == _PEER else found.get(peer)
    if cell is None or not cell.figures.n_answered:
        return "–"
    f = cell.figures
    bias = percent(f.bias.value, sign=True)
    return f"{f.n_answered:,} {percent(f.mape.value):>5} {percent(f.median_ape.value):>7} {bias:>6}"


def _shapes(report: Report) -> list[str]:
    head = f"  {'predictor':20} {'metric':6} {'half':9} {'rows':>6} {'KS':>6} {'shift %':>8}"
    lines = [f"{head} {'median %':>8} {'total %':>8}"]
    for each in report.shapes:
        lines.append(
            f"  {each['predictor']:20} {each['metric']:6} {each['half']:9} {each['n_rows']:6,} {each['ks']:6.3f} "
            f"{percent(each['wasserstein']):>8} {percent(each['median_ape']):>8} "
            f"{percent(each['total_error'], sign=True):>8}"
        )
    return lines


def _passes(report: Report) -> list[str]:
    return [
        f"  {each['predictor']:20} {each['kind']:12} {each['tokens']:>9} tokens {each['n_rows']:8,} "
        f"{percent(each['median_signed_error'], sign=True):>7} [{percent(each['p10'], sign=True)}, "
        f"{percent(each['p90'], sign=True)}]"
        for each in report.passes
    ]


def _worst(report: Report) -> list[str]:
    lines = []
    for row in report.worst:
        names = ("backend", "backend_version", "model", "system")
        about = " ".join(str(row[name]) for name in names if row[name]) + (
            " (provisional)" if row["provisional"] else ""
        )
        lengths = f"{row['prompt_tokens']}/{row['output_tokens']} tokens" if row["prompt_tokens"] else ""
        if row["n_prefill"] or row["n_decode"]:
            lengths = ", ".join(_held(row))
        shape = [f"{text} {row[name]}" for name, text in (("tp", "TP"), ("concurrency", "C")) if row[name]]
        load = ", ".join(filter(None, [lengths, *shape]))
        others = "".join(f", {name} {value:,.4g}" for name, value in row["others"].items() if value is not None)
        lines.append(
            f"  {row['metric']:5} {percent(row['signed_error'], sign=True):>8} %  measured {row['truth']:,.4g} "
            f"predicted {row['prediction']:,.4g}{others}  {about} {load}"
        )
        lines.append(f"        {row['row_id']}" + "".join(f"; {said}" for said in _evidence(row)))
    return lines


def _held(row: Mapping[str, Any]) -> Iterator[str]:
    """What a pass held."""
    if row["n_prefill"]:
        after = f" after {row['prefill_kv_tokens']:,}" if row["prefill_kv_tokens"] else ""
        yield f"{row['prefill_tokens']:,} prompt tokens{after} of {row['n_prefill']}"
    if row["n_decode"]:
        yield f"{row['n_decode']} decodes over {row['decode_kv_tokens']:,}"


def _evidence(row: Mapping[str, Any]) -> Iterator[str]:
    """What the prediction rests on."""
    found = json.loads(row["evidence"]) if row["evidence"] else {}
    if row["extrapolated_share"] is not None:
        yield f"{100 * row['extrapolated_share']:.0f} % of pass time outside the data"
    for phase, looked in found.get("lookups", {}).items():
        yield f"{phase} {looked['source']}" + (f", {looked['octaves']:.1f} octaves away" if looked["octaves"] else "")
    if "deployment" in found:
        d = found["deployment"]
        yield f"tables {d['backend']} {d['version']}" + "".join(
            f", {d[name]} {name}" for name in ("gemm", "moe") if d[name]
        )
    if found.get("n_preempted"):
        yield f"{found['n_preempted']:,} preemptions in {found['n_passes']:,} passes"
    memory = found.get("memory", {})
    if memory.get("blocks"):
        yield f"{memory['blocks']:,} KV blocks ({memory['kv_cache']})" + (
            ", close to demand" if "warning" in memory else ""
        )
    yield from found.get("labels", [])


def headline(report: Report) -> str:
    """One line per metric: ours over all rows."""
    lines = []
    for metric in sorted({cell.metric for cell in report.cells}):
        cell = report.cell(OURS, metric)
        if cell is not None and cell.figures.mape.value is not None:
            lines.append(f"{metric} {percent(cell.figures.mape.value)} % ({cell.figures.n_answered:,} rows)")
    return ", ".join(lines)
