"""A run as a trace for Perfetto (ui.perfetto.dev) or chrome://tracing: every pass on its rank, every request with its
phases, KV pool and queues as counters; with separate pools every transfer of KV between them. Format: Chrome's trace
events, JSON; in gzip where the file's name ends in .gz.
"""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

from assets.desk.pair import Recorded
from assets.desk.session import open_run
from perf_db.layout import StoreError

MAX_EVENTS = 500_000
# Events that one pass and one request become, at most: what the cap reckons with.
PER_PASS, PER_REQUEST = 3, 8
# What a handover adds: life in the prefill pool, four phases, the transfer and both ends of an arrow.
PER_HANDOFF = 16
# Tracks of transfers stand below the workers'.
LINKS = 1_000_000
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
        target: packed with gzip if its name ends in .gz, else plain JSON.
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
            with _opened(aside, packed=target.suffix.lower() == ".gz") as file:
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


@contextmanager
def _opened(path: Path, *, packed: bool) -> Iterator[BinaryIO]:
    with open(path, "wb") as raw:
        if not packed:
            yield raw
            return
        # Neither time nor name in the header: the same run gives the same bytes.
        with gzip.GzipFile("", "wb", compresslevel=6, fileobj=raw, mtime=0) as file:
            yield cast(BinaryIO, file)


def _end(con: Any, low: int, high: int, max_events: int) -> int:
    """The latest time up to which everything fits under the cap."""
    row = con.execute(
        f"""
        WITH steps AS (
            SELECT start_ns AS t_ns, {PER_PASS} AS n FROM passes WHERE end_ns >= $low AND start_ns <= $high
            UNION ALL
            SELECT greatest(arrival_ns, $low), {PER_REQUEST} FROM requests
            WHERE arrival_ns <= $high AND coalesce(end_ns, $high) >= $low
            UNION ALL
            -- With its request, to which they belong.
            SELECT greatest(r.arrival_ns, $low), {PER_HANDOFF} FROM handoffs h JOIN requests r USING (request_id)
            WHERE r.arrival_ns <= $high AND coalesce(r.end_ns, $high) >= $low),
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
        "WHERE worker IS NOT NULL UNION SELECT source_worker, source_rank FROM handoffs ORDER BY ALL"
    ).fetchall()
    sources = {worker for (worker,) in con.execute("SELECT DISTINCT source_worker FROM handoffs").fetchall()}
    for worker, rank in ranks:
        pid, tid = _place(worker, rank)
        pool = "" if not sources else "prefill " if worker in sources else "decode "
        yield "M", {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": f"{pool}worker {worker}"}}
        yield "M", {"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": f"rank {rank} passes"}}
    links = con.execute(
        "SELECT DISTINCT source_worker, worker FROM handoffs WHERE reserved_ns IS NOT NULL ORDER BY ALL"
    ).fetchall()
    if links:
        yield "M", {"ph": "M", "name": "process_name", "pid": LINKS, "args": {"name": "KV transfers"}}
    tracks = {link: i + 1 for i, link in enumerate(links)}
    for (source, target), tid in tracks.items():
        name = f"worker {source} → {target}"
        yield "M", {"ph": "M", "name": "thread_name", "pid": LINKS, "tid": tid, "args": {"name": name}}
    for row in _rows(con, _PASSES, window):
        yield from _pass(row)
    for row in _rows(con, _REQUESTS, window):
        yield from _request(row, low, high, tracks)


_PASSES = """
    SELECT worker, dp_rank, pass_no, start_ns, end_ns, chosen_ns, prefill_ns, decode_ns, n_prefill, prefill_tokens,
           prefill_kv_tokens, n_decode, decode_kv_tokens, n_tokens, n_admitted, n_preempted, n_completed, n_running,
           n_waiting, n_waiting_preempted, active_blocks, cached_blocks, free_blocks
    FROM passes WHERE end_ns >= $low AND start_ns <= $high ORDER BY start_ns, worker, dp_rank, pass_no
"""
# Losses are numbered where they happen: a request that is handed over is admitted, and may be preempted, on two ranks,
# and its first admission on each is no return.
_REQUESTS = """
    WITH losses AS (
        SELECT *, row_number() OVER (PARTITION BY request_id, worker, dp_rank ORDER BY pass_no, chosen_ns) AS no
        FROM pressure),
    returns AS (
        SELECT *, row_number() OVER (PARTITION BY request_id, worker, dp_rank ORDER BY admission_no) - 1 AS no
        FROM admissions),
    away AS (
        SELECT v.request_id, list([v.worker, v.dp_rank, v.chosen_ns, a.start_ns] ORDER BY v.chosen_ns) AS times
        FROM losses v
        LEFT JOIN returns a
            ON a.request_id = v.request_id AND a.worker = v.worker AND a.dp_rank = v.dp_rank AND a.no = v.no
        GROUP BY v.request_id)
    SELECT r.request_id, r.external_id, r.worker, r.dp_rank, r.status, r.arrival_ns, r.admitted_ns, r.first_token_ns,
           r.last_token_ns, r.end_ns, r.prompt_tokens, r.output_tokens, r.cached_tokens_first, away.times,
           h.source_worker, h.source_rank, h.worker AS target_worker, h.held_ns, h.reserved_ns, h.transferred_ns,
           h.decode_admitted_ns, h.released_ns, h.sent_tokens, h.sent_bytes, h.began_ns, h.attempts, h.outcome
    FROM requests r LEFT JOIN away USING (request_id) LEFT JOIN handoffs h USING (request_id)
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


def _request(
    row: dict[str, Any], low: int, high: int, tracks: dict[tuple[int, int], int]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Its whole life as one bar, and inside it the phases, clipped to the window.

    What is handed over lives in the prefill pool until its blocks are released there, and in the decode pool from the
    moment they are reserved there.
    """
    end = row["end_ns"] if row["end_ns"] is not None else high
    home = (row["worker"], row["dp_rank"])
    about = {k: row[k] for k in ("external_id", "status", "prompt_tokens", "output_tokens", "cached_tokens_first")}
    about["rank"] = row["dp_rank"]
    name, arrived, first = f"request {row['request_id']}", row["arrival_ns"], row["first_token_ns"]
    admitted = row["admitted_ns"]
    # (place, name, from, to); those of one place lie inside the life there.
    if row["held_ns"] is None:
        lives = [(home, name, arrived, end)]
        phases = [
            (home, "queued", arrived, admitted if admitted is not None else end),
            (home, "prefill", admitted, first if first is not None else end),
        ]
    else:
        source, held = (row["source_worker"], row["source_rank"]), row["held_ns"]
        released = row["released_ns"] if row["released_ns"] is not None else high
        lives = [(source, name, arrived, released)]
        phases = [
            (source, "queued", arrived, admitted),
            (source, "prefill", admitted, held),
            (source, "held", held, released),
        ]
        if row["reserved_ns"] is not None:
            reserved, moved = row["reserved_ns"], _or(row["transferred_ns"], end)
            decoding = _or(row["decode_admitted_ns"], end)
            lives.append((home, name, reserved, max(end, reserved)))
            phases += [
                (home, "transfer", reserved, min(moved, end)),
                (home, "wait for decode", moved, decoding),
                (home, "first decode pass", decoding, _or(first, end)),
            ]
    phases.append((home, "decode", first, row["last_token_ns"]))
    for i, (place, title, start, stop) in enumerate(lives):
        yield from _bar("lives" if i else "requests", row, place, title, start, stop, low, high, about)
    for place, title, start, stop in phases:
        if start is not None and stop is not None and stop > start:
            yield from _bar("phases", row, place, title, start, stop, low, high, None)
    for worker, rank, start, stop in row["times"] or ():
        until = row["held_ns"] if (worker, rank) != home and row["held_ns"] is not None else end
        yield from _bar("phases", row, (worker, rank), "preempted", start, _or(stop, until), low, high, None)
    if row["reserved_ns"] is not None:
        yield from _transfer(row, tracks[row["source_worker"], row["target_worker"]], low, high)


def _transfer(row: dict[str, Any], track: int, low: int, high: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """A bar on the track of its two workers, from the reservation until the KV has arrived or is given up, in it the
    part that has the link; and an arrow from the end of the prefill to the first decode pass."""
    end = _or(row["transferred_ns"], _or(row["end_ns"], high))
    bars = [(f"KV of request {row['request_id']}", row["reserved_ns"])]
    if row["began_ns"] is not None and row["began_ns"] > row["reserved_ns"]:
        bars.append(("has the link", row["began_ns"]))
    told = ("sent_tokens", "sent_bytes", "attempts", "outcome", "held_ns")
    about = {name: row[name] for name in told if row[name] is not None}
    for name, start in bars:
        start, stop = max(start, low), min(end, high)
        if start <= stop:
            event = {"cat": "transfer", "id": row["request_id"], "name": name, "pid": LINKS, "tid": track}
            yield "phases", event | {"ph": "b", "ts": _us(start), "args": about}
            yield "ends", event | {"ph": "e", "ts": _us(stop)}
    decoding = row["decode_admitted_ns"]
    if row["held_ns"] - 1 < low or decoding is None or decoding > high:
        return  # an arrow with one end outside would point at nothing
    arrow = {"cat": "handover", "id": row["request_id"], "name": "handover"}
    # It leaves inside the pass that computed the prompt and ends at the pass that decodes it.
    pid, tid = _place(row["source_worker"], row["source_rank"])
    yield "arrows", arrow | {"ph": "s", "pid": pid, "tid": tid, "ts": _us(row["held_ns"] - 1)}
    pid, tid = _place(row["worker"], row["dp_rank"])
    yield "arrows", arrow | {"ph": "f", "bp": "e", "pid": pid, "tid": tid, "ts": _us(decoding)}


def _or(ns: int | None, otherwise: int) -> int:
    return ns if ns is not None else otherwise


def _bar(
    kind: str,
    row: dict[str, Any],
    place: tuple[int, int],
    name: str,
    start: int,
    stop: int,
    low: int,
    high: int,
    about: dict[str, Any] | None,
) -> Iterator[tuple[str, dict[str, Any]]]:
    start, stop = max(start, low), min(stop, high)
    if start > stop:
        return
    pid, tid = _place(*place)
    # Nestable asynchronous events: bars of one id lie below each other, however many requests run at once. Ids are not
    # of one process alone, and both lives of a request overlap.
    number: int | str = row["request_id"]
    if place != (row["worker"], row["dp_rank"]):
        number = f"{number} prefill"
    event = {"cat": "request", "id": number, "name": name, "pid": pid, "tid": tid}
    yield kind, event | {"ph": "b", "ts": _us(start)} | ({"args": about} if about else {})
    yield "ends", event | {"ph": "e", "ts": _us(stop)}
