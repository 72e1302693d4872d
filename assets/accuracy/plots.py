"""Pictures of a report: predicted against measured, and the ratio of the two against load. Plain SVG."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from xml.sax.saxutils import escape

import numpy as np

from assets.accuracy.report import OURS, pass_tokens
from assets.accuracy.truth import UNITS
from assets.plots import AMBER, BLUE, GRID, INK

SIDE, GAP, LEFT, TOP, BOTTOM = 330, 76, 64, 46, 44
TITLES = {"output_throughput": "tokens/s"}
WIDE = 6.2  # of a letter, about
POINTS = 1_500  # more would make the file large and the picture no clearer
COLOURS = (BLUE, AMBER, "#3a8f5a", "#8a5fc2")


@dataclass(frozen=True, slots=True)
class Series:
    """Points of one predictor; x and y positive, shape (n,)."""

    name: str
    x: np.ndarray
    y: np.ndarray


@dataclass(frozen=True, slots=True)
class Chart:
    """A log-log chart of points with reference lines.

    Attributes:
        lines: (factor, slope): y = factor * x ** slope, slope 0 or 1.
    """

    title: str
    x_label: str
    y_label: str
    series: Sequence[Series]
    lines: Sequence[tuple[float, int]]
    span: float = 1.0  # decades at least


def charts(
    truth: Sequence[Mapping[str, Any]], accuracy: Sequence[Mapping[str, Any]], metric: str
) -> tuple[Chart, Chart]:
    """Scatter and residuals of one metric; ours is drawn last, on top."""
    about = {(r["row_id"], r["statistic"]): r for r in truth if r["metric"] == metric and not r["repeat_of"]}
    by_predictor: dict[str, list[tuple[float, float, float]]] = {}
    for row in accuracy:
        measured = about.get((row["row_id"], row["statistic"]))
        if row["metric"] == metric and measured is not None and row["prediction"] is not None:
            load = measured["concurrency"] or measured["prompt_tokens"] or pass_tokens(measured) or 1
            point = (measured["value"], row["prediction"], float(load))
            by_predictor.setdefault(row["predictor"], []).append(point)
    order = sorted(by_predictor, key=lambda name: (name == OURS, name))
    points = {name: _thinned(np.array(by_predictor[name])) for name in order}
    by_load = any(r["concurrency"] for r in about.values())
    scatter = Chart(
        f"{TITLES.get(metric, metric)}: predicted against measured",
        f"measured, {UNITS[metric]}",
        f"predicted, {UNITS[metric]}",
        [Series(name, p[:, 0], p[:, 1]) for name, p in points.items()],
        ((1.0, 1), (1.5, 1), (1 / 1.5, 1)),
    )
    residual = Chart(
        f"{TITLES.get(metric, metric)}: predicted / measured",
        "clients" if by_load else "tokens of the pass" if metric == "pass" else "prompt tokens",
        "ratio",
        [Series(name, p[:, 2], p[:, 1] / p[:, 0]) for name, p in points.items()],
        ((1.0, 0), (1.5, 0), (1 / 1.5, 0)),
    )
    return scatter, residual


def svg(rows: Sequence[Sequence[Chart]]) -> str:
    """Charts in rows and columns as one picture."""
    columns = max(len(row) for row in rows)
    width, height = columns * (SIDE + GAP) + LEFT, len(rows) * (SIDE + TOP + BOTTOM)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'font-family="sans-serif" font-size="11" fill="{INK}"><rect width="{width}" height="{height}" fill="#ffffff"/>'
    ]
    for i, row in enumerate(rows):
        for j, chart in enumerate(row):
            parts += _chart(chart, LEFT + j * (SIDE + GAP), i * (SIDE + TOP + BOTTOM) + TOP)
    return "".join([*parts, "</svg>"])


def _chart(chart: Chart, x0: float, y0: float) -> list[str]:
    x_axis = _decades(np.concatenate([s.x for s in chart.series] or [np.ones(1)]), chart.span)
    if any(slope for _, slope in chart.lines):  # both axes alike, so that the diagonal is one
        both = np.concatenate([v for s in chart.series for v in (s.x, s.y)] or [np.ones(1)])
        x_axis = y_axis = _decades(both, chart.span)
    else:
        y_axis = _decades(np.concatenate([s.y for s in chart.series] or [np.ones(1)]), chart.span)

    def px(value: float) -> float:
        return x0 + (math.log10(value) - x_axis[0]) / (x_axis[1] - x_axis[0]) * SIDE

    def py(value: float) -> float:
        return y0 + SIDE - (math.log10(value) - y_axis[0]) / (y_axis[1] - y_axis[0]) * SIDE

    parts = [f'<text x="{x0}" y="{y0 - 26}" font-weight="bold">{escape(chart.title)}</text>']
    for value in _ticks(x_axis):
        parts.append(f'<path d="M{px(value):.1f} {y0}V{y0 + SIDE}" stroke="{GRID}"/>')
        parts.append(f'<text x="{px(value):.1f}" y="{y0 + SIDE + 14}" text-anchor="middle">{value:,g}</text>')
    for value in _ticks(y_axis):
        parts.append(f'<path d="M{x0} {py(value):.1f}H{x0 + SIDE}" stroke="{GRID}"/>')
        parts.append(f'<text x="{x0 - 5}" y="{py(value) + 4:.1f}" text-anchor="end">{value:,g}</text>')
    parts.append(f'<text x="{x0 + SIDE}" y="{y0 + SIDE + 30}" text-anchor="end">{escape(chart.x_label)}</text>')
    # Beside the axis: above it there is the legend.
    at = f"{x0 - 50} {y0 + SIDE / 2}"
    parts.append(f'<text transform="translate({at}) rotate(-90)" text-anchor="middle">{escape(chart.y_label)}</text>')
    parts.append(
        f'<clipPath id="c{x0:.0f}-{y0:.0f}"><rect x="{x0}" y="{y0}" width="{SIDE}" height="{SIDE}"/></clipPath>'
    )
    parts.append(f'<g clip-path="url(#c{x0:.0f}-{y0:.0f})">')
    for n, (factor, slope) in enumerate(chart.lines):
        low, high = (10**edge for edge in x_axis)
        dash = "" if n == 0 else ' stroke-dasharray="4 4"'
        ends = f"M{px(low):.1f} {py(factor * low**slope):.1f}L{px(high):.1f} {py(factor * high**slope):.1f}"
        parts.append(f'<path d="{ends}" stroke="{INK}" fill="none" opacity="0.7"{dash}/>')
    colours = _colours(chart.series)
    for series in chart.series:
        dots = "".join(f"M{px(x):.1f} {py(y):.1f}h0" for x, y in zip(series.x.tolist(), series.y.tolist()))
        paint = f'stroke="{colours[series.name]}" stroke-width="4.5" stroke-linecap="round" opacity="0.45"'
        parts.append(f'<path d="{dots}" {paint} fill="none"/>')
    parts.append("</g>")
    x = float(x0)
    for series in reversed(chart.series):  # ours first
        parts.append(f'<text x="{x:.0f}" y="{y0 - 8}" fill="{colours[series.name]}">● {escape(series.name)}</text>')
        x += WIDE * (len(series.name) + 4)
    dashed = ", ".join(f"×{factor:g}" for factor, _ in chart.lines[1:] if factor > 1)
    if dashed:
        parts.append(f'<text x="{x0 + SIDE}" y="{y0 - 26}" text-anchor="end">dashed: {dashed}</text>')
    return parts


def _colours(series: Sequence[Series]) -> dict[str, str]:
    others = [s.name for s in series if s.name != OURS]
    return {OURS: COLOURS[0], **{name: COLOURS[1 + i % 3] for i, name in enumerate(sorted(others))}}


def _decades(values: np.ndarray, span: float) -> tuple[float, float]:
    """Ends of a logarithmic axis, a little beyond the values."""
    low, high = math.log10(values.min()), math.log10(values.max())
    middle, half = (low + high) / 2, max(high - low, span) / 2 * 1.05
    return middle - half, middle + half


def _ticks(axis: tuple[float, float]) -> list[float]:
    steps = (1, 2, 5) if axis[1] - axis[0] < 2.5 else (1,)
    found = [s * 10.0**e for e in range(math.floor(axis[0]), math.ceil(axis[1]) + 1) for s in steps]
    return [v for v in found if axis[0] <= math.log10(v) <= axis[1]]


def _thinned(points: np.ndarray) -> np.ndarray:
    return points if len(points) <= POINTS else points[:: -(-len(points) // POINTS)]
