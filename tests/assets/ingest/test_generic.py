"""Files whose columns the configuration names."""

from __future__ import annotations

from pathlib import Path

import pytest

from assets.ingest import TraceError
from assets.ingest.ingest import ingest
from tests.assets.ingest.samples import S, ids, lines, read, reasons, refused

NAMES = {"arrival": "t", "prompt_tokens": "in", "output_tokens": "out"}


def test_csv(tmp_path: Path) -> None:
    text = (
        't,in,out,who,hash_ids,extra\n0.5,40,2,u1,"[1, 2, 3]",x\n1.5,40,2,,4 5 6,\n2.5,40,2,u1,7 x 9,\n,40,2,,1 2 3,\n'
    )
    trace = read(tmp_path, text, columns={**NAMES, "session_id": "who"}, time_unit="s", block_tokens=16)
    assert (trace.format, trace.why.startswith("columns are named")) == ("csv", True)
    assert trace.arrival_ns.tolist() == [0, S]
    assert trace.session_id == ["u1", None]
    assert ids(trace, 1) == [4, 5, 6]
    assert reasons(trace) == [(4, "wrong_type", "hash_ids"), (5, "missing_field", "timestamp")]


def test_json_lines_with_wall_clock_times(tmp_path: Path) -> None:
    times = ("2024-05-10 00:00:00.5Z", "2024-05-10T02:00:01+02:00", "yesterday")
    text = lines({"t": each, "in": 3, "out": 1} for each in times)
    trace = read(tmp_path, text, columns=NAMES)
    assert trace.format == "jsonl"
    assert trace.arrival_ns.tolist() == [0, S // 2]
    assert reasons(trace) == [(3, "wrong_type", "t")]


def test_parquet(tmp_path: Path) -> None:
    import datetime as dt

    import pyarrow as pa
    import pyarrow.parquet as pq

    at = [dt.datetime(2024, 1, 1, 0, 0, 0, 250_000), dt.datetime(2024, 1, 1, 0, 0, 1), None]
    pq.write_table(pa.table({"t": at, "in": [5, -6, 7], "out": [1, 2, 3], "hash_ids": [[1], [2], [3]]}), tmp_path / "p")
    trace = read(tmp_path, (tmp_path / "p").read_bytes(), columns=NAMES, needs_timestamps=False)
    assert trace.format == "parquet"
    assert trace.prompt_tokens.tolist() == [5, 7]
    assert reasons(trace) == [(2, "negative", "in")]


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_units(tmp_path: Path, unit: str) -> None:
    trace = read(tmp_path, "t,in,out\n0,1,1\n3,1,1\n", columns=NAMES, time_unit=unit)
    assert trace.arrival_ns.tolist() == [0, 3 * {"s": S, "ms": 10**6, "us": 1000, "ns": 1}[unit]]


def test_a_column_that_the_header_lacks_is_misspelt(tmp_path: Path) -> None:
    text, misspelt = "start_time,in,out\n0,1,1\n", {**NAMES, "arrival": "start_tim"}
    said = r"has no column start_tim \(traffic\.source\.columns\.arrival\); it has start_time, in, out"
    refused(tmp_path, text, rf"{said}; did you mean start_time\?$", columns=misspelt)
    refused(tmp_path, "a,b\n1,2\n", r"has no column t \(.*; it has a, b$", columns=NAMES)


def test_a_column_that_a_parquet_file_lacks_is_misspelt(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"start_time": [0], "in": [1], "out": [1]}), tmp_path / "p")
    misspelt = {**NAMES, "arrival": "start_tim"}
    with pytest.raises(TraceError, match=r"it has start_time, in, out; did you mean start_time\?$"):
        read(tmp_path, (tmp_path / "p").read_bytes(), columns=misspelt)
    with pytest.raises(TraceError, match=r"did you mean start_time\?$"):
        ingest(tmp_path / "p", tmp_path / "out", columns=misspelt)
