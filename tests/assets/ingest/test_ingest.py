"""Preparing a trace gives what reading it gives: rows, quarantine, counts; whole or not at all."""

from __future__ import annotations

import gzip
import json
import random
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assets.ingest import Trace, TraceError, mooncake, read_trace
from assets.ingest.ingest import ingest
from assets.ingest.prepared import ABOUT
from tests.assets.ingest.samples import AZURE, lines
from tests.assets.ingest.test_agentic import HEADER, after, call, document, step, subagent
from tests.assets.ingest.test_json_formats import chat, event

ROW = {"timestamp": 5, "input_length": 600, "output_length": 7, "hash_ids": [1, 2]}
COLUMNS = ("request_id", "source_line", "arrival_ns", "prompt_tokens", "output_tokens", "turn", "delay_ns")
RAGGED = ("hash_offsets", "hash_ids", "hashed_tokens", "pinned_rank", "not_before_ns")


def same(one: Trace, other: Trace) -> None:
    for name in (*COLUMNS, *RAGGED):
        a, b = getattr(one, name), getattr(other, name)
        assert (a is None) == (b is None), name
        assert a is None or a.tolist() == b.tolist(), name
    for name in ("external_id", "session_id", "counts", "digest", "hash_block_tokens", "has_timestamps"):
        assert getattr(one, name) == getattr(other, name), name
    assert [column.tolist() for column in one.waits or ()] == [column.tolist() for column in other.waits or ()]
    assert one.quarantine.columns() == other.quarantine.columns()
    assert {k: v for k, v in one.notes.items() if v} == {k: v for k, v in other.notes.items() if v}


def both(folder: Path, text: str | bytes, **options: Any) -> Trace:
    path = folder / "source"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    read = read_trace(path, **options)
    ingest(path, folder / "out.trace", **options)
    same(read_trace(folder / "out.trace"), read)
    return read


FILES: dict[str, str | bytes] = {
    "mooncake": lines([ROW, {**ROW, "timestamp": 3.25}, {**ROW, "timestamp": 2_000_000.125}, ROW]),
    "no_ids": lines([{"timestamp": 0, "input_length": 6, "output_length": 7}] * 2),
    "surplus": lines([{**ROW, "hash_ids": [1, 2, 3]}, {**ROW, "hash_ids": [2**63, 2**64 - 1]}, ROW]),
    "other_order": lines([{"hash_ids": [4], "output_tokens": 0, "created_time": 7, "input_tokens": 9}, ROW]),
    "sessions": lines([{**ROW, "session_id": "a", "request_id": str(i), "dp_rank": i} for i in range(3)]),
    "late_session": lines([ROW, ROW, {**ROW, "session_id": "a"}]),
    "late_ids": lines([{"timestamp": 0, "input_length": 6, "output_length": 7}, ROW]),
    "azure": AZURE,
    "bailian": lines([chat(1, -1, 10), chat(3, -1, 2), chat(2, 1, 11)]),
    "dynamo": lines([event("a", 10, 5, [1]), event("b", 8, 5, [1]), event("c", 8, 5, [1])]),
    "agentic": lines([HEADER, step("a"), step("b", after("a", 5))]),
    "weka": document(call(0, 3, []), call(1, 9, [1, 2])),
    "weka_graph": document(call(0, 3, []), subagent(1, call(0, 9, [1, 2])), call(2, 9, [1])),
    "agentic_graph": lines([HEADER, step("a"), step("b", after("a", 5)), step("c", after("a"), after("b", 1))]),
    "bom": b"\xef\xbb\xbf" + lines([ROW, ROW]).encode(),
    "not_text": lines([ROW, ROW]).encode() + b'\n{"a": "\xff"}\n\n' + json.dumps(ROW).encode(),
}


@pytest.mark.parametrize("name", FILES)
def test_preparing_is_reading(tmp_path: Path, name: str) -> None:
    both(tmp_path, FILES[name])


def test_delta_sessions_keep_how_far_ids_reach(tmp_path: Path) -> None:
    rows = [{**ROW, "session_id": "a"}, {**ROW, "session_id": "a", "delay": 2}]
    assert both(tmp_path, lines(rows), format="mooncake-delta").hashed_tokens is not None


def test_packed_files(tmp_path: Path) -> None:
    both(tmp_path, gzip.compress(lines([ROW, ROW, {**ROW, "input_length": -1}]).encode()))


DIRT: dict[str, str] = {
    "bad_json": '{"timestamp": 1, "inp',
    "trailing comma": '{"timestamp": 1, "input_length": 3, "output_length": 1, "hash_ids": [1,]}',
    "missing_field": '{"timestamp": 1, "input_length": 3, "hash_ids": [1]}',
    "no time": '{"input_length": 3, "output_length": 1, "hash_ids": [1]}',
    "wrong_type": '{"timestamp": 1, "input_length": "3", "output_length": 1, "hash_ids": [1]}',
    "wrong id": '{"timestamp": 1, "input_length": 3, "output_length": 1, "hash_ids": [true]}',
    "no id": '{"timestamp": 1, "input_length": 600, "output_length": 1, "hash_ids": [1, null]}',
    "fraction": '{"timestamp": 1, "input_length": 3.0, "output_length": 1, "hash_ids": [1]}',
    "negative": '{"timestamp": -1, "input_length": 3, "output_length": 1, "hash_ids": [1]}',
    "not_finite": '{"timestamp": NaN, "input_length": 3, "output_length": 1, "hash_ids": [1]}',
    "too few": '{"timestamp": 1, "input_length": 9999, "output_length": 1, "hash_ids": [1]}',
    "no tokens": '{"timestamp": 1, "input_length": 0, "output_length": 1, "hash_ids": [1]}',
    "too many": '{"timestamp": 1, "input_length": 3, "output_length": 4294967296, "hash_ids": [1]}',
    "past 64 bits": '{"timestamp": 1, "input_length": 3, "output_length": 9223372036854775808, "hash_ids": [1]}',
    "late past 64 bits": '{"timestamp": 18446744073709551615, "input_length": 3, "output_length": 1, "hash_ids": [1]}',
    "delay": '{"timestamp": 1, "input_length": 3, "output_length": 1, "hash_ids": [1], "delay": 3}',
    "twice": '{"timestamp": 1, "input_length": 3, "output_length": 1, "output_length": 2, "hash_ids": [1]}',
    "extra": '{"timestamp": 1, "input_length": 3, "output_length": 1, "hash_ids": [1], "note": "x"}',
    "deep": "[" * 3000,
    "blank": "  \t ",
}


def test_every_kind_of_dirt_gets_the_line_reader_s_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = random.Random(3)
    text = []
    for _ in range(20_000):
        if draw.random() < 0.02:
            text.append(draw.choice(list(DIRT.values())))
        else:
            length = draw.randrange(1, 5000)
            ids = [draw.randrange(2**40) for _ in range(-(-length // 512))]
            text.append(
                json.dumps({**ROW, "timestamp": draw.randrange(10**7), "input_length": length, "hash_ids": ids})
            )
    text[0] = json.dumps(ROW)
    monkeypatch.setattr("assets.ingest.chunks.CHUNK", 1 << 16)
    read = both(tmp_path, "".join(each + draw.choice(["\n", "\r\n"]) for each in text))
    assert len(set(read.quarantine.reason)) >= 8
    assert read.counts.blank > 5
    assert read.notes["rows_out_of_order"] > 1000


def test_plain_lines_do_not_pass_the_line_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise bulk reading would be a name only."""
    path = tmp_path / "source"
    path.write_text(lines([{**ROW, "timestamp": 0.5 + i} for i in range(1000)] + [ROW] * 1000))
    monkeypatch.setattr(mooncake.Reader, "row", None)
    assert ingest(path, tmp_path / "out.trace")["counts"]["clean"] == 2000


VALUES = st.one_of(
    st.sampled_from([-1, 0, 3, 2**31, 2**53 + 1, 2**63, 2**64, 10**30, "3", None, True, {}, 1.0, 0.5]),
    st.floats(),
    st.lists(st.sampled_from([1, 2, 2**63, 2**64, None, True, 0.5]), max_size=3),
)
NAMES = st.sampled_from(["timestamp", "input_length", "output_length", "hash_ids", "request_id", "delay"])


@settings(max_examples=100, deadline=None)
@given(changes=st.lists(st.dictionaries(NAMES, VALUES, max_size=2), min_size=4, max_size=8))
def test_rows_of_any_shape(changes: list[dict[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        both(Path(folder), lines([ROW, *({**ROW, **change} for change in changes)]))


def test_strict_and_hopeless_files_leave_nothing(tmp_path: Path) -> None:
    path = tmp_path / "source"
    path.write_text(lines([ROW, {**ROW, "input_length": -4}]))
    with pytest.raises(TraceError, match="line 2: negative in input_length=-4"):
        ingest(path, tmp_path / "out.trace", strict=True)
    path.write_text(lines([{**ROW, "input_length": -4}]))
    with pytest.raises(TraceError, match="no usable row among 1"):
        ingest(path, tmp_path / "out.trace")
    assert [each.name for each in tmp_path.iterdir()] == ["source"]


def test_an_older_one_is_replaced_and_another_folder_is_not(tmp_path: Path) -> None:
    path, out = tmp_path / "source", tmp_path / "out.trace"
    path.write_text(lines([ROW]))
    ingest(path, out)
    path.write_text(lines([ROW, ROW]))
    ingest(path, out)
    assert len(read_trace(out)) == 2
    (out / ABOUT).unlink()
    with pytest.raises(TraceError, match="is not a prepared trace"):
        ingest(path, out)


def test_rows_without_output_can_still_be_set_aside(tmp_path: Path) -> None:
    path, out = tmp_path / "source", tmp_path / "out.trace"
    path.write_text(lines([ROW, {**ROW, "output_length": 0}, {**ROW, "timestamp": 9}]))
    ingest(path, out)
    trace = read_trace(out, needs_output=True)
    assert trace.source_line.tolist() == [1, 3]
    assert trace.quarantine.reason == ["zero_output"]
    assert trace.hash_offsets is not None
    assert trace.hash_offsets.tolist() == [0, 2, 4]
