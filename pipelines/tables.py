"""Rows as text: for people, or for the next program."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Sequence
from typing import Any

MAX_CELL = 60


def text_table(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Aligned columns, numbers to the right, a line under the head."""
    cells = [[_cell(value) for value in row] for row in rows]
    widths = [max([len(name), *(len(row[i]) for row in cells)]) for i, name in enumerate(names)]
    right = [any(_is_number(row[i]) for row in rows) for i in range(len(names))]

    def line(values: Sequence[str]) -> str:
        padded = (v.rjust(w) if r else v.ljust(w) for v, w, r in zip(values, widths, right, strict=True))
        return "  ".join(padded).rstrip()

    return "\n".join([line(list(names)), "  ".join("-" * w for w in widths), *(line(row) for row in cells)])


def csv_text(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Comma-separated values with a header; nothing for null."""
    return csv_lines([names]) + csv_lines(rows)


def csv_lines(rows: Iterable[Sequence[Any]]) -> str:
    """The same without a header."""
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(rows)
    return out.getvalue()


def json_lines(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """One JSON object per row."""
    return "".join(json.dumps(dict(zip(names, row, strict=True)), default=str) + "\n" for row in rows)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:,.6g}" if abs(value) < 1e6 else f"{value:,.0f}"
    text = str(value)
    return text if len(text) <= MAX_CELL else text[: MAX_CELL - 1] + "…"
