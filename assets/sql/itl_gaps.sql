-- One row per gap between tokens that some completed requests have in common: gap_ns counts n_gaps times. Together
-- they are the inter-token latencies of a replay, without a row per token.
-- pass_no [] the rank's pass that ended the gap
-- end_ns [ns] when it ended
-- gap_ns [ns] its length
-- gap_ms [ms] its length
-- n_gaps [gaps] how many requests had it
-- across_spans [] true where a request sat out passes, so that the gap is its alone
CREATE OR REPLACE VIEW itl_gaps AS
WITH kept AS (
    SELECT s.*, r.n_spans
    FROM spans s
    JOIN requests r ON r.run_id = s.run_id AND r.request_id = s.request_id
    WHERE r.status = 'completed'
),
clock AS (
    SELECT
        run_id,
        replay_id,
        worker,
        dp_rank,
        pass_no,
        end_ns,
        end_ns - lag(end_ns) OVER (PARTITION BY run_id, worker, dp_rank ORDER BY pass_no) AS gap_ns
    FROM passes
),
-- Inside a span every pass but the first ends a gap. Counting where spans begin and end is enough to know how many
-- requests are inside one.
turns AS (
    SELECT run_id, worker, dp_rank, pass_no, sum(change)::BIGINT AS change
    FROM (
        SELECT run_id, worker, dp_rank, first_pass + 1 AS pass_no, 1 AS change FROM kept WHERE n_tokens > 1
        UNION ALL
        SELECT run_id, worker, dp_rank, first_pass + n_tokens, -1 FROM kept WHERE n_tokens > 1
    )
    GROUP BY ALL
),
inside AS (
    SELECT
        c.*,
        sum(coalesce(t.change, 0)) OVER (
            PARTITION BY c.run_id, c.worker, c.dp_rank ORDER BY c.pass_no ROWS UNBOUNDED PRECEDING
        )::BIGINT AS n_gaps
    FROM clock c
    LEFT JOIN turns t
        ON t.run_id = c.run_id AND t.worker = c.worker AND t.dp_rank = c.dp_rank AND t.pass_no = c.pass_no
),
returns AS (
    SELECT
        run_id,
        replay_id,
        worker,
        dp_rank,
        first_pass AS pass_no,
        lag(worker) OVER w AS left_worker,
        lag(dp_rank) OVER w AS left_dp_rank,
        lag(first_pass + n_tokens - 1) OVER w AS left_pass
    FROM kept
    WHERE n_spans > 1
    WINDOW w AS (PARTITION BY run_id, request_id ORDER BY span_no)
)
SELECT
    run_id, replay_id, worker, dp_rank, pass_no, end_ns, gap_ns, gap_ns / 1e6 AS gap_ms, n_gaps, false AS across_spans
FROM inside
WHERE n_gaps > 0
UNION ALL
SELECT
    r.run_id, r.replay_id, r.worker, r.dp_rank, r.pass_no, here.end_ns, here.end_ns - there.end_ns,
    (here.end_ns - there.end_ns) / 1e6, 1, true
FROM returns r
JOIN passes here
    ON here.run_id = r.run_id AND here.worker = r.worker AND here.dp_rank = r.dp_rank AND here.pass_no = r.pass_no
JOIN passes there
    ON there.run_id = r.run_id AND there.worker = r.left_worker AND there.dp_rank = r.left_dp_rank
    AND there.pass_no = r.left_pass;
