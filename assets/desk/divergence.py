"""The first pass in which two runs part, found by key, exactly, and without reading further than needed.

Passes are compared in slices of virtual time and the search ends with the first slice that differs: up to there both
runs are the same, so whatever comes later can only come from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from assets.desk.pair import Pair
from perf_db.tables import PASSES

KEY = ("worker", "dp_rank", "pass_no")
# Settled when the batch is chosen, in the order in which one decides the next.
CHOICE = (
    "chosen_ns",
    "n_preempted",
    "n_admitted",
    "n_running",
    "n_waiting",
    "n_waiting_preempted",
    "n_prefill",
    "prefill_tokens",
    "prefill_kv_tokens",
    "n_decode",
    "decode_kv_tokens",
    "scheduled_tokens",
    "chunk_tokens",
    "active_blocks",
    "cached_blocks",
)
PRICE = ("prefill_ns", "decode_ns")
# Known when the pass ends.
END = (
    *("start_ns", "end_ns", "n_rounds", "n_drafts", "n_accepted", "n_bursts", "n_tokens", "n_continuing"),
    "n_completed",
)
# Not compared: what says nothing new (free blocks: the rest of the pool) or names things (cells, group passes).
COMPARED = CHOICE + PRICE + END
SLICE_ROWS = 1_000_000
SPAN_PASSES = "coalesce(n_passes, n_tokens)"  # passes of a span; runs of older declarations have one token in each

# Tables that say who was in a pass. Columns that tell whether two rows with the same key agree.
_MEMBERS = {
    "admissions": (("request_id", "admission_no"), (*KEY, "cached_tokens", "kind", "order_no")),
    "pressure": (
        ("request_id", *KEY, "chosen_ns"),
        ("asker_id", "blocks_released", "tokens_lost", "n_running", "n_waiting", "active_blocks"),
    ),
    "chunks": (
        ("request_id", *KEY),
        ("n_tokens", "computed_before", "prompt_tokens", "kind", "cached_tokens", "n_drafts"),
    ),
}


@dataclass(frozen=True, slots=True)
class FirstPass:
    """The first pass that differs.

    Attributes:
        at_ns: virtual time of the difference.
        base, head: the rows of `passes`; None on a side that has no such pass.
    """

    worker: int
    dp_rank: int
    pass_no: int
    at_ns: int
    base: dict[str, Any] | None
    head: dict[str, Any] | None

    @property
    def key(self) -> tuple[int, int, int]:
        return self.worker, self.dp_rank, self.pass_no

    def differing(self, columns: tuple[str, ...] = COMPARED) -> list[str]:
        """Which of these columns differ; all of them where one side has no such pass."""
        if self.base is None or self.head is None:
            return list(columns)
        return [c for c in columns if self.base[c] != self.head[c]]

    @property
    def choice_differs(self) -> bool:
        return bool(self.differing(CHOICE))


def first_divergent_pass(pair: Pair) -> FirstPass | None:
    """None when every pass is the same and holds the same requests."""
    tables = ("passes", "spans", "bursts", *_MEMBERS)
    if pair.matched_by == "request_id" and all(pair.same(t) for t in tables):
        return None
    found = _by_rows_of_passes(pair)
    # Two passes may look alike and hold other requests: that can only matter before the pass found above.
    until = found[0] if found else None
    candidates = [found[1]] if found else []
    candidates += _by_members(pair, until)
    # Within a rank the earlier pass is the cause, whenever its difference shows; only ranks compare by time.
    earliest = {c[:2]: c for c in sorted(candidates, reverse=True)}
    firsts = [f for c in earliest.values() if (f := _load(pair, *c)) is not None]
    return min(firsts, key=lambda f: (f.at_ns, f.key), default=None)


def _by_rows_of_passes(pair: Pair) -> tuple[int, tuple[int, int, int]] | None:
    """(time, key) of the earliest pass whose own row differs."""
    if pair.same("passes"):
        return None
    span = pair.row("""
        SELECT greatest((SELECT max(chosen_ns) FROM base.passes), (SELECT max(chosen_ns) FROM head.passes)) AS last
    """)
    if span["last"] is None:
        return None
    n_slices = max(pair.base.n_rows("passes"), pair.head.n_rows("passes")) // SLICE_ROWS + 1
    width = span["last"] // n_slices + 1
    best: tuple[int, tuple[int, int, int]] | None = None
    for i in range(n_slices):
        for row in pair.rows(_SLICE, {"low": i * width, "high": (i + 1) * width}):
            here = (row["at_ns"], (row["worker"], row["dp_rank"], row["pass_no"]))
            best = here if best is None else min(best, here)
        # A difference at the end of a long pass may have its cause in a pass of another rank chosen later.
        if best is not None and best[0] < (i + 1) * width:
            break
    return best


def _differs(columns: tuple[str, ...]) -> str:
    return "(" + " OR ".join(f"b.{c} IS DISTINCT FROM h.{c}" for c in columns) + ")"


# Per rank the earliest difference; a pass chosen at another time falls out of step and counts as missing, rightly so.
_SLICE = f"""
    WITH b AS (FROM base.passes WHERE chosen_ns >= $low AND chosen_ns < $high),
    h AS (FROM head.passes WHERE chosen_ns >= $low AND chosen_ns < $high),
    apart AS (
        SELECT worker, dp_rank, pass_no,
               CASE WHEN {_differs(CHOICE + PRICE)} THEN least(b.chosen_ns, h.chosen_ns)
                    ELSE least(b.end_ns, h.end_ns) END AS at_ns
        FROM b FULL JOIN h USING (worker, dp_rank, pass_no)
        WHERE {_differs(COMPARED)}
    )
    SELECT worker, dp_rank, min(pass_no) AS pass_no, min_by(at_ns, pass_no) AS at_ns FROM apart GROUP BY ALL
"""


def _by_members(pair: Pair, until: int | None) -> list[tuple[int, int, int]]:
    """Per rank the earliest pass that does not hold the same requests on both sides, up to time `until`."""
    when = "" if until is None else f"WHERE chosen_ns <= {until}"
    pair.con.execute(f"""
        CREATE OR REPLACE TABLE memory.main.until AS
        SELECT worker, dp_rank, max(pass_no) AS last
        FROM (SELECT * FROM base.passes UNION ALL SELECT * FROM head.passes) {when} GROUP BY ALL
    """)
    parts = []
    for table, (key, columns) in _MEMBERS.items():
        if not pair.same(table) or pair.matched_by != "request_id":
            parts.append(_member_query(table, key, columns))
    if not pair.same("spans") or pair.matched_by != "request_id":
        parts.append(_SPANS)
    if not pair.same("bursts") or pair.matched_by != "request_id":
        parts.append(_BURSTS)
    if not parts:
        return []
    rows = pair.rows(f"""
        SELECT worker, dp_rank, min(pass_no) AS pass_no FROM ({" UNION ALL ".join(parts)})
        WHERE worker IS NOT NULL GROUP BY ALL
    """)
    return [(row["worker"], row["dp_rank"], row["pass_no"]) for row in rows]


def _limited(side: str, table: str, column: str = "pass_no") -> str:
    return f"""(SELECT t.* FROM {side}.{table} t JOIN memory.main.until u
        ON u.worker = t.worker AND u.dp_rank = t.dp_rank AND t.{column} <= u.last)"""


def _member_query(table: str, key: tuple[str, ...], columns: tuple[str, ...]) -> str:
    where = ", ".join(f"b.{c} AS base_{c}, h.{c} AS head_{c}" for c in KEY)
    return f"""
        SELECT unnest([base_worker, head_worker]) AS worker, unnest([base_dp_rank, head_dp_rank]) AS dp_rank,
               unnest([base_pass_no, head_pass_no]) AS pass_no
        FROM (SELECT {where} FROM {_limited("base", table)} b FULL JOIN {_limited("head", table)} h
              ON {" AND ".join(f"b.{k} = h.{k}" for k in key)}
              WHERE b.request_id IS NULL OR h.request_id IS NULL OR {_differs(columns)})
    """


# Spans that begin alike and end apart: the first token that only one side made.
_SPANS = f"""
    SELECT unnest([base_worker, head_worker]) AS worker, unnest([base_rank, head_rank]) AS dp_rank,
           unnest([base_pass, head_pass]) AS pass_no
    FROM (
        SELECT b.worker AS base_worker, h.worker AS head_worker, b.dp_rank AS base_rank, h.dp_rank AS head_rank,
               b.first_pass IS NOT DISTINCT FROM h.first_pass AND b.worker = h.worker AND b.dp_rank = h.dp_rank
                   AND b.first_token_no = h.first_token_no AS alike,
               b.first_pass + CASE WHEN alike THEN least(b.passes, h.passes) ELSE 0 END AS base_pass,
               h.first_pass + CASE WHEN alike THEN least(b.passes, h.passes) ELSE 0 END AS head_pass
        FROM (SELECT *, {SPAN_PASSES} AS passes FROM {_limited("base", "spans", "first_pass")}) b
             FULL JOIN (SELECT *, {SPAN_PASSES} AS passes FROM {_limited("head", "spans", "first_pass")}) h
             ON b.request_id = h.request_id AND b.span_no = h.span_no
        WHERE b.request_id IS NULL OR h.request_id IS NULL
              OR {_differs(("worker", "dp_rank", "first_pass", "n_tokens", "first_token_no"))}
    )
"""


# Rows that begin alike: the first pass in which a request made, or drafted, another number of tokens.
_BURSTS = f"""
    SELECT worker, dp_rank, pass_no
    FROM (
        SELECT b.worker, b.dp_rank,
               b.first_pass + list_min([
                   i FOR i IN range(16)
                   IF (xor(b.tokens_packed, h.tokens_packed) >> (4 * i)) & 15 > 0
                   OR (xor(b.drafts_packed, h.drafts_packed) >> (4 * i)) & 15 > 0
               ]) AS pass_no
        FROM {_limited("base", "bursts", "first_pass")} b JOIN {_limited("head", "bursts", "first_pass")} h
             ON b.request_id = h.request_id AND b.span_no = h.span_no AND b.first_pass = h.first_pass
             AND b.worker = h.worker AND b.dp_rank = h.dp_rank
        WHERE b.tokens_packed != h.tokens_packed OR b.drafts_packed != h.drafts_packed
    )
"""


def _load(pair: Pair, worker: int, dp_rank: int, pass_no: int) -> FirstPass | None:
    rows = {side: pass_row(pair, side, (worker, dp_rank, pass_no)) for side in ("base", "head")}
    there = [row for row in rows.values() if row is not None]
    if not there:
        return None
    first = FirstPass(worker, dp_rank, pass_no, min(row["chosen_ns"] for row in there), rows["base"], rows["head"])
    if not first.differing(CHOICE + PRICE) and first.differing(END):
        at_end = min(row["end_ns"] for row in there)
        return FirstPass(worker, dp_rank, pass_no, at_end, rows["base"], rows["head"])
    return first


def pass_row(pair: Pair, side: str, key: tuple[int, int, int]) -> dict[str, Any] | None:
    """The pass of that key, as stored."""
    rows = pair.rows(
        f"SELECT {', '.join(PASSES.column_names)} FROM {side}.passes WHERE worker = ? AND dp_rank = ? AND pass_no = ?",
        list(key),
    )
    return rows[0] if rows else None
