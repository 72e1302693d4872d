"""A run exists whole or not at all, whoever dies, writes or reads meanwhile."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

from assets.views import load_views
from perf_db import face
from perf_db.layout import StoreError, locked
from perf_db.sqlsafe import run_sql
from perf_db.store import Store, UnknownRun
from tests.perf_db.hand_made import hand_made, identity, run_facts, write_run

ROOT = Path(__file__).parents[2]


def writer(store: Store, *args: str) -> subprocess.Popen:
    command = [sys.executable, str(Path(__file__).with_name("writer_process.py")), str(store.root), *args]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen) -> int:
    _, errors = process.communicate(timeout=60)
    assert "Traceback" not in errors, errors
    return process.returncode


def seen(store: Store) -> list[tuple[str, int]]:
    """(run, rows of requests) as a reader finds them."""
    with store.connect() as con:
        return con.execute(
            "SELECT run_id, count(request_id) FROM runs LEFT JOIN requests USING (run_id) GROUP BY ALL ORDER BY ALL"
        ).fetchall()


@pytest.mark.parametrize("moment", ["while writing rows", "before the commit record"])
def test_a_killed_writer_is_never_visible(store, moment):
    write_run(store, "good")
    assert finish(writer(store, "killed", "1", moment)) == -9
    assert seen(store) == [("good", 5)]
    assert [r["run_id"] for r in store.runs()] == ["good"]

    removed = store.sweep()
    assert [p.name for p in removed] == (["killed"] if moment == "while writing rows" else ["run_id=killed0"])
    assert [p.name for p in (store.root / "runs").iterdir()] == ["run_id=good"]
    assert list((store.root / "staging").iterdir()) == []
    assert seen(store) == [("good", 5)]


@pytest.mark.parametrize("moment", ["before the face", "while building the face"])
def test_a_commit_stands_even_if_its_writer_dies_before_the_face(store, moment):
    write_run(store, "good")
    assert finish(writer(store, "killed", "1", moment)) == -9
    assert seen(store) == [("good", 5), ("killed0", 5)]
    assert store.verify("killed0") == []


def test_the_sweeper_leaves_living_writers_alone(store):
    process = writer(store, "living", "1", "until told")
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    assert store.sweep() == []
    with pytest.raises(StoreError, match="being written by another process"):
        store.begin("living", identity=identity())
    finish(process)  # ends without a commit
    assert [p.name for p in store.sweep()] == ["living"]


def test_the_sweeper_finds_every_kind_of_leftover(store):
    write_run(store, "good")
    dead = 2**22 + 1  # above any process id
    leftovers = [
        store.root / "staging" / "gone.lock",
        store.root / "commits" / f".gone.json.{dead}",
        store.root / f".tracemill.duckdb.{dead}",
        store.root / "spill" / f"duckdb_temp_{dead}_0_storage.tmp",
    ]
    living = store.root / "spill" / f"duckdb_temp_{os.getpid()}_0_storage.tmp"
    living.parent.mkdir()
    for path in (*leftovers, living):
        path.write_text("")
    store.sweep()
    assert [p for p in leftovers if p.exists()] == []
    assert living.exists()
    assert store.sweep() == [] and store.verify("good") == []


def test_a_failed_replay_leaves_nothing(store):
    with pytest.raises(ZeroDivisionError), store.begin("r1", identity=identity()) as run:
        run.rows("requests", hand_made()["requests"])
        _ = 1 / 0
    assert list((store.root / "staging").iterdir()) == []
    write_run(store, "r1")  # the name is free again
    assert seen(store) == [("r1", 5)]


def test_a_commit_that_fails_leaves_nothing(store, monkeypatch):
    from perf_db import writer as module

    def full(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(module, "write_commit", full)
    with pytest.raises(OSError, match="disk full"):
        write_run(store, "r1")
    assert store.runs() == []
    assert list((store.root / "runs").iterdir()) == list((store.root / "staging").iterdir()) == []


def test_a_committed_run_never_changes(store):
    write_run(store, "r1")
    with pytest.raises(StoreError, match=r"already in .*; a committed run never changes"):
        store.begin("r1", identity=identity())


def test_two_writers_do_not_lose_each_others_commits(store):
    processes = [writer(store, prefix, "4") for prefix in ("left", "right")]
    assert [finish(p) for p in processes] == [0, 0]
    assert seen(store) == [(f"{prefix}{i}", 5) for prefix in ("left", "right") for i in range(4)]
    # Not by catching up in the reader: the file itself shows them all.
    with duckdb.connect(str(store.database), read_only=True) as con:
        assert con.execute("SELECT count(*) FROM runs").fetchone() == (8,)


def test_readers_see_whole_runs_while_others_commit(store):
    write_run(store, "first")
    process = writer(store, "later", "8")
    counts = set()
    while process.poll() is None:
        rows = seen(store)
        assert {n for _, n in rows} == {5}
        counts.add(len(rows))
    assert finish(process) == 0
    assert len(seen(store)) == 9
    assert len(counts) > 1, "no reader was there while runs were added"


def test_an_open_reader_keeps_its_snapshot_and_a_new_one_sees_more(store):
    write_run(store, "r1")
    with store.connect() as before:
        write_run(store, "r2")
        assert before.execute("SELECT count(*) FROM runs").fetchone() == (1,)
        with store.connect() as after:
            assert after.execute("SELECT count(*) FROM runs").fetchone() == (2,)


def test_a_reader_does_not_wait_for_a_busy_writer(store, monkeypatch):
    write_run(store, "r1")
    monkeypatch.setattr(Store, "_publish", lambda self: None)  # as if the writer were just about to
    write_run(store, "r2")
    with locked(store.root / ".lock") as held:
        assert held
        assert seen(store) == [("r1", 5)]
    assert seen(store) == [("r1", 5), ("r2", 5)]


def test_a_run_committed_while_the_file_is_brought_up_to_date_waits_for_the_next_time(store, monkeypatch):
    """Else views would show rows of a run that `runs` and `files` do not know."""
    write_run(store, "r1")
    monkeypatch.setattr(Store, "_publish", lambda self: None)
    write_run(store, "r2")
    real = face.read_commits

    def somebody_commits_meanwhile(layout):
        write_run(store, "r3")
        return real(layout)

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(face, "read_commits", somebody_commits_meanwhile)
        store._update()
    with duckdb.connect(str(store.database), read_only=True) as con:
        runs = con.execute("SELECT run_id FROM runs ORDER BY 1").fetchall()
        assert con.execute("SELECT DISTINCT run_id FROM requests ORDER BY 1").fetchall() == runs == [("r1",), ("r2",)]
    assert [run_id for run_id, _ in seen(store)] == ["r1", "r2", "r3"]


@pytest.mark.parametrize("error", [OSError(30, "Read-only file system"), duckdb.IOException("No space left on device")])
def test_a_store_that_is_behind_and_cannot_be_written_is_read_as_it_is(store, monkeypatch, error):
    write_run(store, "r1")
    monkeypatch.setattr(Store, "_publish", lambda self: None)
    write_run(store, "r2")

    def fails(self):
        raise error

    monkeypatch.setattr(face.Face, "update", fails)
    assert seen(store) == [("r1", 5)]


def test_a_reader_cannot_write(store):
    write_run(store, "r1")
    with store.connect() as con, pytest.raises(duckdb.Error, match="read-only"):
        con.execute("DELETE FROM runs")


def test_the_file_opens_from_anywhere_with_nothing_but_duckdb(warehouse, tmp_path):
    write_run(warehouse, "r1")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    query = "SELECT count(*) FROM token_times"
    code = f"import duckdb; print(duckdb.connect({str(warehouse.database)!r}).execute({query!r}).fetchone())"
    answer = subprocess.run([sys.executable, "-c", code], cwd=elsewhere, capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "(7,)"
    assert list(elsewhere.iterdir()) == []


def test_a_moved_store_reads_again(store, tmp_path):
    write_run(store, "r1")
    moved = tmp_path / "elsewhere" / "store"
    moved.parent.mkdir()
    shutil.move(store.root, moved)
    again = Store(moved)
    again.rebuild()
    with duckdb.connect(str(again.database), read_only=True) as con:
        assert con.execute("SELECT count(*) FROM requests").fetchone() == (5,)
    assert str(again.files("r1")["spans"]).startswith(str(moved))


def test_connect_notices_a_move_by_itself(store, tmp_path):
    write_run(store, "r1")
    shutil.move(store.root, tmp_path / "moved")
    assert seen(Store(tmp_path / "moved")) == [("r1", 5)]


def test_a_store_without_views_of_its_own_keeps_those_in_the_file(warehouse):
    write_run(warehouse, "r1")
    plain = Store(warehouse.root)
    write_run(plain, "r2")
    plain.rebuild()
    with plain.connect() as con:
        assert con.execute("SELECT count(*) FROM request_latency").fetchone() == (6,)
        names = {name for (name,) in con.execute("SELECT name FROM views").fetchall()}
    assert names == {v.name for v in load_views()}


@pytest.mark.parametrize("name", ["with space", "it's", "br[a]cket", "st*r", "key=value", "d\u00e4ta", "se;mi"])
def test_the_folder_may_have_any_name(tmp_path, name):
    store = Store(tmp_path / name)
    write_run(store, "20260101", replay_id="0012")
    assert seen(store) == [("20260101", 5)]
    with store.connect() as con:
        assert con.execute("SELECT DISTINCT run_id, replay_id FROM passes").fetchall() == [("20260101", "0012")]
    assert run_sql(store, "SELECT count(*) FROM requests").rows == [(5,)]


def test_a_folder_duckdb_cannot_use_is_refused_at_once(tmp_path):
    with pytest.raises(StoreError, match="choose another"):
        Store(tmp_path / "wh?t")


def test_a_damaged_face_is_built_again(store):
    write_run(store, "r1")
    store.database.write_bytes(b"not a database" * 1000)
    assert seen(store) == [("r1", 5)]


def test_a_run_removed_by_hand_disappears(store):
    write_run(store, "r1")
    write_run(store, "r2")
    (store.root / "commits" / "r1.json").unlink()
    assert seen(store) == [("r2", 5)]
    assert [p.name for p in store.sweep()] == ["run_id=r1"]


def test_runs_written_under_an_older_declaration_still_read(store, monkeypatch):
    """A column that is new since then is null; one that is gone is not shown; a narrower type is widened."""
    from perf_db.schema import Column, Dtype, Table
    from perf_db.tables import RESULT_TABLES

    write_run(store, "old")
    spans = RESULT_TABLES["spans"]
    columns = tuple(c for c in spans.columns if c.name != "first_token_no")
    columns = tuple(Column(c.name, Dtype.INT64, c.unit, c.meaning) if c.name == "n_tokens" else c for c in columns)
    newer = Table(
        "spans", spans.row_is, spans.key, (*columns, Column("n_drafts", Dtype.INT32, "", "new", nullable=True))
    )
    monkeypatch.setitem(RESULT_TABLES, "spans", newer)
    monkeypatch.setattr("perf_db.face._VIEWED", (newer,))
    monkeypatch.setattr("perf_db.writer.RESULT_TABLES", RESULT_TABLES)
    tables = hand_made()
    tables["spans"]["n_drafts"] = tables["spans"].pop("first_token_no")
    write_run(store, "new", tables=tables)
    with store.connect() as con:
        answer = con.execute("SELECT * FROM spans WHERE request_id = 0 AND span_no = 1 ORDER BY run_id")
        assert [c[0] for c in answer.description][-2:] == ["n_passes", "n_drafts"]
        assert [row[-2:] for row in answer.fetchall()] == [(1, 3), (1, None)]


def test_a_damaged_commit_record_is_named(store):
    write_run(store, "r1")
    record = store.root / "commits" / "r1.json"
    record.chmod(0o644)
    record.write_text("{")
    with pytest.raises(StoreError, match=r"r1.json is no commit record .*; remove it to drop the run"):
        store.runs()


def test_nothing_stored_yet(tmp_path):
    empty = Store(tmp_path / "nothing")
    with pytest.raises(StoreError, match="holds no store; replay something into it first"):
        empty.connect()
    with pytest.raises(UnknownRun, match="holds no run yet"):
        empty.resolve("last")
    assert empty.runs() == [] and empty.sweep() == []
    assert not (tmp_path / "nothing").exists()


def test_what_a_run_answers_to(store):
    write_run(store, "20260101-aa", name="base", replay_id="feed01")
    write_run(store, "20260102-bb", name="fast", replay_id="beef02")
    write_run(store, "20260103-cc", name="base", replay_id="feed03")
    assert store.resolve("last") == "20260103-cc"
    assert store.resolve("20260102-bb") == store.resolve("20260102") == store.resolve("fast") == "20260102-bb"
    assert store.resolve("base") == "20260103-cc"
    assert store.resolve("beef") == "20260102-bb"
    with pytest.raises(UnknownRun, match=r"fits 3 runs: .*; give more of the id"):
        store.resolve("2026")
    with pytest.raises(UnknownRun, match=r"no run answers to 'slow'.*20260103-cc \(base\)"):
        store.resolve("slow")


def test_empty_tables_have_no_file_but_are_there(store):
    write_run(store, "r1", tables={"requests": hand_made()["requests"]})
    assert store.files("r1").keys() == {"requests", "metrics", "quarantine"}
    with store.connect() as con:
        assert con.execute("SELECT count(*), count(n_tokens) FROM spans").fetchone() == (0, 0)
        assert con.execute("SELECT n_rows, path FROM files WHERE table_name = 'spans'").fetchone() == (0, None)


def test_a_second_result_for_the_same_replay_shows(warehouse):
    write_run(warehouse, "r1")
    with warehouse.connect() as con:
        assert con.execute("SELECT * FROM replay_conflicts").fetchall() == []
    other = hand_made()
    other["passes"]["end_ns"][0] += 1
    write_run(warehouse, "r2", tables=other)
    with warehouse.connect() as con:
        replay_id = run_facts()["replay_id"]
        assert con.execute("SELECT * FROM replay_conflicts").fetchall() == [(replay_id, 2, 2, "r1, r2")]
