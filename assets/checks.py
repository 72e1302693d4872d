"""Conservation laws of a finished run, asked of its written tables. Plain SQL; Dagster only repackages the answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Law:
    """A query that returns the rows breaking the law; none means it holds.

    Attributes:
        table: the result table it is about.
        claim: what holds when the query returns nothing.
        query: `$run` is the run id.
    """

    name: str
    table: str
    claim: str
    query: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer for one run. `example` is the first offending row, as text."""

    law: Law
    n_broken: int
    example: str

    @property
    def passed(self) -> bool:
        return self.n_broken == 0


# Of a row with a worker: does it belong to the decode pool? False where there are no separate pools; their workers are
# numbered through, the prefill pool's first.
IN_DECODE_POOL = """coalesce(worker >= (
    SELECT (config_json ->> '$.engine.workers.prefill.parallelism.replicas')::BIGINT FROM runs WHERE run_id = $run
), false)"""

LAWS = (
    Law(
        "requests_end_once",
        "requests",
        "completed and rejected requests end, unfinished ones do not; no time precedes the one before it",
        """
        SELECT request_id, status, arrival_ns, admitted_ns, first_token_ns, last_token_ns, end_ns FROM requests
        WHERE run_id = $run AND (
            (status = 'unfinished') != (end_ns IS NULL)
            OR (status = 'rejected' AND (output_tokens > 0 OR reason IS NULL))
            OR (status = 'completed' AND output_tokens > requested_tokens)
            OR (output_tokens > 0) != (first_token_ns IS NOT NULL)
            OR admitted_ns < arrival_ns OR first_token_ns < admitted_ns OR last_token_ns < first_token_ns
            OR end_ns < coalesce(last_token_ns, arrival_ns))
        """,
    ),
    Law(
        "every_row_accounted_for",
        "quarantine",
        "rows read = clean + quarantined, and both are where they belong",
        """
        SELECT rows_read, clean, replayed, requests, quarantined FROM (
            SELECT (provenance_json ->> '$.rows_read')::BIGINT AS rows_read,
                   (provenance_json ->> '$.clean')::BIGINT AS clean,
                   (provenance_json ->> '$.replayed')::BIGINT AS replayed,
                   (SELECT count(*) FROM requests WHERE run_id = $run) AS requests,
                   (SELECT count(*) FROM quarantine WHERE run_id = $run) AS quarantined
            FROM runs WHERE run_id = $run)
        WHERE rows_read != clean + quarantined OR requests != replayed OR replayed > clean
        """,
    ),
    Law(
        "spans_hold_every_token",
        "spans",
        "a request's spans add up to its output tokens",
        """
        WITH held AS (
            SELECT request_id, sum(n_tokens) AS tokens, count(*) AS n FROM spans WHERE run_id = $run GROUP BY ALL)
        SELECT r.request_id, r.output_tokens, h.tokens, r.n_spans, h.n
        FROM (FROM requests WHERE run_id = $run) r LEFT JOIN held h USING (request_id)
        WHERE r.output_tokens != coalesce(h.tokens, 0) OR r.n_spans != coalesce(h.n, 0)
        """,
    ),
    Law(
        "spans_do_not_overlap",
        "spans",
        "a request's spans follow each other, in passes and in token numbers",
        """
        SELECT * FROM (
            SELECT request_id, span_no, first_pass, first_token_no,
                   lag(first_pass + coalesce(n_passes, n_tokens)) OVER w AS free_from_pass,
                   lag(first_token_no + n_tokens) OVER w AS next_token_no
            FROM spans WHERE run_id = $run WINDOW w AS (PARTITION BY request_id ORDER BY span_no))
        WHERE first_pass < free_from_pass OR first_token_no != next_token_no
        """,
    ),
    Law(
        "bursts_hold_every_token",
        "bursts",
        "with speculative decoding, the bursts of a span add up to its passes and tokens",
        """
        WITH held AS (
            SELECT request_id, span_no, sum(n_passes) AS passes, sum(n_tokens) AS tokens, min(first_pass) AS first_pass,
                   sum(list_sum([(tokens_packed >> (4 * i)) & 15 FOR i IN range(16)])) AS packed
            FROM bursts WHERE run_id = $run GROUP BY ALL)
        SELECT s.request_id, s.span_no, s.n_passes, h.passes, s.n_tokens, h.tokens, h.packed
        FROM (FROM spans WHERE run_id = $run) s LEFT JOIN held h USING (request_id, span_no)
        WHERE CASE WHEN (SELECT count(*) FROM held) > 0
            THEN (s.n_passes, s.n_tokens, s.n_tokens, s.first_pass) IS DISTINCT FROM
                 (h.passes, h.tokens, h.packed, h.first_pass)
            ELSE coalesce(s.n_passes, s.n_tokens) != s.n_tokens END
        """,
    ),
    Law(
        "passes_make_every_token",
        "passes",
        "output tokens of the passes = output tokens of the spans",
        """
        SELECT * FROM (
            SELECT (SELECT sum(n_tokens) FROM passes WHERE run_id = $run) AS made,
                   (SELECT sum(n_tokens) FROM spans WHERE run_id = $run) AS held)
        WHERE coalesce(made, 0) != coalesce(held, 0)
        """,
    ),
    Law(
        "passes_follow_each_other",
        "passes",
        "a rank starts no pass before the one before it has ended",
        """
        SELECT * FROM (
            SELECT worker, dp_rank, pass_no, start_ns, end_ns, lag(end_ns) OVER w AS free_from_ns
            FROM passes WHERE run_id = $run WINDOW w AS (PARTITION BY worker, dp_rank ORDER BY pass_no))
        WHERE start_ns < free_from_ns OR end_ns < start_ns
        """,
    ),
    Law(
        "kv_blocks_are_conserved",
        "passes",
        "blocks in use + cached + free = the pool, in every pass; prefill and decode workers have pools of their own",
        f"""
        WITH held AS (
            SELECT worker, dp_rank, pass_no, active_blocks, cached_blocks, free_blocks, {IN_DECODE_POOL} AS decodes
            FROM passes WHERE run_id = $run),
        pools AS (
            SELECT decodes, max(active_blocks + cached_blocks + free_blocks) AS blocks FROM held GROUP BY decodes)
        SELECT worker, dp_rank, pass_no, active_blocks, cached_blocks, free_blocks, blocks
        FROM held JOIN pools USING (decodes)
        WHERE active_blocks + cached_blocks + free_blocks != blocks
              OR least(active_blocks, cached_blocks, free_blocks) < 0
        """,
    ),
    Law(
        "evidence_adds_up",
        "evidence",
        "the lookups of a phase cost what the passes say",
        """
        WITH paid AS (
            SELECT 'prefill' AS phase, sum(prefill_ns) AS ns FROM passes WHERE run_id = $run
            UNION ALL SELECT 'decode', sum(decode_ns) FROM passes WHERE run_id = $run),
        asked AS (
            SELECT replace(phase, 'mixed_', '') AS phase, sum(total_ns) AS ns
            FROM evidence WHERE run_id = $run GROUP BY ALL)
        SELECT p.phase, p.ns AS passes_ns, a.ns AS evidence_ns FROM paid p LEFT JOIN asked a USING (phase)
        WHERE coalesce(p.ns, 0) != coalesce(a.ns, 0)
        """,
    ),
    Law(
        "preemptions_are_recorded",
        "pressure",
        "preemptions of a request = its rows in pressure",
        """
        WITH victims AS (SELECT request_id, count(*) AS n FROM pressure WHERE run_id = $run GROUP BY request_id)
        SELECT r.request_id, r.n_preemptions, v.n FROM (FROM requests WHERE run_id = $run) r
        LEFT JOIN victims v USING (request_id) WHERE r.n_preemptions != coalesce(v.n, 0)
        """,
    ),
    Law(
        "admissions_are_recorded",
        "admissions",
        "admissions of a request = its rows in admissions",
        """
        WITH entries AS (SELECT request_id, count(*) AS n FROM admissions WHERE run_id = $run GROUP BY request_id)
        SELECT r.request_id, r.n_admissions, e.n FROM (FROM requests WHERE run_id = $run) r
        LEFT JOIN entries e USING (request_id) WHERE r.n_admissions != coalesce(e.n, 0)
        """,
    ),
    Law(
        "chunks_add_up",
        "chunks",
        "tokens of a pass's chunks = its chunk tokens",
        """
        WITH work AS (
            SELECT worker, dp_rank, pass_no, sum(n_tokens) AS n FROM chunks WHERE run_id = $run GROUP BY ALL)
        SELECT p.worker, p.dp_rank, p.pass_no, p.chunk_tokens, w.n FROM (FROM passes WHERE run_id = $run) p
        LEFT JOIN work w USING (worker, dp_rank, pass_no) WHERE p.chunk_tokens != coalesce(w.n, 0)
        """,
    ),
)


def check_run(con: Any, run_id: str) -> list[Verdict]:
    """Ask every law of one committed run.

    Args:
        con: a connection to the store, all views present.
    """
    return [_ask(con, law, run_id) for law in LAWS]


def _ask(con: Any, law: Law, run_id: str) -> Verdict:
    cursor = con.execute(law.query, {"run": run_id})
    names = [column[0] for column in cursor.description]
    broken = cursor.fetchall()
    example = ", ".join(f"{n}={v}" for n, v in zip(names, broken[0], strict=True)) if broken else ""
    return Verdict(law, len(broken), example)
