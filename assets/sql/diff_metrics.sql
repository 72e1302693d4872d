-- The figures of two runs side by side: diff_metrics('run_id of base', 'run_id of head'). One row per figure that either
-- has: scope, metric, stat, unit, base, head, change, relative (change as a share of base).
CREATE OR REPLACE MACRO diff_metrics(base_run, head_run) AS TABLE
WITH b AS (
    SELECT scope, metric, stat, unit, value FROM metrics WHERE run_id = base_run
),
h AS (
    SELECT scope, metric, stat, unit, value FROM metrics WHERE run_id = head_run
)
SELECT
    scope,
    metric,
    stat,
    coalesce(b.unit, h.unit)                                AS unit,
    b.value                                                 AS base,
    h.value                                                 AS head,
    h.value - b.value                                       AS change,
    (h.value - b.value) / nullif(abs(b.value), 0)           AS relative
FROM b
FULL JOIN h USING (scope, metric, stat);
