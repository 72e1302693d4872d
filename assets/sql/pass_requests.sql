-- One row per request and pass that computed something for it: the batches as they were chosen. Filter on run_id.
-- kind [] new or resumed at an admission, running in a later chunk, decode for its newest token (and drafts)
-- n_tokens [tokens] tokens computed, drafts included
-- n_drafts [tokens] drafts among them, or padding in their place
-- computed_before [tokens] context it already had; of a pass chosen while another ran, as if all drafts of that one held
-- cached_tokens [tokens] prefix found in the KV cache, where this pass admitted it
CREATE OR REPLACE VIEW pass_requests AS
WITH decodes AS (
    SELECT
        t.*,
        r.prompt_tokens + t.token_no AS known,
        -- What the pass before was given on top of what it made; within a span passes follow each other.
        lag(t.n_drafts + 1 - t.n_tokens, 1, 0) OVER (
            PARTITION BY t.run_id, t.request_id, t.span_no ORDER BY t.pass_no
        ) AS hoped_for
    FROM token_passes t
    JOIN requests r ON r.run_id = t.run_id AND r.request_id = t.request_id
)
SELECT run_id, replay_id, worker, dp_rank, pass_no, request_id, kind, n_tokens, n_drafts, computed_before, cached_tokens
FROM chunks
UNION ALL
SELECT
    d.run_id,
    d.replay_id,
    d.worker,
    d.dp_rank,
    d.pass_no,
    d.request_id,
    'decode',
    1 + d.n_drafts,
    d.n_drafts,
    -- The token it computes is the newest one known, which has no KV yet.
    d.known - 1 + CASE WHEN d.n_drafts > 0 AND p.chosen_ns < p.start_ns THEN d.hoped_for ELSE 0 END,
    NULL
FROM decodes d
JOIN passes p
    ON p.run_id = d.run_id AND p.worker = d.worker AND p.dp_rank = d.dp_rank AND p.pass_no = d.pass_no
-- A pass that made a token while computing a chunk is already there. (Not an ANTI JOIN: a filter on the run would not
-- reach its right side.)
LEFT JOIN chunks c
    ON c.run_id = d.run_id AND c.request_id = d.request_id AND c.worker = d.worker AND c.dp_rank = d.dp_rank
    AND c.pass_no = d.pass_no
WHERE c.run_id IS NULL;
