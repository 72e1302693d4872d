-- One row per completed request: how long its user waited for what.
-- queue_ms [ms] arrival to the start of the pass that first admitted it
-- ttft_ms [ms] time to first token: arrival to first token; null if it made none. With separate pools as the run chose
-- ttst_ms [ms] time to second token: first to second token; null below two tokens
-- tpot_ms [ms] time per output token after the first; null below two tokens
-- mean_itl_ms [ms] mean gap between its tokens; for one request the same as tpot_ms
-- e2e_ms [ms] arrival to last token; null if it made none
-- cached_share [ratio] part of the prompt found in the KV cache at its first admission
CREATE OR REPLACE VIEW request_latency AS
SELECT
    run_id,
    replay_id,
    request_id,
    external_id,
    worker,
    dp_rank,
    arrival_ns,
    prompt_tokens,
    output_tokens,
    (admitted_ns - arrival_ns) / 1e6                                                  AS queue_ms,
    (ttft_at_ns - arrival_ns) / 1e6                                                   AS ttft_ms,
    (second_token_ns - first_token_ns) / 1e6                                          AS ttst_ms,
    -- One token has no gap: null, not zero, or it would pull means down.
    (last_token_ns - first_token_ns) / (nullif(greatest(output_tokens - 1, 0), 0) * 1e6) AS tpot_ms,
    (last_token_ns - first_token_ns) / (nullif(greatest(output_tokens - 1, 0), 0) * 1e6) AS mean_itl_ms,
    (last_token_ns - arrival_ns) / 1e6                                                AS e2e_ms,
    cached_tokens_first / prompt_tokens                                               AS cached_share
FROM request_first_token
WHERE status = 'completed';
