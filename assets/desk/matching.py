"""Which request of the head is which request of the base.

`request_id` is a place in the source: one row taken out, and every later request has another one. Then names decide,
and where the source has none, the content of the rows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import duckdb

_NAMES = {
    "external_id": "external_id",
    "session and turn": "CASE WHEN turn IS NOT NULL THEN session_id || '#' || turn END",
}


def match_requests(con: duckdb.DuckDBPyConnection, base: Mapping[str, Any], head: Mapping[str, Any]) -> str:
    """Say how requests are matched; unless that is by `request_id`, table head_ids(own_id, id) is made.

    Args:
        con: with schemas `base` and `head`.
        base: row of `runs`.
        head: row of `runs`.
    """
    if base["trace_digest"] == head["trace_digest"] or _rows_read(base) == _rows_read(head):
        return "request_id"
    for words, name in _NAMES.items():
        if all(_names_every_request(con, side, name) for side in ("base", "head")):
            _make_ids(con, name)
            return words
    # The n-th request of the same kind; arrivals of a closed loop are results and tell nothing.
    kind = "prompt_tokens, requested_tokens" + ("" if is_closed_loop(base) else ", arrival_ns")
    _make_ids(con, f"[{kind}, row_number() OVER (PARTITION BY {kind} ORDER BY request_id)]")
    return "content of the rows"


def is_closed_loop(run: Mapping[str, Any]) -> bool:
    """Whether the replay decided when requests arrive."""
    load = json.loads(run["config_json"]).get("traffic", {}).get("load", {})
    return load.get("type") == "concurrency"


def _rows_read(run: Mapping[str, Any]) -> Any:
    return json.loads(run["provenance_json"]).get("rows_read", run["n_requests"] + run["n_quarantined"])


def _names_every_request(con: duckdb.DuckDBPyConnection, side: str, name: str) -> bool:
    row = con.execute(f"SELECT count(*) = count(DISTINCT {name}) FROM {side}.requests").fetchone()
    return bool(row and row[0])


def _make_ids(con: duckdb.DuckDBPyConnection, name: str) -> None:
    """Matching requests take the base's id; new ones are numbered after all of the base's."""
    con.execute(f"""
        CREATE TABLE memory.main.head_ids AS
        WITH ours AS (SELECT request_id, {name} AS name FROM base.requests),
        theirs AS (SELECT request_id, {name} AS name FROM head.requests),
        after AS (SELECT coalesce(max(request_id), 0) + 1 AS id FROM base.requests)
        SELECT t.request_id AS own_id, coalesce(o.request_id, after.id + t.request_id)::INTEGER AS id
        FROM theirs t LEFT JOIN ours o ON o.name = t.name, after
    """)
