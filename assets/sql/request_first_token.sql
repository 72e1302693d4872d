-- One row per request: the instants of its life, and among them the two that can count as its first token. These differ
-- only with separate pools, for prompts that were handed over: there the prompt is computed first, and a decode worker
-- makes the first token after the transfer.
-- status [] how it ended
-- admitted_ns [ns] start of the pass of its first admission
-- prompt_ns [ns] prompt computed; null if it made no token
-- first_token_ns [ns] first output token
-- ttft_at_ns [ns] end of its TTFT: one of the two before, by the run's choice; null if it made no token
-- second_token_ns [ns] second output token
-- last_token_ns [ns] latest output token
-- end_ns [ns] completion, rejection or failure
-- cached_tokens_first [tokens] prefix found in the KV cache at its first admission
-- n_preemptions [preemptions] times it lost its KV blocks
CREATE OR REPLACE VIEW request_first_token AS
SELECT
    r.run_id,
    r.replay_id,
    r.request_id,
    r.external_id,
    r.worker,
    r.dp_rank,
    r.status,
    r.prompt_tokens,
    r.output_tokens,
    r.arrival_ns,
    r.admitted_ns,
    -- Who was not handed over got its first token with its prompt: least() passes over nulls.
    CASE WHEN r.first_token_ns IS NOT NULL THEN least(h.held_ns, r.first_token_ns) END AS prompt_ns,
    r.first_token_ns,
    CASE WHEN u.ttft_ends = 'prefill' AND r.first_token_ns IS NOT NULL THEN least(h.held_ns, r.first_token_ns)
         ELSE r.first_token_ns END                                                     AS ttft_at_ns,
    r.second_token_ns,
    r.last_token_ns,
    r.end_ns,
    r.cached_tokens_first,
    r.n_preemptions
FROM requests r
LEFT JOIN handoffs h ON h.run_id = r.run_id AND h.request_id = r.request_id
LEFT JOIN (SELECT run_id, ttft_ends FROM runs) u ON u.run_id = r.run_id;
