-- One row per pass: what the rank's KV blocks hold while it runs.
-- start_s [s] start of the pass
-- active_blocks [blocks] in use by running requests
-- cached_blocks [blocks] not in use, but a prefix can still hit them
-- free_blocks [blocks] holding nothing
-- blocks [blocks] the rank's pool
-- active_share [ratio] in use
-- cached_share [ratio] holding a prefix nobody uses now
CREATE OR REPLACE VIEW kv_usage AS
SELECT
    run_id,
    replay_id,
    worker,
    dp_rank,
    pass_no,
    start_ns / 1e9                                                       AS start_s,
    active_blocks,
    cached_blocks,
    free_blocks,
    active_blocks + cached_blocks + free_blocks                          AS blocks,
    active_blocks / (active_blocks + cached_blocks + free_blocks)        AS active_share,
    cached_blocks / (active_blocks + cached_blocks + free_blocks)        AS cached_share
FROM passes;
