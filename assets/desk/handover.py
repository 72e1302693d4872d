"""Where two runs part on the way from a prefill to a decode pool: the first handover that goes another way.

A prompt that is computed later on one side is no cause but a consequence: the pass that computed it differs as well,
and comes first.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from assets.desk.pair import Pair

DESTINATION = "destination"
TRANSFER = "transfer"

_FIRST = """
    WITH apart AS (
        SELECT request_id, b.held_ns AS held_ns,
               [b.worker, b.dp_rank] AS base_rank, [h.worker, h.dp_rank] AS head_rank,
               b.reserved_ns AS base_reserved, h.reserved_ns AS head_reserved,
               b.transferred_ns AS base_arrived, h.transferred_ns AS head_arrived,
               b.sent_tokens AS base_sent, h.sent_tokens AS head_sent,
               b.attempts AS base_attempts, h.attempts AS head_attempts,
               b.outcome AS base_outcome, h.outcome AS head_outcome,
               -- When it was given up on one side; the other may be on its way for long.
               CASE WHEN base_outcome IS DISTINCT FROM head_outcome THEN least(
                   if(base_outcome IN ('transfer_failed', 'timed_out'), rb.end_ns, NULL),
                   if(head_outcome IN ('transfer_failed', 'timed_out'), rh.end_ns, NULL)) END AS given_up_ns,
               CASE WHEN base_rank IS DISTINCT FROM head_rank THEN 'rank'
                    WHEN given_up_ns IS NOT NULL AND (base_reserved IS NOT DISTINCT FROM head_reserved
                         OR given_up_ns < least(base_reserved, head_reserved)) THEN 'end'
                    WHEN base_reserved IS DISTINCT FROM head_reserved THEN 'room'
                    WHEN base_arrived IS DISTINCT FROM head_arrived THEN 'arrival'
                    WHEN base_sent IS DISTINCT FROM head_sent THEN 'amount' END AS what,
               CASE what WHEN 'rank' THEN b.held_ns WHEN 'room' THEN least(base_reserved, head_reserved)
                         WHEN 'end' THEN given_up_ns ELSE least(base_arrived, head_arrived) END AS at_ns
        FROM base.handoffs b JOIN head.handoffs h USING (request_id)
        JOIN base.requests rb USING (request_id) JOIN head.requests rh USING (request_id)
        WHERE b.held_ns = h.held_ns
    )
    -- What was sent is no cause of anything as long as it arrives at the same time.
    FROM apart WHERE $until IS NULL AND what IS NOT NULL OR at_ns <= $until AND what != 'amount'
    ORDER BY at_ns, what = 'room', request_id LIMIT 1
"""


def first_handover(pair: Pair, until_ns: int | None = None) -> tuple[str, str] | None:
    """The first difference between handovers, as (mechanism, what exactly happened); None if there is none.

    Args:
        until_ns: look no further than this instant; None: at all of them.
    """
    if not pair.hands_over:
        return None
    rows = pair.rows(_FIRST, {"until": until_ns})
    if not rows:
        return None
    row = rows[0]
    who = f"request {row['request_id']}"
    if row["what"] == "rank":
        there = " and ".join(f"{_rank(row[f'{s}_rank'])} in {s}" for s in ("base", "head"))
        return DESTINATION, f"{who} goes to {there}"
    if row["what"] == "end":
        ends = " and ".join(_end(row, side) for side in ("base", "head"))
        # Who is given up before there was room for it waited for the destination.
        waited = any(row[f"{s}_outcome"] == "timed_out" and row[f"{s}_reserved"] is None for s in ("base", "head"))
        return (DESTINATION if waited else TRANSFER), f"the handover of {who} is {ends}"
    if row["what"] == "room":
        rank = ".".join(map(str, row["base_rank"]))
        when = ", ".join(f"{_seconds(row[f'{s}_reserved'])} in {s}" for s in ("base", "head"))
        return DESTINATION, f"{who} finds room on decode rank {rank} at {when}"
    if row["base_sent"] != row["head_sent"]:
        sent = " and ".join(f"{row[f'{s}_sent']:,} tokens in {s}" for s in ("base", "head"))
        asked_alike = _transfers(pair.base.run) == _transfers(pair.head.run)
        # With the same settings it is the destination that holds another part of the prompt already.
        return ("prefix hit/eviction" if asked_alike else TRANSFER), f"the KV of {who} that is sent is {sent}"
    took = ", ".join(f"{_ms(row[f'{s}_arrived'], row['base_reserved'])} in {s}" for s in ("base", "head"))
    tries = {row["base_attempts"], row["head_attempts"]} - {None, 1}
    again = f" ({row['base_attempts']} and {row['head_attempts']} attempts)" if tries else ""
    return TRANSFER, f"the KV of {who}, {row['base_sent']:,} tokens, is on its way for {took}{again}"


def _end(row: Mapping[str, Any], side: str) -> str:
    outcome = (row[f"{side}_outcome"] or "not over").replace("_", " ")
    return f"{outcome} after {row[f'{side}_attempts']} attempt(s) in {side}"


def _transfers(run: Mapping[str, Any]) -> Any:
    return json.loads(run["config_json"]).get("engine", {}).get("kv_transfer")


def _rank(place: list[int | None]) -> str:
    return "no decode rank" if place[0] is None else f"decode rank {place[0]}.{place[1]}"


def _seconds(ns: int | None) -> str:
    return "no time" if ns is None else f"{ns / 1e9:,.6f} s"


def _ms(end_ns: int | None, start_ns: int) -> str:
    return "ever" if end_ns is None else f"{(end_ns - start_ns) / 1e6:,.6f} ms"
