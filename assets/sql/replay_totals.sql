-- One row per replay: what went through, over completed requests. Integer sums: exact in any order, on any number of
-- threads.
-- n_requests [requests] requests of the trace
-- n_completed [requests] completed
-- input_tokens [tokens] prompts
-- output_tokens [tokens] tokens made
-- duration_s [s] start of the trace to the last completion
-- requests_per_s [requests/s] completed
-- input_tokens_per_s [tok/s] prompts
-- output_tokens_per_s [tok/s] tokens made
CREATE OR REPLACE VIEW replay_totals AS
WITH totals AS (
    SELECT
        run_id,
        replay_id,
        count(*)                                                        AS n_requests,
        count(*) FILTER (status = 'completed')                          AS n_completed,
        coalesce(sum(prompt_tokens) FILTER (status = 'completed'), 0)::BIGINT   AS input_tokens,
        coalesce(sum(output_tokens) FILTER (status = 'completed'), 0)::BIGINT   AS output_tokens,
        coalesce(max(end_ns) FILTER (status = 'completed'), 0)          AS duration_ns
    FROM requests
    GROUP BY run_id, replay_id
)
SELECT
    run_id,
    replay_id,
    n_requests,
    n_completed,
    input_tokens,
    output_tokens,
    duration_ns / 1e9                              AS duration_s,
    n_completed * 1e9 / greatest(duration_ns, 1)   AS requests_per_s,
    input_tokens * 1e9 / greatest(duration_ns, 1)  AS input_tokens_per_s,
    output_tokens * 1e9 / greatest(duration_ns, 1) AS output_tokens_per_s
FROM totals;
