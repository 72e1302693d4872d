"""What the summary of a run says of separate pools and of the transfers between them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from assets.desk.kv_peak import peaks
from perf_db.store import Store

# In place of what is asked of one pool.
QUERIES = (
    (
        "how busy were both pools, and what held their KV blocks?",
        "SELECT role, workers, busy_share, mean_running, mean_waiting, active_share, held_share FROM pool_utilisation "
        "WHERE run_id = '{run_id}'",
    ),
    (
        "between the prompt and the first token: what was waited for?",
        "SELECT avg(queue_ns) / 1e6 AS queue_ms, avg(prefill_ns) / 1e6 AS prefill_ms, avg(destination_ns) / 1e6 AS "
        "room_ms, avg(transfer_ns) / 1e6 AS transfer_ms, avg(ready_ns) / 1e6 AS ready_ms, avg(first_decode_ns) / 1e6 "
        "AS first_decode_ms FROM request_phases WHERE run_id = '{run_id}'",
    ),
)
_ENDS = {"never_fits": "never fit", "transfer_failed": "failed", "timed_out": "timed out"}


def separate(run: Mapping[str, Any]) -> bool:
    """Whether a row of `runs` is of separate pools."""
    return "aggregated" not in json.loads(run["config_json"])["engine"]["workers"]


def pool_lines(store: Store, run: Mapping[str, Any]) -> list[str]:
    """Both pools, the transfers and the KV peaks; nothing where there is one pool."""
    if not separate(run):
        return []
    with store.connect() as con:
        pools = con.execute(
            "SELECT role, workers, busy_share, active_share, held_share FROM pool_utilisation "
            "WHERE run_id = ? ORDER BY role DESC",
            [run["run_id"]],
        ).fetchall()
        n, done, mean, p99, link, retries = con.execute(
            # With overlap a transfer begins before the prompt is computed; told is what it adds.
            "SELECT count(*), count(ms), avg(ms), quantile_cont(ms, 0.99), avg(link_ms) FILTER (ms IS NOT NULL),"
            " sum(again) FROM ("
            "  SELECT CASE WHEN withdrawn_ns IS NULL AND transferred_ns IS NOT NULL"
            "              THEN greatest(transferred_ns - greatest(reserved_ns, held_ns), 0) / 1e6 END AS ms,"
            "         (began_ns - queued_ns) / 1e6 AS link_ms, greatest(attempts - 1, 0) AS again"
            "  FROM handoffs WHERE run_id = ?)",
            [run["run_id"]],
        ).fetchall()[0]
        ends = dict(
            con.execute(
                "SELECT outcome, count(*) FROM handoffs WHERE run_id = ? GROUP BY outcome", [run["run_id"]]
            ).fetchall()
        )
        fullest = [f"{role} {most:,} of {blocks:,} ({most / blocks:.1%})" for role, most, blocks in peaks(con, run)]
    if not fullest:
        peak = f"KV peak       {run['peak_active_blocks']:,} blocks on one rank"
        return ["pools         rows of passes were not kept", peak]
    peak = f"KV peak       blocks on one rank: {' · '.join(fullest)}"
    lines = [
        f"{'pools' if role == 'prefill' else '':<14}{role}: {workers:,} worker{'s' if workers != 1 else ''} · busy "
        f"{_share(busy)} of the time · {_share(active)} of KV blocks in use while it is"
        + (f" · {_share(held)} (shared blocks once per prompt) held for transfers" if role == "prefill" else "")
        for role, workers, busy, active, held in pools
    ]
    if n:
        said = f"{done:,} of {n:,} done · mean {_ms(mean)}, {_ms(link)} of it waiting for the link (last attempt)"
        said += f" · p99 {_ms(p99)}"
        said += f" · {retries or 0:,} retries"
        said += "".join(f" · {ends[end]:,} {words}" for end, words in _ENDS.items() if ends.get(end))
        lines.append(f"transfers     {said}")
    return [*lines, peak]


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.1%}"


def _ms(value: float | None) -> str:
    return "–" if value is None else f"{value:,.2f} ms"
