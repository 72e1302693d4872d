-- One row per pass: who runs and who waits on the rank once its batch is chosen.
-- chosen_s [s] when the batch was chosen
-- n_running [requests] running
-- n_waiting [requests] waiting for their first admission
-- n_waiting_preempted [requests] waiting to come back after a preemption
-- n_present [requests] all three
CREATE OR REPLACE VIEW queue_depth AS
SELECT
    run_id,
    replay_id,
    worker,
    dp_rank,
    pass_no,
    chosen_ns / 1e9                              AS chosen_s,
    n_running,
    n_waiting,
    n_waiting_preempted,
    n_running + n_waiting + n_waiting_preempted  AS n_present
FROM passes;
