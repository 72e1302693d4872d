"""How full the KV pool of each role was at most, where pools of two sizes have no share in common."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import duckdb


def peaks(con: duckdb.DuckDBPyConnection, run: Mapping[str, Any]) -> list[tuple[str, int, int]]:
    """Role, most blocks in use on one rank and blocks of a rank, prefill first; of pools that ran a pass.

    None with one pool, whose share is metric `kv_usage`, and none where rows of passes were not kept.

    Args:
        run: a row of `runs`.
    """
    workers = json.loads(run["config_json"])["engine"]["workers"]
    if "aggregated" in workers:
        return []
    found = con.execute(
        "SELECT if(worker < ?, 'prefill', 'decode') AS role, max(active_blocks) FROM passes WHERE run_id = ? "
        "GROUP BY role ORDER BY role DESC",
        [workers["prefill"]["parallelism"]["replicas"], run["run_id"]],
    ).fetchall()
    return [(role, most, workers[role]["kv_cache"]["capacity"]["blocks"]) for role, most in found]
