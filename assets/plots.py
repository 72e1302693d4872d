"""Small SVG pictures for asset pages: plain text, no plotting library, a few kilobytes each."""

from __future__ import annotations

import base64
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol
from xml.sax.saxutils import escape

WIDTH, PANEL_HEIGHT = 760, 170
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 30, 34
INLINE = 1000  # characters of markdown that the UI shows without a click
INK, GRID, BLUE, AMBER = "#394b59", "#e1e6eb", "#2f6fde", "#c9711a"


@dataclass(frozen=True, slots=True)
class Panel:
    """One chart: points in the order of x, drawn as a filled step line.

    Attributes:
        title: what is shown, unit included.
        x, y: shape (n,), neither negative; both axes start at 0.
        x_label: unit of the x axis.
        marks: (x position, label) of vertical lines, such as percentiles.
    """

    title: str
    x: Sequence[float]
    y: Sequence[float]
    x_label: str
    colour: str = BLUE
    marks: Sequence[tuple[float, str]] = ()

    @property
    def height(self) -> int:
        return PANEL_HEIGHT

    def draw(self, y0: int) -> list[str]:
        return _panel(self, y0)


class Drawn(Protocol):
    """Anything that can be stacked in a picture: SVG elements, moved down by `y0`."""

    @property
    def height(self) -> int: ...

    def draw(self, y0: int) -> list[str]: ...


def svg(panels: Sequence[Drawn]) -> str:
    """The panels stacked in one picture."""
    height = sum(panel.height for panel in panels)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" '
        f'font-family="sans-serif" font-size="11" fill="{INK}">',
        # The UI has a dark theme: without a ground of its own the ink would vanish.
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
    ]
    at = 0
    for panel in panels:
        parts += panel.draw(at)
        at += panel.height
    return "".join([*parts, "</svg>"])


def markdown(picture: str, alt: str) -> str:
    """A markdown image that carries the picture inside itself, so the UI needs no file server."""
    data = base64.b64encode(picture.encode()).decode()
    return f"![{alt}](data:image/svg+xml;base64,{data})"


def spark(values: Sequence[float], alt: str, *, points: int = 60) -> str:
    """A line without axes as a markdown image, short enough (`INLINE`) for the UI to show it right in its table."""
    step, height = 6, 36
    n = min(points, len(values))
    kept = [max(values[i * len(values) // n : (i + 1) * len(values) // n]) for i in range(n)]
    top = max(kept, default=0) or 1
    heights = [round(v / top * height) for v in kept]
    rises = [here - before for before, here in zip([0, *heights], heights)]
    line = "".join(f"v{-rise}h{step}" if rise else f"h{step}" for rise in rises)
    width = step * max(n, 1)
    return markdown(
        f"<svg xmlns='http://www.w3.org/2000/svg' width='{width}' height='{height + 2}'>"
        f"<path d='M0 {height + 1}{line}V{height + 1}' fill='{BLUE}40' stroke='{BLUE}'/></svg>",
        alt,
    )


def ticks(top: float, wanted: int = 4) -> list[float]:
    """Round numbers from 0 up to `top`, about `wanted` of them."""
    if top <= 0:
        return [0.0]
    raw = top / wanted
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= raw * 0.999)
    return [i * step for i in range(int(top / step * 1.0001) + 1)]


def _panel(panel: Panel, y0: int) -> list[str]:
    parts = [f'<text x="{LEFT}" y="{y0 + 18}" font-weight="bold">{escape(panel.title)}</text>']
    if not len(panel.x):
        return [*parts, f'<text x="{LEFT}" y="{y0 + PANEL_HEIGHT // 2}">no samples</text>']
    top = max(panel.y) or 1.0
    right = max(panel.x) or 1.0
    floor = y0 + PANEL_HEIGHT - BOTTOM
    tall = PANEL_HEIGHT - TOP - BOTTOM

    def px(x: float) -> float:
        return LEFT + x / right * (WIDTH - LEFT - RIGHT)

    def py(y: float) -> float:
        return floor - y / top * tall

    for value in ticks(top):
        y = py(value)
        parts.append(f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="{GRID}"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{value:,.6g}</text>')
    for value in ticks(right, 6):
        parts.append(f'<text x="{px(value):.1f}" y="{floor + 14}" text-anchor="middle">{value:,g}</text>')
    parts.append(f'<text x="{WIDTH - RIGHT}" y="{floor + 27}" text-anchor="end">{escape(panel.x_label)}</text>')

    # A step line: a value holds until the next sample; slopes between samples would be invented.
    line = [f"M{px(panel.x[0]):.1f} {floor}V{py(panel.y[0]):.1f}"]
    line += [f"H{px(x):.1f}V{py(y):.1f}" for x, y in zip(panel.x[1:], panel.y[1:])]
    line.append(f"V{floor}Z")
    paint = f'fill="{panel.colour}" fill-opacity="0.18" stroke="{panel.colour}" stroke-width="1.2"'
    parts.append(f'<path d="{"".join(line)}" {paint}/>')
    for position, label in panel.marks:
        x = px(position)
        parts.append(f'<path d="M{x:.1f} {y0 + TOP}V{floor}" stroke="{INK}" stroke-dasharray="3 3"/>')
        parts.append(f'<text x="{x + 3:.1f}" y="{y0 + TOP + 9}">{escape(label)}</text>')
    return parts
