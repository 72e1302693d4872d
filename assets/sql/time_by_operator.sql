-- One row per replay, role, phase and operator: where the time of the ranks went. Phases whose prices have no operators
-- are one row, "all"; what a rank waits for the slowest of its group is a phase of its own.
-- role [] role of the workers
-- phase [] prefill, decode, the two parts of a mixed pass, or waiting
-- operator [] operator of the model; "all" where the price has no parts, "slowest rank" while waiting
-- n_lookups [lookups] passes of the phase
-- total_ms [ms] time of all ranks, after speed-ups and corrections
-- share [ratio] part of the replay's total
CREATE OR REPLACE VIEW time_by_operator AS
WITH spent AS (
    SELECT run_id, replay_id, role, phase, cell, sum(n_lookups) AS n, sum(total_ns) AS ns
    FROM evidence GROUP BY ALL
),
parts AS (SELECT DISTINCT run_id, replay_id, role, phase, cell, operator, operator_share FROM cell_ops),
-- Workers of separate pools are numbered through, the prefill pool's first.
pools AS (
    SELECT run_id, (config_json ->> '$.engine.workers.prefill.parallelism.replicas')::BIGINT AS first_decode FROM runs
),
lines AS (
    SELECT s.run_id, s.replay_id, s.role, s.phase, coalesce(p.operator, 'all') AS operator,
           sum(s.n)::BIGINT AS n_lookups, sum(s.ns * coalesce(p.operator_share, 1.0)) AS ns
    FROM spent s LEFT JOIN parts p USING (run_id, replay_id, role, phase, cell)
    GROUP BY ALL
    UNION ALL
    SELECT p.run_id, p.replay_id,
           CASE WHEN p.worker < r.first_decode THEN 'prefill' WHEN r.first_decode > 0 THEN 'decode' ELSE 'aggregated' END,
           'waiting', 'slowest rank',
           count(*) FILTER (p.end_ns - p.start_ns > p.prefill_ns + p.decode_ns),
           sum(p.end_ns - p.start_ns - p.prefill_ns - p.decode_ns)
    FROM passes p LEFT JOIN pools r USING (run_id)
    GROUP BY ALL
    HAVING sum(p.end_ns - p.start_ns - p.prefill_ns - p.decode_ns) > 0
)
SELECT run_id, replay_id, role, phase, operator, n_lookups, ns / 1e6 AS total_ms,
       ns / nullif(sum(ns) OVER (PARTITION BY run_id, replay_id), 0) AS share
FROM lines;
