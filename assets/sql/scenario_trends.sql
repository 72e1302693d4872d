-- One row per figure of a scenario and execution of its matrix, beside the same figure of the execution before.
-- suite [] name of the suite
-- scenario [] name of the scenario
-- matrix_id [] the execution of the matrix: sorts by time
-- status [] what became of it
-- metric [] what is measured
-- stat [] which figure of it
-- unit [] unit of the value
-- value [see unit] the figure
-- before [see unit] the same figure in the execution before; null for the first
-- change [ratio] value over before, less one
CREATE OR REPLACE VIEW scenario_trends AS
SELECT
    m.run_id,
    m.replay_id,
    s.suite,
    s.scenario,
    s.matrix_id,
    s.status,
    m.metric,
    m.stat,
    m.unit,
    m.value,
    lag(m.value) OVER w                                     AS before,
    m.value / nullif(lag(m.value) OVER w, 0) - 1            AS change
FROM scenarios s
JOIN metrics m ON m.run_id = s.run_id AND m.scope = 'run'
WINDOW w AS (PARTITION BY s.suite, s.scenario, m.metric, m.stat ORDER BY s.matrix_id);
