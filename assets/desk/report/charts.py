"""The charts of a report, drawn by plotly. It is imported here and when a report is made, nowhere else."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from assets.desk.attribution import Attribution
from assets.desk.report.series import OverTime, Points

# Base and head keep their colours in every chart; so do the three kinds of passes.
BASE, HEAD = "#8a9ba8", "#2f6fde"
COLOURS = {"prefill only": "#c9711a", "decode only": "#2f6fde", "mixed": "#7a52b3"}
UP, DOWN, TOTAL = "#c23b3b", "#2e8b57", "#5c7080"
HEIGHT = 300


def html(figure: Any) -> str:
    """A piece of a page; the page brings plotly's script itself."""
    import plotly.io as pio

    return str(
        pio.to_html(
            figure,
            full_html=False,
            include_plotlyjs=False,
            config={"displaylogo": False, "responsive": True, "modeBarButtonsToRemove": ["select2d", "lasso2d"]},
        )
    )


def script() -> str:
    """plotly's own script, whole."""
    from plotly.offline import get_plotlyjs

    return str(get_plotlyjs())


def distributions(sides: Mapping[str, Points], latency: str) -> Any:
    """Shares of requests within x ms."""
    import plotly.graph_objects as go

    figure = _figure(f"{latency}: requests within x ms, %", "ms", log_x=True)
    for (name, points), colour in zip(sides.items(), _colours(sides), strict=True):
        line = {"color": colour, "width": 2, "shape": "hv"}
        figure.add_trace(go.Scatter(x=points.x, y=points.y, name=name, mode="lines", line=line))
    figure.update_yaxes(range=[0, 101])
    ticks = _decades([x for points in sides.values() for x in points.x if x > 0])
    figure.update_xaxes(tickvals=ticks, ticktext=[f"{t:,g}" for t in ticks])
    return figure


def over_time(sides: Mapping[str, OverTime], column: str, title: str, *, of_100: bool = False) -> Any:
    """One figure over virtual time."""
    import plotly.graph_objects as go

    figure = _figure(title, "s")
    for (name, series), colour in zip(sides.items(), _colours(sides), strict=True):
        line = {"color": colour, "width": 1.5, "shape": "hv"}
        filled = {"fill": "tozeroy"} if len(sides) == 1 else {}
        figure.add_trace(
            go.Scatter(x=series.s, y=getattr(series, column), name=name, mode="lines", line=line, **filled)
        )
    figure.update_yaxes(rangemode="tozero", range=[0, 101] if of_100 else None)
    return figure


def passes(found: Mapping[str, Points], title: str, *, y_range: tuple[float, float] | None = None) -> Any:
    """Duration of passes over time, by what they did."""
    import plotly.graph_objects as go

    figure = _figure(title, "s")
    for mix, points in found.items():
        marker = {"color": COLOURS[mix], "size": 4, "opacity": 0.6}
        figure.add_trace(
            go.Scattergl(x=points.x, y=points.y, name=mix, mode="markers", marker=marker, text=points.about)
        )
    figure.update_yaxes(rangemode="tozero", range=y_range)
    figure.update_layout(showlegend=True)
    return figure


def waterfall(a: Attribution, name: str) -> Any:
    """Where a change of a latency comes from, seconds summed over requests."""
    import plotly.graph_objects as go

    steps = [(part, ns) for part, ns in a.terms.items() if ns]
    figure = _figure(f"{name}, summed over requests: from base to head, s", "")
    values = [a.base_ns, *(ns for _, ns in steps), a.head_ns]
    figure.add_trace(
        go.Waterfall(
            x=["base", *(part for part, _ in steps), "head"],
            y=[v / 1e9 for v in values],
            measure=["absolute", *("relative" for _ in steps), "total"],
            text=[f"{v / 1e9:{'+' if 0 < i < len(values) - 1 else ''},.3f}" for i, v in enumerate(values)],
            textposition="outside",
            increasing={"marker": {"color": UP}},
            decreasing={"marker": {"color": DOWN}},
            totals={"marker": {"color": TOTAL}},
            connector={"line": {"color": "#b0bec5", "width": 1}},
            cliponaxis=False,
        )
    )
    # Steps would be hairlines on a scale that starts at zero.
    reached, levels = a.base_ns, [a.base_ns, a.head_ns]
    for _, ns in steps:
        reached += ns
        levels.append(reached)
    low, high = min(levels) / 1e9, max(levels) / 1e9
    room = (high - low) or abs(high) or 1.0
    figure.update_yaxes(range=[max(0.0, low - 0.4 * room), high + 0.2 * room])
    return figure


def trends(lines: Sequence[tuple[str, list[str], list[float]]], title: str) -> Any:
    """Several named lines over executions."""
    import plotly.graph_objects as go

    figure = _figure(title, "")
    for name, at, values in lines:
        figure.add_trace(go.Scatter(x=at, y=values, name=name, mode="lines+markers", line={"width": 1.5}))
    figure.update_layout(showlegend=True, height=HEIGHT + 120)
    return figure


def _decades(values: Sequence[float]) -> list[float]:
    """1, 2 and 5 times every power of ten that the values span."""
    if not values:
        return []
    first, last = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return [m * 10.0**k for k in range(first, last + 1) for m in (1, 2, 5)]


def _colours(sides: Mapping[str, Any]) -> list[str]:
    return [HEAD] if len(sides) == 1 else [BASE, HEAD]


def _figure(title: str, x_title: str, *, log_x: bool = False) -> Any:
    import plotly.graph_objects as go

    figure = go.Figure()
    figure.update_layout(
        title={"text": title, "font": {"size": 14}, "x": 0.01, "xanchor": "left", "y": 0.97, "yanchor": "top"},
        template="plotly_white",
        height=HEIGHT,
        margin={"l": 60, "r": 20, "t": 58, "b": 44},
        font={"family": "system-ui, sans-serif", "size": 12, "color": "#293742"},
        legend={"orientation": "h", "x": 0, "xanchor": "left", "y": 1.0, "yanchor": "bottom"},
        hovermode="closest",
    )
    figure.update_xaxes(title={"text": x_title, "standoff": 4}, type="log" if log_x else None)
    return figure
