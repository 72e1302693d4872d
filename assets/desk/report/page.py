"""The page around the charts: plain HTML with its style and its script inside."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape

from assets.desk.report import charts

STYLE = """
body { font: 14px/1.45 system-ui, sans-serif; color: #182026; background: #f5f8fa; margin: 0; }
main { max-width: 1240px; margin: 0 auto; padding: 20px 24px 60px; }
h1 { font-size: 22px; margin: 8px 0 2px; } h2 { font-size: 16px; margin: 26px 0 8px; }
p.sub { color: #5c7080; margin: 0 0 14px; } code, pre { font: 12px/1.5 ui-monospace, monospace; }
pre { background: #fff; border: 1px solid #dce3e8; border-radius: 6px; padding: 12px 14px; overflow-x: auto; }
.verdict { border-left: 5px solid #5c7080; background: #fff; border-radius: 4px; padding: 10px 14px; margin: 12px 0; }
.verdict.good { border-color: #2e8b57; } .verdict.bad { border-color: #c23b3b; } .verdict b { font-size: 15px; }
.cards { display: grid; grid-template-columns: repeat(auto-fill, minmax(150px, 1fr)); gap: 10px; }
.card { background: #fff; border: 1px solid #dce3e8; border-radius: 6px; padding: 8px 12px; }
.card .what { color: #5c7080; font-size: 12px; }
.card .figure { font-size: 18px; font-weight: 600; overflow-wrap: anywhere; }
.grid { display: grid; grid-template-columns: repeat(2, minmax(0, 1fr)); gap: 12px; }
@media (max-width: 900px) { .grid { grid-template-columns: minmax(0, 1fr); } }
.chart { background: #fff; border: 1px solid #dce3e8; border-radius: 6px; padding: 4px; overflow: hidden; }
.chart { min-width: 0; }
.wide { grid-column: 1 / -1; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; background: #fff; border: 1px solid #dce3e8; }
th, td { padding: 4px 12px; border-bottom: 1px solid #e8edf0; text-align: left; vertical-align: top; }
th { background: #ebf1f5; font-weight: 600; white-space: nowrap; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
tr.moved td { background: #fff8e6; } footer { color: #5c7080; margin-top: 30px; font-size: 12px; }
"""


@dataclass
class Page:
    """Collects pieces of HTML in order."""

    title: str
    subtitle: str
    parts: list[str] = field(default_factory=list)

    def heading(self, text: str) -> None:
        self.parts.append(f"<h2>{escape(text)}</h2>")

    def verdict(self, head: str, text: str, *, good: bool | None) -> None:
        """The sentence that a reader looks for first."""
        kind = "" if good is None else " good" if good else " bad"
        self.parts.append(f'<div class="verdict{kind}"><b>{escape(head)}</b><br>{escape(text)}</div>')

    def cards(self, figures: Iterable[tuple[str, str]]) -> None:
        cells = "".join(
            f'<div class="card"><div class="what">{escape(what)}</div><div class="figure">{escape(value)}</div></div>'
            for what, value in figures
        )
        self.parts.append(f'<div class="cards">{cells}</div>')

    def charts(self, figures: Iterable[tuple[object, bool]]) -> None:
        """Charts two in a row; (chart, whether it takes the whole row)."""
        cells = "".join(
            f'<div class="chart{" wide" if wide else ""}">{charts.html(figure)}</div>' for figure, wide in figures
        )
        self.parts.append(f'<div class="grid">{cells}</div>')

    def table(
        self,
        head: Sequence[str],
        rows: Iterable[Sequence[str]],
        *,
        right: Iterable[int] = (),
        moved: Iterable[int] = (),
    ) -> None:
        """Cells as text; columns `right` hold numbers, rows `moved` stand out."""
        numbers, shown = set(right), set(moved)

        def line(tag: str, cells: Sequence[str]) -> str:
            return "".join(
                f"<{tag}{' class=n' if i in numbers else ''}>{escape(c)}</{tag}>" for i, c in enumerate(cells)
            )

        body = "".join(
            f"<tr{' class=moved' if i in shown else ''}>{line('td', row)}</tr>" for i, row in enumerate(rows)
        )
        self.parts.append(f'<div class="scroll"><table><tr>{line("th", head)}</tr>{body}</table></div>')

    def text(self, text: str) -> None:
        self.parts.append(f"<pre>{escape(text)}</pre>")

    def html(self) -> str:
        """The whole file."""
        return (
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            f"<title>{escape(self.title)}</title><style>{STYLE}</style>"
            f"<script>{charts.script()}</script></head>\n<body><main><h1>{escape(self.title)}</h1>"
            f'<p class="sub">{escape(self.subtitle)}</p>\n' + "\n".join(self.parts) + "\n</main></body></html>\n"
        )
