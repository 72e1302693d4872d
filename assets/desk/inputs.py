"""What was different before the first pass: configuration, trace, performance data, engine, tables."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from assets.desk.matching import is_closed_loop
from assets.desk.pair import Pair

ABSENT = "(not set)"
# Settings that reach the prices of transfers.
_TRANSFER, _SENT_BYTES = "engine.kv_transfer", "prefill.kv_cache.bytes_per_token"
_FACTS = ("external_id", "session_id", "turn", "prompt_tokens", "requested_tokens")


@dataclass(frozen=True, slots=True)
class Change:
    """One input that differs.

    Attributes:
        kind: "configuration", "trace", "performance data", "engine" or "tables".
        field: dotted name of the setting, column of the trace, or what the digest covers.
        note: how many rows, which first; '' where base and head say it all.
    """

    kind: str
    field: str
    base: Any
    head: Any
    note: str = ""

    @property
    def name(self) -> str:
        return f"{self.kind}: {self.field}"


def input_changes(pair: Pair) -> list[Change]:
    """Every input that differs, configuration first."""
    base, head = pair.base.run, pair.head.run
    changes = list(settings(json.loads(base["config_json"]), json.loads(head["config_json"])))
    changed = {c.field for c in changes}
    if base["trace_digest"] != head["trace_digest"]:
        rows = list(_trace_rows(pair))
        # Made-up traffic is named by its recipe, which is part of the configuration.
        made_up = any(field.startswith("traffic.source.") or field == "seed" for field in changed)
        if rows and not made_up:
            changes += rows
        elif not made_up:
            changes.append(_digest("trace", "prefix ids, or what no table keeps", "trace_digest", base, head))
    if base["performance_digest"] != head["performance_digest"]:
        sources = [_source(run) for run in (base, head)]
        if sources[0] != sources[1]:
            changes.append(Change("performance data", "source", *sources))
        if not any(".timing" in f or f.startswith(_TRANSFER) or f.endswith(_SENT_BYTES) for f in changed):
            changes.append(_digest("performance data", "content", "performance_digest", base, head))
    if base["engine_digest"] != head["engine_digest"]:
        changes.append(_digest("engine", "sources", "engine_digest", base, head))
    if base["schema_digest"] != head["schema_digest"]:
        changes.append(_digest("tables", "declarations", "schema_digest", base, head))
    return changes


def software(pair: Pair) -> list[Change]:
    """Versions that differ. They should not matter, and are no part of what a replay is; worth knowing if they do."""
    names = ("tracemill_version", "python_version", "numpy_version", "numba_version")
    base, head = pair.base.run, pair.head.run
    return [
        Change("software", n.removesuffix("_version"), base[n], head[n]) for n in names if base.get(n) != head.get(n)
    ]


def _source(run: Mapping[str, Any]) -> str:
    """Where prices come from, in a word or two: kind of estimator, and the data it read."""
    told = json.loads(run["provenance_json"]).get("performance") or {}
    each = [f"{role} {_origin(told[role])}" for role in ("prefill", "decode") if role in told]
    return ", ".join(each) or _origin(told) or run["timing"]


def _origin(told: Mapping[str, Any]) -> str:
    source = told.get("source") or {}
    held = " ".join(str(source[key]) for key in ("distribution", "version") if source.get(key))
    return " of ".join(part for part in (told.get("estimation_mode"), held) if part)


def _digest(kind: str, field: str, column: str, base: Mapping[str, Any], head: Mapping[str, Any]) -> Change:
    return Change(kind, field, base[column][:12], head[column][:12], "digest")


def settings(base: Any, head: Any) -> Iterator[Change]:
    """Every field of two canonical configurations that differs."""
    ours, theirs = dict(_leaves(base, "")), dict(_leaves(head, ""))
    for field in sorted(ours.keys() | theirs.keys()):
        a, b = ours.get(field, ABSENT), theirs.get(field, ABSENT)
        if a != b:
            yield Change("configuration", field, a, b)


def _leaves(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _leaves(inner, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list) and any(isinstance(v, list | Mapping) for v in value):
        for i, inner in enumerate(value):
            yield from _leaves(inner, f"{name}[{i}]")
    else:
        yield name, value


def _trace_rows(pair: Pair) -> Iterator[Change]:
    for side, other in (("base", "head"), ("head", "base")):
        only = pair.row(f"""
            SELECT count(*) AS n, min(request_id) AS first
            FROM {side}.requests ANTI JOIN {other}.requests USING (request_id)
        """)
        if only["n"]:
            n, first = only["n"], only["first"]
            there = {side: f"{n:,} request(s)", other: ABSENT}
            yield Change("trace", "rows", there["base"], there["head"], f"only in {side}; first request {first}")
    columns = _FACTS if is_closed_loop(pair.base.run) else (*_FACTS, "arrival_ns")
    for column in columns:
        # A later turn arrives when the turn before it is done: a result, not an input.
        own = "AND coalesce(b.turn, 0) = 0" if column == "arrival_ns" else ""
        found = pair.row(f"""
            SELECT count(*) AS n, min(request_id) AS first, min_by(b.{column}, request_id) AS base,
                   min_by(h.{column}, request_id) AS head
            FROM base.requests b JOIN head.requests h USING (request_id)
            WHERE b.{column} IS DISTINCT FROM h.{column} {own}
        """)
        if found["n"]:
            note = f"{found['n']:,} request(s); first request {found['first']}"
            yield Change("trace", column, found["base"], found["head"], note)
