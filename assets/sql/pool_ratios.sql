-- One row per replay with separate pools: what its ratio of prefill to decode workers is worth, and which pool limits
-- it. Anybody may have to wait for the pass that runs, twice even in the decode pool (to reserve room, and after the
-- transfer to be admitted); what counts is waiting on after that very pass has ended, for want of blocks, places or
-- tokens (with asynchronous scheduling after another mean pass, as the next one is chosen by then). Waiting for a
-- prefill pool that stands still is waiting for whatever keeps computed prompts in its blocks: for the decode pool as
-- far as they wait there for room, and not for it as far as they are being transferred. The pool that is waited for
-- longer limits, if that makes a tenth of the time to a decode worker's first token. Means and
-- shares that need rows of requests or passes are null where those were not kept; all others are those of `metrics`.
-- name [] the run's, or the scenario's
-- ratio [] prefill workers : decode workers
-- prefill_workers [workers] of the prefill pool
-- decode_workers [workers] of the decode pool
-- gpus [GPUs] of both pools
-- requests_per_s_per_gpu [requests/s] completed
-- output_tokens_per_s_per_gpu [tok/s] output tokens of completed requests
-- ttft_p50_ms [ms] TTFT, median; what it counts to is in `runs.ttft_ends`
-- ttft_p99_ms [ms] TTFT, 99th percentile
-- tpot_p50_ms [ms] TPOT, median
-- tpot_p99_ms [ms] TPOT, 99th percentile
-- e2e_p50_ms [ms] E2E, median
-- e2e_p99_ms [ms] E2E, 99th percentile
-- good_share [ratio] requests that completed within the run's limits, of all that count; null without limits
-- good_requests_per_s_per_gpu [requests/s] those
-- prefill_busy [ratio] `busy_share` of the prefill pool in `pool_utilisation`
-- decode_busy [ratio] the same of the decode pool
-- prefill_held [ratio] part of the prefill pool's blocks that computed prompts hold
-- decode_active [ratio] `active_share` of the decode pool
-- queue_ms [ms] mean wait for the prefill pool: `queue_ns` in `request_phases`
-- transfer_ms [ms] mean time of a transfer
-- decode_wait_ms [ms] mean wait for the decode pool: for room there and, after the transfer, for its first pass; the
-- passes that ran meanwhile are in it, so it is above 0 where there is room as well
-- limited_by [] `prefill`, `decode` or `neither`
CREATE OR REPLACE VIEW pool_ratios AS
WITH figures AS (
    SELECT
        run_id,
        max(value) FILTER (metric = 'request_throughput' AND stat = 'mean')         AS requests_per_s,
        max(value) FILTER (metric = 'output_throughput' AND stat = 'mean')          AS output_tokens_per_s,
        max(value) FILTER (metric = 'ttft' AND stat = 'median')                     AS ttft_p50_ms,
        max(value) FILTER (metric = 'ttft' AND stat = 'p99')                        AS ttft_p99_ms,
        max(value) FILTER (metric = 'tpot' AND stat = 'median')                     AS tpot_p50_ms,
        max(value) FILTER (metric = 'tpot' AND stat = 'p99')                        AS tpot_p99_ms,
        max(value) FILTER (metric = 'e2e_latency' AND stat = 'median')              AS e2e_p50_ms,
        max(value) FILTER (metric = 'e2e_latency' AND stat = 'p99')                 AS e2e_p99_ms,
        max(value) FILTER (metric = 'goodput' AND stat = 'completed')
            / nullif(max(value) FILTER (metric = 'requests' AND stat = 'submitted'), 0) AS good_share,
        max(value) FILTER (metric = 'goodput' AND stat = 'request_throughput')      AS good_requests_per_s
    FROM metrics
    WHERE scope = 'run'
    GROUP BY run_id
),
pools AS (
    SELECT
        run_id,
        replay_id,
        max(workers) FILTER (role = 'prefill')          AS prefill_workers,
        max(workers) FILTER (role = 'decode')           AS decode_workers,
        sum(gpus)::BIGINT                               AS gpus,
        max(busy_share) FILTER (role = 'prefill')       AS prefill_busy,
        max(busy_share) FILTER (role = 'decode')        AS decode_busy,
        max(mean_waiting * ranks) FILTER (role = 'prefill') AS prefill_waiting,
        max(pass_ms * 1e6) FILTER (role = 'prefill')    AS prefill_pass_ns,
        max(pass_ms * 1e6) FILTER (role = 'decode')     AS decode_pass_ns,
        max(held_share) FILTER (role = 'prefill')       AS prefill_held,
        max(active_share) FILTER (role = 'decode')      AS decode_active
    FROM pool_utilisation
    WHERE role IN ('prefill', 'decode')
    GROUP BY run_id, replay_id
),
-- Where each wait began, and until when the pass ran that was under way there.
begun AS (
    SELECT
        r.run_id,
        r.request_id,
        coalesce(h.source_worker, r.worker)                     AS first_worker,
        h.worker                                                AS decode_worker,
        r.arrival_ns,
        h.held_ns,
        h.transferred_ns
    FROM requests r
    LEFT JOIN handoffs h ON h.run_id = r.run_id AND h.request_id = r.request_id
),
boundaries AS (
    SELECT
        b.run_id,
        b.request_id,
        greatest(a.end_ns - b.arrival_ns, 0)                    AS admission_ns,
        greatest(c.end_ns - b.held_ns, 0)                       AS room_ns,
        greatest(d.end_ns - b.transferred_ns, 0)                AS first_pass_ns
    FROM begun b
    ASOF LEFT JOIN passes a
        ON a.run_id = b.run_id AND a.worker = b.first_worker AND a.start_ns <= b.arrival_ns
    ASOF LEFT JOIN passes c
        ON c.run_id = b.run_id AND c.worker = b.decode_worker AND c.start_ns <= b.held_ns
    ASOF LEFT JOIN passes d
        ON d.run_id = b.run_id AND d.worker = b.decode_worker AND d.start_ns <= b.transferred_ns
),
settings AS (
    SELECT
        run_id,
        end_ns,
        coalesce((config_json ->> '$.engine.workers.prefill.scheduler.async_scheduling')::BOOLEAN, false) AS prefill_async,
        coalesce((config_json ->> '$.engine.workers.decode.scheduler.async_scheduling')::BOOLEAN, false)  AS decode_async
    FROM runs
),
waits AS (
    SELECT
        run_id,
        sum(queue_ns) / (count(*) * 1e6)                    AS queue_ms,
        sum(transfer_ns) / (count(*) * 1e6)                 AS transfer_ms,
        sum(destination_ns + ready_ns) / (count(*) * 1e6)   AS decode_wait_ms,
        sum(greatest(queue_ns - coalesce(admission_ns, 0) - if(prefill_async, prefill_pass_ns, 0), 0))
                                                            AS prefill_excess_ns,
        sum(greatest(destination_ns - coalesce(room_ns, 0) - if(decode_async, decode_pass_ns, 0), 0)) AS room_excess_ns,
        sum(greatest(ready_ns - coalesce(first_pass_ns, 0) - if(decode_async, decode_pass_ns, 0), 0)) AS ready_excess_ns,
        sum(transfer_ns)                                    AS transfer_ns,
        -- To a decode worker's, wherever TTFT ends.
        sum(
            queue_ns + prefill_ns + destination_ns + transfer_ns + ready_ns + first_decode_ns + preempted_first_ns
        )                                                   AS first_token_ns,
        any_value(prefill_waiting * end_ns)                 AS waiting_in_passes_ns
    FROM request_phases
    JOIN pools USING (run_id)
    JOIN settings USING (run_id)
    JOIN boundaries USING (run_id, request_id)
    GROUP BY run_id
),
limits AS (
    SELECT
        *,
        least(prefill_excess_ns, waiting_in_passes_ns)          AS prefill_ns,
        room_excess_ns + ready_excess_ns + (prefill_excess_ns - prefill_ns)
            * coalesce(room_excess_ns / nullif(room_excess_ns + transfer_ns, 0), 0) AS decode_ns
    FROM waits
)
SELECT
    p.run_id,
    p.replay_id,
    r.name,
    p.prefill_workers || ':' || p.decode_workers            AS ratio,
    p.prefill_workers,
    p.decode_workers,
    p.gpus,
    f.requests_per_s / p.gpus                               AS requests_per_s_per_gpu,
    f.output_tokens_per_s / p.gpus                          AS output_tokens_per_s_per_gpu,
    f.ttft_p50_ms,
    f.ttft_p99_ms,
    f.tpot_p50_ms,
    f.tpot_p99_ms,
    f.e2e_p50_ms,
    f.e2e_p99_ms,
    f.good_share,
    f.good_requests_per_s / p.gpus                          AS good_requests_per_s_per_gpu,
    p.prefill_busy,
    p.decode_busy,
    p.prefill_held,
    p.decode_active,
    l.queue_ms,
    l.transfer_ms,
    l.decode_wait_ms,
    CASE
        WHEN l.run_id IS NULL THEN NULL
        WHEN greatest(l.prefill_ns, l.decode_ns) < 0.1 * l.first_token_ns THEN 'neither'
        WHEN l.decode_ns >= l.prefill_ns THEN 'decode'
        ELSE 'prefill'
    END                                                     AS limited_by
FROM pools p
JOIN runs r ON r.run_id = p.run_id
JOIN figures f ON f.run_id = p.run_id
LEFT JOIN limits l ON l.run_id = p.run_id;
