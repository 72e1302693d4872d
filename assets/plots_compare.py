"""SVG pictures that compare: several lines in one frame, and a waterfall from one total to another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

from assets.plots import (
    AMBER,
    BLUE,
    BOTTOM,
    GRID,
    INK,
    LEFT,
    PANEL_HEIGHT,
    RIGHT,
    TOP,
    WIDTH,
    ticks,
)

GREEN, RED = "#2e8b57", "#c23b3b"
PALETTE = (BLUE, AMBER, GREEN, RED, "#7a52b3", "#3a9fb5", "#8a6d3b", "#d16ba5")
NAMED = 8  # lines that get a name beside the frame
ROW = 24


@dataclass(frozen=True, slots=True)
class Line:
    """Points in the order of x."""

    name: str
    x: Sequence[float]
    y: Sequence[float]


@dataclass(frozen=True, slots=True)
class Lines:
    """Several lines on the same axes. y starts at 0 unless `low` says otherwise; `counted`: x counts from 1."""

    title: str
    lines: Sequence[Line]
    x_label: str
    low: float = 0.0
    counted: bool = False
    height: int = PANEL_HEIGHT + 30

    def draw(self, y0: int) -> list[str]:
        parts = [f'<text x="{LEFT}" y="{y0 + 18}" font-weight="bold">{escape(self.title)}</text>']
        shown = [line for line in self.lines if len(line.x)]
        if not shown:
            return [*parts, f'<text x="{LEFT}" y="{y0 + self.height // 2}">no samples</text>']
        top = max(max(line.y) for line in shown)
        top = top if top > self.low else self.low + 1
        first, last = min(min(line.x) for line in shown), max(max(line.x) for line in shown)
        first = (1.0 if self.counted else min(first, 0.0)) if first < last else first - 1
        floor, tall = y0 + self.height - BOTTOM - 18, self.height - TOP - BOTTOM - 18

        def px(x: float) -> float:
            return LEFT + (x - first) / (last - first) * (WIDTH - LEFT - RIGHT)

        def py(y: float) -> float:
            return floor - (y - self.low) / (top - self.low) * tall

        for value in (v + self.low for v in ticks(top - self.low)):
            parts.append(f'<path d="M{LEFT} {py(value):.1f}H{WIDTH - RIGHT}" stroke="{GRID}"/>')
            parts.append(f'<text x="{LEFT - 6}" y="{py(value) + 4:.1f}" text-anchor="end">{value:,.6g}</text>')
        at_x = (
            sorted({round(v + first) for v in ticks(last - first, 6)})
            if self.counted
            else [v + first for v in ticks(last - first, 6)]
        )
        for value in at_x:
            parts.append(f'<text x="{px(value):.1f}" y="{floor + 14}" text-anchor="middle">{value:,g}</text>')
        parts.append(f'<text x="{WIDTH - RIGHT}" y="{floor + 27}" text-anchor="end">{escape(self.x_label)}</text>')
        at = LEFT
        for i, line in enumerate(shown):
            colour = PALETTE[i % len(PALETTE)]
            points = "L".join(f"{px(x):.1f} {py(y):.1f}" for x, y in zip(line.x, line.y))
            dash = ' stroke-dasharray="6 3"' if i == 1 and len(shown) == 2 else ""
            parts.append(f'<path d="M{points}" fill="none" stroke="{colour}" stroke-width="1.6"{dash}/>')
            if len(line.x) == 1:
                parts.append(f'<circle cx="{px(line.x[0]):.1f}" cy="{py(line.y[0]):.1f}" r="3" fill="{colour}"/>')
            if i < NAMED and at + 24 + round(6.2 * len(line.name)) < WIDTH - 90:
                parts.append(f'<rect x="{at}" y="{floor + 20}" width="10" height="10" fill="{colour}"/>')
                parts.append(f'<text x="{at + 14}" y="{floor + 29}">{escape(line.name)}</text>')
                at += 24 + round(6.2 * len(line.name))
        return parts


@dataclass(frozen=True, slots=True)
class Waterfall:
    """From a total to another in steps; one row each, drawn to the same scale.

    Attributes:
        steps: (name, change); they add up to `after` less `before`.
        unit: of all figures.
    """

    title: str
    before: float
    steps: Sequence[tuple[str, float]]
    after: float
    unit: str

    @property
    def height(self) -> int:
        return TOP + ROW * (len(self.steps) + 2) + 12

    def draw(self, y0: int) -> list[str]:
        parts = [f'<text x="{LEFT}" y="{y0 + 18}" font-weight="bold">{escape(self.title)}</text>']
        names, figures = 170, 120
        reached, levels = self.before, [self.before]
        for _, change in self.steps:
            reached += change
            levels.append(reached)
        low, high = min([*levels, self.after]), max([*levels, self.after])
        # Small changes of a large total stay visible: the scale begins near the lowest level.
        low = max(0.0, low - 0.25 * (high - low)) if high > low else 0.0
        high = high if high > low else low + 1

        def px(value: float) -> float:
            return names + (value - low) / (high - low) * (WIDTH - names - figures - RIGHT)

        def row(i: int, name: str, start: float, end: float, colour: str, text: str) -> None:
            y = y0 + TOP + ROW * i
            left, right = sorted((px(start), px(end)))
            parts.append(f'<text x="{names - 8}" y="{y + 15}" text-anchor="end">{escape(name)}</text>')
            width = max(right - left, 1.5)
            parts.append(f'<rect x="{left:.1f}" y="{y + 3}" width="{width:.1f}" height="{ROW - 7}" fill="{colour}"/>')
            parts.append(f'<text x="{WIDTH - RIGHT}" y="{y + 15}" text-anchor="end">{escape(text)}</text>')

        row(0, "base", low, self.before, "#8a9ba8", f"{self.before:,.1f} {self.unit}")
        for i, ((name, change), start) in enumerate(zip(self.steps, levels), 1):
            row(i, name, start, start + change, RED if change > 0 else GREEN, f"{change:+,.1f} {self.unit}")
        row(len(self.steps) + 1, "head", low, self.after, "#5c7080", f"{self.after:,.1f} {self.unit}")
        parts.append(f'<path d="M{names} {y0 + TOP}V{y0 + self.height - 10}" stroke="{INK}"/>')
        return parts
