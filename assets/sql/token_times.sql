-- One row per output token, worked out from spans, bursts and passes; nothing per token is stored. Filter on run_id, and
-- on request_id where you can: a long replay has tens of millions of tokens.
-- token_no [] token of the request, from 0
-- span_no [] the span that holds it
-- pass_no [] the rank's pass that made it
-- token_ns [ns] when it became visible in the engine; a client behind a front end sees it runs.output_path_ns later
-- since_arrival_ms [ms] arrival to this token
CREATE OR REPLACE VIEW token_times AS
-- Requests are joined before tokens are spread out, passes after. Side by side in one FROM, DuckDB may start with
-- requests x passes, which have nothing but the run in common.
WITH tokens AS (
    SELECT t.*, r.arrival_ns, unnest(range(t.n_tokens))::INTEGER AS i
    FROM token_passes t
    JOIN requests r ON r.run_id = t.run_id AND r.request_id = t.request_id
)
SELECT
    t.run_id,
    t.replay_id,
    t.request_id,
    t.token_no + t.i                    AS token_no,
    t.span_no,
    t.worker,
    t.dp_rank,
    p.pass_no,
    p.end_ns                            AS token_ns,
    (p.end_ns - t.arrival_ns) / 1e6     AS since_arrival_ms
FROM tokens t
JOIN passes p
    ON p.run_id = t.run_id AND p.worker = t.worker AND p.dp_rank = t.dp_rank AND p.pass_no = t.pass_no;
