"""What the change amounts to: the metrics of both runs, windows of virtual time, and the requests it moved most."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from assets.desk.attribution import parts_of
from assets.desk.pair import Pair

WINDOWS = 12
MOVERS = 5


@dataclass(frozen=True, slots=True)
class Figure:
    """One row of `metrics` on both sides."""

    scope: str
    metric: str
    stat: str
    unit: str
    base: float | None
    head: float | None

    @property
    def change(self) -> float | None:
        return None if self.base is None or self.head is None else self.head - self.base

    @property
    def relative(self) -> float | None:
        """Change as a share of the base; None where the base is zero or absent."""
        return None if self.change is None or not self.base else self.change / abs(self.base)


def figures(pair: Pair) -> list[Figure]:
    """Every figure of either run, by its key."""
    rows = pair.rows("""
        SELECT scope, metric, stat, coalesce(b.unit, h.unit) AS unit, b.value AS base, h.value AS head
        FROM base.metrics b FULL JOIN head.metrics h USING (scope, metric, stat)
        ORDER BY scope, metric, stat
    """)
    return [Figure(**row) for row in rows]


def windows(pair: Pair, n: int = WINDOWS) -> list[dict[str, Any]]:
    """Equal windows of virtual time from 0 to the later end, both runs on the same clock.

    After the first divergent pass, pass numbers mean different things on the two sides; time does not.
    """
    end = max(pair.base.run["end_ns"], pair.head.run["end_ns"], 1)
    sides = []
    for side in ("base", "head"):
        sides.append(f"""
            SELECT '{side}' AS side, least(end_ns * {n} // {end}, {n - 1}) AS w, count(*) AS passes,
                   sum(n_tokens)::BIGINT AS tokens, sum(n_completed)::BIGINT AS completed,
                   max(n_waiting + n_waiting_preempted) AS waiting, sum(n_preempted)::BIGINT AS preempted
            FROM {side}.passes GROUP BY ALL""")
    columns = ("passes", "tokens", "completed", "waiting", "preempted")
    picked = ", ".join(
        f"coalesce(max({c}) FILTER (side = '{side}'), 0) AS {side}_{c}" for c in columns for side in ("base", "head")
    )
    return pair.rows(f"""
        WITH filled AS ({" UNION ALL ".join(sides)}),
        moved AS (
            SELECT least(b.arrival_ns * {n} // {end}, {n - 1}) AS w, count(*) AS requests,
                   sum((h.ttft_at_ns - h.arrival_ns) - (b.ttft_at_ns - b.arrival_ns))::BIGINT AS ttft_change_ns,
                   sum((h.last_token_ns - h.arrival_ns) - (b.last_token_ns - b.arrival_ns))::BIGINT AS e2e_change_ns
            FROM base.request_first_token b JOIN head.request_first_token h USING (request_id)
            WHERE b.status = 'completed' AND h.status = 'completed' AND b.first_token_ns IS NOT NULL
                  AND h.first_token_ns IS NOT NULL
            GROUP BY ALL
        )
        SELECT i AS number, i * {end} // {n} AS from_ns, (i + 1) * {end} // {n} AS to_ns, {picked},
               coalesce(any_value(requests), 0) AS requests, any_value(ttft_change_ns) AS ttft_change_ns,
               any_value(e2e_change_ns) AS e2e_change_ns
        FROM range({n}) t(i) LEFT JOIN filled ON filled.w = i LEFT JOIN moved ON moved.w = i
        GROUP BY i ORDER BY i
    """)


def requests(pair: Pair) -> dict[str, Any]:
    """How many requests differ, and how."""
    return pair.row("""
        SELECT count(b.request_id) AS base, count(h.request_id) AS head,
               count(*) FILTER (h.request_id IS NULL) AS only_base,
               count(*) FILTER (b.request_id IS NULL) AS only_head,
               count(*) FILTER (b.status != h.status) AS status_differs,
               count(*) FILTER (b.output_tokens != h.output_tokens) AS output_differs,
               count(*) FILTER (b.cached_tokens_first IS DISTINCT FROM h.cached_tokens_first
                   AND b.request_id IS NOT NULL AND h.request_id IS NOT NULL) AS reuse_differs,
               count(*) FILTER (b.n_preemptions != h.n_preemptions) AS preemptions_differ,
               count(*) FILTER (h.ttft_at_ns - h.arrival_ns > b.ttft_at_ns - b.arrival_ns) AS ttft_later,
               count(*) FILTER (h.ttft_at_ns - h.arrival_ns < b.ttft_at_ns - b.arrival_ns) AS ttft_earlier,
               count(*) FILTER (h.last_token_ns - h.arrival_ns > b.last_token_ns - b.arrival_ns) AS e2e_later,
               count(*) FILTER (h.last_token_ns - h.arrival_ns < b.last_token_ns - b.arrival_ns) AS e2e_earlier
        FROM base.request_first_token b FULL JOIN head.request_first_token h USING (request_id)
    """)


def movers(pair: Pair, n: int = MOVERS) -> list[dict[str, Any]]:
    """Requests whose E2E changed most, with the parts of the change, in their order."""
    parts = (*parts_of("e2e", pair).values(), "ttft_ns", "e2e_ns")
    return pair.rows(f"""
        SELECT request_id, {", ".join(f"h.{p} - b.{p} AS {p}" for p in parts)}
        FROM base.request_phases b JOIN head.request_phases h USING (request_id)
        WHERE h.e2e_ns != b.e2e_ns OR h.ttft_ns != b.ttft_ns
        ORDER BY abs(h.e2e_ns - b.e2e_ns) DESC, abs(h.ttft_ns - b.ttft_ns) DESC, request_id LIMIT {n}
    """)
