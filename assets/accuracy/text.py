"""A report as text for people."""

from __future__ import annotations

from collections.abc import Iterable

from assets.accuracy.report import OURS, STANDING, Cell, Report
from assets.accuracy.statistics import Figure
from assets.accuracy.truth import PASS, REQUEST

_SLICES = ("all", STANDING, "backend", "rows both answer", "model", "system", "load", "version")


def report_text(report: Report, *, slices: Iterable[str] = _SLICES) -> str:
    """Figures of every slice, the worst rows, and what could not be predicted."""
    lines = [
        f"{report.truth_set}: {report.n_rows:,} measured figures of {report.grain}s"
        + (f", {report.repeats:,} repeats not scored" if report.repeats else "")
        + (f", {report.provisional:,} priced provisionally" if report.provisional else ""),
        "errors in %: MAPE [95 % of resamples of whole deployment groups], median APE, p90 APE, bias; balanced: mean "
        "of the models' MAPEs; total: sum of predictions against sum of measurements",
    ]
    for name in slices:
        cells = [cell for cell in report.cells if cell.slice == name]
        # A slice of one part says what the whole has said.
        if cells and (name == "all" or len({str(cell.label) for cell in cells}) > 1 or "rows_of" in cells[0].label):
            lines += ["", name, *_table(cells)]
    if report.grain == REQUEST:
        lines += ["", "distributions", *_shapes(report)]
    if report.grain == PASS:
        lines += ["", "passes: median signed error, 10th and 90th percentile, in %", *_passes(report)]
    if report.reasons:
        lines += ["", "without a prediction"]
        lines += [f"  {predictor:20} {reason:28} {n:6,}" for (predictor, reason), n in sorted(report.reasons.items())]
    if report.worst:
        lines += ["", "largest errors", *_worst(report)]
    return "\n".join(lines)


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
    head = f"  {'':46} {'metric':8} {'predictor':18} {'rows':>6} {'cover':>6}  {'MAPE':22} {'median':>7} {'p90':>7} "
    lines = [f"{head}{'bias':>7} {'balanced':>8} {'total':>7}"]
    for cell in cells:
        f = cell.figures
        label = " · ".join(str(v) for v in cell.label.values())
        metric = cell.metric if cell.statistic in ("mean", "value") else f"{cell.metric} {cell.statistic}"
        cover = "–" if f.coverage is None else f"{100 * f.coverage:.0f}"
        lines.append(
            f"  {label[:46]:46} {metric:8} {cell.predictor:18} {f.n_answered:6,} {cover:>6}  {_interval(f.mape):22} "
            f"{percent(f.median_ape.value):>7} {percent(f.p90_ape.value):>7} {percent(f.bias.value, sign=True):>7} "
            f"{percent(f.balanced_mape.value):>8} {percent(f.total_error.value, sign=True):>7}"
        )
    return lines


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
        about = " ".join(str(row[name]) for name in names if row[name])
        load = f"{row['prompt_tokens']}/{row['output_tokens']} tokens"
        load += "".join(f", {text} {row[name]}" for name, text in (("tp", "TP"), ("concurrency", "C")) if row[name])
        beyond = row["extrapolated_share"]
        told = "" if beyond is None else f", {100 * beyond:.0f} % of pass time outside the data"
        others = "".join(f", {name} {value:,.4g}" for name, value in row["others"].items() if value is not None)
        lines.append(
            f"  {row['metric']:5} {percent(row['signed_error'], sign=True):>8} %  measured {row['truth']:,.4g} "
            f"predicted {row['prediction']:,.4g}{others}{told}  {row['row_id']}  {about} {load}"
        )
    return lines


def headline(report: Report) -> str:
    """One line per metric: ours over all rows."""
    lines = []
    for metric in sorted({cell.metric for cell in report.cells}):
        cell = report.cell(OURS, metric)
        if cell is not None and cell.figures.mape.value is not None:
            lines.append(f"{metric} {percent(cell.figures.mape.value)} % ({cell.figures.n_answered:,} rows)")
    return ", ".join(lines)
