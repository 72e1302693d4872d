"""`tracemill sql` reads the store, changes nothing, and reaches nothing else."""

from __future__ import annotations

import duckdb
import numpy as np
import pytest

from perf_db.layout import StoreError
from perf_db.sqlsafe import SqlError, open_safe, run_sql
from perf_db.store import Identity, Store
from tests.perf_db.hand_made import run_facts, write_run


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    store = Store(tmp_path_factory.mktemp("sql"))
    write_run(store, "r1")
    return store


def files(store: Store) -> dict:
    return {path: path.read_bytes() for path in store.root.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    "query",
    [
        "SELECT count(*) FROM requests",
        "FROM spans LIMIT 1;",
        "WITH x AS (SELECT 1) SELECT * FROM x",
        "VALUES (1), (2)",
        "TABLE runs",
        "SHOW TABLES",
        "DESCRIBE requests",
        "DESCRIBE SELECT 1",
        "SUMMARIZE passes",
        "EXPLAIN SELECT * FROM passes",
        "/* why? */ EXPLAIN -- really\n ANALYZE SELECT count(*) FROM chunks",
        "EXPLAIN (ANALYZE, FORMAT json) SELECT '--; COPY' FROM runs",
        "PIVOT requests ON status IN ('completed', 'rejected') USING count(*) GROUP BY run_id",
        "SELECT 'a; b', pct(prompt_tokens, 50) FROM requests",
    ],
)
def test_queries_are_answered(store, query):
    names, rows = run_sql(store, query)
    assert names and rows
    assert all(len(row) == len(names) for row in rows)


def test_names_and_rows(store):
    assert run_sql(store, "SELECT request_id AS id, status FROM requests ORDER BY id LIMIT 2") == (
        ["id", "status"],
        [(0, "completed"), (2, "completed")],
    )


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("COPY runs TO '{out}'", "COPY is refused: this session only reads"),
        ("EXPLAIN ANALYZE COPY runs TO '{out}'", "only a query can be explained"),
        ("EXPLAIN /* ( */ (ANALYZE) COPY runs TO '{out}'", "only a query can be explained"),
        ("EXPORT DATABASE '{out}'", "EXPORT is refused"),
        ("ATTACH '{out}'", "ATTACH is refused"),
        ("CREATE TABLE t AS SELECT 1", "CREATE is refused"),
        ("CREATE TEMP TABLE t AS SELECT 1", "CREATE is refused"),
        ("DELETE FROM runs", "DELETE is refused"),
        ("INSERT INTO runs SELECT * FROM runs", "INSERT is refused"),
        ("UPDATE runs SET name = 'x'", "UPDATE is refused"),
        ("DROP VIEW requests", "DROP is refused"),
        ("SET enable_external_access = true", "SET is refused"),
        ("PRAGMA database_list", "PRAGMA is refused"),
        ("CALL pragma_version()", "CALL is refused"),
        ("INSTALL httpfs", "LOAD is refused"),
        ("LOAD json", "LOAD is refused"),
        ("USE memory", "SET is refused"),
        ("BEGIN", "TRANSACTION is refused"),
        ("PREPARE q AS SELECT 1", "PREPARE is refused"),
        ("PIVOT requests ON status USING count(*)", "a PIVOT must name its columns"),
        ("SELECT 1; SELECT 2", "give one statement, not 2"),
        ("SELECT 1; DROP VIEW requests", "give one statement, not 2"),
        ("", "give one statement, not 0"),
        ("-- nothing", "give one statement, not 0"),
        ("WITH x AS (DELETE FROM runs RETURNING 1) FROM x", "read-only mode"),
        ("SELEC 1", "syntax error at or near"),
        ("SELECT * FROM nowhere", "Table with name nowhere does not exist"),
        ("SELECT * FROM read_csv('/etc/passwd')", "only the tables and views of the store can be read"),
        ("SELECT * FROM read_text('{out}')", "only the tables and views of the store can be read"),
        ("SELECT * FROM glob('/*')", "only the tables and views of the store can be read"),
        ("SELECT * FROM read_parquet('{root}/runs/../../x.parquet')", "only the tables and views of the store"),
        ("SELECT * FROM read_text('{root}/commits/r1.json')", "only the tables and views of the store"),
    ],
)
def test_everything_else_is_refused_and_leaves_no_trace(store, tmp_path, statement, message):
    before = files(store)
    with pytest.raises(SqlError, match=message):
        run_sql(store, statement.format(out=tmp_path / "out", root=store.root))
    assert files(store) == before
    assert list(tmp_path.iterdir()) == []


def test_the_second_fence_holds_without_the_first(store, tmp_path):
    before = files(store)
    with open_safe(store) as con:
        for statement in (
            f"COPY (SELECT 1) TO '{tmp_path}/out.csv'",
            f"COPY (SELECT 1) TO '{store.root}/runs/new.parquet'",
            f"ATTACH '{tmp_path}/out.duckdb'",
            "SET enable_external_access = true",
            "SET allowed_directories = ['/']",
            "DELETE FROM runs",
        ):
            with pytest.raises(duckdb.Error):
                con.execute(statement)
        assert con.execute("SELECT count(*) FROM requests").fetchone() == (5,)
    assert files(store) == before
    assert list(tmp_path.iterdir()) == []


def test_a_store_without_files_can_be_asked(tmp_path):
    store = Store(tmp_path)
    with store.begin("r1", identity=Identity(np.zeros(0, np.int64))) as writer:
        writer.commit(run_facts())
    assert run_sql(store, "SELECT n_requests FROM runs").rows == [(0,)]
    assert run_sql(store, "SELECT count(*) FROM requests").rows == [(0,)]


def test_no_store_no_answer(tmp_path):
    with pytest.raises(StoreError, match="holds no store"):
        run_sql(Store(tmp_path / "nothing"), "SELECT 1")
