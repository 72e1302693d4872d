-- Goodput per replay under limits of your choice, inclusive: goodput(ttft_ms := 500, itl_ms := 30) or
-- goodput(e2e_ms := 10000). A request is good if it completed within every limit; itl_ms bounds its mean gap,
-- and TTFT counts to what the run chose.
CREATE OR REPLACE MACRO goodput(ttft_ms := NULL, itl_ms := NULL, e2e_ms := NULL) AS TABLE
WITH limits AS (
    SELECT
        -- Whole nanoseconds, so that a request exactly on a limit is good.
        round_even(ttft_ms * 1e6, 0)::BIGINT AS ttft_ns,
        round_even(itl_ms * 1e6, 0)::BIGINT  AS itl_ns,
        round_even(e2e_ms * 1e6, 0)::BIGINT  AS e2e_ns,
        CASE
            WHEN ttft_ms IS NULL AND itl_ms IS NULL AND e2e_ms IS NULL
                THEN error('goodput: name at least one of ttft_ms, itl_ms or e2e_ms')
            WHEN e2e_ms IS NOT NULL AND (ttft_ms IS NOT NULL OR itl_ms IS NOT NULL)
                THEN error('goodput: e2e_ms excludes ttft_ms and itl_ms, keep one kind')
            ELSE true
        END AS fine
),
judged AS (
    SELECT
        r.run_id,
        r.replay_id,
        r.output_tokens,
        r.end_ns,
        CASE
            -- A request without a token ends with its prefill; it can only be good under a limit on the whole.
            WHEN l.e2e_ns IS NOT NULL THEN coalesce(r.last_token_ns, r.end_ns) - r.arrival_ns <= l.e2e_ns
            ELSE r.output_tokens > 0
                AND coalesce(r.ttft_at_ns - r.arrival_ns <= l.ttft_ns, true)
                AND coalesce(r.last_token_ns - r.first_token_ns <= l.itl_ns * greatest(r.output_tokens - 1, 0), true)
        END AS is_good
    FROM request_first_token r, limits l
    WHERE r.status = 'completed' AND l.fine
)
SELECT
    run_id,
    replay_id,
    count(*)                                                                       AS n_completed,
    count(*) FILTER (is_good)                                                      AS n_good,
    count(*) FILTER (is_good) / count(*)                                           AS good_share,
    count(*) FILTER (is_good) * 1e9 / greatest(max(end_ns), 1)                     AS good_requests_per_s,
    coalesce(sum(output_tokens) FILTER (is_good), 0)::BIGINT * 1e9 / greatest(max(end_ns), 1) AS good_tokens_per_s
FROM judged
GROUP BY run_id, replay_id;
