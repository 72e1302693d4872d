"""The pictures of a trace: load over time, lengths, what an infinite cache would find."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from xml.sax.saxutils import escape

import numpy as np

from assets.ingest import Trace
from assets.plots import AMBER, BLUE, BOTTOM, GRID, LEFT, PANEL_HEIGHT, RIGHT, TOP, WIDTH, Drawn, Panel, ticks
from assets.trace_stats import reusable

BUCKETS = 200
GREEN = "#2d8a5b"


@dataclass(frozen=True, slots=True)
class Bars:
    """A histogram: one bar per bin, equally wide.

    Attributes:
        labels: upper edge of each bin, as text.
        values: height of each bar.
    """

    title: str
    labels: Sequence[str]
    values: Sequence[float]
    x_label: str
    colour: str = BLUE

    @property
    def height(self) -> int:
        """Pixels."""
        return PANEL_HEIGHT

    def draw(self, y0: int) -> list[str]:
        """SVG elements."""
        parts = [f'<text x="{LEFT}" y="{y0 + 18}" font-weight="bold">{escape(self.title)}</text>']
        top, floor = max(self.values, default=0) or 1, y0 + PANEL_HEIGHT - BOTTOM
        tall, wide = PANEL_HEIGHT - TOP - BOTTOM, (WIDTH - LEFT - RIGHT) / max(len(self.values), 1)
        for value in ticks(top):
            y = floor - value / top * tall
            parts.append(f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="{GRID}"/>')
            parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{value:,.6g}</text>')
        for i, (label, value) in enumerate(zip(self.labels, self.values, strict=True)):
            x, high = LEFT + i * wide, value / top * tall
            parts.append(
                f'<rect x="{x + 1:.1f}" y="{floor - high:.1f}" width="{max(wide - 2, 1):.1f}" height="{high:.1f}" '
                f'fill="{self.colour}" fill-opacity="0.7"/>'
            )
            # An edge stands where it is: at the right of its bin.
            parts.append(f'<text x="{x + wide:.1f}" y="{floor + 14}" text-anchor="middle">{escape(label)}</text>')
        parts.append(f'<text x="{WIDTH - RIGHT}" y="{floor + 27}" text-anchor="end">{escape(self.x_label)}</text>')
        return parts


def trace_panels(trace: Trace, stats: dict[str, Any]) -> list[Drawn]:
    """Everything there is to see of a trace; `stats` are its `trace_stats`."""
    panels: list[Drawn] = _over_time(trace) if stats["arrivals"] else []
    for name, title, colour in (("prompt_tokens", "prompt", BLUE), ("output_tokens", "output", AMBER)):
        bins = stats[name]["histogram"]
        labels = [_short(each["below"]) for each in bins]
        panels.append(
            Bars(f"requests by {title} length", labels, [each["requests"] for each in bins], "tokens, below", colour)
        )
    return panels


def _over_time(trace: Trace) -> list[Drawn]:
    first = np.ones(len(trace), bool) if trace.turn is None else trace.turn <= 0
    at = trace.arrival_ns
    width_ns = max(int(at.max()) // BUCKETS + 1, 1)
    bucket = at // width_ns
    x = (np.arange(int(bucket.max()) + 1) * width_ns / 1e9).tolist()
    every = f"every {width_ns / 1e9:,.3g} s"
    counts = np.bincount(bucket[first], minlength=len(x))
    panels: list[Drawn] = [
        Panel(f"{'requests' if first.all() else 'sessions'} that start {every}", x, counts.tolist(), "s")
    ]
    if not first.all():
        return panels
    prompts = np.bincount(bucket, weights=trace.prompt_tokens, minlength=len(x))
    panels.append(Panel(f"prompt tokens {every}, thousands", x, (prompts / 1e3).tolist(), "s", AMBER))
    if (found := reusable(trace)) is not None:
        tokens = np.bincount(bucket, weights=found.tokens, minlength=len(x))
        share = 100 * tokens / np.maximum(prompts, 1)
        title = f"share of prompt tokens that an infinite cache would hold, % ({every})"
        panels.append(Panel(title, x, share.tolist(), "s", GREEN))
    return panels


def _short(tokens: int) -> str:
    return f"{tokens // 1024}k" if tokens >= 1024 else str(tokens)
