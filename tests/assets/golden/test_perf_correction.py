"""Recorded corrections are compared bit for bit; a file that is none is named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from assets.golden.perf_correction import as_the_recorder_read, check_corrections
from perf_db.gpu.errors import PerfDataError


def test_numbers_are_read_as_the_recorder_read_them() -> None:
    assert as_the_recorder_read("0.5") == 0.5
    assert as_the_recorder_read("12") == 12.0
    assert as_the_recorder_read("1.5e-3") == 0.0015
    assert as_the_recorder_read("2e2") == 200.0
    # 17 digits do not fit a double's 53 bits: two roundings, and a neighbour of the nearest double.
    assert as_the_recorder_read("0.24624301837583218") == pytest.approx(0.24624301837583218, rel=1e-15)


def test_every_query_is_asked_after_every_observation(tmp_path: Path) -> None:
    path = tmp_path / "correction.json"
    run = {
        "options": {"min_observations": 1, "max_slower_correction_factor": 1.5},
        "native_answers_ms": [10.0, 20.0],
        "steps": [
            {"observation": [1, 100, 0, 0, 0], "native_ms": 8.0, "wall_time_s": 0.0125, "answers_ms": [15.0, 20.0]},
            {"observation": [1, 120, 0, 0, 0], "native_ms": 8.0, "wall_time_s": 0.008, "answers_ms": [12.5, 21.0]},
        ],
    }
    path.write_text(json.dumps({"queries": [[1, 50, 0, 0, 0], [0, 0, 0, 1, 9]], "runs": [run]}))
    found = list(check_corrections(path))
    assert [(want, got) for _, want, got in found] == [(15.0, 15.0), (20.0, 20.0), (12.5, 12.5), (21.0, 20.0)]
    assert found[3][0] == "correction.json run 0, after observation 1, query 1"


def test_a_file_that_is_none_is_named(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    step = '{"observation": [1, 1, 0, 0, 0], "native_ms": 8, "wall_time_s": 1e400, "answers_ms": []}'
    run = '{"options": %s, "native_answers_ms": [], "steps": [%s]}'
    runs = (run % ("null", ""), run % ("[]", ""), run % ("{}", step))
    junk = [f'{{"queries": [], "runs": [{each}]}}' for each in runs]
    for text in (*junk, "[" * 100_000, "{", "{}", '{"queries": [[1, 2, 3, 4, 5, 6]], "runs": []}'):
        path.write_text(text)
        with pytest.raises(PerfDataError, match="no recorded corrections"):
            list(check_corrections(path))
    with pytest.raises(PerfDataError, match=f"{path}: no recorded corrections: field 'runs' is missing"):
        path.write_text('{"queries": []}')
        list(check_corrections(path))
    with pytest.raises(PerfDataError, match="cannot be read: No such file"):
        list(check_corrections(tmp_path / "none.json"))
