"""JSON formats without dependency graphs: units, block sizes, clocks, events."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.assets.ingest.samples import S, ids, lines, read, reasons, refused
from tests.assets.ingest.test_agentic import waits

MS = 10**6


def chat(number: int, parent: int, at: float, **more: Any) -> dict[str, Any]:
    return {
        "chat_id": number,
        "parent_chat_id": parent,
        "timestamp": at,
        "input_length": 20,
        "output_length": 3,
        "type": "text",
        "turn": 1,
        "hash_ids": [7, number],
        **more,
    }


def event(name: str, start: int, took: int, hashes: list[int], **more: Any) -> dict[str, Any]:
    replay = {"trace_block_size": 4, "input_length": 4 * len(hashes), "input_sequence_hashes": hashes}
    request = {"request_id": name, "output_tokens": 2, "request_received_ms": start, "total_time_ms": took}
    return {
        "schema": "dynamo.request.trace.v1",
        "event_type": "request_end",
        "event_time_unix_ms": start + took,
        "request": {**request, "replay": replay},
        **more,
    }


def test_bailian_is_in_seconds_and_blocks_of_16(tmp_path: Path) -> None:
    trace = read(tmp_path, lines([chat(1, -1, 0.5), chat(2, -1, 61.5)]))
    assert trace.format == "qwen_bailian"
    assert trace.arrival_ns.tolist() == [0, 61 * S]
    assert trace.hash_block_tokens == 16
    assert ids(trace, 0) == [7, 1]


def test_bailian_chats_follow_their_parent_and_branches_start_at_their_own_time(tmp_path: Path) -> None:
    rows = [chat(1, -1, 0), chat(2, 1, 10), chat(3, 1, 12), chat(4, 2, 30), chat(5, 99, 40), chat(2, 4, 50)]
    trace = read(tmp_path, lines(rows))
    assert trace.session_id == ["1", "1", "3", "1", "5"]
    assert trace.turn is not None
    assert trace.delay_ns is not None
    assert trace.turn.tolist() == [0, 1, 0, 2, 0]
    assert trace.delay_ns.tolist() == [0, 10 * S, 0, 20 * S, 0]
    assert trace.notes["second_answers_to_one_turn"] == 1
    assert trace.notes["turns_whose_parent_is_not_in_the_file"] == 1
    assert reasons(trace) == [(6, "duplicate_id", "chat_id")]


def test_bailian_ids_that_are_too_few(tmp_path: Path) -> None:
    trace = read(tmp_path, lines([chat(1, -1, 0), chat(2, -1, 1, input_length=33)]))
    assert reasons(trace) == [(2, "hash_count_mismatch", "hash_ids")]


def test_a_vllm_log_has_two_clocks_that_are_not_mixed(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"request_id": "b-0", "input_toks": 9, "output_toks": 5, "arrival_time": 1787267980.25, "queued_ts": 27536.6},
        {"request_id": "b-1", "input_toks": 8, "output_toks": 4, "arrival_time": 1787267980.75, "queued_ts": 27537.9},
        {"request_id": "b-2", "input_toks": 8, "output_toks": 4, "queued_ts": 27538.9},
    ]
    trace = read(tmp_path, lines(rows))
    assert (trace.format, trace.notes["clock"]) == ("vllm_log", "arrival_time")
    assert trace.arrival_ns.tolist() == [0, S // 2]
    assert reasons(trace) == [(3, "missing_field", "arrival_time")]
    for row in rows:
        row.pop("arrival_time", None)
    trace = read(tmp_path, lines(rows))
    assert trace.notes["clock"] == "queued_ts"
    assert trace.arrival_ns.tolist() == [0, 1_300_000_000, 2_300_000_000]


def test_dynamo_events_are_ordered_by_start_end_and_id(tmp_path: Path) -> None:
    rows = [
        event("b", 1000, 30, [1]),
        event("c", 1000, 20, [1, 2]),
        event("a", 1000, 30, [2]),
        event("d", 990, 99, [3]),
    ]
    trace = read(tmp_path, lines([{"event": row} for row in rows]))
    assert trace.format == "dynamo"
    assert trace.external_id == ["d", "c", "a", "b"]
    assert trace.request_id.tolist() == [3, 1, 2, 0]
    assert trace.arrival_ns.tolist() == [0, 10 * MS, 10 * MS, 10 * MS]
    assert trace.hash_block_tokens == 4


def test_dynamo_skips_tools_and_sets_strangers_aside(tmp_path: Path) -> None:
    good = event("a", 10, 5, [1])
    other_block = event("e", 10, 5, [1])
    other_block["request"]["replay"]["trace_block_size"] = 8
    rows = [
        {**good, "event_type": "tool_end"},
        good,
        {**good, "event_type": "surprise"},
        {**good, "schema": "dynamo.request.trace.v9"},
        good,
        other_block,
        event("f", 10, 5, []),
        event("g", 10, 5, [1], agent_context={"session_id": "s"}),
    ]
    trace = read(tmp_path, lines(rows))
    assert trace.counts.skipped == 1
    assert trace.counts.lines == trace.counts.skipped + trace.counts.records == 8
    assert reasons(trace) == [
        (3, "unknown_schema", "event_type"),
        (4, "unknown_schema", "schema"),
        (5, "duplicate_id", "request_id"),
        (6, "conflicting_fields", "trace_block_size"),
        (7, "non_positive", "input_length"),
        (8, "conflicting_fields", "agent_context"),
    ]
    refused(tmp_path, lines([good]), "no usable row among 1 .*conflicting_fields", block_tokens=16)


def test_dynamo_sessions_pause_as_recorded(tmp_path: Path) -> None:
    me = {"agent_context": {"session_id": "s"}}
    trace = read(tmp_path, lines([event("b", 200, 5, [1], **me), event("a", 100, 30, [1], **me)]))
    assert trace.external_id == ["a", "b"]
    assert trace.delay_ns is not None
    assert trace.delay_ns.tolist() == [0, 70 * MS]


def test_dynamo_subagents_start_with_their_parent_and_are_waited_for(tmp_path: Path) -> None:
    """Rule WL-17: b comes 10 ms after a has come; c waits for a's end and, as b had ended by then, for b's."""
    rows = [
        event("a", 100, 30, [1], agent_context={"session_id": "s"}),
        event("b", 110, 5, [1], agent_context={"session_id": "t", "parent_session_id": "s"}),
        event("c", 150, 5, [1], agent_context={"session_id": "s"}),
        event("x", 160, 5, [1], agent_context={"session_id": "u", "parent_session_id": "nowhere"}),
    ]
    trace = read(tmp_path, lines(rows))
    assert waits(trace) == {"a": [], "b": [("a", 10, True)], "c": [("a", 20, False), ("b", 35, False)], "x": []}
    assert trace.notes["sessions_with_unknown_parents"] == 1
    assert trace.session_id == ["a", "a", "a", "x"], "what parents connect is one play"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"tool_call_latency": [0.1]}, "too_few_turns"),
        ({"tool_call_latency": [0.1, -1]}, "negative"),
        ({"assistant_response_length": [1, 2.5]}, "wrong_type"),
        ({"num_turns": None}, "missing_field"),
        ({"input_prompt_length": 0}, "non_positive"),
    ],
)
def test_applied_compute(tmp_path: Path, change: dict[str, Any], reason: str) -> None:
    row = {
        "num_turns": 2,
        "input_prompt_length": 16,
        "assistant_response_length": [8, 8],
        "tool_call_output_length": [4, 4],
        "tool_call_latency": [0.035, 0.0],
        "final_assistant_response_length": 6,
    }
    text = lines([row, {**row, **change}, row])
    refused(tmp_path, text, "no arrival times")
    trace = read(tmp_path, text, needs_timestamps=False, cut_tokens=16)
    assert trace.prompt_tokens.tolist() == [16, 28, 40] * 2
    assert trace.output_tokens.tolist() == [8, 8, 6] * 2
    assert trace.delay_ns is not None
    assert trace.delay_ns.tolist() == [0, 35 * MS, 0] * 2
    assert trace.request_id.tolist() == [0, 1, 2, 4, 5, 6]
    assert trace.source_line.tolist() == [1] * 3 + [3] * 3
    assert [each[:2] for each in reasons(trace)] == [(2, reason)]
    assert ids(trace, 2)[:2] == ids(trace, 1) != ids(trace, 4)
    assert (trace.counts.records, trace.counts.rows_read) == (3, 7)
