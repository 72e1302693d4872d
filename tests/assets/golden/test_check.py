"""`golden check`: a failing case says where, what was expected and what came. A crash is a failure, no exception."""

import json
from copy import deepcopy
from pathlib import Path

import pytest

from assets.golden import check
from assets.golden.check import check_case, check_dir

GOLDEN = Path(__file__).parents[2] / "golden"


def case(name: str) -> dict:
    return json.loads((GOLDEN / f"{name}.json").read_text())


def result(changed: dict):
    return check_case(changed, name="case", base=Path(), engine="reference")


@pytest.fixture
def peer() -> dict:
    return deepcopy(case("peer/vllm_preempt_lifo"))


@pytest.fixture
def vllm() -> dict:
    return deepcopy(case("vllm/slot_freed_async"))


def test_a_differing_row_is_named_with_its_column_and_both_values(peer):
    row = peer["expected"]["per_request"][4]
    at = peer["expected"]["columns"].index("first_token_ms")
    was, row[at] = row[at], 123.5
    found = result(peer)
    assert found.status == "failed"
    assert found.details == (f"row 4 (arrival {row[0]} ms), first_token_ms: expected 123.5, got {was}",)


def test_a_differing_summary_figure_is_named(peer):
    peer["expected"]["summary"]["committed_prefill_tokens"] += 1
    assert result(peer).details == ("summary.committed_prefill_tokens: expected 130, got 129",)


def test_ten_nanoseconds_are_tolerated_and_a_microsecond_is_not(peer):
    peer["expected"]["summary"]["mean_ttft_ms"] += 5e-6
    assert result(peer).status == "passed"
    peer["expected"]["summary"]["mean_ttft_ms"] += 1e-3
    assert result(peer).status == "failed"


def test_a_sketched_percentile_is_compared_within_its_error(peer):
    peer["expected"]["sketched"]["p99_itl_ms"] *= 1.001
    assert result(peer).status == "passed"
    peer["expected"]["sketched"]["p99_itl_ms"] *= 1.003
    assert result(peer).status == "failed"


def test_a_missing_row_is_named(peer):
    peer["expected"]["per_request"].pop()
    assert result(peer).details[0] == "per_request: expected 8 rows, got 9"


def test_rows_are_matched_by_value_not_by_position(peer):
    peer["expected"]["per_request"].reverse()
    assert result(peer).status == "passed"


def test_a_differing_pass_is_named_with_its_column_and_both_values(vllm):
    vllm["expected"]["passes"][4]["requests"][1]["tokens"] = 3
    assert result(vllm).details == (
        "pass 4, requests: expected B:1@7 C:3@0(new, 0 cached), got B:1@7 C:4@0(new, 0 cached)",
    )


def test_blocks_are_compared_in_profile_vllm(vllm):
    vllm["expected"]["passes"][3]["active_blocks"] = 2
    assert result(vllm).details == ("pass 3, active_blocks: expected 2, got 4",)


def test_token_times_are_compared(vllm):
    vllm["expected"]["requests"][2]["token_ms"][1] = 6.5
    assert result(vllm).details == ("request C, token_ms: expected [5.0, 6.5, 7.0], got [5.0, 6.0, 7.0]",)


def test_empty_batches_are_not_compared(vllm):
    vllm["expected"]["empty_batches"] = 99
    assert result(vllm).status == "passed"


def test_a_case_that_must_be_refused_passes_by_being_refused():
    assert result(case("peer/vllm_stuck")).status == "passed"


def test_a_case_that_must_be_refused_and_runs_has_failed(peer):
    peer["expected"] = {"error": True}
    assert result(peer).details == ("expected to be refused, but it ran",)


def test_a_refusal_of_a_case_with_an_answer_has_failed(peer):
    peer["config"]["engine"]["num_gpu_blocks"] = 0
    assert result(peer).details == ("refused: engine.num_gpu_blocks=0: must be a whole number of at least 1",)


def test_a_crash_is_a_failure_even_where_a_refusal_is_expected(monkeypatch):
    def crash(*_):
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr(check, "run", crash)
    assert result(case("peer/vllm_stuck")).details == ("crashed with ZeroDivisionError: by zero",)


def test_a_case_that_vllm_never_finishes_must_be_refused():
    stalled = case("vllm/unchunked")
    stalled["expected"]["stalled"] = ["r0"]
    assert result(stalled).details[0].startswith("vLLM never runs r0")


def test_missing_features_are_skipped_by_name():
    assert result(case("peer/vllm_state_cache")).line == "skipped  case: state cache: engine.state_cache"


def test_folder_report_recognises_kinds_by_content_and_closes_with_counts(tmp_path):
    for name in ("peer/vllm_stuck", "vllm/full_hit", "peer/vllm_state_cache"):
        (tmp_path / Path(name).name).with_suffix(".json").write_text(json.dumps(case(name)))
    (tmp_path / "notes.json").write_text('{"not": "a case"}')
    said: list[str] = []
    report = check_dir(tmp_path, engine="reference", echo=lambda found: said.append(found.line))
    assert report.closing == "2 passed, 0 failed, 1 skipped"
    assert report.exit_code == 0
    assert report.lines == [*said, report.closing]
    assert report.skips == {"vllm_state_cache": "state cache: engine.state_cache"}


def test_an_empty_folder_is_no_success(tmp_path):
    assert check_dir(tmp_path, engine="reference").exit_code == 1


def test_a_failure_decides_the_exit_code(tmp_path, peer):
    peer["expected"]["summary"]["duration_ms"] = 1.0
    (tmp_path / "case.json").write_text(json.dumps(peer))
    assert check_dir(tmp_path, engine="reference").exit_code == 1
