"""Two recorded runs side by side in one DuckDB session: schemas `base` and `head` with the same tables.

Each side reads its own files. Through views over all runs a join could be left with nothing but the run in common,
which is a cross product.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import duckdb

from assets.desk.matching import match_requests
from assets.views import load_views
from perf_db.commit import Commit
from perf_db.face import CONFIG
from perf_db.layout import Layout
from perf_db.rows import sql_source
from perf_db.schema import Table, quoted
from perf_db.store import Store
from perf_db.tables import METRICS, RESULT_TABLES
from perf_db.views import in_order

SIDES = ("base", "head")
# Derived views that the desk asks; they find their tables in the schema they are made in.
_DERIVED = ("request_first_token", "request_phases")


@dataclass(frozen=True, slots=True)
class Recorded:
    """A run's commit record and the folder its file names start from: a store, or a baseline in a repository."""

    commit: Commit
    root: Path

    @classmethod
    def of_store(cls, store: Store, run: str) -> Recorded:
        return cls(store.commit(run), store.root)

    @property
    def run(self) -> dict[str, Any]:
        return self.commit.run

    def file(self, table: str) -> Path | None:
        """The table's parquet file; None without rows."""
        stored = self.commit.table(table)
        return self.root / stored.path if stored is not None and stored.path else None

    def n_rows(self, table: str) -> int:
        stored = self.commit.table(table)
        return stored.n_rows if stored is not None else 0

    def digest(self, table: str) -> str | None:
        stored = self.commit.table(table)
        return stored.digest if stored is not None else None

    def lost(self) -> list[str]:
        """Tables whose rows were not kept."""
        return [t.table for t in self.commit.tables if not t.kept]

    def only_metrics(self) -> Recorded:
        """The same run as if nothing but its figures had been kept."""
        tables = tuple(t if t.table == METRICS.name else replace(t, path=None) for t in self.commit.tables)
        return Recorded(Commit(self.run, tables), self.root)


def same_table(base: Recorded, head: Recorded, name: str) -> bool:
    """Whether the table holds the same rows on both sides, by digest.

    Where releases declare it differently, the columns decide that both wrote.
    """
    b, h = base.commit.table(name), head.commit.table(name)
    if b is None or h is None or b.digest == h.digest:
        return True
    if base.run["schema_digest"] == head.run["schema_digest"]:
        return False
    common = b.digests.keys() & h.digests.keys()
    return b.n_rows == h.n_rows and all(b.digests[c] == h.digests[c] for c in common)


def same_rows(base: Recorded, head: Recorded) -> bool:
    """Whether both runs hold the same rows in all tables, as far as both releases write the same columns."""
    if base.run["result_digest"] == head.run["result_digest"]:
        return True
    if base.run["schema_digest"] == head.run["schema_digest"]:
        return False
    return all(same_table(base, head, name) for name in RESULT_TABLES)


@dataclass(frozen=True, slots=True)
class Pair:
    """Both runs, and a connection that has schemas `base` and `head`.

    Attributes:
        matched_by: how requests of the two were found to be the same: "request_id", or what else was needed.
    """

    base: Recorded
    head: Recorded
    con: duckdb.DuckDBPyConnection
    matched_by: str

    def rows(self, query: str, parameters: Any = None) -> list[dict[str, Any]]:
        """Answer of a query, a mapping per row."""
        cursor = self.con.execute(query, parameters)
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    def row(self, query: str, parameters: Any = None) -> dict[str, Any]:
        """The only row of an answer."""
        (row,) = self.rows(query, parameters)
        return row

    @property
    def hands_over(self) -> bool:
        """Whether prompts went from a prefill to a decode pool on either side."""
        return any(side.n_rows("handoffs") for side in (self.base, self.head))

    def same(self, table: str) -> bool:
        """Whether the table holds the same rows on both sides, by its digest."""
        return same_table(self.base, self.head, table)


@contextmanager
def open_pair(base: Recorded, head: Recorded) -> Iterator[Pair]:
    """Both runs in one session, closed at the end. Rows of the head carry the base's request ids where they match."""
    with duckdb.connect(config=CONFIG) as con:
        con.execute("SET preserve_insertion_order = false")
        con.execute(f"SET temp_directory = {quoted(str(Layout(head.root).spill))}")
        for name, side in zip(SIDES, (base, head), strict=True):
            con.execute(f"CREATE SCHEMA {name}")
            ends = side.run.get("ttft_ends")
            con.execute(
                f"CREATE VIEW {name}.runs AS SELECT {quoted(side.run['run_id'])} AS run_id, "
                f"{quoted(ends) if ends else 'NULL::VARCHAR'} AS ttft_ends"
            )
            for table in RESULT_TABLES.values():
                con.execute(
                    f"CREATE VIEW {name}.{table.name} AS {rows_query(side, table, _one_sided(base, head, table))}"
                )
        matched_by = match_requests(con, base.run, head.run)
        if matched_by != "request_id":
            for table in RESULT_TABLES.values():
                if "request_id" in table.column_names:
                    rows = rows_query(head, table, _one_sided(base, head, table))
                    con.execute(f"CREATE OR REPLACE VIEW head.{table.name} AS {_renamed(rows, table)}")
        for view in in_order(load_views()):
            if view.name in _DERIVED:
                for name in SIDES:
                    con.execute(f"USE memory.{name}")
                    con.execute(view.statement)
        con.execute("USE memory.main")
        yield Pair(base, head, con, matched_by)


def _one_sided(base: Recorded, head: Recorded, table: Table) -> frozenset[str]:
    """Columns that only one of two releases wrote: they tell nothing about what changed."""
    written = [set(s.columns) for side in (base, head) if (s := side.commit.table(table.name)) is not None]
    return frozenset(written[0] ^ written[1]) if len(written) == 2 else frozenset()


def rows_query(side: Recorded, table: Table, unread: frozenset[str] = frozenset()) -> str:
    """SELECT over one run's rows of a table, in declared columns whatever release wrote them.

    Args:
        unread: columns that are null whatever the file says.
    """
    ids = f"{quoted(side.run['run_id'])} AS run_id, {quoted(side.run['replay_id'])} AS replay_id"
    stored = side.commit.table(table.name)
    if stored is None or stored.path is None:
        nothing = ", ".join(f"NULL::{c.dtype.value} AS {c.name}" for c in table.columns)
        return f"SELECT {ids}, {nothing} WHERE false"
    columns = [
        c.name if stored.columns.get(c.name) == c.dtype.value and c.name not in unread
        else f"{c.name if c.name in stored.columns and c.name not in unread else 'NULL'}::{c.dtype.value} AS {c.name}"
        for c in table.columns
    ]  # fmt: skip
    source = sql_source(side.root, stored, side.run["run_id"])
    return f"SELECT {ids}, {', '.join(columns)} FROM {source}"


def _renamed(rows: str, table: Table) -> str:
    """The head's rows under the request ids of the base."""
    asker = ", a.id AS asker_id" if "asker_id" in table.column_names else ""
    join = " LEFT JOIN memory.main.head_ids a ON a.own_id = t.asker_id" if asker else ""
    return (
        f"SELECT t.* EXCLUDE (request_id{', asker_id' if asker else ''}), m.id AS request_id{asker} "
        f"FROM ({rows}) t JOIN memory.main.head_ids m ON m.own_id = t.request_id{join}"
    )
