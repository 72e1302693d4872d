-- One row per completed request that made a token: where the time to its first and to its last token went, without gap
-- or overlap. e2e_ns = queue_ns + prefill_ns + destination_ns + transfer_ns + ready_ns + first_decode_ns + decode_ns +
-- preempted_ns, and ttft_ns = the same without decode_ns, with preempted_first_ns in place of preempted_ns; where TTFT
-- ends with the prefill (`runs.ttft_ends`), ttft_ns = queue_ns + prefill_ns + preempted_first_ns. The four in the
-- middle are of prompts that were handed from a prefill to a decode worker, and 0 for all others.
-- queue_ns [ns] arrival to the start of the pass that first admitted it
-- prefill_ns [ns] from there until its prompt was computed (its first token, where it decodes), without preemptions
-- destination_ns [ns] until a decode worker had reserved room; its blocks stay in the prefill pool meanwhile
-- transfer_ns [ns] until its KV had arrived there: waiting for the link and failed attempts are in it
-- ready_ns [ns] until the start of its first decode pass
-- first_decode_ns [ns] until its first token, without preemptions
-- decode_ns [ns] first to last token, without preemptions
-- preempted_first_ns [ns] before the end of ttft_ns: from losing its KV blocks until it had as much context again
-- preempted_ns [ns] the same up to its last token
-- ttft_ns [ns] arrival to first token, or as the run chose to the end of the prefill
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
        l.worker,
        l.dp_rank,
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
-- The instants between phases, none before the one ahead of it; what never happened takes no time. (greatest() and
-- least() pass over nulls.) Who was not handed over gets its first token from its prompt's last pass.
marks AS (
    SELECT
        r.run_id,
        r.replay_id,
        r.request_id,
        r.arrival_ns,
        r.admitted_ns,
        least(h.held_ns, r.first_token_ns)                                                       AS computed_at,
        least(greatest(coalesce(h.reserved_ns, h.decode_admitted_ns), computed_at), r.first_token_ns) AS reserved_at,
        least(greatest(coalesce(h.transferred_ns, h.decode_admitted_ns), reserved_at), r.first_token_ns) AS arrived_at,
        least(greatest(h.decode_admitted_ns, arrived_at), r.first_token_ns)                      AS decoding_at,
        r.first_token_ns,
        r.last_token_ns,
        r.ttft_at_ns,
        h.source_worker,
        h.source_rank
    FROM request_first_token r
    LEFT JOIN handoffs h ON h.run_id = r.run_id AND h.request_id = r.request_id
    WHERE r.status = 'completed' AND r.first_token_ns IS NOT NULL
),
-- Who never came back had its last token in flight.
away AS (
    SELECT
        m.*,
        a.from_ns,
        coalesce(
            a.to_ns,
            CASE WHEN a.worker = m.source_worker AND a.dp_rank = m.source_rank THEN m.computed_at END,
            m.last_token_ns
        )                                                       AS to_ns
    FROM absences a
    JOIN marks m ON m.run_id = a.run_id AND m.request_id = a.request_id
),
preempted AS (
    SELECT
        run_id,
        request_id,
        sum(greatest(least(to_ns, computed_at) - least(from_ns, computed_at), 0))::BIGINT AS prefill_ns,
        sum(greatest(least(to_ns, first_token_ns) - least(greatest(from_ns, decoding_at), first_token_ns), 0))::BIGINT
                                                                AS first_decode_ns,
        sum(greatest(least(to_ns, last_token_ns) - least(greatest(from_ns, first_token_ns), last_token_ns), 0))::BIGINT
                                                                AS decode_ns
    FROM away
    GROUP BY ALL
)
SELECT
    m.run_id,
    m.replay_id,
    m.request_id,
    m.admitted_ns - m.arrival_ns                                                    AS queue_ns,
    m.computed_at - m.admitted_ns - coalesce(p.prefill_ns, 0)                       AS prefill_ns,
    m.reserved_at - m.computed_at                                                   AS destination_ns,
    m.arrived_at - m.reserved_at                                                    AS transfer_ns,
    m.decoding_at - m.arrived_at                                                    AS ready_ns,
    m.first_token_ns - m.decoding_at - coalesce(p.first_decode_ns, 0)               AS first_decode_ns,
    m.last_token_ns - m.first_token_ns - coalesce(p.decode_ns, 0)                   AS decode_ns,
    coalesce(p.prefill_ns + if(m.ttft_at_ns = m.first_token_ns, p.first_decode_ns, 0), 0) AS preempted_first_ns,
    coalesce(p.prefill_ns + p.first_decode_ns + p.decode_ns, 0)                     AS preempted_ns,
    m.ttft_at_ns - m.arrival_ns                                                     AS ttft_ns,
    m.last_token_ns - m.arrival_ns                                                  AS e2e_ns
FROM marks m
LEFT JOIN preempted p ON p.run_id = m.run_id AND p.request_id = m.request_id;
