-- One row per request and pass that made tokens for it: one token, or a burst with speculative decoding. Worked out from
-- spans and bursts. Filter on run_id, and on request_id where you can.
-- span_no [] the span that holds it
-- token_no [] the first of these tokens among the request's tokens, from 0
-- n_tokens [tokens] tokens made in this pass
-- n_drafts [tokens] draft tokens computed in this pass, where drafts are scheduled as tokens
CREATE OR REPLACE VIEW token_passes AS
WITH pieces AS (
    SELECT
        s.run_id,
        s.replay_id,
        s.request_id,
        s.span_no,
        s.worker,
        s.dp_rank,
        s.first_pass,
        s.first_token_no,
        coalesce(s.n_passes, s.n_tokens) AS n_passes,  -- older runs have no such column
        NULL::BIGINT AS tokens_packed,
        0::BIGINT AS drafts_packed
    FROM spans s
    -- Spans of a replay with speculative decoding are in bursts. (Not an ANTI JOIN: a filter on the run would not reach
    -- its right side.)
    LEFT JOIN bursts b
        ON b.run_id = s.run_id AND b.request_id = s.request_id AND b.span_no = s.span_no AND b.first_pass = s.first_pass
    WHERE b.run_id IS NULL
    UNION ALL
    SELECT
        run_id, replay_id, request_id, span_no, worker, dp_rank, first_pass, first_token_no, n_passes, tokens_packed,
        drafts_packed
    FROM bursts
),
spread AS (
    SELECT *, unnest(range(n_passes))::INTEGER AS i FROM pieces
)
SELECT
    run_id,
    replay_id,
    request_id,
    span_no,
    worker,
    dp_rank,
    first_pass + i AS pass_no,
    first_token_no + CASE
        WHEN tokens_packed IS NULL THEN i
        ELSE coalesce(list_sum([(tokens_packed >> (4 * j)) & 15 FOR j IN range(i)]), 0)
    END::INTEGER AS token_no,
    CASE WHEN tokens_packed IS NULL THEN 1 ELSE (tokens_packed >> (4 * i)) & 15 END::INTEGER AS n_tokens,
    ((drafts_packed >> (4 * i)) & 15)::INTEGER AS n_drafts
FROM spread;
