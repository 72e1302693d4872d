-- One row per replay: prompt tokens that were found in the KV cache instead of being computed, over completed requests.
-- n_requests [requests] completed requests
-- n_hits [requests] those that found anything at their first admission
-- input_tokens [tokens] their prompts
-- reused_first_tokens [tokens] found at first admissions
-- reused_max_tokens [tokens] found at the best admission of each request
-- reuse_first [ratio] reused_first_tokens of input_tokens
-- reuse_max [ratio] reused_max_tokens of input_tokens
CREATE OR REPLACE VIEW prefix_reuse AS
SELECT
    run_id,
    replay_id,
    count(*)                                                          AS n_requests,
    count(*) FILTER (cached_tokens_first > 0)                         AS n_hits,
    sum(prompt_tokens)::BIGINT                                        AS input_tokens,
    sum(cached_tokens_first)::BIGINT                                  AS reused_first_tokens,
    sum(cached_tokens_max)::BIGINT                                    AS reused_max_tokens,
    sum(cached_tokens_first)::BIGINT / sum(prompt_tokens)::BIGINT     AS reuse_first,
    sum(cached_tokens_max)::BIGINT / sum(prompt_tokens)::BIGINT       AS reuse_max
FROM requests
WHERE status = 'completed'
GROUP BY run_id, replay_id;
