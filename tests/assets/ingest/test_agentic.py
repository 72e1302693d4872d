"""Formats of agents: chains are turns of a session; everything else are requests that wait for others of their play."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from assets.golden.run import run
from assets.ingest import Trace, TraceError, read_trace
from assets.ingest.shape import as_queue
from assets.inputs import workload_of
from sim.spec import EngineSpec, FixedTiming
from tests.assets.ingest.samples import S, ids, lines, read, reasons

MS = 10**6
HEADER = {"schema": "dynamo.agentic_mooncake", "version": 2, "block_size": 4, "hash_id_scope": "local", "source": {}}


def step(name: str, *waits: dict[str, Any], not_before: float = 0, play: str = "p", **more: Any) -> dict[str, Any]:
    return {
        "request_id": name,
        "play_id": play,
        "session_id": "s",
        "model": "m",
        "input_length": 6,
        "output_length": 2,
        "hash_ids": [1, 2],
        "not_before_ms": not_before,
        "dependencies": list(waits),
        **more,
    }


def after(name: str, delay: float = 0, trigger: str = "completion", relation: str = "sequence") -> dict[str, Any]:
    return {"request_id": name, "trigger": trigger, "delay_ms": delay, "relation": relation}


def test_chains_of_completions_are_sessions(tmp_path: Path) -> None:
    rows = [HEADER, step("a", not_before=100), step("c", after("b", 7)), step("b", after("a", 20)), step("x", play="q")]
    trace = read(tmp_path, lines(rows))
    assert (trace.format, trace.waits) == ("agentic_mooncake", None)
    assert set(trace.external_id or []) == set("abcx")
    by_name = {name: i for i, name in enumerate(trace.external_id or [])}
    assert trace.turn is not None
    assert trace.delay_ns is not None
    assert [int(trace.turn[by_name[name]]) for name in "abcx"] == [0, 1, 2, 0], "a play of one request is one, too"
    assert [int(trace.delay_ns[by_name[name]]) for name in "abc"] == [0, 20 * MS, 7 * MS]
    assert (trace.arrival_ns[by_name["x"]], trace.arrival_ns[by_name["a"]]) == (0, 100 * MS), "plays have one clock"
    assert trace.hash_block_tokens == 4


def waits(trace: Trace) -> dict[str, list[tuple[str, float, bool]]]:
    """By the requests' names: whom they wait for, for how many ms after, and whether for the arrival."""
    assert trace.waits is not None
    assert trace.external_id is not None
    names = dict(zip(trace.request_id.tolist(), trace.external_id))
    offsets, on, delay_ns, dispatch = (column.tolist() for column in trace.waits)
    return {
        str(name): [(str(names[on[k]]), delay_ns[k] / MS, bool(dispatch[k])) for k in range(*offsets[i : i + 2])]
        for i, name in enumerate(trace.external_id)
    }


def not_before(trace: Trace) -> list[float]:
    return [] if trace.not_before_ns is None else (trace.not_before_ns / MS).tolist()


@pytest.mark.parametrize(
    ("rows", "want"),
    [
        (
            [step("a"), step("b"), step("c", after("a"), after("b", 3, relation="join"))],
            {"a": [], "b": [], "c": [("a", 0, False), ("b", 3, False)]},
        ),
        (
            [step("a"), step("b", after("a")), step("c", after("a"))],
            {"a": [], "b": [("a", 0, False)], "c": [("a", 0, False)]},
        ),
        (
            [step("b", after("a", 4, trigger="dispatch", relation="spawn")), step("a")],
            {"a": [], "b": [("a", 4, True)]},
        ),
    ],
)
def test_what_is_more_than_a_chain_are_waits(tmp_path: Path, rows: list[dict[str, Any]], want: object) -> None:
    trace = read(tmp_path, lines([HEADER, *rows]))
    assert waits(trace) == want
    assert set(trace.session_id or []) == {"p"}
    assert trace.delay_ns is None


def test_an_earliest_start_counts_from_the_first_root_of_the_play(tmp_path: Path) -> None:
    """Rule WL-EX3, as turns of a session and among requests that wait for one another."""
    chain = [step("a", not_before=100), step("b", after("a", 20), not_before=150)]
    trace = read(tmp_path, lines([HEADER, *chain]))
    assert (trace.waits, not_before(trace)) == (None, [0, 50])
    trace = read(tmp_path, lines([HEADER, *chain, step("late", not_before=170)]))
    assert not_before(trace) == [0, 50, 70]
    assert trace.arrival_ns.tolist() == [0, 50 * MS, 70 * MS], "for those that wait, a place in the order"


def test_who_waits_for_a_request_that_was_set_aside_is_set_aside_too(tmp_path: Path) -> None:
    rows = [step("a"), step("b", after("a"), output_length=0), step("c", after("b")), step("d", after("a"))]
    trace = read(tmp_path, lines([HEADER, *rows]), needs_output=True)
    assert waits(trace) == {"a": [], "d": [("a", 0, False)]}
    assert reasons(trace) == [(3, "zero_output", "output"), (4, "no_such_request", "dependencies")]


def test_requests_that_can_never_become_ready(tmp_path: Path) -> None:
    rows = [
        HEADER,
        step("a"),
        step("self", after("self")),
        step("lost", after("nowhere")),
        step("after-lost", after("lost")),
        step("c1", after("c2")),
        step("c2", after("c1")),
        step("other", after("a"), play="q"),
    ]
    trace = read(tmp_path, lines(rows))
    assert trace.external_id == ["a"]
    assert reasons(trace) == [(line, "no_such_request", "dependencies") for line in range(3, 9)]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"hash_ids": [1, 2, 3]}, "hash_count_mismatch"),
        ({"hash_ids": [1]}, "hash_count_mismatch"),
        ({"play_id": None}, "missing_field"),
        ({"not_before_ms": -1}, "negative"),
        ({"dependencies": [after("a", relation="sideways")]}, "unknown_schema"),
        ({"dependencies": [after("a", trigger="dispatch")]}, "conflicting_fields"),
        ({"request_id": "a"}, "duplicate_id"),
    ],
)
def test_bad_steps(tmp_path: Path, change: dict[str, Any], reason: str) -> None:
    trace = read(tmp_path, lines([HEADER, step("a"), {**step("b"), **change}]))
    assert [each[:2] for each in reasons(trace)] == [(3, reason)]


def test_the_older_form_has_no_header(tmp_path: Path) -> None:
    row = {"input_length": 6, "output_length": 2, "hash_ids": [1]}
    rows = [
        {"request_id": "a", "timestamp": 50, "wait_for": [], **row},
        {"request_id": "b", "wait_for": ["a"], "delay": 5, "tool_wait_ms": 2, **row},
        {"request_id": "c", "wait_for": ["b"], "delay": 5, "delay_ms": 5, **row},
    ]
    trace = read(tmp_path, lines(rows))
    assert trace.delay_ns is not None
    assert trace.delay_ns.tolist() == [0, 7 * MS]
    assert reasons(trace) == [(3, "conflicting_fields", "delay_ms")]
    joined = [rows[0], {**rows[0], "request_id": "d"}, {**rows[1], "wait_for": ["a", "d"]}]
    trace = read(tmp_path, lines(joined))
    assert waits(trace)["b"] == [("a", 7, False), ("d", 7, False)]
    assert trace.session_id == ["a"] * 3, "what waits connect is one play"
    apart = [rows[0], {**rows[0], "request_id": "d", "timestamp": 80}, {**rows[1], "wait_for": ["d"]}]
    trace = read(tmp_path, lines(apart))
    assert (trace.session_id, trace.arrival_ns.tolist()) == ([None, "d", "d"], [0, 30 * MS, 37 * MS])


def call(at: float, prompt: int, hashes: list[int], **more: Any) -> dict[str, Any]:
    return {"t": at, "type": "n", "model": "m", "in": prompt, "out": 2, "hash_ids": hashes, "api_time": 0.5, **more}


def document(*calls: dict[str, Any], name: str = "one", **more: Any) -> str:
    return json.dumps({"id": name, "block_size": 4, "hash_id_scope": "local", "requests": list(calls), **more})


def subagent(at: float, *calls: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"t": at, "type": "subagent", "agent_id": "x", "status": "completed", "requests": list(calls), **more}


def test_weka_calls_are_turns_and_only_whole_blocks_have_ids(tmp_path: Path) -> None:
    calls = [call(0, 3, []), call(1.25, 10, [1, 2], out=0), call(2, 9, [1, 5], api_time=None), call(4, 8, [1, 5])]
    trace = read(tmp_path, document(*calls))
    assert (trace.format, trace.waits) == ("weka", None)
    assert not_before(trace) == [0, 1250, 2000, 4000]
    assert trace.delay_ns is not None
    assert trace.delay_ns.tolist() == [0, 750 * MS, 250 * MS, 2 * S]
    assert [ids(trace, row) for row in range(4)] == [[], [1, 2], [1, 5], [1, 5]]
    assert trace.output_tokens.tolist() == [2, 0, 2, 2]
    assert trace.notes["nested_timestamp_basis"] == "not_applicable"
    assert trace.notes["calls_without_end"] == 1


@pytest.mark.parametrize(
    ("first", "told", "basis", "at"),
    [(0.5, "auto", "relative", 10.5), (11.0, "auto", "absolute", 11.0), (11.0, "relative", "relative", 21.0)],
)
def test_weka_nested_times(tmp_path: Path, first: float, told: str, basis: str, at: float) -> None:
    text = document(call(0, 4, [1]), subagent(10, call(first, 4, [2])), call(30, 4, [1]))
    trace = read(tmp_path, text, nested_basis=told)
    assert trace.notes["nested_timestamp_basis"] == basis
    assert trace.arrival_ns.tolist() == [0, round(at * S), 30 * S]
    assert not_before(trace) == [0, at * 1000, 30_000]


def test_weka_calls_that_overlap(tmp_path: Path) -> None:
    assert read(tmp_path, document(call(0, 4, [1]), call(0.4999999, 4, [1]))).waits is None
    trace = read(tmp_path, document(call(0, 4, [1]), call(0.4, 4, [1])))
    assert trace.notes["overlapping_calls"] == 1
    assert trace.waits is not None
    assert len(trace.waits.on) == 0, "nothing had ended when the second was made"


def test_weka_ids_of_two_documents_are_not_the_same(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    for name in ("b", "a"):
        pretty = json.dumps(json.loads(document(call(0, 4, [1]), name=name)), indent=1)
        (tmp_path / "d" / f"{name}.json").write_text(pretty)
    trace = read_trace(tmp_path / "d")
    assert trace.session_id == ["a", "b"]
    assert ids(trace, 0) != ids(trace, 1)
    assert (trace.counts.lines, trace.source_line.tolist()) == (2, [1, 2])
    in_lines = read(tmp_path, document(call(0, 4, [1]), name="a") + "\n" + document(call(0, 4, [1]), name="b"))
    assert ids(in_lines, 1) == ids(trace, 1)
    (tmp_path / "d" / "c.json").symlink_to(tmp_path / "d" / "a.json")
    with pytest.raises(TraceError, match="is a link"):
        read_trace(tmp_path / "d")


@pytest.mark.parametrize(
    ("text", "reason", "field"),
    [
        (document(call(0, 4, [1]), call(-1, 4, [1]), name="two"), "negative", "requests[1].t"),
        (document(call(0, 10_000_001, [1]), name="two"), "out_of_range", "requests[0].in"),
        (document(subagent(3), name="two"), "missing_field", "requests[0].requests"),
        (document(call(0, 4, [1], type="?"), name="two"), "unknown_schema", "requests[0].type"),
        (document(call(0, 4, [1]), name="two", block_size=8), "conflicting_fields", "block_size"),
        (document(name="two"), "missing_field", "requests"),
        (document(call(0, 4, [1])), "duplicate_id", "id"),
        ("[1]", "bad_json", None),
    ],
)
def test_weka_sets_a_session_aside_as_a_whole(tmp_path: Path, text: str, reason: str, field: str | None) -> None:
    trace = read(tmp_path, document(call(0, 4, [1])) + "\n" + text)
    assert len(trace) == 1
    assert reasons(trace) == [(2, reason, field)]


LANES: dict[int | None, list[float]] = {
    None: [0, 40, 90, 100, 150],
    1: [0, 50, 61, 111, 122],
    2: [0, 0, 50, 50, 61],
}


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("engine", ["reference", "fast"])
def test_plays_in_lanes_arrive_as_recorded(tmp_path: Path, engine: Any, lanes: int | None) -> None:
    """Arrivals that the reference simulator gave, 10 ms a prompt and 1 ms a token; two plays, and a lone request."""
    rows = [
        step("a", not_before=100, hash_ids=[1], input_length=4),
        step("b", after("a", 20), not_before=150, input_length=5),
        step("x", play="q", not_before=40, hash_ids=[3, 4]),
        step("y", play="q", not_before=90, hash_ids=[3, 5], input_length=7),
        step("z", play="r", hash_ids=[6, 7], input_length=8),
    ]
    trace = read(tmp_path, lines([HEADER, *rows]))
    trace = as_queue(trace, file_order=lanes is not None)
    load = workload_of(trace, 5, arrival_ns=trace.arrival_ns, faster=lambda ns: ns, concurrency=lanes)
    spec = EngineSpec(profile="parity", async_scheduling=False, block_tokens=4, timing=FixedTiming(10, 1))
    got = run(spec, load, engine).tables["requests"]["arrival_ns"] / 1e6
    assert sorted(got) == LANES[lanes]
