"""What a run's files hold, and that they depend on nothing but the rows."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from perf_db import parquet
from perf_db.digest import ColumnDigest, digest_columns
from perf_db.layout import StoreError
from perf_db.schema import Column, Dtype, SchemaError
from perf_db.store import Store
from perf_db.tables import RESULT_TABLES
from tests.perf_db.hand_made import hand_made, identity, run_facts, table, write_run

ROOT = Path(__file__).parents[2]


def rows_of(store: Store, run: str, name: str) -> list[dict]:
    return pq.read_table(store.files(run)[name], partitioning=None).to_pylist()


def test_codes_become_names_and_minus_one_becomes_null(store):
    write_run(store, "r1")
    requests = rows_of(store, "r1", "requests")
    assert [r["status"] for r in requests] == ["completed"] * 3 + ["rejected", "unfinished"]
    assert [r["reason"] for r in requests] == [None] * 3 + ["prompt_reaches_max_model_len", None]
    assert [r["second_token_ns"] for r in requests] == [30_000_000, 35_000_000, None, None, None]
    assert [(r["worker"], r["arrival_ns"]) for r in requests][-1] == (None, None)
    assert [c["kind"] for c in rows_of(store, "r1", "chunks")] == ["new", "new", "new", "resumed"]
    assert [e["extrapolated"] for e in rows_of(store, "r1", "evidence")] == [False, True, False]


def test_request_numbers_become_rows_of_the_source(store):
    write_run(store, "r1")
    requests = rows_of(store, "r1", "requests")
    # Row 1 of the source is in quarantine.
    assert [r["request_id"] for r in requests] == [0, 2, 3, 4, 5]
    assert [r["external_id"] for r in requests] == ["a", "b", None, "d", "e"]
    assert [r["source_line"] for r in requests] == [1, 3, 4, 5, 6]
    assert [r["session_id"] for r in requests] == ["7", None, "7", None, None]
    assert [r["turn"] for r in requests] == [0, None, 1, None, None]
    assert [s["request_id"] for s in rows_of(store, "r1", "spans")] == [2, 0, 3, 0]
    (preemption,) = rows_of(store, "r1", "pressure")
    assert (preemption["request_id"], preemption["asker_id"]) == (0, 3)


def test_a_file_is_read_back_as_declared_and_explains_itself(store):
    write_run(store, "r1")
    for name, path in store.files("r1").items():
        schema = pq.read_schema(path)
        assert schema.remove_metadata() == RESULT_TABLES[name].arrow_schema()
        about = json.loads(pq.read_metadata(path).metadata[b"tracemill"])
        assert about["columns"] == {c.name: c.comment for c in RESULT_TABLES[name].columns}


def test_the_run_row_is_counted_from_the_tables(store):
    row = write_run(store, "r1")
    counted = {name: row[name] for name in row if name.startswith("n_")}
    assert counted == {
        "n_requests": 5,
        "n_completed": 3,
        "n_rejected": 1,
        "n_failed": 0,
        "n_canceled": 0,
        "n_unfinished": 1,
        "n_quarantined": 1,
        "n_passes": 5,
        "n_preemptions": 1,
    }
    assert row["run_id"] == "r1" and row["started_at"].startswith("20")


def many(n: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(5)
    columns = table("request span_no worker dp_rank first_pass n_tokens n_passes first_token_no", *[[0] * 8] * n)
    return {name: rng.integers(0, 1000, n) for name in columns} | {"request": np.arange(n) % 5}


def split(columns: dict[str, np.ndarray], cuts: list[int]) -> list[dict[str, np.ndarray]]:
    edges = [0, *cuts, len(next(iter(columns.values())))]
    return [{n: v[a:b].copy() for n, v in columns.items()} for a, b in pairwise(edges)]


@pytest.mark.parametrize("seed", range(2))
def test_bytes_and_digests_do_not_depend_on_how_rows_came_in(store, monkeypatch, seed):
    """Chunks of any size, empty ones included, over several row groups."""
    monkeypatch.setattr(parquet, "GROUP_ROWS", 100)
    rng = np.random.default_rng(seed)
    whole = hand_made() | {"spans": many(437)}
    write_run(store, "whole", tables=whole)
    with store.begin("pieces", identity=identity()) as writer:
        queue = [
            (name, piece)
            for name, columns in whole.items()
            for piece in split(columns, sorted(rng.integers(0, len(next(iter(columns.values()))), 6)))
        ]
        for name, piece in queue:
            writer.rows(name, piece)
        writer.commit(run_facts())
    for name in whole:
        one, other = store.commit("whole").table(name), store.commit("pieces").table(name)
        assert one.digests == other.digests
        assert store.files("whole")[name].read_bytes() == store.files("pieces")[name].read_bytes()
    groups = pq.ParquetFile(store.files("pieces")["spans"]).metadata
    assert [groups.row_group(i).num_rows for i in range(groups.num_row_groups)] == [100, 100, 100, 100, 37]


def test_the_same_replay_twice_gives_the_same_bytes_and_digest(store):
    first, second = write_run(store, "r1"), write_run(store, "r2", name="other", engine_ms=99.0)
    assert first["result_digest"] == second["result_digest"]
    assert store.files("r1").keys() == store.files("r2").keys() == {*RESULT_TABLES}
    for name, path in store.files("r1").items():
        assert path.read_bytes() == store.files("r2")[name].read_bytes()


def test_one_changed_value_changes_one_column_digest(store):
    write_run(store, "r1")
    changed = hand_made()
    changed["passes"]["active_blocks"][2] += 1
    write_run(store, "r2", tables=changed)
    one, other = store.commit("r1"), store.commit("r2")
    different = [
        (name, column)
        for name in RESULT_TABLES
        for column, digest in one.table(name).digests.items()
        if digest != other.table(name).digests[column]
    ]
    assert different == [("passes", "active_blocks")]
    assert one.run["result_digest"] != other.run["result_digest"]


def test_digests_of_the_writer_are_those_of_the_file(store):
    write_run(store, "r1")
    assert store.verify("r1") == []
    for stored in store.commit("r1").tables:
        batches = pq.ParquetFile(store.root / stored.path).iter_batches(batch_size=2)
        assert digest_columns(RESULT_TABLES[stored.table], batches) == (stored.n_rows, stored.digests)


def test_verify_names_what_was_changed(store):
    write_run(store, "r1")
    path = store.files("r1")["spans"]
    spans = pq.read_table(path, partitioning=None)
    os.chmod(path, 0o644)
    tokens = spans.column_names.index("n_tokens")
    pq.write_table(spans.set_column(tokens, spans.schema.field("n_tokens"), pa.array([9, 9, 9, 9], pa.int32())), path)
    store.files("r1")["metrics"].unlink()
    faults = store.verify("r1")
    assert faults[0] == "spans: changed column(s) n_tokens"
    assert faults[1].startswith("metrics:") and faults[1].endswith("is missing")


def test_committed_files_are_read_only(store):
    write_run(store, "r1")
    assert {path.stat().st_mode & 0o777 for path in store.files("r1").values()} == {0o444}


def test_result_files_hold_no_run_and_no_host_time(store):
    write_run(store, "r1")
    for path in store.files("r1").values():
        assert not {"run_id", "replay_id", "started_at", "engine_ms"} & set(pq.read_schema(path).names)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("spans", "n_tokens", 2**31), "spans.n_tokens holds 2147483648 in row 0 of a chunk.* admits 0 to 2147483647"),
        (("spans", "n_tokens", -1), "spans.n_tokens holds -1 in row 0 of a chunk.* admits 0 to"),
        (("requests", "arrival_ns", -2), "requests.arrival_ns holds -2 .* admits -1 to"),
        (("requests", "status", 5), r"requests.status holds 5 .* admits 0 to 4 \(completed, .*, canceled\)"),
        (("evidence", "extrapolated", 2), "evidence.extrapolated holds 2 .* admits 0 to 1"),
    ],
)
def test_a_value_outside_the_declaration_is_refused(store, change, message):
    name, column, value = change
    tables = hand_made()
    tables[name][column][0] = value
    with pytest.raises(SchemaError, match=message):
        write_run(store, "r1", tables=tables)
    assert store.runs() == []


def test_columns_are_checked_by_name(store):
    with store.begin("r1", identity=identity()) as writer:
        spans = hand_made()["spans"]
        del spans["n_tokens"]
        with pytest.raises(SchemaError, match="'surprise' is not declared, column 'n_tokens' is missing"):
            writer.rows("spans", spans | {"surprise": spans["worker"]})
        with pytest.raises(SchemaError, match="table 'tokens' is not declared; there are requests, spans, bursts"):
            writer.rows("tokens", {})


def test_every_fault_of_the_run_row_in_one_message(store):
    with store.begin("r1", identity=identity()) as writer, pytest.raises(SchemaError) as error:
        writer.commit(run_facts(seed="7", mood="good", name=None, n_requests=4))
    assert str(error.value) == (
        "run 'r1' does not match table 'runs': 'n_requests' is 4, but the tables say 5; 'mood' is not declared; "
        "'name' is missing; 'seed' is '7', declared UBIGINT"
    )


def test_a_number_that_its_column_cannot_hold_is_not_committed(store):
    with store.begin("r1", identity=identity()) as writer:
        for table, columns in hand_made().items():
            writer.rows(table, columns)
        with pytest.raises(SchemaError, match=f"'seed' is {2**64}, beyond UBIGINT"):
            writer.commit(run_facts(seed=2**64))
    assert store.runs() == []
    assert store.runs() == []


def test_a_closed_writer_takes_nothing(store):
    with store.begin("r1", identity=identity()) as writer:
        pass
    with pytest.raises(StoreError, match="run 'r1' is closed"):
        writer.rows("spans", hand_made()["spans"])
    with pytest.raises(StoreError, match="run 'r1' is closed"):
        writer.commit(run_facts())


def test_identity_must_cover_every_request(store):
    short = identity()
    object.__setattr__(short, "turn", np.array([0]))
    with pytest.raises(SchemaError, match=r"identity\.turn has 1 values for 5 requests"):
        store.begin("r1", identity=short)


@pytest.mark.parametrize("bad", ["", "../up", "a/b", ".hidden", "x" * 101, "a=b", "tick'"])
def test_ids_that_are_no_folder_names_are_refused(store, bad):
    with pytest.raises(StoreError, match="use letters, digits"):
        store.begin(bad, identity=identity())


def test_writing_and_reading_need_no_dataframes():
    """Imports rule small runs; polars and numba are for those who use them."""
    code = "import sys, perf_db.store, perf_db.sqlsafe, perf_db.export, assets.views; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT).stdout
    assert not {"polars", "pandas", "numba", "dagster", "sim"} & set(loaded.split())


def test_names_added_to_a_category_leave_the_digests_of_earlier_rows_alone():
    old = Column("status", Dtype.TEXT, "", "how it ended", values=("completed", "rejected"))
    new = replace(old, values=("completed", "rejected", "canceled"), digested=2)
    codes, digests = np.array([0, 1, 0], np.int8), []
    for column in (old, new, replace(new, digested=0)):
        state = ColumnDigest(column)
        state.add(codes)
        digests.append(state.hexdigest())
    assert digests[0] == digests[1] != digests[2]
