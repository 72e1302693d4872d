-- One row per replay and latency, over its completed requests. The gaps between tokens are in `itl_summary`.
-- latency [] which one, as in `request_latency`
-- n [requests] completed requests that have it
-- mean_ms [ms] mean
-- p50_ms [ms] median
-- p90_ms [ms] 90th percentile
-- p99_ms [ms] 99th percentile
-- max_ms [ms] largest
CREATE OR REPLACE VIEW latency_summary AS
WITH long AS (
    SELECT run_id, replay_id, 'ttft' AS latency, ttft_ms AS ms FROM request_latency
    UNION ALL SELECT run_id, replay_id, 'ttst', ttst_ms FROM request_latency
    UNION ALL SELECT run_id, replay_id, 'tpot', tpot_ms FROM request_latency
    UNION ALL SELECT run_id, replay_id, 'e2e', e2e_ms FROM request_latency
    UNION ALL SELECT run_id, replay_id, 'queue', queue_ms FROM request_latency
)
SELECT
    run_id,
    replay_id,
    latency,
    count(ms)               AS n,
    -- sum(DOUBLE) depends on the order of addition, fsum() does not.
    fsum(ms) / count(ms)    AS mean_ms,
    pct(ms, 50)             AS p50_ms,
    pct(ms, 90)             AS p90_ms,
    pct(ms, 99)             AS p99_ms,
    max(ms)                 AS max_ms
FROM long
WHERE ms IS NOT NULL
GROUP BY run_id, replay_id, latency;
