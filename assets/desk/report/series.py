"""What the charts of a report show, as plain lists. Bounded in size: a run of ten million passes gives as many points
as one of a thousand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

BUCKETS = 400
SINGLE_PASSES = 3000
LATENCIES = {"TTFT": "ttft_ns", "E2E": "e2e_ns"}
MIXES = ("prefill only", "decode only", "mixed")

_TIME = """
    WITH clock AS (SELECT greatest(max(end_ns) // $buckets, 1) AS w FROM passes WHERE run_id = $run)
    SELECT least(start_ns // w, $buckets - 1) * any_value(w) / 1e9 AS s,
           max(100.0 * active_blocks / nullif(active_blocks + cached_blocks + free_blocks, 0)) AS kv,
           max(n_waiting + n_waiting_preempted) AS waiting, max(n_running) AS running,
           sum(prefill_tokens)::BIGINT * 1e9 / any_value(w) AS prefill_rate, sum(n_tokens)::BIGINT * 1e9 / any_value(w)
               AS token_rate, sum(n_preempted)::BIGINT AS preempted
    FROM passes, clock WHERE run_id = $run GROUP BY least(start_ns // w, $buckets - 1) ORDER BY s
"""
_MIX = "CASE WHEN n_decode = 0 THEN 'prefill only' WHEN n_prefill = 0 THEN 'decode only' ELSE 'mixed' END"
_PASSES = f"""
    SELECT {_MIX} AS mix, start_ns / 1e9 AS s, (end_ns - start_ns) / 1e6 AS ms,
           'pass ' || pass_no || ' of rank ' || worker || '.' || dp_rank || '<br>' || prefill_tokens
           || ' prompt tokens of ' || n_prefill || '<br>' || n_decode || ' decoding over ' || decode_kv_tokens AS about
    FROM passes WHERE run_id = $run ORDER BY start_ns
"""
_PASS_BUCKETS = f"""
    WITH clock AS (SELECT greatest(max(end_ns) // $buckets, 1) AS w FROM passes WHERE run_id = $run)
    SELECT {_MIX} AS mix, (start_ns // w) * any_value(w) / 1e9 AS s, max(end_ns - start_ns) / 1e6 AS ms,
           count(*) || ' passes, median ' || round(median(end_ns - start_ns) / 1e6, 3) || ' ms' AS about
    FROM passes, clock WHERE run_id = $run GROUP BY mix, start_ns // w ORDER BY s
"""


@dataclass(frozen=True)
class Points:
    """One line or cloud. `about` has a text per point, or is empty."""

    x: list[float]
    y: list[float]
    about: list[str]


@dataclass(frozen=True)
class OverTime:
    """Each the largest of a stretch of time, over all ranks; rates are of the stretch."""

    s: list[float]
    kv_percent: list[float]
    waiting: list[float]
    running: list[float]
    prompt_tokens_per_s: list[float]
    tokens_per_s: list[float]
    preempted: list[float]


def over_time(con: Any, run_id: str) -> OverTime:
    """KV pool, queue, batch and rates over virtual time."""
    rows = con.execute(_TIME, {"run": run_id, "buckets": BUCKETS}).fetchall()
    columns = [[float(v or 0) for v in column] for column in zip(*rows, strict=True)] or [[] for _ in range(7)]
    return OverTime(*columns)


def distribution(con: Any, run_id: str, latency: str) -> Points:
    """Share of completed requests (y, percent) whose latency is at most x ms."""
    rows = con.execute(
        f"SELECT {LATENCIES[latency]} / 1e6 AS ms FROM request_phases WHERE run_id = ? ORDER BY ms", [run_id]
    ).fetchall()
    values = [float(ms) for (ms,) in rows]
    n = len(values)
    ranks = sorted({round((n - 1) * q / BUCKETS) for q in range(BUCKETS + 1)}) if n else []
    return Points([values[r] for r in ranks], [100.0 * (r + 1) / n for r in ranks], [])


def passes(con: Any, run_id: str, n_passes: int) -> dict[str, Points]:
    """Duration (y, ms) of passes over time by what they did: each of them, or where there are many the longest of every
    stretch."""
    single = n_passes <= SINGLE_PASSES
    query, more = (_PASSES, {}) if single else (_PASS_BUCKETS, {"buckets": BUCKETS})
    found = {mix: Points([], [], []) for mix in MIXES}
    for mix, s, ms, about in con.execute(query, {"run": run_id, **more}).fetchall():
        found[mix].x.append(s)
        found[mix].y.append(ms)
        found[mix].about.append(about)
    return {mix: points for mix, points in found.items() if points.x}
