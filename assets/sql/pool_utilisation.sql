-- One row per replay and pool of workers: how busy it was. Means are over the whole replay, idle time included, and
-- over the pool's ranks. Null where the rows of passes were not kept. In held_share a block that several prompts have
-- in common counts for each of them.
-- role [] aggregated, or prefill and decode with separate pools
-- workers [workers] of the pool
-- ranks [ranks] its attention-DP ranks, each a scheduler with KV blocks of its own
-- gpus [GPUs] of all its workers
-- n_passes [passes] forward passes
-- pass_ms [ms] mean duration of a pass, waiting for the slowest rank of a group included
-- busy_share [ratio] part of the time in which a pass ran
-- mean_running [requests] running requests of a rank
-- mean_waiting [requests] requests of a rank that wait for their first admission while a pass runs
-- active_share [ratio] part of its KV blocks that running requests and prompts on their way hold, while passes run
-- held_share [ratio] prefill pool: part of its KV blocks that computed prompts hold until they are released
-- prompt_tokens_per_s [tok/s] prompt tokens computed
-- output_tokens_per_s [tok/s] output tokens made
CREATE OR REPLACE VIEW pool_utilisation AS
WITH settings AS (
    SELECT
        run_id,
        replay_id,
        end_ns,
        -- Workers of separate pools are numbered through, the prefill pool's first.
        coalesce((config_json ->> '$.engine.workers.prefill.parallelism.replicas')::BIGINT, 0) AS first_decode,
        unnest(['aggregated', 'prefill', 'decode'])                                            AS role,
        config_json -> ('$.engine.workers.' || role)                                           AS pool
    FROM runs
),
pools AS (
    SELECT
        run_id,
        replay_id,
        role,
        greatest(end_ns, 1)                                                             AS end_ns,
        if(role = 'decode', first_decode, 0)                                            AS first_worker,
        (pool ->> '$.parallelism.replicas')::BIGINT                                     AS workers,
        workers * (pool ->> '$.parallelism.attention_data')::BIGINT                     AS ranks,
        ranks * (pool ->> '$.parallelism.tensor')::BIGINT                               AS gpus,
        (pool ->> '$.kv_cache.block_size')::BIGINT                                      AS block_tokens,
        (pool ->> '$.kv_cache.capacity.blocks')::BIGINT                                 AS blocks
    FROM settings
    WHERE pool IS NOT NULL
),
worked AS (
    SELECT
        p.run_id,
        o.role,
        count(*)                                                                        AS n_passes,
        sum(p.end_ns - p.start_ns)                                                      AS busy_ns,
        sum(p.n_running * (p.end_ns - p.start_ns)::HUGEINT)                             AS running_ns,
        sum(p.n_waiting * (p.end_ns - p.start_ns)::HUGEINT)                             AS waiting_ns,
        sum(p.active_blocks * (p.end_ns - p.start_ns)::HUGEINT)                         AS active_ns,
        sum((p.active_blocks + p.cached_blocks + p.free_blocks) * (p.end_ns - p.start_ns)::HUGEINT) AS block_ns,
        sum(p.prefill_tokens)                                                           AS prompt_tokens,
        sum(p.n_tokens)                                                                 AS output_tokens
    FROM passes p
    JOIN pools o ON o.run_id = p.run_id AND p.worker >= o.first_worker AND p.worker < o.first_worker + o.workers
    GROUP BY ALL
),
held AS (
    SELECT
        h.run_id,
        o.role,
        sum(
            (coalesce(h.released_ns, o.end_ns) - h.held_ns)::HUGEINT
            * ((r.prompt_tokens + o.block_tokens - 1) // o.block_tokens)
        )                                                                               AS block_ns
    FROM handoffs h
    JOIN requests r ON r.run_id = h.run_id AND r.request_id = h.request_id
    JOIN pools o ON o.run_id = h.run_id AND o.role = 'prefill'
    GROUP BY ALL
)
SELECT
    o.run_id,
    o.replay_id,
    o.role,
    o.workers,
    o.ranks,
    o.gpus,
    w.n_passes,
    w.busy_ns / (w.n_passes * 1e6)                      AS pass_ms,
    w.busy_ns / (o.ranks * o.end_ns::HUGEINT)           AS busy_share,
    w.running_ns / (o.ranks * o.end_ns::HUGEINT)        AS mean_running,
    w.waiting_ns / (o.ranks * o.end_ns::HUGEINT)        AS mean_waiting,
    w.active_ns / nullif(w.block_ns, 0)                 AS active_share,
    h.block_ns / (o.ranks * o.blocks * o.end_ns::HUGEINT) AS held_share,
    w.prompt_tokens * 1e9 / o.end_ns                    AS prompt_tokens_per_s,
    w.output_tokens * 1e9 / o.end_ns                    AS output_tokens_per_s
FROM pools o
LEFT JOIN worked w ON w.run_id = o.run_id AND w.role = o.role
LEFT JOIN held h ON h.run_id = o.run_id AND h.role = o.role;
