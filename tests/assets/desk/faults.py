"""One planted fault of every kind: SQL on a run's tables, and the checks that must notice, all of them and no other.

A fault often breaks more than one law; what else it breaks is part of the expectation.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Fault:
    """`statements` are executed on the tables; `run` replaces columns of the run's row."""

    notices: frozenset[str]
    statements: tuple[str, ...] = ()
    run: tuple[tuple[str, object], ...] = ()


def fault(*statements: str, also: str = "", **run: object) -> Fault:
    return Fault(frozenset(also.split()), statements, tuple(run.items()))


ANY = "(SELECT min(request_id) FROM requests WHERE n_preemptions = 0 AND output_tokens > 3)"
LAST_PASS = "(SELECT max(pass_no) FROM passes WHERE dp_rank = 0)"
# On the small run of worlds.py: two ranks, some preemptions.
LAWS: dict[str, Fault] = {
    "requests_end_once": fault(f"UPDATE requests SET end_ns = NULL WHERE request_id = {ANY}"),
    "every_row_accounted_for": fault(provenance_json='{"rows_read": 9, "clean": 8, "replayed": 24}'),
    "spans_hold_every_token": fault(f"UPDATE requests SET n_spans = n_spans + 1 WHERE request_id = {ANY}"),
    "handoffs_keep_their_order": fault(
        f"""INSERT INTO handoffs BY NAME
        SELECT request_id, worker AS source_worker, dp_rank AS source_rank, worker, dp_rank,
               admitted_ns AS prefill_admitted_ns, admitted_ns - 1 AS held_ns, admitted_ns AS reserved_ns,
               admitted_ns AS activated_ns, 1 AS attempts, 'activated' AS outcome
        FROM requests WHERE request_id = {ANY}"""
    ),
    "handoffs_end_once": fault(
        f"""INSERT INTO handoffs BY NAME
        SELECT request_id, worker AS source_worker, dp_rank AS source_rank, worker, dp_rank,
               admitted_ns AS prefill_admitted_ns, admitted_ns AS held_ns, 0 AS attempts, 'activated' AS outcome
        FROM requests WHERE request_id = {ANY}"""
    ),
    "transfers_have_time_for_their_bytes": fault(
        f"""INSERT INTO handoffs BY NAME
        SELECT request_id, worker AS source_worker, dp_rank AS source_rank, worker, dp_rank,
               admitted_ns AS prefill_admitted_ns, admitted_ns AS held_ns, admitted_ns AS reserved_ns,
               admitted_ns AS queued_ns, admitted_ns AS began_ns, admitted_ns + 8 AS transferred_ns,
               admitted_ns + 8 AS activated_ns, 'activated' AS outcome, 1 AS attempts, 10 AS sent_bytes
        FROM requests WHERE request_id = {ANY}""",
        config_json='{"engine": {"kv_transfer": {"bandwidth_gb_per_second": 1}}}',
    ),
    "links_serve_one_after_the_other": fault(
        """INSERT INTO handoffs BY NAME
        SELECT request_id, worker AS source_worker, dp_rank AS source_rank, worker, dp_rank,
               0 AS prefill_admitted_ns, 0 AS held_ns, 0 AS reserved_ns, 0 AS queued_ns, request_id % 2 AS began_ns,
               request_id % 2 + 5 AS transferred_ns, request_id % 2 + 5 AS activated_ns, 'activated' AS outcome,
               1 AS attempts, 5 AS sent_bytes
        FROM requests WHERE n_preemptions = 0 AND output_tokens > 3 ORDER BY request_id LIMIT 2""",
        config_json='{"engine": {"kv_transfer": {"bandwidth_gb_per_second": 1, "links": "shared"}}}',
    ),
    "bursts_hold_every_token": fault(
        f"UPDATE spans SET n_passes = n_passes + 1 WHERE request_id = {ANY}", also="tokens_are_on_the_clock"
    ),
    "spans_do_not_overlap": fault(
        "UPDATE spans SET first_pass = 0 WHERE span_no > 0",
        also="tokens_are_on_the_clock",
    ),
    "passes_make_every_token": fault("UPDATE passes SET n_tokens = n_tokens + 1 WHERE pass_no = 5 AND dp_rank = 0"),
    "passes_follow_each_other": fault(
        "UPDATE passes SET start_ns = start_ns - 1 WHERE group_pass_no = 9",
        also="groups_wait_for_the_slowest choices_follow_each_other",
    ),
    "kv_blocks_are_conserved": fault(
        "UPDATE passes SET free_blocks = free_blocks - 1 WHERE pass_no = 7", also="blocks_fit_the_pool"
    ),
    "evidence_adds_up": fault("UPDATE evidence SET total_ns = total_ns + 1 WHERE phase = 'decode'"),
    "preemptions_are_recorded": fault(f"UPDATE requests SET n_preemptions = 1 WHERE request_id = {ANY}"),
    "admissions_are_recorded": fault(f"UPDATE requests SET n_admissions = 3 WHERE request_id = {ANY}"),
    "chunks_add_up": fault("UPDATE passes SET chunk_tokens = chunk_tokens + 1 WHERE pass_no = 3 AND dp_rank = 0"),
    "prompts_are_served": fault(
        f"""UPDATE chunks SET computed_before = computed_before + 1, prompt_tokens = prompt_tokens
        WHERE request_id = {ANY} AND kind = 'new'"""
    ),
    "prefill_tokens_are_conserved": fault(
        "UPDATE passes SET prefill_tokens = prefill_tokens + 1 WHERE pass_no = 0 AND dp_rank = 0"
    ),
    "tokens_are_on_the_clock": fault(
        f"UPDATE requests SET first_token_ns = first_token_ns + 1 WHERE request_id = {ANY}"
    ),
    "passes_are_numbered": fault(
        "UPDATE passes SET pass_no = pass_no + 1000 WHERE dp_rank = 0",
        "UPDATE spans SET first_pass = first_pass + 1000 WHERE dp_rank = 0",
        "UPDATE chunks SET pass_no = pass_no + 1000 WHERE dp_rank = 0",
        "UPDATE admissions SET pass_no = pass_no + 1000 WHERE dp_rank = 0",
        "UPDATE pressure SET pass_no = pass_no + 1000 WHERE dp_rank = 0",
    ),
    "choices_follow_each_other": fault("UPDATE passes SET chosen_ns = start_ns + 1 WHERE pass_no = 4 AND dp_rank = 0"),
    "groups_wait_for_the_slowest": fault(
        f"UPDATE passes SET prefill_ns = prefill_ns + 1 WHERE pass_no = {LAST_PASS} AND dp_rank = 0",
        also="evidence_adds_up same_work_costs_the_same",
    ),
    "blocks_fit_the_pool": fault(peak_active_blocks=1),
    "blocks_have_owners": fault(
        """UPDATE passes SET active_blocks = active_blocks + free_blocks + cached_blocks, free_blocks = 0,
        cached_blocks = 0""",
        peak_active_blocks=20,
    ),
    "passes_count_their_requests": fault("UPDATE passes SET n_admitted = 0 WHERE pass_no = 0 AND dp_rank = 0"),
    "runs_count_their_rows": fault(n_completed=1),
    "requests_stay_on_their_rank": fault(f"UPDATE requests SET dp_rank = 1 - dp_rank WHERE request_id = {ANY}"),
    "thrashing": fault("UPDATE pressure SET tokens_lost = 100000"),
}
# On the long run of large.py: equal passes, one rank.
SIGNS: dict[str, Fault] = {
    "same_work_costs_the_same": fault(
        "UPDATE passes SET prefill_ns = prefill_ns + 1 WHERE pass_no = 500",
        also="evidence_adds_up groups_wait_for_the_slowest",
    ),
    "pass_time_outlier": fault(
        "UPDATE passes SET prefill_ns = 3 * prefill_ns WHERE pass_no = 500",
        also="same_work_costs_the_same evidence_adds_up groups_wait_for_the_slowest",
    ),
    "throughput_step": fault(
        """UPDATE passes SET decode_ns = decode_ns * 6 // 5, start_ns = start_ns + (start_ns - 50000000000) // 5,
        chosen_ns = start_ns + (start_ns - 50000000000) // 5, end_ns = end_ns + (end_ns - 50000000000) // 5
        WHERE start_ns >= 50000000000""",
        also="same_work_costs_the_same evidence_adds_up groups_wait_for_the_slowest tokens_are_on_the_clock",
    ),
    "queue_growth": fault("UPDATE passes SET n_waiting = pass_no"),
    "barren_passes": fault(
        "UPDATE passes SET n_preempted = 1, n_tokens = 0 WHERE pass_no BETWEEN 100 AND 140",
        also="passes_make_every_token passes_count_their_requests",
    ),
    "idle_with_work": fault(
        "UPDATE passes SET start_ns = start_ns + 1000, end_ns = end_ns + 1000, chosen_ns = chosen_ns + 1000 "
        "WHERE pass_no >= 19995",
        also="tokens_are_on_the_clock",
    ),
    "much_is_extrapolated": fault("UPDATE evidence SET extrapolated = true WHERE phase = 'decode'"),
}
