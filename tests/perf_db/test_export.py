"""Exports hold what was committed, and never write over anything."""

from __future__ import annotations

import csv

import pyarrow.parquet as pq
import pytest

from perf_db.export import EXPORTED, ExportError, export_run
from perf_db.store import UnknownRun
from tests.perf_db.hand_made import hand_made, write_run


def test_parquet_is_the_committed_file(store, tmp_path):
    write_run(store, "r1")
    done = export_run(store, "last", tmp_path / "out", format="parquet")
    assert [(path.stem, n) for path, n in done] == [
        ("runs", 1), ("requests", 5), ("spans", 4), ("bursts", 4), ("passes", 5), ("evidence", 3),
        ("cell_ops", 2), ("pressure", 1), ("quarantine", 1), ("admissions", 4), ("chunks", 4), ("acceptance", 2),
        ("handoffs", 1),
        ("metrics", 2),
    ]  # fmt: skip
    for name, path in store.files("r1").items():
        copy = tmp_path / "out" / f"{name}.parquet"
        assert copy.read_bytes() == path.read_bytes()
        assert copy.stat().st_mode & 0o200, "an exported file is the user's to change"
    (run,) = pq.read_table(tmp_path / "out" / "runs.parquet").to_pylist()
    assert (run["run_id"], run["n_requests"]) == ("r1", 5)


def test_csv(store, tmp_path):
    write_run(store, "r1")
    (done,) = export_run(store, "r1", tmp_path, format="csv", tables=["requests"])
    assert done == (tmp_path / "requests.csv", 5)
    with open(tmp_path / "requests.csv") as file:
        rows = list(csv.DictReader(file))
    assert tuple(rows[0]) == EXPORTED["requests"].column_names
    assert [(r["request_id"], r["status"], r["second_token_ns"]) for r in rows[:3]] == [
        ("0", "completed", "30000000"),
        ("2", "completed", "35000000"),
        ("3", "completed", ""),
    ]
    assert [p.name for p in tmp_path.iterdir() if p.is_file()] == ["requests.csv"]


@pytest.mark.parametrize("format", ["csv", "parquet"])
def test_a_table_without_rows_becomes_a_header(store, tmp_path, format):
    write_run(store, "r1", tables={"requests": hand_made()["requests"]})
    ((path, n_rows),) = export_run(store, "r1", tmp_path, format=format, tables=["spans"])
    assert n_rows == 0
    header = path.read_text().split() if format == "csv" else [",".join(pq.read_schema(path).names)]
    assert header == [",".join(EXPORTED["spans"].column_names)]


def test_what_cannot_be_exported_is_said_before_anything_is_written(store, tmp_path):
    write_run(store, "r1")
    out = tmp_path / "out"
    with pytest.raises(ExportError, match="format='xlsx': choose csv or parquet"):
        export_run(store, "r1", out, format="xlsx")
    with pytest.raises(ExportError, match="no table 'tokens'; there are runs, requests"):
        export_run(store, "r1", out, tables=["runs", "tokens"])
    with pytest.raises(UnknownRun):
        export_run(store, "r9", out)
    assert not out.exists()
    out.mkdir()
    (out / "spans.csv").write_text("mine")
    with pytest.raises(ExportError, match=r"spans.csv already there; remove it or export into another folder"):
        export_run(store, "r1", out, format="csv")
    assert [p.name for p in out.iterdir()] == ["spans.csv"]
