-- One row per completed request that made a token: where the time to its first and to its last token went, without gap
-- or overlap. ttft_ns = queue_ns + prefill_ns + preempted_first_ns, and e2e_ns = queue_ns + prefill_ns + decode_ns +
-- preempted_ns.
-- queue_ns [ns] arrival to the start of the pass that first admitted it
-- prefill_ns [ns] from there to its first token, without preempted_first_ns; with separate pools, handing over included
-- decode_ns [ns] first to last token, without the rest of preempted_ns
-- preempted_first_ns [ns] before its first token: from losing its KV blocks until it had as much context again
-- preempted_ns [ns] the same up to its last token
-- ttft_ns [ns] arrival to first token
-- e2e_ns [ns] arrival to last token
CREATE OR REPLACE VIEW request_phases AS
WITH losses AS (
    SELECT
        v.run_id,
        v.request_id,
        v.worker,
        v.dp_rank,
        v.pass_no,
        -- A pass in flight still brings its token, so the loss is not felt before it ends.
        greatest(v.chosen_ns, coalesce(p.end_ns, v.chosen_ns))  AS from_ns,
        -- Preempted again on the way back, it has to regain what it had before the first time.
        max(v.tokens_lost) OVER w                               AS context,
        lead(v.pass_no) OVER w                                  AS next_pass,
        lead(greatest(v.chosen_ns, coalesce(p.end_ns, v.chosen_ns))) OVER w AS next_ns
    FROM pressure v
    LEFT JOIN passes p
        ON p.run_id = v.run_id AND p.worker = v.worker AND p.dp_rank = v.dp_rank AND p.pass_no = v.pass_no - 1
    WINDOW w AS (
        PARTITION BY v.run_id, v.request_id, v.worker, v.dp_rank ORDER BY v.pass_no, v.chosen_ns
        ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    )
),
-- Every chunk belongs to the loss before it on its rank (with separate pools a request is computed on two); the first
-- that reaches the old context ends it.
returns AS (
    SELECT
        c.run_id,
        c.request_id,
        c.worker,
        c.dp_rank,
        l.pass_no                                               AS lost_pass,
        min(c.pass_no)                                          AS pass_no,
        min_by(c.computed_before >= l.context, c.pass_no)       AS by_reuse
    FROM chunks c
    ASOF JOIN losses l
        ON l.run_id = c.run_id AND l.request_id = c.request_id AND l.worker = c.worker AND l.dp_rank = c.dp_rank
        AND l.pass_no <= c.pass_no
    WHERE c.computed_before + c.n_tokens >= l.context
    GROUP BY ALL
),
absences AS (
    SELECT
        l.run_id,
        l.request_id,
        l.from_ns,
        -- A prefix found in the cache is there at once, a computed one at the end of its pass.
        least(CASE WHEN b.by_reuse THEN p.start_ns ELSE p.end_ns END, l.next_ns) AS to_ns
    FROM losses l
    LEFT JOIN returns b
        ON b.run_id = l.run_id AND b.request_id = l.request_id AND b.worker = l.worker AND b.dp_rank = l.dp_rank
        AND b.lost_pass = l.pass_no
    LEFT JOIN passes p
        ON p.run_id = l.run_id AND p.worker = l.worker AND p.dp_rank = l.dp_rank AND p.pass_no = b.pass_no
),
preempted AS (
    SELECT
        r.run_id,
        r.request_id,
        -- Who never came back had its last token in flight.
        sum(greatest(least(coalesce(a.to_ns, r.last_token_ns), r.first_token_ns) - least(a.from_ns, r.first_token_ns), 0))
            ::BIGINT                                            AS first_ns,
        sum(greatest(least(coalesce(a.to_ns, r.last_token_ns), r.last_token_ns) - least(a.from_ns, r.last_token_ns), 0))
            ::BIGINT                                            AS last_ns
    FROM absences a
    JOIN requests r ON r.run_id = a.run_id AND r.request_id = a.request_id
    WHERE r.status = 'completed' AND r.first_token_ns IS NOT NULL
    GROUP BY ALL
)
SELECT
    r.run_id,
    r.replay_id,
    r.request_id,
    r.admitted_ns - r.arrival_ns                                                    AS queue_ns,
    r.first_token_ns - r.admitted_ns - coalesce(p.first_ns, 0)                      AS prefill_ns,
    r.last_token_ns - r.first_token_ns - coalesce(p.last_ns - p.first_ns, 0)        AS decode_ns,
    coalesce(p.first_ns, 0)                                                         AS preempted_first_ns,
    coalesce(p.last_ns, 0)                                                          AS preempted_ns,
    r.first_token_ns - r.arrival_ns                                                 AS ttft_ns,
    r.last_token_ns - r.arrival_ns                                                  AS e2e_ns
FROM requests r
LEFT JOIN preempted p ON p.run_id = r.run_id AND p.request_id = r.request_id
WHERE r.status = 'completed' AND r.first_token_ns IS NOT NULL;
