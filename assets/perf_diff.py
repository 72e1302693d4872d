"""The proof that a consumer reaches changed performance data: evidence of a replay that rests on changed rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from perf_db.gpu.diff import Difference, Side

if TYPE_CHECKING:
    import polars as pl

    from perf_db.store import Store

_EVIDENCE = """
    SELECT role, phase, cell, sum(n_lookups)::BIGINT AS n_lookups, sum(total_ns) / 1e6 AS total_ms
    FROM evidence WHERE run_id = $run GROUP BY ALL
"""
_ROWS = """
    SELECT role, phase, cell, operator, file, file_digest, row_no, share, operator_share, requests, length, prefix
    FROM cell_ops WHERE run_id = $run
"""
SHOWN = 20
NO_ROWS = (
    "the run rests on no rows of operator tables: it was priced by something else, or its cell_ops were not kept; "
    "replay with estimation_mode: op_level"
)


def reach(store: Store, run: str, found: Difference, before: Side, after: Side) -> dict[str, Any]:
    """Evidence of a run that rests on points which differ.

    Returns:
        `run_id`, `rests_on` (changed file -> before, after or neither: which side's bytes the run read), `cells` and
        `cells_hit` of its grid, `rows_hit`, `lookups` of the cells hit, `total_ms` of all passes, `resting_ms` (of that
        on changed rows), `share`, and `lines`: the evidence, what rests most on changed rows first.
    """
    import polars as pl

    run_id = store.commit(run).run_id
    with store.connect() as con:
        evidence, rows = (
            pl.from_arrow(con.sql(query, params={"run": run_id}).to_arrow_table()) for query in (_EVIDENCE, _ROWS)
        )
    assert isinstance(evidence, pl.DataFrame) and isinstance(rows, pl.DataFrame)
    total = float(evidence["total_ms"].sum())
    answer: dict[str, Any] = {"run_id": run_id, "total_ms": total, "rests_on": {}, "note": None}
    if rows.is_empty():
        answer["note"] = NO_ROWS
    hits = _hits(rows, found, before, after, answer["rests_on"]).join(
        evidence, on=["role", "phase", "cell"], how="inner", nulls_equal=True, maintain_order="left"
    )
    hits = hits.with_columns(resting_ms=pl.col("total_ms") * pl.col("operator_share") * pl.col("share"))
    cells = hits.unique(["role", "phase", "cell"])
    resting = float(hits["resting_ms"].sum())
    return answer | {
        "cells": evidence.height,
        "cells_hit": cells.height,
        "rows_hit": hits.n_unique(["file", "row_no"]),
        "lookups": int(cells["n_lookups"].sum()),
        "resting_ms": resting,
        "share": resting / total if total else 0.0,
        "lines": hits.sort("resting_ms", descending=True).drop("file_digest").head(SHOWN).to_dicts(),
    }


def _hits(rows: pl.DataFrame, found: Difference, before: Side, after: Side, rests_on: dict[str, str]) -> pl.DataFrame:
    """Rows of `cell_ops` whose raw row differs, with the point and both its values. Files are known by their bytes."""
    import polars as pl

    read = set(rows["file_digest"].to_list())
    parts = []
    for name, points in found.points.items():
        side, column = _side(name, before, after, read)
        rests_on[name] = side
        if column is None:
            continue
        digest, own = column
        changed = points.filter(pl.col(own).is_not_null()).select(
            "state", "slice", "point", "before", "after", row_no=pl.col(own).cast(pl.Int64)
        )
        parts.append(rows.filter(file_digest=digest).join(changed, on="row_no", how="inner", maintain_order="left"))
    if parts:
        return pl.concat(parts)
    texts = [pl.lit(None, pl.String).alias(c) for c in ("state", "slice", "point")]
    return rows.clear().with_columns(*texts, *(pl.lit(None, pl.Float64).alias(c) for c in ("before", "after")))


def _side(name: str, before: Side, after: Side, read: set[str]) -> tuple[str, tuple[str, str] | None]:
    """Whose bytes the run read: (before, after or neither; (digest, column of its row numbers))."""
    # The new data first: a run of both sides is a run of neither only in name.
    for label, side, column in (("after", after, "row_after"), ("before", before, "row_before")):
        files = side.files()
        path = files.get(name) or (next(iter(files.values())) if side.file is not None else None)
        if path is not None and (digest := side.root.digest(path)) in read:
            return label, (digest, column)
    return "neither", None
