"""A run as a trace for Perfetto (ui.perfetto.dev) or chrome://tracing: every pass on its rank, every request with its
phases, KV pool and queues as counters. Format: Chrome's trace events, JSON in gzip.
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assets.desk.pair import Recorded
from assets.desk.session import open_run
from perf_db.layout import StoreError

MAX_EVENTS = 500_000
# Events that one pass and one request become, at most: what the cap reckons with.
PER_PASS, PER_REQUEST = 3, 8
_FETCH = 10_000


class TimelineError(StoreError):
    """The export cannot be made as asked."""


@dataclass(frozen=True)
class Written:
    """What was written.

    Attributes:
        from_ns, to_ns: virtual time that the file covers, whole.
        cut: whether the cap made it end before what was asked for.
    """

    path: Path
    n_events: int
    n_passes: int
    n_requests: int
    from_ns: int
    to_ns: int
    cut: bool


def write_timeline(
    side: Recorded,
    target: Path,
    *,
    from_s: float | None = None,
    to_s: float | None = None,
    max_events: int = MAX_EVENTS,
) -> Written:
    """
    Args:
        from_s, to_s: seconds of virtual time; None: from the start, to the end.
        max_events: where it would be more, the window ends sooner, so that what is there is complete.

    Raises:
        TimelineError: the window is empty, or the rows were not kept. Nothing is written then.
    """
    if lost := side.lost():
        raise TimelineError(f"run {side.run['run_id']}: rows of {', '.join(lost)} were not kept; replay it again")
    low = 0 if from_s is None else round(from_s * 1e9)
    high = side.run["end_ns"] if to_s is None else round(to_s * 1e9)
    if low < 0 or high < low:
        raise TimelineError(f"from {low / 1e9:g} s to {high / 1e9:g} s is no window; the run lasts "
                            f"{side.run['end_ns'] / 1e9:g} s")  # fmt: skip
    aside = target.with_name(f".{target.name}.{os.getpid()}")
    with open_run(side) as con:
        end = _end(con, low, high, max_events)
        n = {"M": 0, "passes": 0, "requests": 0, "events": 0}
        try:
            # Neither time nor name in the header: the same run gives the same bytes.
            with open(aside, "wb") as raw, gzip.GzipFile("", "wb", compresslevel=6, fileobj=raw, mtime=0) as file:
                about = {k: side.run[k] for k in ("run_id", "replay_id", "name", "result_digest")}
                file.write(f'{{"displayTimeUnit":"ms","otherData":{json.dumps(about)},"traceEvents":[\n'.encode())
                before = b""
                for kind, event in _events(con, low, end):
                    n[kind] = n.get(kind, 0) + 1
                    n["events"] += 1
                    file.write(before + json.dumps(event, separators=(",", ":")).encode())
                    before = b",\n"
                file.write(b"\n]}\n")
            os.replace(aside, target)
        finally:
            aside.unlink(missing_ok=True)
    return Written(target, n["events"], n["passes"], n["requests"], low, end, end < min(high, side.run["end_ns"]))


def _end(con: Any, low: int, high: int, max_events: int) -> int:
    """The latest time up to which everything fits under the cap."""
    row = con.execute(
        f"""
        WITH steps AS (
            SELECT start_ns AS t_ns, {PER_PASS} AS n FROM passes WHERE end_ns >= $low AND start_ns <= $high
            UNION ALL
            SELECT greatest(arrival_ns, $low), {PER_REQUEST} FROM requests
            WHERE arrival_ns <= $high AND coalesce(end_ns, $high) >= $low),
        counted AS (SELECT t_ns, sum(n) OVER (ORDER BY t_ns RANGE UNBOUNDED PRECEDING) AS so_far FROM steps)
        SELECT min(t_ns) FROM counted WHERE so_far > $most
        """,
        {"low": low, "high": high, "most": max_events},
    ).fetchone()
    if row is None or row[0] is None:
        return high
    if row[0] <= low:
        raise TimelineError(f"more than {max_events:,} events stand at {low / 1e9:g} s alone; raise --max-events")
    return int(row[0]) - 1


def _events(con: Any, low: int, high: int) -> Iterator[tuple[str, dict[str, Any]]]:
    window = {"low": low, "high": high}
    ranks = con.execute(
        "SELECT DISTINCT worker, dp_rank FROM passes UNION SELECT DISTINCT worker, dp_rank FROM requests "
        "WHERE worker IS NOT NULL ORDER BY ALL"
    ).fetchall()
    for worker, rank in ranks:
        pid, tid = _place(worker, rank)
        yield "M", {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": f"worker {worker}"}}
        yield "M", {"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": f"rank {rank} passes"}}
    for row in _rows(con, _PASSES, window):
        yield from _pass(row)
    for row in _rows(con, _REQUESTS, window):
        yield from _request(row, low, high)


_PASSES = """
    SELECT worker, dp_rank, pass_no, start_ns, end_ns, chosen_ns, prefill_ns, decode_ns, n_prefill, prefill_tokens,
           prefill_kv_tokens, n_decode, decode_kv_tokens, n_tokens, n_admitted, n_preempted, n_completed, n_running,
           n_waiting, n_waiting_preempted, active_blocks, cached_blocks, free_blocks
    FROM passes WHERE end_ns >= $low AND start_ns <= $high ORDER BY start_ns, worker, dp_rank, pass_no
"""
_REQUESTS = """
    WITH away AS (
        SELECT v.request_id, list([v.chosen_ns, a.start_ns] ORDER BY v.chosen_ns) AS times
        FROM (SELECT *, row_number() OVER (PARTITION BY request_id ORDER BY pass_no, chosen_ns) AS no FROM pressure) v
        LEFT JOIN admissions a ON a.request_id = v.request_id AND a.admission_no = v.no
        GROUP BY v.request_id)
    SELECT r.request_id, r.external_id, r.worker, r.dp_rank, r.status, r.arrival_ns, r.admitted_ns, r.first_token_ns,
           r.last_token_ns, r.end_ns, r.prompt_tokens, r.output_tokens, r.cached_tokens_first, away.times
    FROM requests r LEFT JOIN away USING (request_id)
    WHERE r.arrival_ns <= $high AND coalesce(r.end_ns, $high) >= $low AND r.worker IS NOT NULL
    ORDER BY r.arrival_ns, r.request_id
"""


def _rows(con: Any, query: str, window: dict[str, int]) -> Iterator[dict[str, Any]]:
    cursor = con.execute(query, window)
    names = [column[0] for column in cursor.description]
    while rows := cursor.fetchmany(_FETCH):
        for row in rows:
            yield dict(zip(names, row, strict=True))


def _place(worker: int, rank: int) -> tuple[int, int]:
    # Zero means "no process" to some viewers.
    return worker + 1, rank + 1


def _us(ns: int) -> float:
    return ns / 1000


def _pass(row: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    pid, tid = _place(row["worker"], row["dp_rank"])
    parts = [f"prefill {row['prefill_tokens']}"] if row["n_prefill"] else []
    parts += [f"decode {row['n_decode']}"] if row["n_decode"] else []
    at = _us(row["start_ns"])
    yield "passes", {
        "ph": "X", "cat": "pass", "name": " + ".join(parts) or "no work", "pid": pid, "tid": tid, "ts": at,
        "dur": _us(row["end_ns"] - row["start_ns"]),
        "args": {k: v for k, v in row.items() if k not in ("worker", "dp_rank", "start_ns", "end_ns")},
    }  # fmt: skip
    blocks = {"in use": row["active_blocks"], "cached": row["cached_blocks"]}
    yield "counters", _counter(f"rank {row['dp_rank']} KV blocks", pid, at, blocks)
    queue = {"running": row["n_running"], "waiting": row["n_waiting"], "waiting again": row["n_waiting_preempted"]}
    yield "counters", _counter(f"rank {row['dp_rank']} requests", pid, at, queue)


def _counter(name: str, pid: int, at: float, values: dict[str, int]) -> dict[str, Any]:
    return {"ph": "C", "name": name, "pid": pid, "ts": at, "args": values}


def _request(row: dict[str, Any], low: int, high: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Its whole life as one bar, and inside it the phases, clipped to the window."""
    end = row["end_ns"] if row["end_ns"] is not None else high
    about = {k: row[k] for k in ("external_id", "status", "prompt_tokens", "output_tokens", "cached_tokens_first")}
    about["rank"] = row["dp_rank"]
    yield from _bar("requests", row, f"request {row['request_id']}", row["arrival_ns"], end, low, high, about)
    phases = [
        ("queued", row["arrival_ns"], row["admitted_ns"] if row["admitted_ns"] is not None else end),
        ("prefill", row["admitted_ns"], row["first_token_ns"] if row["first_token_ns"] is not None else end),
        ("decode", row["first_token_ns"], row["last_token_ns"]),
    ]
    for name, start, stop in phases:
        if start is not None and stop is not None and stop > start:
            yield from _bar("phases", row, name, start, stop, low, high, None)
    for start, stop in row["times"] or ():
        yield from _bar("phases", row, "preempted", start, stop if stop is not None else end, low, high, None)


def _bar(
    kind: str, row: dict[str, Any], name: str, start: int, stop: int, low: int, high: int, about: dict[str, Any] | None
) -> Iterator[tuple[str, dict[str, Any]]]:
    start, stop = max(start, low), min(stop, high)
    if start > stop:
        return
    pid, tid = _place(row["worker"], row["dp_rank"])
    # Nestable asynchronous events: bars of one id lie below each other, however many requests run at once.
    event = {"cat": "request", "id": row["request_id"], "name": name, "pid": pid, "tid": tid}
    yield kind, event | {"ph": "b", "ts": _us(start)} | ({"args": about} if about else {})
    yield "ends", event | {"ph": "e", "ts": _us(stop)}
