"""Whether a run's prices rest on measurements that cannot be right: what the run's cells name, held against what an
examination of the performance data has found (`tracemill perf quality`, or the assets of group performance)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from perf_db.schema import quoted
from perf_db.tables import PERF_ANOMALIES

NAME = "prices_rest_on_sound_rows"
TABLE = "cell_ops"
CLAIM = "at most a tenth of the time is priced from measured rows that cannot be right and were not repaired"
MOST = 0.1

# Not among the kinds: points that were not measured are extrapolated, which is another check's business; of duplicates
# one value is taken.
_QUERY = """
    WITH bad AS (
        SELECT file, row_no, any_value(kind) AS kind FROM read_parquet($files, union_by_name = true)
        WHERE kind IN ('host_bound', 'spike', 'non_monotone', 'invalid') AND ($as_measured OR repair LIKE 'none%')
        GROUP BY ALL),
    cells AS (
        SELECT c.phase, c.cell, c.file, c.row_no, b.kind, c.share * c.operator_share AS share
        FROM (FROM cell_ops WHERE run_id = $run) c
        LEFT JOIN bad b ON b.file = c.file AND (b.row_no = c.row_no OR b.row_no = -1)),
    weights AS (
        SELECT phase, cell, sum(total_ns)::DOUBLE AS ns
        FROM evidence WHERE run_id = $run AND cell IS NOT NULL GROUP BY ALL),
    rows AS (
        SELECT file, row_no, any_value(kind) AS kind, sum(share * ns) AS ns
        FROM cells JOIN weights USING (phase, cell) WHERE kind IS NOT NULL GROUP BY file, row_no)
    SELECT arg_max('file=' || file || ', row_no=' || row_no || ' (' || kind || ')', ns),
           sum(ns) / (SELECT sum(ns) FROM weights), count(*)
    FROM rows HAVING sum(ns) / (SELECT sum(ns) FROM weights) > $most
"""


def doubtful(con: Any, root: Path, run: dict[str, Any]) -> tuple[str, float, int] | None:
    """The worst row, the share of the time that rests on such rows, and how many there are; None if all is well, or if
    nothing was examined.

    Args:
        con: offers the run's tables.
        root: of the store; what was examined lies under it.
    """
    files = sorted(str(p) for p in (root / "performance").glob(f"*/*/*/{PERF_ANOMALIES.name}.parquet"))
    timing = json.loads(run["config_json"]).get("engine", {}).get("workers", {}).get("aggregated", {}).get("timing", {})
    if not files or not con.execute("SELECT 1 FROM cell_ops WHERE run_id = ? LIMIT 1", [run["run_id"]]).fetchone():
        return None
    query = _QUERY.replace("$files", f"[{', '.join(quoted(f) for f in files)}]")
    known = {"run": run["run_id"], "most": MOST, "as_measured": timing.get("clean", True) is False}
    row = con.execute(query, known).fetchone()
    return None if row is None else (str(row[0]), float(row[1]), int(row[2]))
