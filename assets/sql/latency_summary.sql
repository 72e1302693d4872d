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
    SELECT
        run_id,
        replay_id,
        unnest([
            {'latency': 'ttft', 'ns': ttft_at_ns - arrival_ns},
            {'latency': 'ttst', 'ns': second_token_ns - first_token_ns},
            {'latency': 'e2e', 'ns': last_token_ns - arrival_ns},
            {'latency': 'queue', 'ns': admitted_ns - arrival_ns}
        ], recursive := true)
    FROM request_first_token
    WHERE status = 'completed'
)
SELECT
    run_id,
    replay_id,
    latency,
    count(ns)                       AS n,
    sum(ns) / (count(ns) * 1e6)     AS mean_ms,
    pct(ns, 50) / 1e6               AS p50_ms,
    pct(ns, 90) / 1e6               AS p90_ms,
    pct(ns, 99) / 1e6               AS p99_ms,
    max(ns) / 1e6                   AS max_ms
FROM long
WHERE ns IS NOT NULL
GROUP BY run_id, replay_id, latency
UNION ALL
SELECT
    run_id,
    replay_id,
    'tpot',
    count(tpot_ms),
    -- A quotient already, so these are doubles: sum() would depend on the order of addition, fsum() does not.
    fsum(tpot_ms) / count(tpot_ms),
    pct(tpot_ms, 50),
    pct(tpot_ms, 90),
    pct(tpot_ms, 99),
    max(tpot_ms)
FROM request_latency
WHERE tpot_ms IS NOT NULL
GROUP BY run_id, replay_id;
