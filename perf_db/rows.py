"""Rows of one run, whether its file is its own or holds the rows of a whole shard."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from perf_db.commit import StoredTable
from perf_db.schema import quoted
from perf_db.tables import RESULT_TABLES

if TYPE_CHECKING:
    import pyarrow as pa


def sql_source(root: Path, stored: StoredTable, run_id: str) -> str:
    """What to put behind FROM to read the table's rows of this run; the table has rows."""
    source = f"read_parquet({quoted(str(root / str(stored.path)))})"
    return f"(FROM {source} WHERE run_id = {quoted(run_id)})" if stored.shared else source


def batches(root: Path, stored: StoredTable, run_id: str) -> Iterator[pa.RecordBatch]:
    """The rows in the order in which they were committed."""
    import pyarrow.parquet as pq

    path = root / str(stored.path)
    if not stored.shared:
        yield from pq.ParquetFile(path).iter_batches()
        return
    yield from _own(path, run_id).to_batches()


def copy_rows(root: Path, stored: StoredTable, run_id: str, target: Path) -> None:
    """Make a file with the rows of this run alone."""
    import pyarrow.parquet as pq

    if stored.shared:
        from perf_db.parquet import options

        declared = RESULT_TABLES[stored.table].columns
        pq.write_table(_own(root / str(stored.path), run_id), target, **options(declared))
    else:
        shutil.copyfile(root / str(stored.path), target)


def _own(path: Path, run_id: str) -> pa.Table:
    import pyarrow.parquet as pq

    rows = pq.read_table(path, filters=[("run_id", "=", run_id)], partitioning=None)
    return rows.drop_columns(["run_id", "replay_id"])
