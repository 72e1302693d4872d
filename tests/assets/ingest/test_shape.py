"""Another trace from a trace, step by step."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import TypeAdapter

from assets.ingest import Trace, TraceError
from assets.ingest.shape import shaped
from sim.config.shape import Step
from tests.assets.ingest.samples import AZURE, ids, lines, read

STEP: TypeAdapter[Any] = TypeAdapter(Step)


def row(at: float, prompt: int = 8, hashes: tuple[int, ...] = (1, 2), **more: Any) -> dict[str, Any]:
    return {"timestamp": at, "input_length": prompt, "output_length": 4, "hash_ids": list(hashes), **more}


def apply(trace: Trace, *steps: dict[str, Any], other: Trace | None = None) -> Trace:
    def given(step: Any) -> Trace:
        assert other is not None
        return other

    return shaped(trace, [STEP.validate_python(each) for each in steps], given)[0]


ROWS = [
    row(0, session_id="a"),
    row(1000, session_id="b"),
    row(1500),
    row(2000, session_id="a"),
    row(2500, session_id="b"),
    row(3000, session_id="b"),
]


@pytest.fixture
def trace(tmp_path: Path) -> Trace:
    return read(tmp_path, lines(ROWS), block_tokens=4)


def test_slices_by_time_keep_sessions_that_begin_inside(trace: Trace) -> None:
    found = apply(trace, {"type": "slice_seconds", "start": 0.5, "end": 1.5})
    assert found.source_line.tolist() == [2, 5, 6]
    assert found.arrival_ns.tolist() == [0, 1_500_000_000, 2_000_000_000]
    assert found.session_id == ["b", "b", "b"]
    assert found.session is not None
    assert found.session.tolist() == [0, 0, 0]
    assert apply(trace, {"type": "slice_seconds", "start": 1.5}).source_line.tolist() == [3]


def test_slices_by_rows_never_keep_a_turn_without_its_first(trace: Trace) -> None:
    assert apply(trace, {"type": "slice_rows", "start": 1, "end": 5}).source_line.tolist() == [2, 3, 5]
    assert apply(trace, {"type": "slice_rows", "end": 2}).source_line.tolist() == [1, 2]
    assert apply(trace, {"type": "slice_rows"}).source_line.tolist() == trace.source_line.tolist()


def test_a_sample_does_not_depend_on_what_follows(tmp_path: Path) -> None:
    many = read(tmp_path, lines(row(i) for i in range(2000)), block_tokens=4)
    few = read(tmp_path, lines(row(i) for i in range(100)), block_tokens=4)
    step = {"type": "sample", "share": 0.3, "seed": 5}
    kept = apply(many, step).request_id
    assert abs(len(kept) / 2000 - 0.3) < 0.04
    assert kept[kept < 100].tolist() == apply(few, step).request_id.tolist()
    assert apply(many, {**step, "share": 1}).request_id.tolist() == many.request_id.tolist()


def test_samples_take_sessions_as_a_whole(trace: Trace) -> None:
    for seed in range(20):
        try:
            found = apply(trace, {"type": "sample", "share": 0.5, "seed": seed})
        except TraceError as nothing:
            assert "nothing is left" in str(nothing)
            continue
        for line in ({1, 4}, {2, 5, 6}):
            assert line <= set(found.source_line.tolist()) or not line & set(found.source_line.tolist())


def test_speed_up_divides_think_times_too(trace: Trace) -> None:
    found = apply(trace, {"type": "speed_up", "factor": 2})
    assert found.arrival_ns.tolist() == (trace.arrival_ns // 2).tolist()
    assert found.delay_ns is not None
    assert trace.delay_ns is not None
    assert found.delay_ns.tolist() == (trace.delay_ns // 2).tolist()


def test_clipped_prompts_keep_the_ids_that_describe_them(tmp_path: Path) -> None:
    trace = read(tmp_path, lines([row(0, 8), row(0, 12, (1, 2, 3))]), block_tokens=4)
    found = apply(trace, {"type": "clip", "prompt_tokens": 7, "output_tokens": 3})
    assert found.prompt_tokens.tolist() == [7, 7]
    assert found.output_tokens.tolist() == [3, 3]
    assert [ids(found, i) for i in (0, 1)] == [[1, 2], [1, 2]]
    assert ids(apply(trace, {"type": "clip", "prompt_tokens": 4}), 1) == [1]


@pytest.mark.parametrize("factor", [0.25, 0.5, 1.0, 2.5, 4])
def test_scaled_lengths_share_as_large_a_part(tmp_path: Path, factor: float) -> None:
    rows = [row(0, 9, (1, 2, 3)), row(0, 12, (1, 2, 3)), row(0, 3, (1,))]
    found = apply(read(tmp_path, lines(rows), block_tokens=4), {"type": "scale", "prompt": factor, "output": 0.01})
    assert found.hash_block_tokens == 4 * factor
    assert found.prompt_tokens.tolist() == [max(1, int(n * factor + 0.5)) for n in (9, 12, 3)]
    assert found.output_tokens.tolist() == [1, 1, 1], "an answer does not become none"
    # Rounding may end a prompt before its last, barely begun block.
    assert [ids(found, i) for i in range(3)] == [[1, 2] if factor == 0.25 else [1, 2, 3], [1, 2, 3], [1]]


def test_scales_that_would_tear_blocks_apart_are_refused(trace: Trace) -> None:
    with pytest.raises(TraceError, match=r"would make blocks of 1\.2 tokens; choose a factor"):
        apply(trace, {"type": "scale", "prompt": 0.3})


def test_text_made_of_earlier_turns_is_not_cut(tmp_path: Path) -> None:
    trace = read(tmp_path, lines(ROWS), format="mooncake-delta", block_tokens=4)
    with pytest.raises(TraceError, match="made of earlier turns"):
        apply(trace, {"type": "clip", "prompt_tokens": 4})


def test_merged_traces_keep_their_rows_lines_and_texts_apart(tmp_path: Path) -> None:
    one = read(tmp_path, lines([row(0, session_id="a"), row(1000)]) + "\nx\n", block_tokens=4)
    other = read(tmp_path, lines([row(0, session_id="a"), row(10, 8, (1, 9))]) + "\ny\n", block_tokens=4)
    found = apply(one, {"type": "merge", "path": "x", "offset_seconds": 1}, other=other)
    assert found.arrival_ns.tolist() == [0, 10**9, 10**9, 1_010_000_000]
    assert found.request_id.tolist() == [0, 1, 3, 4]
    assert found.source_line.tolist() == [1, 2, 4, 5]
    assert found.session_id == ["a", None, "a'", None]
    assert found.quarantine.source_line == [3, 6]
    assert (found.counts.rows_read, found.counts.clean, found.counts.quarantined) == (6, 4, 2)
    assert ids(found, 0) == ids(found, 1)
    assert not set(ids(found, 1)) & set(ids(found, 2))
    assert ids(found, 2)[0] == ids(found, 3)[0]
    assert found.digest not in (one.digest, other.digest)
    same = apply(one, {"type": "merge", "path": "x", "same_ids": True}, other=other)
    assert [ids(same, i)[0] for i in range(4)] == [1, 1, 1, 1]
    assert same.source_line.tolist() == [1, 4, 5, 2]


def test_merges_that_mean_nothing_are_refused(trace: Trace, tmp_path: Path) -> None:
    step = {"type": "merge", "path": "x"}
    with pytest.raises(TraceError, match="says nothing about prefixes"):
        apply(trace, step, other=read(tmp_path, AZURE))
    with pytest.raises(TraceError, match="ids of 8 tokens cannot be merged with ids of 4"):
        apply(trace, step, other=read(tmp_path, lines([row(0)]), block_tokens=8))


def test_every_step_says_what_it_did(trace: Trace) -> None:
    steps = [
        {"type": "slice_rows", "end": 5},
        {"type": "speed_up", "factor": 2.0},
        {"type": "clip", "prompt_tokens": 5},
    ]
    found, lineage = shaped(trace, [STEP.validate_python(each) for each in steps], lambda step: trace)
    assert [(each["type"], each["requests_before"], each["requests_after"]) for each in lineage] == [
        ("slice_rows", 6, 5),
        ("speed_up", 5, 5),
        ("clip", 5, 5),
    ]
    assert lineage[0]["end"] == 5
    assert (np.diff(found.arrival_ns) >= 0).all()
    with pytest.raises(TraceError, match=r"nothing is left after traffic\.source\.shape step 'slice_seconds'"):
        apply(trace, {"type": "slice_seconds", "start": 99})
