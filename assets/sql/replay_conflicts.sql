-- One row per replay_id whose runs do not agree: the same input must give the same tables. No row is good news.
-- n_runs [runs] runs of it
-- n_results [results] different result digests among them
-- run_ids [] the runs, oldest first
CREATE OR REPLACE VIEW replay_conflicts AS
SELECT
    replay_id,
    count(*)                                AS n_runs,
    count(DISTINCT result_digest)           AS n_results,
    string_agg(run_id, ', ' ORDER BY run_id) AS run_ids
FROM runs
GROUP BY replay_id
HAVING count(DISTINCT result_digest) > 1;
