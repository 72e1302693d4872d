"""Pictures of single slices of performance data: what was measured, and what it is after cleaning."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

from assets.plots import AMBER, BLUE, BOTTOM, GRID, LEFT, PANEL_HEIGHT, RIGHT, TOP, WIDTH
from perf_db.gpu.operator_tables import OPERATOR_TABLES

if TYPE_CHECKING:
    import polars as pl

    from perf_db.gpu.source import PerfRoot

SLICES = 4  # pictures live in the event log


@dataclass(frozen=True, slots=True)
class Slice:
    """One curve, both axes logarithmic: dots where measured, a line for what pricing reads.

    Attributes:
        kind: why it is shown.
        curve: which it is.
        x, measured, cleaned: shape (n,), positive, in the order of x.
        unit: of the measured values.
    """

    kind: str
    curve: str
    x_label: str
    x: Sequence[float]
    measured: Sequence[float]
    cleaned: Sequence[float]
    unit: str = "ms"
    height: int = PANEL_HEIGHT + 20

    def draw(self, y0: int) -> list[str]:
        floor, tall = y0 + self.height - BOTTOM, self.height - TOP - BOTTOM
        values = [*self.measured, *self.cleaned]
        left, right = _span(self.x)
        low, high = _span(values)

        def px(x: float) -> float:
            return LEFT + (math.log10(x) - left) / (right - left) * (WIDTH - LEFT - RIGHT)

        def py(y: float) -> float:
            return floor - (math.log10(y) - low) / (high - low) * tall

        parts = [
            f'<text x="{LEFT}" y="{y0 + 18}" font-weight="bold">{escape(_cut(f"{self.kind}, {self.curve}"))}</text>'
        ]
        for value in _decades(low, high):
            parts.append(f'<path d="M{LEFT} {py(value):.1f}H{WIDTH - RIGHT}" stroke="{GRID}"/>')
            parts.append(f'<text x="{LEFT - 6}" y="{py(value) + 4:.1f}" text-anchor="end">{value:g}</text>')
        for value in _decades(left, right):
            parts.append(f'<text x="{px(value):.1f}" y="{floor + 14}" text-anchor="middle">{value:,g}</text>')
        parts.append(f'<text x="{WIDTH - RIGHT}" y="{floor + 27}" text-anchor="end">{escape(self.x_label)}</text>')
        parts.append(f'<text x="{LEFT}" y="{floor + 27}">{self.unit}; dots: measured, line: cleaned</text>')
        line = "L".join(f"{px(x):.1f} {py(y):.1f}" for x, y in zip(self.x, self.cleaned, strict=True))
        parts.append(f'<path d="M{line}" fill="none" stroke="{BLUE}" stroke-width="1.6"/>')
        dots = "".join(f"M{px(x):.1f} {py(y):.1f}h0" for x, y in zip(self.x, self.measured, strict=True))
        parts.append(f'<path d="{dots}" stroke="{AMBER}" stroke-width="4" stroke-linecap="round"/>')
        return parts


def worst_slices(root: PerfRoot, anomalies: pl.DataFrame, repairs: pl.DataFrame, n: int = SLICES) -> list[Slice]:
    """The slices furthest out, of different kinds and files first, as they were measured and after cleaning.

    Args:
        anomalies, repairs: rows of the two tables, of one version.
    """
    import polars as pl

    found = anomalies.filter(
        pl.col("kind").is_in(["non_monotone", "spike", "host_bound"]), pl.col("ratio") > 0, pl.col("suggested") > 0
    )
    if found.is_empty():
        return []
    # Differences may be nothing at all; how far apart two of them are says little.
    found = found.filter(~pl.col("table_name").is_in([t.name for t in OPERATOR_TABLES.values() if t.measure.zero]))
    ranked = found.sort(pl.col("ratio").log().abs(), descending=True, maintain_order=True)
    drawn: dict[str, Slice] = {}
    for row in ranked.unique(["file", "kind"], keep="first", maintain_order=True).rows(named=True):
        one = _slice(root, row, repairs) if len(drawn) < n else None
        if one is not None:
            drawn.setdefault(one.curve, one)
    return list(drawn.values())


def _slice(root: PerfRoot, anomaly: dict[str, object], repairs: pl.DataFrame) -> Slice | None:
    import polars as pl

    from perf_db.gpu.read_table import read_operator_table

    file, row = str(anomaly["file"]), int(str(anomaly["row_no"]))
    read = read_operator_table(root.path / file)
    if read.frame is None or read.table is None:
        return None
    table, main = read.table, read.table.main
    (here,) = read.frame.filter(row=row).rows(named=True)
    fixed = [c for c in (*table.slice_key, *table.axis_columns) if c not in main.columns and c in read.frame.columns]
    curve = read.frame.filter(pl.col(c).eq_missing(pl.lit(here[c])) for c in fixed)
    at, value = pl.sum_horizontal(main.columns), table.measure.column
    curve = curve.with_columns(_at=at).unique("_at", keep="first", maintain_order=True).sort("_at")
    curve = curve.filter(pl.col(value) > 0, pl.col("_at") > 0)
    if curve.height < 2:
        return None
    mended = repairs.filter(file=file, measure=value).unique("row_no", keep="last", maintain_order=True)
    joined = curve.join(mended.select(row="row_no", after="after"), on="row", how="left", maintain_order="left")
    told = " ".join(f"{c}={here[c]}" for c in fixed if c not in ("op_name", "kernel_source"))
    return Slice(
        kind=str(anomaly["kind"]).replace("_", "-"),
        curve=f"{table.name}: {told}",
        x_label=f"{main.name}, {main.unit}",
        x=joined["_at"].cast(pl.Float64).to_list(),
        measured=joined[value].to_list(),
        cleaned=joined["after"].fill_null(joined[value]).to_list(),
        unit=table.measure.unit,
    )


def _span(values: Sequence[float]) -> tuple[float, float]:
    """Logarithms of the smallest and largest value, apart."""
    low, high = math.log10(min(values)), math.log10(max(values))
    return (low, high) if high - low > 0.05 else (low - 0.2, high + 0.2)


def _decades(low: float, high: float) -> list[float]:
    """Round values between two logarithms: 1, 2, 5 of every power of ten, powers of ten alone when there are many."""
    steps = (1.0,) if high - low > 2.5 else (1.0, 2.0, 5.0)
    powers = range(math.floor(low), math.ceil(high) + 1)
    return [v for p in powers for s in steps if low - 1e-9 <= math.log10(v := s * 10.0**p) <= high + 1e-9]


def _cut(text: str) -> str:
    return text if len(text) <= 104 else text[:103] + "…"
