"""Forward-pass metrics as JSON lines: one observation per iteration, bad lines by number."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from perf_db.gpu.errors import PerfDataError
from perf_db.gpu.forward_jsonl import RankWork, observations, read_forward_jsonl, table_rows
from tests.perf_db.gpu.forward_rows import IDENTITY


def line(rank: int = 0, *, wall: float | None = 0.01, counter: int | None = None, **counts: int) -> dict[str, Any]:
    found: dict[str, Any] = {"worker_id": "w", "dp_rank": rank, "wall_time": wall, "scheduled_requests": counts}
    return found if counter is None else found | {"counter_id": counter}


def read(*records: Any) -> list[Any]:
    return list(observations([json.dumps(r) for r in records], source="x"))


def test_4_1_the_slowest_rank_is_the_target_and_every_rank_is_kept() -> None:
    a = line(0, wall=0.010, counter=7, num_decode_requests=2, sum_decode_kv_tokens=20)
    b = line(1, wall=0.012, counter=7, num_prefill_requests=1, sum_prefill_tokens=9)
    (one,) = read(a, b)
    assert one.wall_time_ms == 12.0
    assert one.ranks == (RankWork(0, 0, 0, 2, 20), RankWork(1, 9, 0, 0, 0))
    assert read([a, b]) == [one]
    assert len(read(a, b | {"counter_id": 8})) == 2


def test_4_1_iterations_without_work_or_time_are_left_out() -> None:
    assert read(line(), line(wall=0.0, num_decode_requests=1), line(wall=None, num_decode_requests=1)) == []
    assert (
        len(read(line(num_decode_requests=1, sum_decode_kv_tokens=5), {"num_decode_requests": 1, "wall_time": 1})) == 2
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "x:2: not JSON"),
        ('"a"', "x:2: a record is an object, not str"),
        ('{"a": 1}', "x:2: none of num_prefill_requests"),
        ('{"num_decode_requests": -1}', "x:2: num_decode_requests=-1: a count is a whole number"),
        ('{"num_decode_requests": 1' + "0" * 30 + "}", "x:2: num_decode_requests=1000"),
        ('{"num_decode_requests": true}', "x:2: num_decode_requests=True"),
        ('{"sum_decode_kv_tokens": 4}', r"x:2: 4 token\(s\) of no request"),
        ('{"num_decode_requests": 1, "wall_time": "1"}', "x:2: wall_time='1'"),
        ('{"scheduled_requests": 3}', "x:2: scheduled_requests is no object"),
    ],
)
def test_a_bad_line_is_named(text: str, said: str) -> None:
    with pytest.raises(PerfDataError, match=said):
        list(observations(["", text], source="x"))


def test_a_file_that_is_none_is_named(tmp_path: Path) -> None:
    with pytest.raises(PerfDataError, match="No such file"):
        read_forward_jsonl(tmp_path / "x.jsonl")
    (tmp_path / "y.jsonl").write_bytes(b"\xff\xfe")
    with pytest.raises(PerfDataError, match="not UTF-8"):
        read_forward_jsonl(tmp_path / "y.jsonl")


def test_pure_passes_of_one_rank_become_rows_of_a_table() -> None:
    found = read(
        line(wall=0.010, num_prefill_requests=1, sum_prefill_tokens=8),
        line(wall=0.012, num_prefill_requests=1, sum_prefill_tokens=8),
        line(wall=0.020, num_prefill_requests=1, sum_prefill_tokens=8),
        line(wall=0.002, num_decode_requests=1, sum_decode_kv_tokens=4),
        line(wall=0.030, num_prefill_requests=1, sum_prefill_tokens=8, num_decode_requests=1, sum_decode_kv_tokens=4),
        [
            line(0, num_decode_requests=9, sum_decode_kv_tokens=9),
            line(1, num_decode_requests=1, sum_decode_kv_tokens=9),
        ],
    )
    rows = table_rows(found, IDENTITY, cell="mine")
    assert [(r["workload_kind"], r["batch_size"], r["latency_ms"]) for r in rows] == [
        ("decode", 1, 2.0),
        ("prefill", 1, 12.0),
    ]
    assert {r["cell_id"] for r in rows} == {"mine"}
