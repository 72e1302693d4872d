"""The pictures of a run, asked of its stored tables."""

from __future__ import annotations

from typing import Any

from assets.plots import AMBER, Panel
from assets.plots_compare import Line, Lines

BUCKETS = 240

TIMELINE = """
WITH clock AS (SELECT max(end_ns) // $buckets + 1 AS bucket_ns FROM passes WHERE run_id = $run)
SELECT
    start_ns // bucket_ns                                                                  AS first_bucket,
    end_ns // bucket_ns                                                                    AS last_bucket,
    max(100.0 * active_blocks / nullif(active_blocks + cached_blocks + free_blocks, 0))    AS kv_percent,
    max(n_waiting + n_waiting_preempted)                                                   AS n_waiting,
    any_value(bucket_ns) / 1e9                                                             AS bucket_s
FROM passes, clock WHERE run_id = $run
GROUP BY first_bucket, last_bucket
"""

TTFT = """
SELECT (ttft_at_ns - arrival_ns) / 1e6 AS ttft_ms
FROM request_first_token WHERE run_id = $run AND status = 'completed' AND first_token_ns IS NOT NULL
ORDER BY ttft_ms
"""


def timeline(con: Any, run_id: str) -> list[Panel]:
    """KV pool and queue over virtual time: the fullest moment of the busiest rank in each stretch."""
    rows = con.execute(TIMELINE, {"run": run_id, "buckets": BUCKETS}).fetchall()
    n = 1 + max((last for _, last, *_ in rows), default=-1)
    # Where no pass runs, nothing is in use and nobody waits: an idle rank takes whoever arrives at once.
    pool, queue = [0.0] * n, [0.0] * n
    for first, last, kv_percent, n_waiting, _ in rows:
        for bucket in range(first, last + 1):
            pool[bucket] = max(pool[bucket], float(kv_percent or 0))
            queue[bucket] = max(queue[bucket], float(n_waiting))
    at = [bucket * rows[0][-1] for bucket in range(n)]
    return [
        Panel("KV blocks in use, % of the pool (busiest rank)", at, pool, "s"),
        Panel("waiting requests (busiest rank)", at, queue, "s", AMBER),
    ]


def ttft_distribution(con: Any, run_id: str) -> Panel:
    """Share of requests whose first token came within x ms, up to the 99.5th percentile."""
    values = [float(v) for (v,) in con.execute(TTFT, {"run": run_id}).fetchall()]
    title = "requests with their first token within x ms, %"
    if not values:
        return Panel(title, [], [], "ms")
    n = len(values)
    # Evenly spaced quantiles draw the curve; the last half percent would squeeze everything else to the left edge.
    ranks = sorted({round((n - 1) * q / BUCKETS * 0.995) for q in range(BUCKETS + 1)})
    marks = [(values[round((n - 1) * p / 100)], f"p{p}") for p in (50, 90, 99)]
    return Panel(title, [values[r] for r in ranks], [100.0 * (r + 1) / n for r in ranks], "ms", marks=marks)


PASSES = """
WITH clock AS (SELECT max(end_ns) // $buckets + 1 AS bucket_ns FROM passes WHERE run_id = $run)
SELECT CASE WHEN n_decode = 0 THEN 'prefill only' WHEN n_prefill = 0 THEN 'decode only' ELSE 'mixed' END AS mix,
       start_ns // bucket_ns * any_value(bucket_ns) / 1e9 AS s, max(end_ns - start_ns) / 1e6 AS ms
FROM passes, clock WHERE run_id = $run
GROUP BY mix, start_ns // bucket_ns ORDER BY mix, s
"""


def pass_times(con: Any, run_id: str) -> Lines:
    """The longest pass of every stretch of virtual time, by what it did."""
    found: dict[str, tuple[list[float], list[float]]] = {}
    for mix, s, ms in con.execute(PASSES, {"run": run_id, "buckets": BUCKETS // 2}).fetchall():
        x, y = found.setdefault(mix, ([], []))
        x.append(float(s))
        y.append(float(ms))
    return Lines("longest passes, ms", [Line(mix, x, y) for mix, (x, y) in found.items()], "s")


def arrivals(trace: Any) -> list[Panel]:
    """Requests and prompt tokens per stretch of a trace (an arrow table of `traces`)."""
    import numpy as np

    at = trace["arrival_ns"].to_numpy()
    if not len(at):
        return [Panel("requests", [], [], "s")]
    width_ns = max(int(at.max()) // BUCKETS + 1, 1)
    bucket = at // width_ns
    counts = np.bincount(bucket, minlength=1)
    tokens = np.bincount(bucket, weights=trace["prompt_tokens"].to_numpy(), minlength=1)
    x = (np.arange(len(counts)) * width_ns / 1e9).tolist()
    every = f"every {width_ns / 1e9:,.3g} s"
    return [
        Panel(f"requests {every}", x, counts.tolist(), "s"),
        Panel(f"prompt tokens {every}, thousands", x, (tokens / 1e3).tolist(), "s", AMBER),
    ]
