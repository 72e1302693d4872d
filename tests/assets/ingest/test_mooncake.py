"""Mooncake JSON lines: what a row means, and why a row is set aside."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from assets.ingest import Trace, TraceError, read_trace

GOOD = {"timestamp": 5, "input_length": 600, "output_length": 7, "hash_ids": [1, 2]}


def row(**changes: Any) -> dict[str, Any]:
    """A good row with changes; None removes a field."""
    return {name: value for name, value in {**GOOD, **changes}.items() if value is not None}


def trace(tmp_path: Path, *rows: dict[str, Any] | str, **options: Any) -> Trace:
    path = tmp_path / "trace.jsonl"
    path.write_text("".join(f"{each if isinstance(each, str) else json.dumps(each)}\n" for each in rows))
    return read_trace(path, **options)


def ids(found: Trace, r: int) -> list[int]:
    assert found.hash_ids is not None
    assert found.hash_offsets is not None
    return found.hash_ids[found.hash_offsets[r] : found.hash_offsets[r + 1]].tolist()


def test_columns(tmp_path: Path) -> None:
    found = trace(tmp_path, row(), row(timestamp=8.25, input_length=512, hash_ids=[1], output_length=0))
    assert found.arrival_ns.tolist() == [0, 3_250_000]  # the first arrival is 0
    assert found.prompt_tokens.tolist() == [600, 512]
    assert found.output_tokens.tolist() == [7, 0]  # no output is legal
    assert [ids(found, r) for r in range(2)] == [[1, 2], [1]]
    assert found.request_id.tolist() == [0, 1]
    assert found.source_line.tolist() == [1, 2]
    assert found.external_id is None
    assert found.session is None
    assert found.pinned_rank is None


def test_aliases_and_the_default_length(tmp_path: Path) -> None:
    found = trace(
        tmp_path,
        {"created_time": 1, "input_tokens": 3, "output_tokens": 4, "hash_ids": [9]},
        {"timestamp": 1, "output_length": 4, "hash_ids": [9, 10]},
        row(input_tokens=600),  # both names with one value agree
    )
    assert found.prompt_tokens.tolist() == [3, 1024, 600]


@pytest.mark.parametrize(
    ("bad", "reason", "field"),
    [
        ('{"timestamp": 1, "input_le', "bad_json", None),
        ("[1, 2]", "bad_json", None),
        ("17", "bad_json", None),
        ("[" * 100_000, "bad_json", None),
        (row(output_length=None), "missing_field", "output_length"),
        (json.dumps({**GOOD, "output_length": None}), "missing_field", "output_length"),
        (row(timestamp=None), "missing_field", "timestamp"),
        (row(hash_ids=None), "missing_field", "hash_ids"),
        (row(hash_ids=[]), "missing_field", "hash_ids"),
        (row(input_length="600"), "wrong_type", "input_length"),
        (row(input_length=600.0), "wrong_type", "input_length"),
        (row(output_length=True), "wrong_type", "output_length"),
        (row(timestamp="5"), "wrong_type", "timestamp"),
        (row(hash_ids="12"), "wrong_type", "hash_ids"),
        (row(hash_ids=[1, "2"]), "wrong_type", "hash_ids"),
        (row(hash_ids=[1, 2.0]), "wrong_type", "hash_ids"),
        (row(hash_ids=[1, True]), "wrong_type", "hash_ids"),
        (row(hash_ids=[1, 2**64]), "out_of_range", "hash_ids"),
        (row(request_id=["a"]), "wrong_type", "request_id"),
        (row(session_id=1.5), "wrong_type", "session_id"),
        (row(input_length=-1), "negative", "input_length"),
        (row(output_length=-1), "negative", "output_length"),
        (row(timestamp=-0.5), "negative", "timestamp"),
        (row(timestamp=float("nan")), "not_finite", "timestamp"),
        (row(timestamp=float("inf")), "not_finite", "timestamp"),
        (row(input_length=float("inf")), "not_finite", "input_length"),
        (row(timestamp=1e13), "out_of_range", "timestamp"),
        (row(timestamp=1e308), "out_of_range", "timestamp"),
        (row(input_length=2**31), "out_of_range", "input_length"),
        (row(input_length=0), "non_positive", "input_length"),
        (row(input_length=0, hash_ids=[]), "non_positive", "input_length"),
        (row(input_length=1025), "hash_count_mismatch", "hash_ids"),
        (row(input_tokens=601), "conflicting_fields", "input_tokens"),
        (row(output_token_ids=[1, 2]), "output_count_mismatch", "output_token_ids"),
        (row(delay=3), "delay_without_turn", "delay"),
        (row(session_id="s", delay=3), "delay_without_turn", "delay"),
        (row(dp_rank=-1), "negative", "dp_rank"),
    ],
)
def test_bad_rows_are_set_aside_with_a_reason(tmp_path: Path, bad: Any, reason: str, field: str | None) -> None:
    found = trace(tmp_path, row(), bad, row())
    text = bad if isinstance(bad, str) else json.dumps(bad)
    assert found.quarantine.source_line == [2]
    assert found.quarantine.reason == [reason]
    assert found.quarantine.field == [field]
    assert found.quarantine.raw == [text]
    # The rows around it keep their places in the source.
    assert found.request_id.tolist() == [0, 2]
    assert found.source_line.tolist() == [1, 3]


def test_value_of_a_bad_field_is_shown(tmp_path: Path) -> None:
    found = trace(tmp_path, row(), row(input_length="many"), row(hash_ids=[1], input_length=513))
    assert found.quarantine.value == ["many", "1 ids where 2 are needed"]


def test_a_request_id_occurs_once_but_equal_rows_are_two_requests(tmp_path: Path) -> None:
    found = trace(
        tmp_path, row(), row(), row(request_id="a"), row(request_id="b"), row(request_id="a"), row(request_id=7)
    )
    assert found.quarantine.reason == ["duplicate_id"]
    assert found.quarantine.source_line == [5]
    assert found.external_id == [None, None, "a", "b", "7"]


def test_an_id_of_a_bad_row_is_free_again(tmp_path: Path) -> None:
    found = trace(tmp_path, row(request_id="a", input_length=-1), row(request_id="a"))
    assert found.external_id == ["a"]


def test_surplus_ids_are_allowed_and_counted(tmp_path: Path) -> None:
    found = trace(tmp_path, row(hash_ids=[1, 2, 3]), row())
    assert ids(found, 0) == [1, 2]
    assert found.notes["rows_with_surplus_hash_ids"] == 1


def test_a_block_size_that_is_too_large_is_noticed(tmp_path: Path) -> None:
    rows = [row(input_length=32, hash_ids=[1, 2])] * 3
    assert any("block_size" in each for each in trace(tmp_path, *rows).warnings)
    assert trace(tmp_path, *rows, block_tokens=16).warnings == ()


@pytest.mark.parametrize(
    ("lengths", "block", "said"),
    [
        (
            (600, 700),
            16,
            r"traffic\.source\.block_size=16 \(--block-size .* is what was asked for, .* would fit 512: set",
        ),
        ((20_000, 3_000), None, r"512 tokens per hash id are usual in this format, .* would fit 10000 or more: set"),
        ((150, 100), 16, r"would fit 75 to 99: set"),
    ],
)
def test_ids_of_other_blocks_are_no_other_format(
    tmp_path: Path, lengths: tuple[int, ...], block: int | None, said: str
) -> None:
    with pytest.raises(TraceError, match=said) as error:
        trace(tmp_path, *(row(input_length=n, hash_ids=[1, 2]) for n in lengths), block_tokens=block)
    assert "another format" not in str(error.value)


def test_ids_are_64_bits_whatever_their_sign(tmp_path: Path) -> None:
    found = trace(tmp_path, row(hash_ids=[2**64 - 2, 2**63]), row(hash_ids=[-5, 2**63 - 1]))
    assert ids(found, 0) == [-2, -(2**63)]
    assert ids(found, 1) == [-5, 2**63 - 1]


def test_no_ids_anywhere_means_unknown_prefixes(tmp_path: Path) -> None:
    found = trace(tmp_path, row(hash_ids=None), row(hash_ids=None))
    assert found.hash_offsets is None
    assert found.hash_ids is None


def test_rows_without_ids_before_the_first_with_ids_are_set_aside_too(tmp_path: Path) -> None:
    bare = row(hash_ids=None)
    found = trace(tmp_path, bare, bare, row(), bare)
    assert found.quarantine.source_line == [1, 2, 4]
    assert found.quarantine.reason == ["missing_field"] * 3
    assert found.request_id.tolist() == [2]


def test_unsorted_rows_are_sorted_stably_and_counted(tmp_path: Path) -> None:
    rows = [row(timestamp=t, output_length=i, hash_ids=[i, i]) for i, t in enumerate([30, 10, 20, 10, 40, 20])]
    found = trace(tmp_path, *rows)
    assert found.output_tokens.tolist() == [1, 3, 2, 5, 0, 4]  # ties keep the file's order
    assert [ids(found, r)[0] for r in range(6)] == [1, 3, 2, 5, 0, 4]
    assert found.arrival_ns.tolist() == [0, 0, 10_000_000, 10_000_000, 20_000_000, 30_000_000]
    assert found.request_id.tolist() == [1, 3, 2, 5, 0, 4]
    assert found.notes["rows_out_of_order"] == 4
    assert not found.notes["sorted"]
    assert found.quarantine.reason == []


def test_sessions_are_turns_in_file_order(tmp_path: Path) -> None:
    """Rule WL-11: without a delay, the difference of the timestamps."""
    found = trace(
        tmp_path,
        row(session_id="a", timestamp=100),
        row(session_id="b", timestamp=110),
        row(session_id="a", timestamp=130),
        row(timestamp=140),
        row(session_id="b", delay=7),
        row(session_id="a", timestamp=150, delay_ms=0.5),
    )
    assert found.session_names == ["a", "b"]
    assert found.session_id is not None
    by_request = np.argsort(found.request_id)
    assert [found.session_id[r] for r in by_request] == ["a", "b", "a", None, "b", "a"]
    assert found.turn is not None
    assert found.delay_ns is not None
    assert found.turn[by_request].tolist() == [0, 0, 1, -1, 1, 2]
    assert found.delay_ns[by_request].tolist() == [0, 0, 30_000_000, 0, 7_000_000, 500_000]
    assert (np.diff(found.arrival_ns) >= 0).all()


def test_turns_stay_in_order_when_the_file_is_sorted(tmp_path: Path) -> None:
    found = trace(
        tmp_path,
        row(session_id="late", timestamp=500),
        row(session_id="late", delay=1),
        row(timestamp=100),
        row(session_id="late", timestamp=1, delay=1),  # the delay counts, the stamp does not move it before its session
    )
    assert found.request_id.tolist() == [2, 0, 1, 3]
    assert found.turn is not None
    assert found.turn.tolist() == [-1, 0, 1, 2]


def test_a_turn_stamped_before_its_predecessor_is_set_aside(tmp_path: Path) -> None:
    found = trace(tmp_path, row(session_id="a", timestamp=100), row(session_id="a", timestamp=99))
    assert found.quarantine.reason == ["turn_goes_back"]


def test_timestamps_may_be_absent_where_nobody_needs_them(tmp_path: Path) -> None:
    rows = [row(timestamp=None, output_length=i) for i in range(3)]
    with pytest.raises(TraceError, match=r"(?s)3 x missing_field.*no arrival times; use a traffic\.load of type"):
        trace(tmp_path, *rows)
    found = trace(tmp_path, *rows, needs_timestamps=False)
    assert found.output_tokens.tolist() == [0, 1, 2]
    assert not found.has_timestamps


def test_requests_for_no_tokens_can_be_set_aside(tmp_path: Path) -> None:
    found = trace(tmp_path, row(), row(output_length=0), needs_output=True)
    assert found.quarantine.reason == ["zero_output"]


def test_pinned_ranks(tmp_path: Path) -> None:
    found = trace(tmp_path, row(dp_rank=1), row())
    assert found.pinned_rank is not None
    assert found.pinned_rank.tolist() == [1, -1]


def test_unknown_fields_are_ignored_and_named(tmp_path: Path) -> None:
    found = trace(tmp_path, row(colour="red", priority=1), row(colour="blue"))
    assert found.notes["ignored_fields"] == {"colour": 2}
