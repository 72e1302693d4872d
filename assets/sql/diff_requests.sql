-- The completed requests of two runs side by side: diff_requests('run_id of base', 'run_id of head'), matched by
-- request_id. One row per request that completed in either, with the change of its TTFT and E2E and of their parts, ns
-- (columns as in `request_phases`); in_base and in_head tell where it is.
CREATE OR REPLACE MACRO diff_requests(base_run, head_run) AS TABLE
WITH b AS (
    SELECT * FROM request_phases WHERE run_id = base_run
),
h AS (
    SELECT * FROM request_phases WHERE run_id = head_run
)
SELECT
    request_id,
    b.run_id IS NOT NULL                            AS in_base,
    h.run_id IS NOT NULL                            AS in_head,
    h.queue_ns - b.queue_ns                         AS queue_ns,
    h.prefill_ns - b.prefill_ns                     AS prefill_ns,
    h.destination_ns - b.destination_ns             AS destination_ns,
    h.transfer_ns - b.transfer_ns                   AS transfer_ns,
    h.ready_ns - b.ready_ns                         AS ready_ns,
    h.first_decode_ns - b.first_decode_ns           AS first_decode_ns,
    h.decode_ns - b.decode_ns                       AS decode_ns,
    h.preempted_first_ns - b.preempted_first_ns     AS preempted_first_ns,
    h.preempted_ns - b.preempted_ns                 AS preempted_ns,
    h.ttft_ns - b.ttft_ns                           AS ttft_ns,
    h.e2e_ns - b.e2e_ns                             AS e2e_ns
FROM b
FULL JOIN h USING (request_id);
