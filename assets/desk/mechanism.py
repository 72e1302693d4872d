"""Why two runs part at their first divergent pass: the first of its causes, in the order a scheduler decides.

Who has arrived; whose prompt it is; whose KV has come from another pool; who loses blocks; what the cache holds; who is
admitted with how many tokens; what the pass costs; what comes out of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from assets.desk.divergence import CHOICE, COMPARED, SPAN_PASSES, FirstPass, pass_row
from assets.desk.handover import DESTINATION, TRANSFER, first_handover
from assets.desk.pair import Pair

ARRIVAL = "arrival"
ADMISSION = "admission/gate"
PREFIX = "prefix hit/eviction"
PREEMPTION = "preemption"
PRICE = "price"
SAMPLING = "sampling"
LENGTH = "length"
STOP = "stop"
UNEXPLAINED = "unexplained"
MECHANISMS = (ARRIVAL, DESTINATION, TRANSFER, ADMISSION, PREFIX, PREEMPTION, PRICE, SAMPLING, LENGTH, STOP)


@dataclass(frozen=True, slots=True)
class Mechanism:
    """One of MECHANISMS or UNEXPLAINED, and what exactly happened, in a sentence."""

    name: str
    detail: str


def explain(pair: Pair, first: FirstPass) -> Mechanism:
    """The mechanism behind the first divergent pass."""
    causes = []
    if first.choice_differs or not first.differing():
        causes = [_arrival, _stop, _handover, _preemption, _batch, _pool, _timing]
    causes += [_price, _outcome, _slowest_rank]
    for cause in causes:
        found = cause(pair, first)
        if found is not None:
            return found
    return Mechanism(UNEXPLAINED, f"differing: {', '.join(first.differing()) or 'who makes tokens'}")


def explain_requests(pair: Pair) -> Mechanism | None:
    """Why requests, or their ways between pools, differ although no pass does. None when they do not."""
    if pair.same("requests") and pair.matched_by == "request_id":
        found = None if pair.same("handoffs") else first_handover(pair)
        return found and Mechanism(found[0], f"{found[1]}, which changes no pass")
    rows = pair.rows("""
        SELECT request_id, b.request_id IS NULL OR h.request_id IS NULL AS one_sided,
               b.request_id IS NOT NULL AS in_base, b.status AS base, h.status AS head,
               b.arrival_ns IS DISTINCT FROM h.arrival_ns AS moved,
               b.requested_tokens IS DISTINCT FROM h.requested_tokens
                   OR b.prompt_tokens IS DISTINCT FROM h.prompt_tokens AS longer
        FROM base.requests b FULL JOIN head.requests h USING (request_id)
        WHERE one_sided OR base != head OR moved OR longer
        ORDER BY least(b.arrival_ns, h.arrival_ns) NULLS LAST, request_id LIMIT 1
    """)
    if not rows:
        return None
    row = rows[0]
    who = f"request {row['request_id']}"
    if row["one_sided"]:
        return Mechanism(ARRIVAL, f"{who} is in {'base' if row['in_base'] else 'head'} only; it reached no pass")
    if row["moved"]:
        return Mechanism(ARRIVAL, f"{who} arrives at another time, which changes no pass")
    if row["longer"]:
        return Mechanism(LENGTH, f"{who} has another length, which changes no pass")
    return Mechanism(ADMISSION, f"{who} is {row['base']} in base, {row['head']} in head, and reached no pass")


def _here(first: FirstPass, alias: str = "t") -> str:
    return f"{alias}.worker = {first.worker} AND {alias}.dp_rank = {first.dp_rank}"


def _chosen(first: FirstPass) -> list[int]:
    return [row["chosen_ns"] for row in (first.base, first.head) if row is not None]


def _placed(side: str) -> str:
    """Requests with the rank that they came to first: prompts that were handed over have gone on."""
    return f"""(SELECT r.request_id, r.arrival_ns, coalesce(o.source_worker, r.worker) AS worker,
               coalesce(o.source_rank, r.dp_rank) AS dp_rank
        FROM {side}.requests r LEFT JOIN {side}.handoffs o USING (request_id))"""


def _handover(pair: Pair, first: FirstPass) -> Mechanism | None:
    """KV that comes from another pool at another time, or goes elsewhere."""
    found = first_handover(pair, first.at_ns)
    return found and Mechanism(*found)


def _arrival(pair: Pair, first: FirstPass) -> Mechanism | None:
    """A request of this rank that is missing, or arrives or is sent elsewhere, on one side."""
    rows = pair.rows(f"""
        WITH b AS (FROM {_placed("base")} t WHERE {_here(first)}), h AS (FROM {_placed("head")} t WHERE {_here(first)})
        SELECT request_id, b.arrival_ns AS base, h.arrival_ns AS head,
               (SELECT any_value([o.worker, o.dp_rank, o.arrival_ns]) FROM {_placed("base")} o
                WHERE o.request_id = coalesce(b.request_id, h.request_id)) AS in_base,
               (SELECT any_value([o.worker, o.dp_rank, o.arrival_ns]) FROM {_placed("head")} o
                WHERE o.request_id = coalesce(b.request_id, h.request_id)) AS in_head
        FROM b FULL JOIN h USING (request_id)
        WHERE b.arrival_ns IS DISTINCT FROM h.arrival_ns AND least(b.arrival_ns, h.arrival_ns) <= {max(_chosen(first))}
        ORDER BY least(b.arrival_ns, h.arrival_ns), request_id LIMIT 1
    """)
    if rows:
        row = rows[0]
        for side, other in (("base", "head"), ("head", "base")):
            if row[f"in_{other}"] is None:
                when = _seconds(row[side])
                return Mechanism(ARRIVAL, f"request {row['request_id']}, arriving at {when}, is in {side} only")
        if row["in_base"][:2] != row["in_head"][:2]:
            there = " and to ".join(f"{r[0]}.{r[1]} in {s}" for s, r in _both(row["in_base"], row["in_head"]))
            return Mechanism(ARRIVAL, f"request {row['request_id']} is sent to rank {there}")
        times = ", ".join(f"{_seconds(row[s]) if row[s] is not None else 'never'} in {s}" for s in ("base", "head"))
        return Mechanism(ARRIVAL, f"request {row['request_id']} arrives at {times}")
    refused = pair.rows(f"""
        SELECT request_id, b.status AS base, h.status AS head, coalesce(b.reason, h.reason) AS reason
        FROM base.requests b JOIN head.requests h USING (request_id)
        WHERE {_here(first, "b")} AND b.status != h.status AND 'rejected' IN (b.status, h.status)
              AND b.arrival_ns <= {max(_chosen(first))}
        ORDER BY b.arrival_ns, request_id LIMIT 1
    """)
    if refused:
        row = refused[0]
        side = "base" if row["base"] == "rejected" else "head"
        return Mechanism(ADMISSION, f"request {row['request_id']} is rejected in {side} only ({row['reason']})")
    return None


def _stop(pair: Pair, first: FirstPass) -> Mechanism | None:
    """One run was stopped while there was work left."""
    for side, row, run in (("base", first.base, pair.base.run), ("head", first.head, pair.head.run)):
        if row is None and run["n_unfinished"] and first.at_ns >= pair.row(f"""
            SELECT coalesce(max(chosen_ns), 0) AS last FROM {side}.passes t WHERE {_here(first)}
        """)["last"]:  # fmt: skip
            return Mechanism(STOP, f"{side} was stopped at {_seconds(run['end_ns'])}, before this pass ended")
    return None


def _preemption(pair: Pair, first: FirstPass) -> Mechanism | None:
    rows = pair.rows(f"""
        WITH b AS (FROM base.pressure t WHERE {_here(first)} AND t.pass_no = {first.pass_no}),
        h AS (FROM head.pressure t WHERE {_here(first)} AND t.pass_no = {first.pass_no})
        SELECT request_id, asker_id, coalesce(b.blocks_released, h.blocks_released) AS blocks,
               coalesce(b.tokens_lost, h.tokens_lost) AS tokens, h.request_id IS NULL AS in_base, chosen_ns
        FROM b FULL JOIN h USING (request_id, chosen_ns, asker_id)
        WHERE b.request_id IS NULL OR h.request_id IS NULL OR b.blocks_released != h.blocks_released
              OR b.tokens_lost != h.tokens_lost
        ORDER BY chosen_ns, coalesce(b.n_running, h.n_running) DESC LIMIT 1
    """)
    if not rows:
        return None
    row = rows[0]
    side = "base" if row["in_base"] else "head"
    return Mechanism(
        PREEMPTION,
        f"in {side} only, request {row['request_id']} loses {row['blocks']} blocks ({row['tokens']:,} tokens) "
        f"to request {row['asker_id']}",
    )


def _batch(pair: Pair, first: FirstPass) -> Mechanism | None:
    """Who is in the batch with how many tokens: running requests first, then admissions in their order."""
    rows = pair.rows(f"""
        WITH b AS (FROM base.chunks t WHERE {_here(first)} AND t.pass_no = {first.pass_no}),
        h AS (FROM head.chunks t WHERE {_here(first)} AND t.pass_no = {first.pass_no}),
        place AS (
            SELECT request_id, min(order_no) AS order_no
            FROM (FROM base.admissions UNION ALL FROM head.admissions) t
            WHERE {_here(first)} AND t.pass_no = {first.pass_no} GROUP BY ALL
        )
        SELECT request_id, b.n_tokens AS base, h.n_tokens AS head, b.cached_tokens AS base_cached,
               h.cached_tokens AS head_cached, b.computed_before AS base_before, h.computed_before AS head_before,
               coalesce(b.kind, h.kind) AS kind,
               rb.prompt_tokens AS base_prompt, rh.prompt_tokens AS head_prompt
        FROM b FULL JOIN h USING (request_id) LEFT JOIN place USING (request_id)
        LEFT JOIN base.requests rb ON rb.request_id = b.request_id
        LEFT JOIN head.requests rh ON rh.request_id = h.request_id
        WHERE b.n_tokens IS DISTINCT FROM h.n_tokens OR b.computed_before IS DISTINCT FROM h.computed_before
              OR b.cached_tokens IS DISTINCT FROM h.cached_tokens OR b.kind IS DISTINCT FROM h.kind
        ORDER BY place.order_no NULLS FIRST, request_id LIMIT 1
    """)
    return _chunk_mechanism(rows[0]) if rows else _decoders(pair, first)


def _chunk_mechanism(row: dict[str, Any]) -> Mechanism:
    who = f"request {row['request_id']}"
    for side, other in (("base", "head"), ("head", "base")):
        if row[other] is None:
            what = {"new": "is admitted", "resumed": "is readmitted"}.get(row["kind"], "computes a chunk")
            return Mechanism(ADMISSION, f"{who} {what} in {side} only, with {row[side]:,} tokens")
    if row["base_prompt"] != row["head_prompt"]:
        return _other_prompt(row)
    if row["base_cached"] != row["head_cached"] or row["base_before"] != row["head_before"]:
        found = " and ".join(f"{row[f'{s}_before']:,} in {s}" for s in ("base", "head"))
        return Mechanism(PREFIX, f"{who} finds {found} of its tokens in the KV cache")
    return Mechanism(ADMISSION, f"{who} computes {row['base']:,} tokens in base and {row['head']:,} in head")


def _other_prompt(row: dict[str, Any]) -> Mechanism:
    lengths = f"{row['base_prompt']:,} tokens in base and {row['head_prompt']:,} in head"
    return Mechanism(LENGTH, f"request {row['request_id']} has a prompt of {lengths}")


def _decoders(pair: Pair, first: FirstPass) -> Mechanism | None:
    """The chunks agree: a request makes a plain token on one side only."""
    makes = f"{_here(first)} AND {first.pass_no} BETWEEN t.first_pass AND t.first_pass + {SPAN_PASSES} - 1"
    rows = pair.rows(f"""
        WITH b AS (SELECT request_id FROM base.spans t WHERE {makes}),
        h AS (SELECT request_id FROM head.spans t WHERE {makes})
        SELECT request_id, h.request_id IS NULL AS in_base, rb.output_tokens AS base, rh.output_tokens AS head,
               rb.prompt_tokens AS base_prompt, rh.prompt_tokens AS head_prompt,
               rb.requested_tokens != rh.requested_tokens OR rb.prompt_tokens != rh.prompt_tokens AS asked
        FROM b FULL JOIN h USING (request_id)
        LEFT JOIN base.requests rb USING (request_id) LEFT JOIN head.requests rh USING (request_id)
        WHERE b.request_id IS NULL OR h.request_id IS NULL ORDER BY asked DESC NULLS LAST, request_id LIMIT 1
    """)
    if not rows:
        return None
    row = rows[0]
    side = "base" if row["in_base"] else "head"
    if row["base_prompt"] != row["head_prompt"]:
        return _other_prompt(row)
    if row["base"] != row["head"]:
        made = f"{row['base']} tokens in base and {row['head']} in head"
        return Mechanism(LENGTH, f"request {row['request_id']} makes {made}")
    if not first.choice_differs:
        return Mechanism(SAMPLING, f"request {row['request_id']} makes a token in this pass in {side} only")
    return Mechanism(ADMISSION, f"request {row['request_id']} decodes in this pass in {side} only")


def _pool(pair: Pair, first: FirstPass) -> Mechanism | None:
    """The same batch, other blocks: what was evicted or kept."""
    if first.base is None or first.head is None:
        return None
    if set(first.differing(CHOICE)) - {"active_blocks", "cached_blocks"} or not first.choice_differs:
        return None
    if "active_blocks" not in first.differing(CHOICE):
        # What lies unused in a pool decides nothing yet: where handovers part first, that is what it led to.
        found = first_handover(pair, _until_it_matters(pair))
        if found is not None:
            return Mechanism(*found)
    blocks = " and ".join(
        f"{row['active_blocks']} in use and {row['cached_blocks']} cached in {side}"
        for side, row in _both(first.base, first.head)
    )
    return Mechanism(PREFIX, f"the same batch leaves other blocks: {blocks}")


def _until_it_matters(pair: Pair) -> int | None:
    """When the first pass was chosen that differs in more than in unused blocks; None if none does."""
    if not pair.hands_over:
        return -1
    columns = [c for c in COMPARED if c != "cached_blocks"]
    row = pair.row(f"""
        SELECT min(least(b.chosen_ns, h.chosen_ns)) AS at_ns
        FROM base.passes b FULL JOIN head.passes h USING (worker, dp_rank, pass_no)
        WHERE {" OR ".join(f"b.{c} IS DISTINCT FROM h.{c}" for c in columns)}
    """)
    return row["at_ns"]


def _timing(pair: Pair, first: FirstPass) -> Mechanism | None:
    """The same state, another decision: when the batch is chosen, who waits, who runs."""
    if first.base is None or first.head is None:
        side = "base" if first.head is None else "head"
        return Mechanism(ADMISSION, f"there is such a pass in {side} only")
    if "chosen_ns" in first.differing(CHOICE):
        times = " and ".join(f"{_seconds(row['chosen_ns'])} in {side}" for side, row in _both(first.base, first.head))
        ahead = [side for side, row in _both(first.base, first.head) if row["chosen_ns"] < row["start_ns"]]
        word = f"; {ahead[0]} chooses while the pass before still runs" if len(ahead) == 1 else ""
        return Mechanism(ADMISSION, f"the batch is chosen at {times}{word}")
    queue = [c for c in ("n_running", "n_waiting", "n_waiting_preempted") if c in first.differing(CHOICE)]
    if queue:
        figures = ", ".join(f"{c} {first.base[c]} and {first.head[c]}" for c in queue)
        return Mechanism(ADMISSION, f"the same work leaves other queues: {figures}")
    return None


def _price(pair: Pair, first: FirstPass) -> Mechanism | None:
    """The same work at another price; names the lookup."""
    if first.base is None or first.head is None:
        return None
    for phase in ("prefill", "decode"):
        base, head = first.base[f"{phase}_ns"], first.head[f"{phase}_ns"]
        if base != head:
            cells = [row[f"{phase}_cell"] for row in (first.base, first.head)]
            cell = "" if cells == [None, None] else f", cell {cells[0]}"
            if cells[0] != cells[1]:
                cell = f", cell {cells[0]} in base and {cells[1]} in head"
            factor = f", × {head / base:.6g}" if base else ""
            return Mechanism(
                PRICE,
                f"{phase} lookup at {lookup(phase, first.base)}{cell}: "
                f"{base / 1e6:,.6f} ms in base, {head / 1e6:,.6f} ms in head{factor}",
            )
    return None


def lookup(phase: str, row: dict[str, Any]) -> str:
    """Coordinates the pass was priced at."""
    if phase == "prefill":
        return (
            f"{row['prefill_tokens']:,} new tokens of {_requests(row['n_prefill'])}, "
            f"{row['prefill_kv_tokens']:,} tokens before them"
        )
    return f"{_requests(row['n_decode'])} with {row['decode_kv_tokens']:,} tokens of context"


def _requests(n: int) -> str:
    return "1 request" if n == 1 else f"{n:,} requests"


def _outcome(pair: Pair, first: FirstPass) -> Mechanism | None:
    """The same batch at the same price: what came out of it."""
    differing = first.differing()
    if "n_tokens" in differing or "n_continuing" in differing:
        found = _decoders(pair, first)
        if found is not None:
            return found
        names = [c for c in ("n_tokens", "n_continuing") if c in differing]
        assert first.base is not None and first.head is not None
        figures = ", ".join(f"{c} {first.base[c]} and {first.head[c]}" for c in names)
        return Mechanism(SAMPLING, f"the same batch makes other tokens: {figures}")
    last = f"""{_here(first)} AND t.first_pass + {SPAN_PASSES} - 1 = {first.pass_no}"""
    rows = pair.rows(f"""
        WITH ended AS (
            SELECT request_id FROM base.spans t WHERE {last} UNION SELECT request_id FROM head.spans t WHERE {last})
        SELECT request_id, b.output_tokens AS base, h.output_tokens AS head, b.requested_tokens AS base_asked,
               h.requested_tokens AS head_asked
        FROM ended JOIN base.requests b USING (request_id) JOIN head.requests h USING (request_id)
        WHERE b.output_tokens != h.output_tokens OR b.end_ns IS DISTINCT FROM h.end_ns
        ORDER BY b.requested_tokens = h.requested_tokens, b.output_tokens = h.output_tokens, request_id LIMIT 1
    """)
    if rows and ("n_completed" in differing or not differing or rows[0]["base"] != rows[0]["head"]):
        row = rows[0]
        asked = (
            f" (asked for {row['base_asked']} and {row['head_asked']})"
            if row["base_asked"] != row["head_asked"]
            else f" (asked for {row['base_asked']})"
        )
        makes = f"request {row['request_id']} makes {row['base']} tokens in base and {row['head']} in head{asked}"
        return Mechanism(LENGTH, makes)
    if "n_completed" in differing:
        assert first.base is not None and first.head is not None
        counts = f"{first.base['n_completed']} and {first.head['n_completed']}"
        return Mechanism(LENGTH, f"the same batch completes {counts} requests")
    return _decoders(pair, first) if not differing else None


def _slowest_rank(pair: Pair, first: FirstPass) -> Mechanism | None:
    """The pass ends later because another rank of its group takes longer."""
    if first.base is None or first.head is None or "end_ns" not in first.differing():
        return None
    rows = pair.rows(f"""
        SELECT b.dp_rank AS dp_rank, b.pass_no AS pass_no FROM base.passes b JOIN head.passes h
          ON b.worker = h.worker AND b.dp_rank = h.dp_rank AND b.pass_no = h.pass_no
        WHERE b.worker = {first.worker} AND b.group_pass_no = {first.base["group_pass_no"]}
              AND (b.prefill_ns != h.prefill_ns OR b.decode_ns != h.decode_ns)
        ORDER BY b.dp_rank LIMIT 1
    """)
    for row in rows:
        key = (first.worker, row["dp_rank"], row["pass_no"])
        base, head = pass_row(pair, "base", key), pass_row(pair, "head", key)
        found = _price(pair, FirstPass(*key, first.at_ns, base, head))
        if found is not None:
            return Mechanism(PRICE, f"rank {row['dp_rank']} of the group, pass {row['pass_no']}: {found.detail}")
    return None


def _both(base: Any, head: Any) -> list[tuple[str, Any]]:
    return [("base", base), ("head", head)]


def _seconds(ns: int) -> str:
    return f"{ns / 1e9:,.6f} s"
