-- One row per replay and phase: how the performance model was used, and how much of the answer it had to extrapolate.
-- phase [] prefill or decode
-- n_cells [cells] cells that were hit
-- n_lookups [lookups] lookups
-- total_ms [ms] what they added up to
-- extrapolated_lookups [lookups] those outside the measured data
-- extrapolated_share [ratio] part of total_ms that was extrapolated
CREATE OR REPLACE VIEW evidence_summary AS
SELECT
    run_id,
    replay_id,
    phase,
    count(DISTINCT cell)                                                      AS n_cells,
    sum(n_lookups)::BIGINT                                                    AS n_lookups,
    sum(total_ns)::BIGINT / 1e6                                               AS total_ms,
    coalesce(sum(n_lookups) FILTER (extrapolated), 0)::BIGINT                 AS extrapolated_lookups,
    coalesce(sum(total_ns) FILTER (extrapolated), 0)::BIGINT / nullif(sum(total_ns)::BIGINT, 0) AS extrapolated_share
FROM evidence
GROUP BY run_id, replay_id, phase;
