-- One row per request and pass that computed something for it: the batches as they were chosen. Filter on run_id.
-- kind [] new or resumed at an admission, running in a later chunk, decode for a plain one-token decode
-- n_tokens [tokens] tokens computed
-- computed_before [tokens] context it already had
-- cached_tokens [tokens] prefix found in the KV cache, where this pass admitted it
CREATE OR REPLACE VIEW pass_requests AS
WITH tokens AS (
    SELECT
        s.run_id,
        s.replay_id,
        s.request_id,
        s.worker,
        s.dp_rank,
        s.first_pass,
        -- The token it computes is the newest one known, which has no KV yet.
        r.prompt_tokens + s.first_token_no - 1 AS computed_before,
        unnest(range(s.n_tokens))::INTEGER AS i
    FROM spans s
    JOIN requests r ON r.run_id = s.run_id AND r.request_id = s.request_id
)
SELECT run_id, replay_id, worker, dp_rank, pass_no, request_id, kind, n_tokens, computed_before, cached_tokens
FROM chunks
UNION ALL
SELECT
    t.run_id,
    t.replay_id,
    t.worker,
    t.dp_rank,
    t.first_pass + t.i,
    t.request_id,
    'decode',
    1,
    t.computed_before + t.i,
    NULL
FROM tokens t
-- A pass that made a token while computing a chunk is already there. (Not an ANTI JOIN: a filter on the run would not
-- reach its right side.)
LEFT JOIN chunks c
    ON c.run_id = t.run_id AND c.request_id = t.request_id AND c.worker = t.worker AND c.dp_rank = t.dp_rank
    AND c.pass_no = t.first_pass + t.i
WHERE c.run_id IS NULL;
