-- One row per replay: inter-token latency over every gap of every completed request, each gap counted once.
-- n [gaps] gaps
-- mean_ms [ms] mean
-- p50_ms [ms] median
-- p90_ms [ms] 90th percentile
-- p99_ms [ms] 99th percentile
-- max_ms [ms] largest
CREATE OR REPLACE VIEW itl_summary AS
WITH weighed AS (
    SELECT run_id, replay_id, gap_ns, sum(n_gaps)::BIGINT AS n_gaps FROM itl_gaps GROUP BY ALL
),
ranked AS (
    SELECT
        *,
        -- Gaps up to and including this length: the value at rank k is the first whose count exceeds k.
        sum(n_gaps) OVER (PARTITION BY run_id, replay_id ORDER BY gap_ns ROWS UNBOUNDED PRECEDING)::BIGINT AS upto
    FROM weighed
),
-- The last of them is the number of gaps. (Not sum() over the whole partition: that becomes a join, as in `pass_mix`.)
counted AS (
    SELECT *, last_value(upto) OVER (
        PARTITION BY run_id, replay_id ORDER BY gap_ns ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING
    ) AS n
    FROM ranked
)
SELECT
    run_id,
    replay_id,
    any_value(n)                                                    AS n,
    sum(gap_ns * n_gaps::HUGEINT) / (any_value(n) * 1e6)            AS mean_ms,
    min(gap_ns) FILTER (upto > floor((n - 1) * 50 / 100 + 0.5)) / 1e6 AS p50_ms,
    min(gap_ns) FILTER (upto > floor((n - 1) * 90 / 100 + 0.5)) / 1e6 AS p90_ms,
    min(gap_ns) FILTER (upto > floor((n - 1) * 99 / 100 + 0.5)) / 1e6 AS p99_ms,
    max(gap_ns) / 1e6                                               AS max_ms
FROM counted
GROUP BY run_id, replay_id;
