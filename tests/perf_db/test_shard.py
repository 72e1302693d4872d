"""Runs in shards answer as runs with files of their own, also those whose rows were not kept."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from perf_db.export import ExportError, export_run
from perf_db.layout import StoreError
from perf_db.rows import copy_rows
from perf_db.shard import ALWAYS_KEPT, ShardWriter
from perf_db.store import Store
from perf_db.tables import RESULT_TABLES
from tests.perf_db.hand_made import write_run


def shard(store: Store, shard_id: str, keep: dict[str, bool], notes: dict | None = None) -> None:
    with ShardWriter(store, shard_id) as writer:
        for run_id, whole in keep.items():
            write_run(writer.scratch, run_id, name=f"of {run_id}")
            writer.take(run_id, keep=RESULT_TABLES if whole else ALWAYS_KEPT)
        writer.commit(notes or {})


def test_a_run_in_a_shard_reads_as_one_with_its_own_files(store: Store, tmp_path: Path) -> None:
    write_run(store, "a")
    shard(store, "shard-1", {"b": True, "c": False})
    assert [r["run_id"] for r in store.runs()] == ["a", "b", "c"]
    assert store.resolve("last") == "c" and store.resolve("of b") == "b"
    with store.connect() as con:
        for name, table in RESULT_TABLES.items():
            columns = ", ".join(table.column_names)
            rows = {r: con.execute(f"SELECT {columns} FROM {name} WHERE run_id = ?", [r]).fetchall() for r in "abc"}
            assert rows["a"] == rows["b"], name
            assert rows["c"] == (rows["a"] if name in ALWAYS_KEPT else []), name
        counted = con.execute("SELECT count(*), count(path) FROM files").fetchall()
        # All of two runs, and of the third what is always kept.
        assert counted == [(3 * len(RESULT_TABLES), 2 * len(store.files("a")) + len(ALWAYS_KEPT))]
    assert store.commit("a").run["result_digest"] == store.commit("b").run["result_digest"]
    assert store.verify("b") == [] and store.verify("c") == []
    assert store.commit("b").kept and not store.commit("c").kept


def test_its_rows_can_be_taken_out_again(store: Store, tmp_path: Path) -> None:
    write_run(store, "a")
    shard(store, "shard-1", {"b": True, "c": False})
    for name in store.files("a"):
        stored = store.commit("b").table(name)
        assert stored is not None
        copy_rows(store.root, stored, "b", tmp_path / f"{name}.parquet")
        own = pq.read_table(store.files("a")[name], partitioning=None)
        assert pq.read_table(tmp_path / f"{name}.parquet", partitioning=None).to_pylist() == own.to_pylist()
    export_run(store, "b", tmp_path / "out", format="csv")
    with pytest.raises(ExportError, match="rows of run c were not kept"):
        export_run(store, "c", tmp_path / "out2")


def test_notes_come_with_the_shard_and_may_be_written_again(store: Store) -> None:
    note = {
        "run_id": "b", "check_name": "x", "severity": "error", "table_name": "passes", "row_key": "k", "figure": None,
        "n_rows": 1, "explanation": "so",
    }  # fmt: skip
    shard(store, "shard-1", {"b": False}, {"anomalies": [note]})
    shard(store, "shard-2", {"c": False}, {"anomalies": [note | {"run_id": "c"}]})
    query = "SELECT run_id, check_name FROM anomalies ORDER BY ALL"
    with store.connect() as con:
        assert con.execute(query).fetchall() == [("b", "x"), ("c", "x")]
    from perf_db.tables import ANOMALIES

    store.note(ANOMALIES, "b", [note | {"check_name": "y"}])
    with store.connect() as con:
        assert con.execute(query).fetchall() == [("b", "y"), ("c", "x")]
    store.rebuild()
    with store.connect() as con:
        assert con.execute(query).fetchall() == [("b", "y"), ("c", "x")]


def test_a_shard_that_was_not_committed_leaves_nothing(store: Store) -> None:
    with ShardWriter(store, "shard-1") as writer:
        write_run(writer.scratch, "b")
        writer.take("b", keep=RESULT_TABLES)
    assert store.runs() == []
    assert not [p for p in store.root.rglob("*") if p.is_file()]


def test_what_a_killed_writer_left_is_swept(store: Store) -> None:
    write_run(store, "a")
    shard(store, "shard-1", {"b": True})
    (store.root / "shards" / "shard-2").mkdir()
    (store.root / "shards" / "shard-2" / "passes.parquet").write_text("half")
    (store.root / "staging" / "shard-3" / "scratch").mkdir(parents=True)
    assert sorted(p.name for p in store.sweep()) == ["shard-2", "shard-3"]
    assert store.verify("b") == []


def test_names_tell_shards_from_runs(store: Store) -> None:
    with pytest.raises(StoreError, match="those of shards"):
        write_run(store, "shard-x")
    with pytest.raises(StoreError, match="begin it with 'shard-'"):
        ShardWriter(store, "x")
    shard(store, "shard-1", {"b": True})
    with pytest.raises(StoreError, match="already in"):
        ShardWriter(store, "shard-1")


def test_a_run_of_an_older_release_is_still_shown(store: Store) -> None:
    """Its row of `runs` lacks what was not counted then."""
    import json

    write_run(store, "a")
    record = store.root / "commits" / "a.json"
    kept = json.loads(record.read_text())
    del kept["run"]["n_preemptions"], kept["run"]["unproven"]
    record.chmod(0o644)
    record.write_text(json.dumps(kept))
    store.rebuild()
    with store.connect() as con:
        assert con.execute("SELECT run_id, n_preemptions, unproven FROM runs").fetchall() == [("a", 0, "")]
