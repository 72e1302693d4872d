"""The DuckDB file of a store: small native tables, views over the parquet of committed runs, and the derived views.

Everything in it follows from the commit records. It is always built aside and renamed into place, so a reader keeps
what it opened and is never waited for.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from perf_db.commit import Commit, read_commits
from perf_db.layout import SHARD, Layout
from perf_db.notes import notes_digest, read_notes
from perf_db.performance import performance_digest, performance_views
from perf_db.schema import Column, Dtype, Table, quoted
from perf_db.tables import NATIVE_TABLES, NOTE_TABLES, RESULT_TABLES, RUN_COLUMNS, schema_digest
from perf_db.tables.files import FILES
from perf_db.tables.metrics import METRICS
from perf_db.tables.runs import RUNS
from perf_db.views import View, in_order

FACE_FORMAT = "4"
CURRENT, BEHIND, UNUSABLE = "current", "behind", "unusable"
# Facts whose change leaves what the file shows right as far as it goes.
_NOTES = {"notes_digest": ""}
_MILD = {"views_digest": "", "performance_digest": "", **_NOTES}
# No extension may be fetched or loaded behind the user's back: a missing one must fail at once.
CONFIG: dict[str, str | bool | int | float | list[str]] = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
}

# Percentile by the rule of the metrics: the value at rank (n - 1) * p / 100, halves up. quantile_disc() differs.
PCT = """CREATE OR REPLACE MACRO pct(x, p) AS
    list_sort(list(x) FILTER (x IS NOT NULL))[1 + floor((count(x) - 1) * p / 100 + 0.5)::BIGINT]"""
_PCT_COMMENT = "value at rank (n - 1) * p / 100 of the sorted values, halves up; the rule of the metrics table"

_VIEW_CATALOG = Table(
    name="views",
    row_is="one view or macro that this file offers beside the tables",
    key=("name",),
    columns=(
        Column("name", Dtype.TEXT, "", "its name"),
        Column("row_is", Dtype.TEXT, "", "what it shows"),
        Column("sql", Dtype.TEXT, "", "its definition"),
        Column("columns_json", Dtype.TEXT, "", "what its columns mean, JSON"),
    ),
)
_INFO = Table(
    name="store_info",
    row_is="one fact about this file",
    key=("key",),
    columns=(Column("key", Dtype.TEXT, "", "which"), Column("value", Dtype.TEXT, "", "its value")),
)


_RECORDS = Table(
    name="commit_records",
    row_is="one commit record that this file shows",
    key=("record",),
    columns=(Column("record", Dtype.TEXT, "", "its name: a run's id, or that of a shard of runs"),),
)


class Face:
    """Builds and brings up to date one store's DuckDB file. Callers hold the store's lock.

    Attributes:
        views: the derived views, or None to leave those in the file alone.
    """

    def __init__(self, layout: Layout, views: Sequence[View] | None) -> None:
        self._layout = layout
        self.views = views

    def state(self) -> str:
        """CURRENT, BEHIND (right as far as it goes: some run is not shown yet), or UNUSABLE."""
        if not self._layout.face.exists():
            return UNUSABLE
        try:
            with closing(attach(self._layout)) as con:
                info, wanted = self._info(con), self._wanted_info(con)
                if info != wanted:
                    # Other views and notes do no harm to what is shown.
                    return BEHIND if info | _MILD == wanted | _MILD else UNUSABLE
                shown, existing = _records(con), self._layout.records()
        except duckdb.Error:
            return UNUSABLE  # of another DuckDB, or damaged: it is derived, so it is simply built again
        return CURRENT if shown == existing else BEHIND if set(shown) <= set(existing) else UNUSABLE

    def update(self) -> None:
        """Add the runs the file does not show yet; build it anew where adding is not enough."""
        aside = self._aside()
        try:
            if self._layout.face.exists():
                shutil.copyfile(self._layout.face, aside)
                if self._add_to(aside):
                    self._replace(aside)
                    return
        except duckdb.Error:
            pass  # as in state()
        finally:
            _remove(aside)
        self.build()

    def build(self) -> None:
        """From nothing but the commit records (and the views, which are taken over where none are given)."""
        views = self._kept_views() if self.views is None else list(self.views)
        aside = self._aside()
        _remove(aside)
        try:
            with closing(duckdb.connect(str(aside), config=CONFIG)) as con:
                con.execute("BEGIN")  # one for all: every commit would be synced to disk
                con.execute(PCT)
                con.execute(f"COMMENT ON MACRO pct IS {quoted(_PCT_COMMENT)}")
                for table in NATIVE_TABLES.values():
                    con.execute(table.ddl(before=RUN_COLUMNS if table is METRICS else ()))
                con.execute(_INFO.ddl() + _VIEW_CATALOG.ddl() + _RECORDS.ddl())
                records = self._layout.records()
                commits = [c for c in read_commits(self._layout) if c.record in records]
                self._insert(con, commits, records)
                self._insert_notes(con)
                for table in _VIEWED:
                    self._create_view(con, table, commits)
                con.execute(";".join(performance_views(self._layout)))
                for view in in_order(views):
                    con.execute(view.sql)
                    con.execute(";".join(view.comments()))
                    con.execute("INSERT INTO views VALUES (?, ?, ?, ?)", _catalog_row(view))
                con.executemany("INSERT INTO store_info VALUES (?, ?)", list(self._facts(views).items()))
                con.execute("COMMIT")
            self._replace(aside)
        finally:
            _remove(aside)

    def _add_to(self, aside: Path) -> bool:
        with closing(duckdb.connect(str(aside), config=CONFIG)) as con:
            wanted = self._wanted_info(con)
            if self._info(con) | _NOTES != wanted | _NOTES:
                return False
            shown, existing = _records(con), self._layout.records()
            if gone := set(shown) - set(existing):
                return not gone  # rare: somebody removed a run by hand
            records = sorted(set(existing) - set(shown))
            # A run committed meanwhile must wait for the next update: it is not in `runs` and `files` yet.
            commits = [c for c in read_commits(self._layout) if c.record in existing]
            fresh = [c for c in commits if c.record in records]
            con.execute("BEGIN")
            self._insert(con, fresh, records)
            if self._info(con) != wanted or any(name.startswith(SHARD) for name in records):
                self._insert_notes(con)
                con.execute("UPDATE store_info SET value = ? WHERE key = 'notes_digest'", [wanted["notes_digest"]])
            touched = {t.table for c in fresh for t in c.tables if t.path}
            if touched:
                for table in _VIEWED:
                    if table.name in touched:
                        self._create_view(con, table, commits)
            con.execute("COMMIT")
        return True

    def _insert(self, con: duckdb.DuckDBPyConnection, commits: Sequence[Commit], records: Sequence[str]) -> None:
        if records:
            con.executemany(f"INSERT INTO {_RECORDS.name} VALUES (?)", [[name] for name in records])
        if not commits:
            return
        root = self._layout.root
        runs = [c.run for c in commits]
        files = [
            (c.run_id, t.table, t.n_rows, t.n_bytes, t.digest, str(root / t.path) if t.path else None)
            for c in commits
            for t in c.tables
        ]
        _append(con, RUNS, [[run.get(c.name, _unknown(c)) for run in runs] for c in RUNS.columns])
        _append(con, FILES, [list(values) for values in zip(*files, strict=True)])
        select = _select_files(METRICS, commits, self._layout)
        con.execute(f"INSERT INTO {METRICS.name} BY NAME {select}")

    def _insert_notes(self, con: duckdb.DuckDBPyConnection) -> None:
        for table in NOTE_TABLES.values():
            rows = read_notes(self._layout, table)
            con.execute(f"DELETE FROM {table.name}")
            if rows:
                _append(con, table, [[row.get(c.name, _unknown(c)) for row in rows] for c in table.columns])

    def _create_view(self, con: duckdb.DuckDBPyConnection, table: Table, commits: Sequence[Commit]) -> None:
        con.execute(f"CREATE OR REPLACE VIEW {table.name} AS {_select_files(table, commits, self._layout)}")
        con.execute(";".join(table.comments("VIEW", before=RUN_COLUMNS)))

    def _facts(self, views: Sequence[View]) -> dict[str, str]:
        texts = "".join(f"{v.name}\n{v.sql}\n" for v in sorted(views, key=lambda v: v.name))
        return {
            "format": FACE_FORMAT,
            "root": str(self._layout.root),
            "schema_digest": schema_digest(),
            "views_digest": hashlib.blake2b(texts.encode(), digest_size=16).hexdigest(),
            "notes_digest": notes_digest(self._layout),
            "performance_digest": performance_digest(self._layout),
        }

    def _info(self, con: duckdb.DuckDBPyConnection) -> dict[str, str]:
        return dict(con.execute("SELECT key, value FROM store_info").fetchall())

    def _wanted_info(self, con: duckdb.DuckDBPyConnection) -> dict[str, str]:
        return self._facts(_stored_views(con) if self.views is None else self.views)

    def _kept_views(self) -> list[View]:
        if not self._layout.face.exists():
            return []
        try:
            with closing(attach(self._layout)) as con:
                return _stored_views(con)
        except duckdb.Error:
            return []

    def _aside(self) -> Path:
        return self._layout.face.with_name(f".{self._layout.face.name}.{os.getpid()}")

    def _replace(self, aside: Path) -> None:
        # A log left by a program that had the old file open for writing must not be replayed into the new one.
        self._layout.face.with_name(self._layout.face.name + ".wal").unlink(missing_ok=True)
        os.replace(aside, self._layout.face)


# Seen through views because they are large; metrics are copied into the file.
_VIEWED = tuple(t for t in RESULT_TABLES.values() if t is not METRICS)


def attach(layout: Layout) -> duckdb.DuckDBPyConnection:
    """A connection of its own on the file, read-only.

    The file is attached to an in-memory database: within one process DuckDB would otherwise go on serving the old
    content of a path for as long as any connection to it is open.
    """
    con = duckdb.connect(config=CONFIG)
    try:
        con.execute(f"ATTACH {quoted(str(layout.face))} AS tracemill (READ_ONLY); USE tracemill")
        # Large sorts spill here instead of into the caller's working directory.
        con.execute(f"SET temp_directory = {quoted(str(layout.spill))}")
        # A join that forgets a key should end with an error, not with a full disk.
        con.execute("SET max_temp_directory_size = '16GB'")
    except BaseException:
        con.close()
        raise
    return con


def _select_files(table: Table, commits: Sequence[Commit], layout: Layout) -> str:
    """SELECT over the files of these runs, one branch per set of columns they were written with."""
    groups: dict[tuple[bool, str], dict[Path, None]] = {}
    for commit in commits:
        stored = commit.table(table.name)
        if stored is not None and stored.path is not None:
            paths = groups.setdefault((stored.shared, json.dumps(stored.columns)), {})
            paths[layout.root / stored.path] = None
    branches = []
    for (shared, columns), paths in groups.items():
        have = json.loads(columns)
        wanted = ", ".join([c.name for c in RUN_COLUMNS] + [_as_declared(c, have.get(c.name)) for c in table.columns])
        files = ", ".join(quoted(str(p)) for p in paths)
        # Files of one run say whose they are by their folder, shards by their own columns.
        where = "hive_partitioning = " + (
            "false" if shared else "true, hive_types = {'run_id': VARCHAR, 'replay_id': VARCHAR}"
        )
        branches.append(f"SELECT {wanted} FROM read_parquet([{files}], {where})")
    if not branches:
        nothing = ", ".join(f"NULL::{c.dtype.value} AS {c.name}" for c in RUN_COLUMNS + table.columns)
        return f"SELECT {nothing} WHERE false"
    return " UNION ALL ".join(branches)


def _as_declared(column: Column, written: str | None) -> str:
    if written == column.dtype.value:
        return column.name
    if written is None:
        return f"NULL::{column.dtype.value} AS {column.name}"
    return f"{column.name}::{column.dtype.value} AS {column.name}"


def _append(con: duckdb.DuckDBPyConnection, table: Table, columns: list[list]) -> None:
    # Timestamps come from JSON as text.
    rows = pa.table({c.name: pa.array(v, _plain(c)) for c, v in zip(table.columns, columns, strict=True)})
    con.register("fresh_rows", rows)
    casts = ", ".join(f"{c.name}::{c.dtype.value} AS {c.name}" for c in table.columns)
    con.execute(f"INSERT INTO {table.name} BY NAME SELECT {casts} FROM fresh_rows")
    con.unregister("fresh_rows")


def _unknown(column: Column) -> Any:
    """What stands where a release did not write the column yet: null, or nothing of it."""
    if column.nullable:
        return None
    return {Dtype.TEXT: "", Dtype.BOOL: False, Dtype.INT64_LIST: []}.get(column.dtype, 0)


def _plain(column: Column) -> pa.DataType:
    return pa.string() if column.dtype is Dtype.TIMESTAMP else column.dtype.arrow


def _records(con: duckdb.DuckDBPyConnection) -> list[str]:
    return [name for (name,) in con.execute(f"SELECT record FROM {_RECORDS.name} ORDER BY record").fetchall()]


def _stored_views(con: duckdb.DuckDBPyConnection) -> list[View]:
    rows = con.execute("SELECT name, sql, row_is, columns_json FROM views").fetchall()
    return [View(name, sql, row_is, json.loads(columns)) for name, sql, row_is, columns in rows]


def _catalog_row(view: View) -> tuple[str, str, str, str]:
    return view.name, view.comment, view.sql, json.dumps(dict(view.columns))


def _remove(path: Path) -> None:
    for leftover in (path, path.with_name(path.name + ".wal")):
        leftover.unlink(missing_ok=True)
