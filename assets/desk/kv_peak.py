"""Whose the KV peak of a run is, where pools of two sizes have no share in common."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import duckdb


def owners_of_peak(con: duckdb.DuckDBPyConnection, run: Mapping[str, Any]) -> list[tuple[str, int]]:
    """Role and KV blocks of each pool one of whose ranks held the most blocks of the run.

    None with one pool, whose share is metric `kv_usage`, and none where rows of passes were not kept.

    Args:
        run: a row of `runs`.
    """
    workers = json.loads(run["config_json"])["engine"]["workers"]
    if "aggregated" in workers:
        return []
    peaks = con.execute(
        "SELECT if(worker < ?, 'prefill', 'decode') AS role FROM passes WHERE run_id = ? "
        "GROUP BY role HAVING max(active_blocks) = ? ORDER BY role DESC",
        [workers["prefill"]["parallelism"]["replicas"], run["run_id"], run["peak_active_blocks"]],
    ).fetchall()
    return [(role, workers[role]["kv_cache"]["capacity"]["blocks"]) for (role,) in peaks]
