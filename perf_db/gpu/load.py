"""Operator tables of one (system, backend, version): which files, which rows, in which order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from perf_db.gpu.source import PerfRoot

if TYPE_CHECKING:
    import polars as pl


def load(root: PerfRoot, system: str, backend: str, version: str, table: str, *, clean: bool) -> pl.DataFrame:
    """All rows of `table` (`gemm`, `context_attention`, ...) that this backend version may use, first row of a key wins.

    Columns: the table's key columns, its axes, `latency` (ms), `file` (relative to the root) and `row` (0-based).
    """
    raise NotImplementedError
