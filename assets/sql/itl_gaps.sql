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
    SELECT s.* REPLACE (coalesce(s.n_passes, s.n_tokens) AS n_passes), r.n_spans  -- older runs have no such column
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
-- requests are inside one. (Tokens of one burst come at the same time: their gaps are zero, and are counted below.)
turns AS (
    SELECT run_id, worker, dp_rank, pass_no, sum(change)::BIGINT AS change
    FROM (
        SELECT run_id, worker, dp_rank, first_pass + 1 AS pass_no, 1 AS change FROM kept WHERE n_passes > 1
        UNION ALL
        SELECT run_id, worker, dp_rank, first_pass + n_passes, -1 FROM kept WHERE n_passes > 1
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
-- First and last token of every span of a request that has several: what precedes a span is the end of the one before.
marks AS (
    SELECT run_id, replay_id, request_id, span_no, 0 AS is_last, worker, dp_rank, first_pass AS pass_no
    FROM kept
    WHERE n_spans > 1
    UNION ALL
    SELECT run_id, replay_id, request_id, span_no, 1, worker, dp_rank, first_pass + n_passes - 1
    FROM kept
    WHERE n_spans > 1
),
returns AS (
    SELECT
        m.*,
        p.end_ns,
        p.end_ns - lag(p.end_ns) OVER (PARTITION BY m.run_id, m.request_id ORDER BY m.span_no, m.is_last) AS gap_ns
    FROM marks m
    JOIN passes p
        ON p.run_id = m.run_id AND p.worker = m.worker AND p.dp_rank = m.dp_rank AND p.pass_no = m.pass_no
),
-- Tokens of a burst behind its first.
together AS (
    SELECT t.run_id, t.replay_id, t.worker, t.dp_rank, t.pass_no, sum(t.n_tokens - 1)::BIGINT AS n_gaps
    FROM token_passes t
    JOIN requests r ON r.run_id = t.run_id AND r.request_id = t.request_id
    WHERE r.status = 'completed' AND t.n_tokens > 1
    GROUP BY ALL
)
SELECT
    run_id, replay_id, worker, dp_rank, pass_no, end_ns, gap_ns, gap_ns / 1e6 AS gap_ms, n_gaps, false AS across_spans
FROM inside
WHERE n_gaps > 0
UNION ALL
SELECT run_id, replay_id, worker, dp_rank, pass_no, end_ns, gap_ns, gap_ns / 1e6, 1, true
FROM returns
WHERE is_last = 0 AND span_no > 0
UNION ALL
SELECT t.run_id, t.replay_id, t.worker, t.dp_rank, t.pass_no, p.end_ns, 0, 0.0, t.n_gaps, false
FROM together t
JOIN passes p
    ON p.run_id = t.run_id AND p.worker = t.worker AND p.dp_rank = t.dp_rank AND p.pass_no = t.pass_no;
