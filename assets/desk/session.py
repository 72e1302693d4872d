"""One recorded run in a DuckDB session of its own, with the views that ship: for a run that no store shows yet."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb

from assets.desk.pair import Recorded, rows_query
from assets.views import load_views
from perf_db.face import CONFIG, PCT
from perf_db.layout import Layout
from perf_db.schema import quoted
from perf_db.tables import METRICS, RESULT_TABLES, RUN_COLUMNS, RUNS
from perf_db.views import in_order

# Macros that compare two runs of a store have nothing to compare here.
_OF_STORES = ("diff_metrics", "diff_requests", "scenario_trends")


@contextmanager
def open_run(side: Recorded, *, history: Path | None = None) -> Iterator[duckdb.DuckDBPyConnection]:
    """The run's tables and the views over them.

    Args:
        history: DuckDB file of a store whose runs stand beside this one in `runs` and `metrics`.
    """
    with duckdb.connect(config=CONFIG) as con:
        con.execute(f"SET temp_directory = {quoted(str(Layout(side.root).spill))}")
        con.execute(PCT)
        earlier = {RUNS.name: "", METRICS.name: ""}
        if history is not None:
            con.execute(f"ATTACH {quoted(str(history))} AS history (READ_ONLY)")
            ids = ", ".join(c.name for c in RUN_COLUMNS)
            earlier[RUNS.name] = f" UNION ALL SELECT {', '.join(RUNS.column_names)} FROM history.runs"
            earlier[METRICS.name] = f" UNION ALL SELECT {ids}, {', '.join(METRICS.column_names)} FROM history.metrics"
        for table in RESULT_TABLES.values():
            con.execute(f"CREATE VIEW {table.name} AS {rows_query(side, table)}{earlier.get(table.name, '')}")
        con.execute(f"CREATE VIEW {RUNS.name} AS {_own_row(side.run)}{earlier[RUNS.name]}")
        for view in in_order(load_views()):
            if view.name not in _OF_STORES:
                con.execute(view.statement)
        yield con


def _own_row(run: dict[str, Any]) -> str:
    values = [f"{_literal(run.get(c.name))}::{c.dtype.value} AS {c.name}" for c in RUNS.columns]
    return f"SELECT {', '.join(values)}"


def _literal(value: Any) -> str:
    if value is None:
        return "NULL"
    return quoted(value) if isinstance(value, str) else repr(value)
