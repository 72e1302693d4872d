"""A user's SQL on a store: reading only, and nothing outside the store.

Two fences, because either alone leaks. By its kind a statement must be a query (a read-only file still lets COPY write
anywhere and read_csv() read anything); and the session can neither reach other files nor change that setting.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any, NamedTuple

import duckdb

from perf_db.layout import StoreError
from perf_db.performance import performance_files
from perf_db.schema import quoted
from perf_db.store import Store


class SqlError(StoreError):
    """The statement is refused, or DuckDB cannot answer it."""


class Answer(NamedTuple):
    """Column names, and rows as tuples."""

    names: list[str]
    rows: list[tuple[Any, ...]]


BATCH = 4096  # rows
_ALLOWED = "allowed are SELECT (also as FROM ..., VALUES, TABLE, WITH), EXPLAIN, DESCRIBE, SHOW and SUMMARIZE"
_GAP = r"(?:\s|--[^\n]*|/\*.*?\*/)*+"
_EXPLAIN = re.compile(rf"{_GAP}EXPLAIN\b{_GAP}(?:ANALYZE\b{_GAP}|\([^)]*\){_GAP})?", re.IGNORECASE | re.DOTALL)


def run_sql(store: Store, sql: str, *, most: int | None = None) -> Answer:
    """Run one query and return its rows.

    Args:
        most: no more rows than this; None for all.

    Raises:
        SqlError: more than one statement, a statement that is no query, or DuckDB's own error text.
    """
    with answering(store, sql, most=most) as (names, batches):
        return Answer(names, [row for rows in batches for row in rows])


@contextmanager
def answering(
    store: Store, sql: str, *, most: int | None = None, memory: str | None = None
) -> Iterator[tuple[list[str], Iterator[list[tuple[Any, ...]]]]]:
    """Column names of one query's answer, and its rows a few thousand at a time: an answer may be larger than memory.

    Args:
        most: no more rows than this; None for all.
        memory: most memory that the query may take, as DuckDB writes it ("2GB"); beyond it goes to disk or fails.

    Raises:
        SqlError: as `run_sql`, and while rows are taken.
    """
    with closing(open_safe(store, memory=memory)) as con, _sql_errors():
        check_is_query(con, sql)
        con.execute(sql)
        yield [column[0] for column in con.description or ()], _batches(con, most)


def _batches(con: duckdb.DuckDBPyConnection, most: int | None) -> Iterator[list[tuple[Any, ...]]]:
    left = most
    with _sql_errors():
        while left is None or left > 0:
            rows = con.fetchmany(BATCH if left is None else min(BATCH, left))
            if not rows:
                return
            left = None if left is None else left - len(rows)
            yield rows


@contextmanager
def _sql_errors() -> Iterator[None]:
    try:
        yield
    except duckdb.PermissionException as error:
        raise SqlError(f"only the tables and views of the store can be read: {_first_line(error)}") from None
    except duckdb.Error as error:
        raise SqlError(str(error)) from None


def open_safe(store: Store, *, memory: str | None = None) -> duckdb.DuckDBPyConnection:
    """A connection that can read the store and nothing else."""
    con = store.connect()
    if memory is not None:
        con.execute(f"SET memory_limit = {quoted(memory)}")
    paths = [path for (path,) in con.execute("SELECT path FROM files WHERE path IS NOT NULL").fetchall()]
    paths += map(str, performance_files(store.root))
    # Order matters: the files must be named before the doors are shut, and the lock comes last.
    con.execute(f"SET allowed_paths = [{', '.join(quoted(path) for path in paths)}]")
    con.execute("SET enable_external_access = false")
    con.execute("SET lock_configuration = true")
    return con


def check_is_query(con: duckdb.DuckDBPyConnection, sql: str) -> None:
    """Refuse everything that is not exactly one query."""
    statements = _statements(con, sql)
    if len(statements) != 1:
        raise SqlError(f"give one statement, not {len(statements)}; {_ALLOWED}")
    kind = statements[0].type
    if kind == duckdb.StatementType.EXPLAIN:
        # EXPLAIN ANALYZE runs what it explains, so what it explains must be a query too.
        inside = [s.type for s in _statements(con, _EXPLAIN.sub("", statements[0].query, count=1))]
        if inside != [duckdb.StatementType.SELECT]:
            raise SqlError(f"only a query can be explained; {_ALLOWED}")
    elif kind != duckdb.StatementType.SELECT:
        hint = "; a PIVOT must name its columns: PIVOT ... ON x IN (...)" if kind.name == "MULTI" else ""
        raise SqlError(f"{kind.name} is refused: this session only reads; {_ALLOWED}{hint}")


def _statements(con: duckdb.DuckDBPyConnection, sql: str) -> list[Any]:
    try:
        return con.extract_statements(sql)
    except duckdb.Error as error:
        raise SqlError(str(error)) from None


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0]
