"""A replay against what the reference simulator reported: summary and one row per request."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

from assets.golden.peer_case import Options
from assets.golden.run import Replayed
from sim import metrics
from sim.result import STATUS_NAMES, UNFINISHED, Columns
from sim.sessions import of_sessions
from sim.spec import PoolsSpec

# The simulator adds milliseconds as doubles, in a changing order, and does not round arrivals to nanoseconds: a time
# may be off by a few, and a deviation that is zero may be reported as a few 1e-14.
RELATIVE, ABSOLUTE_MS, ABSOLUTE = 1e-8, 1e-5, 1e-9
RELATIVE_RATE = 1e-6  # a nanosecond in a gap of a few ms moves the rate 1 / gap by parts in 1e7
SKETCHED = 2e-3  # it keeps ITL and rate percentiles in a sketch

Row = dict[str, Any]


def differences(case: Mapping[str, Any], options: Options, replayed: Replayed) -> Iterator[str]:
    """Every place where the replay departs from `expected`, one line each."""
    expected = case["expected"]
    yield from _rows_apart(expected["columns"], expected["per_request"], rows(replayed))
    ours = metrics.summary(
        replayed.tables["requests"],
        replayed.outcome,
        replayed.spec,
        sla=options.sla,
        chunks=replayed.tables["chunks"],
        gpus_per_worker=options.gpus_per_worker,
    )
    if options.plays is not None:
        ours |= _of_plays(replayed, options)
    for block, relative in (("summary", RELATIVE), ("sketched", SKETCHED)):
        for key, value in expected[block].items():
            absolute = ABSOLUTE_MS if key.endswith("_ms") else ABSOLUTE
            allowed = max(relative, RELATIVE_RATE) if key.endswith("_per_user") else relative
            if not key.endswith("_ms"):  # a figure over the duration may be as far off as that
                allowed = max(allowed, ABSOLUTE_MS / max(expected["summary"]["duration_ms"], 1.0))
            if key == "agentic_play_outcomes":
                value = _outcomes(value)
            if key not in ours:
                yield f"{block}.{key}: expected {value!r}, got nothing"
            elif not _same(value, ours[key], allowed, absolute):
                yield f"{block}.{key}: expected {value!r}, got {ours[key]!r}"


def _of_plays(replayed: Replayed, options: Options) -> Row:
    """What the simulator calls trajectories."""
    assert options.plays is not None
    found = of_sessions(replayed.tables["requests"], options.plays)
    latency = {f"{stat}_trajectory_e2e_latency_ms": value for stat, value in found.latency.stats().items()}
    ours: Row = {
        "total_trajectories": found.n_started,
        "completed_trajectories": found.n_ended,
        "incomplete_trajectories": found.n_started - found.n_ended,
        "p50_trajectory_e2e_latency_ms": latency["median_trajectory_e2e_latency_ms"],
        "agentic_play_outcomes": [["completed", end / 1e6, end / 1e6] for end in sorted(found.last_end_ns.tolist())],
    }
    return ours | latency | {"weka_nested_timestamp_basis": options.nested_basis}


def _outcomes(plays: list[Row]) -> list[list[Any]]:
    """How plays ended; their names hold digests of its own."""
    found = [[play["status"], play["causal_terminal_ms"], play["settled_at_ms"]] for play in plays]
    return sorted(found, key=lambda each: each[1])


def rows(replayed: Replayed) -> list[Row]:
    """The requests that ended, in the simulator's column names."""
    table = replayed.tables["requests"]
    if isinstance(replayed.spec, PoolsSpec):
        return pool_rows(replayed)
    dp = replayed.spec.dp
    admitted: dict[int, list[list[Any]]] = {}
    log = replayed.tables["admissions"]
    for request, start, cached in zip(
        log["request"].tolist(), log["start_ns"].tolist(), log["cached_tokens"].tolist(), strict=True
    ):
        admitted.setdefault(request, []).append(["agg", start / 1e6, cached])
    listed = []
    for values in zip(*(column.tolist() for column in table.values()), strict=True):
        row = dict(zip(table, values, strict=True))
        if row["status"] == UNFINISHED:
            continue
        listed.append(
            _of_request(row)
            | {
                "decode_worker_idx": row["worker"] * dp + row["dp_rank"],
                "admissions": admitted.get(row["request"], []),
            }
        )
    return listed


def _of_request(row: Row) -> Row:
    made = row["output_tokens"]
    return {
        "arrival_time_ms": row["arrival_ns"] / 1e6,
        "input_length": row["prompt_tokens"],
        "requested_output_length": row["requested_tokens"],
        "output_length": made,
        "terminal_status": STATUS_NAMES[row["status"]],
        "first_admit_ms": _ms(row["admitted_ns"]),
        "first_token_ms": _ms(row["first_token_ns"]),
        "last_token_ms": _ms(row["last_token_ns"]),
        "terminal_time_ms": _ms(row["end_ns"]),
        "ttst_ms": (row["second_token_ns"] - row["first_token_ns"]) / 1e6 if made > 1 else None,
        "itl_ms": (row["last_token_ns"] - row["first_token_ns"]) / 1e6 / (made - 1) if made > 1 else None,
        "reused_input_tokens": max(row["cached_tokens_max"], 0),
        "admission_count": row["n_admissions"],
    }


def pool_rows(replayed: Replayed) -> list[Row]:
    """The same of separate pools, with the instants of the handoff."""
    spec = replayed.spec
    assert isinstance(spec, PoolsSpec)
    first = spec.prefill.workers
    handoffs = {row["request"]: row for row in _records(replayed.tables["handoffs"])}
    admitted: dict[int, list[list[Any]]] = {}
    for row in sorted(_records(replayed.tables["admissions"]), key=lambda each: each["admission_no"]):
        where = "prefill" if row["worker"] < first else "decode"
        admitted.setdefault(row["request"], []).append([where, row["start_ns"] / 1e6, row["cached_tokens"]])
    listed = []
    for row in _records(replayed.tables["requests"]):
        if row["status"] == UNFINISHED:
            continue
        handoff, mine = handoffs.get(row["request"]), admitted.get(row["request"], [])
        instants: Row = dict.fromkeys(
            ("prefill_admit_ms", "source_held_ms", "destination_reserved_ms", "destination_activated_ms")
            + ("decode_admit_ms", "source_released_ms", "decode_worker_idx")
        )
        at = row["worker"] * spec.prefill.dp + row["dp_rank"]
        if handoff is not None:
            at = handoff["source_worker"] * spec.prefill.dp + handoff["source_rank"]
            instants |= {
                "prefill_admit_ms": _ms(handoff["prefill_admitted_ns"]),
                "source_held_ms": _ms(handoff["held_ns"]),
                "destination_reserved_ms": _ms(handoff["reserved_ns"]),
                "destination_activated_ms": _ms(handoff["activated_ns"]),
                "decode_admit_ms": _ms(handoff["decode_admitted_ns"]),
            }
            if handoff["worker"] >= 0:  # of a failed handoff the simulator tells no more
                instants["decode_worker_idx"] = (handoff["worker"] - first) * spec.decode.dp + handoff["dp_rank"]
                instants["source_released_ms"] = _ms(handoff["released_ns"])
        listed.append(
            _of_request(row)
            | instants
            | {
                "admissions": mine,
                "prefill_worker_idx": at,
                # What a decode worker finds again after a preemption counts in the summary only.
                "reused_input_tokens": max((c for where, _, c in mine if where == "prefill"), default=0),
                "decode_reused_input_tokens": max((c for where, _, c in mine if where == "decode"), default=None),
            }
        )
    return listed


def _records(table: Columns) -> list[Row]:
    return [dict(zip(table, row, strict=True)) for row in zip(*(c.tolist() for c in table.values()), strict=True)]


def _rows_apart(columns: list[str], expected: list[list[Any]], got: list[Row]) -> Iterator[str]:
    """Requests carry random names there, so both sides are sorted by value before they are compared."""
    if len(expected) != len(got):
        yield f"per_request: expected {len(expected)} rows, got {len(got)}"
    wanted = sorted(expected, key=_sort_key)
    ours = sorted(([row[name] for name in columns] for row in got), key=_sort_key)
    for number, (want, have) in enumerate(zip(wanted, ours, strict=False)):
        for name, left, right in zip(columns, want, have, strict=True):
            if not _same(left, right, RELATIVE, ABSOLUTE_MS):
                at = f"arrival {want[columns.index('arrival_time_ms')]} ms" if "arrival_time_ms" in columns else ""
                yield f"row {number} ({at}), {name}: expected {left!r}, got {right!r}"


def _sort_key(row: list[Any]) -> list[tuple[int, float, str]]:
    key = []
    for value in row:
        if value is None:
            key.append((0, 0.0, ""))
        elif isinstance(value, (str, list)):
            key.append((1, 0.0, value if isinstance(value, str) else json.dumps(value)))
        else:
            key.append((2, round(float(value), 6), ""))
    return key


def _same(expected: Any, got: Any, relative: float, absolute: float) -> bool:
    if isinstance(expected, list):
        return (
            isinstance(got, list)
            and len(got) == len(expected)
            and all(_same(a, b, relative, absolute) for a, b in zip(expected, got, strict=True))
        )
    if isinstance(expected, bool) or expected is None or isinstance(expected, str):
        return expected == got
    if isinstance(expected, int) and isinstance(got, int):
        return expected == got
    if not isinstance(got, (int, float)):
        return False
    return math.isclose(expected, got, rel_tol=relative, abs_tol=absolute)


def _ms(ns: int) -> float | None:
    return None if ns < 0 else ns / 1e6
