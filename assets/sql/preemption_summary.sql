-- One row per replay: how often requests lost their KV blocks, and what that cost. Zeros where none did.
-- n_preemptions [preemptions] preemptions
-- n_victims [requests] requests that were preempted at least once
-- max_per_request [preemptions] most preemptions of one request
-- self_preemptions [preemptions] those in which a request gave way to its own demand
-- tokens_lost [tokens] computed tokens given up
-- blocks_released [blocks] KV blocks given up
-- first_s [s] when the first happened
-- last_s [s] when the last happened
CREATE OR REPLACE VIEW preemption_summary AS
WITH victims AS (
    SELECT
        run_id,
        request_id,
        count(*)                                       AS n,
        count(*) FILTER (asker_id = request_id)        AS n_self,
        sum(tokens_lost)::BIGINT                       AS tokens_lost,
        sum(blocks_released)::BIGINT                   AS blocks_released,
        min(chosen_ns)                                 AS first_ns,
        max(chosen_ns)                                 AS last_ns
    FROM pressure
    GROUP BY ALL
)
SELECT
    runs.run_id,
    runs.replay_id,
    coalesce(sum(n), 0)::BIGINT                AS n_preemptions,
    count(v.request_id)                        AS n_victims,
    coalesce(max(n), 0)                        AS max_per_request,
    coalesce(sum(n_self), 0)::BIGINT           AS self_preemptions,
    coalesce(sum(tokens_lost), 0)::BIGINT      AS tokens_lost,
    coalesce(sum(blocks_released), 0)::BIGINT  AS blocks_released,
    min(first_ns) / 1e9                        AS first_s,
    max(last_ns) / 1e9                         AS last_s
FROM runs
LEFT JOIN victims v ON v.run_id = runs.run_id
GROUP BY runs.run_id, runs.replay_id;
