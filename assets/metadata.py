"""What asset pages show: columns with units, the first rows, key figures, pictures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import dagster as dg

from assets.plots import Drawn, markdown, svg
from perf_db.schema import Table

PREVIEW_ROWS = 8
# Pictures live in the event log, which every page of an asset reads.
MAX_PICTURE_BYTES = 50_000


def column_schema(table: Table) -> dg.TableSchema:
    """The declared table as the UI's column list, so unit and meaning show beside the data."""
    return dg.TableSchema(
        columns=[
            dg.TableColumn(
                c.name,
                c.dtype.value,
                description=c.comment,
                constraints=dg.TableColumnConstraints(nullable=c.nullable),
            )
            for c in table.columns
        ]
    )


def preview(table: Table, rows: Sequence[Sequence[Any]]) -> dg.TableMetadataValue:
    """Rows of a table, in declared column order, as a table on the asset page."""
    records = [
        dg.TableRecord({name: _shown(v) for name, v in zip(table.column_names, row, strict=True)}) for row in rows
    ]
    return dg.MetadataValue.table(records, schema=column_schema(table))


def stored_preview(con: Any, table: Table, run_id: str, limit: int = PREVIEW_ROWS) -> dg.TableMetadataValue:
    """The first rows of a stored result table, by its key."""
    query = f"SELECT {', '.join(table.column_names)} FROM {table.name} WHERE run_id = ? ORDER BY {', '.join(table.key)}"
    return preview(table, con.execute(f"{query} LIMIT {limit}", [run_id]).fetchall())


def picture(panels: Sequence[Drawn], alt: str) -> dg.MarkdownMetadataValue:
    """The panels as an image that carries itself."""
    text = markdown(svg(panels), alt)
    if len(text) > MAX_PICTURE_BYTES:
        raise ValueError(f"picture {alt!r} takes {len(text)} bytes, more than {MAX_PICTURE_BYTES}: use fewer points")
    return dg.MetadataValue.md(text)


def key_figures(metrics: Iterable[Sequence[Any]]) -> dict[str, float]:
    """The figures worth a trend line over runs, as plain numbers."""
    wanted = {(metric, stat) for metric in ("ttft", "tpot", "itl", "e2e_latency") for stat in ("median", "p99")}
    wanted |= {("output_throughput", "mean"), ("prefix_reuse", "max"), ("kv_usage", "peak"), ("preemptions", "total")}
    return {
        f"{metric}_{stat}" + ("_ms" if unit == "ms" else ""): round(float(value), 6)
        for scope, metric, stat, value, unit, _n in metrics
        if scope == "run" and value is not None and (metric, stat) in wanted
    }


def _shown(value: Any) -> str | int | float | bool:
    if value is None:
        return ""
    if isinstance(value, list):
        return ", ".join(map(str, value[:4])) + (f", … ({len(value)})" if len(value) > 4 else "")
    return value if isinstance(value, str | int | float | bool) else str(value)
