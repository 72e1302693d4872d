"""A run's tables as files of their own."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Literal

import duckdb
import pyarrow.parquet as pq

from perf_db.layout import StoreError
from perf_db.schema import Table, quoted
from perf_db.store import Store
from perf_db.tables import RESULT_TABLES
from perf_db.tables.runs import RUNS

FORMATS = ("csv", "parquet")
EXPORTED: dict[str, Table] = {RUNS.name: RUNS, **RESULT_TABLES}


class ExportError(StoreError):
    """The export cannot be made as asked."""


def export_run(
    store: Store,
    run: str,
    out_dir: Path | str,
    *,
    format: Literal["csv", "parquet"] = "parquet",
    tables: Iterable[str] | None = None,
) -> list[tuple[Path, int]]:
    """Write tables of one run, one file each, columns and rows as stored; a table without rows gives a header.

    Args:
        run: anything `Store.resolve` understands.
        out_dir: made if it is missing. Files that are already there are never overwritten.
        tables: names; None for all of them.

    Returns:
        (file, rows in it), in the order asked for.

    Raises:
        ExportError: unknown format or table, or a file is in the way. Nothing has been written then.
        UnknownRun: no run answers to `run`.
    """
    if format not in FORMATS:
        raise ExportError(f"format={format!r}: choose {' or '.join(FORMATS)}")
    names = list(dict.fromkeys(tables)) if tables is not None else list(EXPORTED)
    if unknown := [n for n in names if n not in EXPORTED]:
        raise ExportError(f"no table {', '.join(map(repr, unknown))}; there are {', '.join(EXPORTED)}")
    if not names:
        raise ExportError("no table to export")
    run_id = store.resolve(run)
    if lost := [t.table for t in store.commit(run_id).tables if t.table in names and not t.kept]:
        raise ExportError(f"rows of run {run_id} were not kept: {', '.join(lost)}; replay it again")
    folder = Path(out_dir)
    targets = {name: folder / f"{name}.{format}" for name in names}
    if taken := [str(path) for path in targets.values() if path.exists()]:
        raise ExportError(f"{', '.join(taken)} already there; remove it or export into another folder")
    folder.mkdir(parents=True, exist_ok=True)
    stored, done = store.files(run_id), []
    with closing(store.connect()) as con:
        for name, target in targets.items():
            aside = target.with_name(f".{target.name}.{os.getpid()}")
            try:
                if format == "parquet":
                    n_rows = _write_parquet(con, EXPORTED[name], run_id, stored.get(name), aside)
                else:
                    n_rows = _write_csv(con, EXPORTED[name], run_id, stored.get(name), aside)
                os.replace(aside, target)
                done.append((target, n_rows))
            finally:
                aside.unlink(missing_ok=True)
    return done


def _write_csv(con: duckdb.DuckDBPyConnection, table: Table, run_id: str, stored: Path | None, target: Path) -> int:
    # From the file itself where there is one: its row order is part of what was committed.
    source = f"read_parquet({quoted(str(stored))})" if stored else f"{table.name} WHERE run_id = {quoted(run_id)}"
    columns = ", ".join(table.column_names)
    answer = con.execute(f"COPY (SELECT {columns} FROM {source}) TO {quoted(str(target))} (FORMAT csv, HEADER)")
    return _count(answer)


def _write_parquet(con: duckdb.DuckDBPyConnection, table: Table, run_id: str, stored: Path | None, target: Path) -> int:
    if stored is not None:
        # Not shutil.copy: committed files are read-only, exported ones are the user's.
        shutil.copyfile(stored, target)
        return int(pq.read_metadata(target).num_rows)
    query = f"SELECT {', '.join(table.column_names)} FROM {table.name} WHERE run_id = {quoted(run_id)}"
    whole = con.sql(query).to_arrow_table()
    pq.write_table(whole.cast(table.arrow_schema()), target, compression="zstd")
    return int(whole.num_rows)


def _count(answer: duckdb.DuckDBPyConnection) -> int:
    row = answer.fetchone()
    return int(row[0]) if row else 0
