"""A committed run with a fault in it: its parquet is edited and its commit signed again, so that no digest tells."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import duckdb
import pyarrow.parquet as pq

from perf_db.commit import StoredTable, read_commit
from perf_db.digest import digest_columns, result_digest, table_digest
from perf_db.layout import Layout
from perf_db.tables import RESULT_TABLES


def tamper(root: Path, run_id: str, *statements: str, run: dict[str, object] | None = None) -> None:
    """Execute SQL on the run's tables and commit the outcome in its place.

    Args:
        run: columns of its row of `runs` to change.
    """
    layout = Layout(root)
    record = layout.commit_file(run_id)
    commit = read_commit(record)
    folder = layout.run_folder(run_id) / f"replay_id={commit.run['replay_id']}"
    tables = []
    with duckdb.connect() as con:
        for stored in commit.tables:
            if stored.path is None:
                columns = ", ".join(f"{n} {t}" for n, t in stored.columns.items())
                con.execute(f"CREATE TABLE {stored.table} ({columns})")
            else:
                con.execute(f"CREATE TABLE {stored.table} AS FROM read_parquet('{root / stored.path}')")
        for statement in statements:
            con.execute(statement)
        for stored in commit.tables:
            tables.append(_stored(con, root, folder, stored))
    row = commit.run | {"result_digest": result_digest({t.table: t.digest for t in tables})} | (run or {})
    layout.face.unlink(missing_ok=True)  # it would go on showing what it copied
    record.chmod(0o644)
    record.write_text(json.dumps({"format": 1, "run": row, "tables": [dataclasses.asdict(t) for t in tables]}))


def _stored(con: duckdb.DuckDBPyConnection, root: Path, folder: Path, before: StoredTable) -> StoredTable:
    table = RESULT_TABLES[before.table]
    rows = con.sql(f"SELECT {', '.join(table.column_names)} FROM {table.name}").to_arrow_table()
    path = folder / f"{table.name}.parquet"
    path.unlink(missing_ok=True)
    rows = rows.cast(table.arrow_schema())
    n_rows, digests = digest_columns(table, rows.to_batches())
    if n_rows:
        pq.write_table(rows, path)
    return StoredTable(
        table=table.name,
        n_rows=n_rows,
        n_bytes=path.stat().st_size if n_rows else 0,
        digest=table_digest(n_rows, digests),
        path=path.relative_to(root).as_posix() if n_rows else None,
        columns=before.columns,
        digests=digests,
    )
