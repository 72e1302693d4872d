-- Table `requests`, and beside it the two instants that can count as a request's first token. They differ only with
-- separate pools, for prompts that were handed over: there the prompt is computed first, and a decode worker makes the
-- first token after the transfer.
-- ttft_ends [] what TTFT counts to in this run: `decode`, the first token, or `prefill`, the prompt computed
-- prompt_ns [ns] prompt computed; null if it made no token
-- ttft_at_ns [ns] end of its TTFT by the run's choice; null if it made no token
CREATE OR REPLACE VIEW request_first_token AS
SELECT
    r.*,
    u.ttft_ends,
    CASE WHEN r.first_token_ns IS NOT NULL THEN least(h.held_ns, r.first_token_ns) END AS prompt_ns,
    -- A request that was not handed over got its first token with its prompt: least() passes over nulls.
    CASE
        WHEN u.ttft_ends = 'prefill' AND r.first_token_ns IS NOT NULL THEN least(h.held_ns, r.first_token_ns)
        ELSE r.first_token_ns
    END                                                                                AS ttft_at_ns
FROM requests r
LEFT JOIN handoffs h ON h.run_id = r.run_id AND h.request_id = r.request_id
LEFT JOIN (SELECT run_id, ttft_ends FROM runs) u ON u.run_id = r.run_id;
