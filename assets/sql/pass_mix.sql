-- One row per replay and kind of pass: what the passes were filled with, and what that took.
-- mix [] prefill_only, decode_only, mixed (both in one pass), or recompute (regaining generated tokens, nothing else)
-- n_passes [passes] passes of this kind
-- share_of_passes [ratio] among all passes of the replay
-- busy_ms [ms] virtual time they took, prefill and decode part together
-- share_of_time [ratio] of the time of all passes
-- prefill_tokens [tokens] prompt tokens computed in them
-- n_tokens [tokens] output tokens made in them
-- mean_decode [requests] decoding requests per pass
CREATE OR REPLACE VIEW pass_mix AS
WITH kinds AS (
    SELECT
        run_id,
        replay_id,
        CASE
            WHEN n_prefill > 0 AND n_decode > 0 THEN 'mixed'
            WHEN n_prefill > 0 THEN 'prefill_only'
            WHEN n_decode > 0 THEN 'decode_only'
            ELSE 'recompute'
        END                                  AS mix,
        count(*)                             AS n_passes,
        sum(prefill_ns + decode_ns)::BIGINT  AS busy_ns,
        sum(prefill_tokens)::BIGINT          AS prefill_tokens,
        sum(n_tokens)::BIGINT                AS n_tokens,
        sum(n_decode)::BIGINT                AS n_decode
    FROM passes
    GROUP BY ALL
),
-- Each replay's kinds in a list beside their sums. (A window would say it shorter, but DuckDB turns it into a join of the
-- passes with themselves, and then reads the files of other runs too.)
replays AS (
    SELECT
        run_id,
        replay_id,
        sum(n_passes)  AS all_passes,
        sum(busy_ns)   AS all_ns,
        list(kinds)    AS mixes
    FROM kinds
    GROUP BY run_id, replay_id
)
SELECT
    run_id,
    replay_id,
    m.mix,
    m.n_passes,
    m.n_passes / all_passes         AS share_of_passes,
    m.busy_ns / 1e6                 AS busy_ms,
    m.busy_ns / nullif(all_ns, 0)   AS share_of_time,
    m.prefill_tokens,
    m.n_tokens,
    m.n_decode / m.n_passes         AS mean_decode
FROM (SELECT *, unnest(mixes) AS m FROM replays);
