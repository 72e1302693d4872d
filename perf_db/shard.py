"""Many small runs in few files: a shard holds the runs of one batch of work, behind one commit record.

Ten thousand files of one run each cost a second per query, ten shards a hundredth of that.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from perf_db.commit import Commit, write_shard_commit
from perf_db.layout import SHARD, Layout, StoreError, checked_id, fsync, try_lock
from perf_db.parquet import GROUP_ROWS, options
from perf_db.schema import Table
from perf_db.store import Store
from perf_db.tables import RESULT_TABLES, RUN_COLUMNS

ALWAYS_KEPT = ("metrics", "evidence")


class Scratch(Store):
    """A store that nobody reads but who is writing it: runs are committed, and no DuckDB file is made of them."""

    def _publish(self) -> None:
        pass


class ShardWriter:
    """Takes over runs that were committed to its scratch store, and commits them together.

    Leaving the `with` block without a commit removes everything.
    """

    def __init__(self, store: Store, shard_id: str, publish: Callable[[], None] | None = None) -> None:
        """
        Args:
            publish: called after a commit; None leaves showing the runs to the next reader.

        Raises:
            StoreError: the id is not usable, already committed, or being written by another process.
        """
        if not shard_id.startswith(SHARD):
            raise StoreError(f"shard_id={shard_id!r}: begin it with {SHARD!r}")
        self.shard_id = checked_id("shard_id", shard_id)
        self._layout = layout = Layout(store.root)
        self._publish = publish
        layout.create()
        lock = try_lock(layout.writer_lock(shard_id))
        if lock is None:
            raise StoreError(f"shard {shard_id!r} is being written by another process")
        self._lock: int | None = lock
        self._folder = layout.staged(shard_id)
        try:
            if layout.commit_file(shard_id).exists():
                raise StoreError(f"shard {shard_id!r} is already in {layout.root}")
            for leftover in (self._folder, layout.shard_folder(shard_id)):
                shutil.rmtree(leftover, ignore_errors=True)
            (self._folder / "tables").mkdir(parents=True)
        except BaseException:
            self._release()
            raise
        self.scratch = Scratch(self._folder / "scratch")
        self._tables = {n: _Table(t, self._folder / "tables" / f"{n}.parquet") for n, t in RESULT_TABLES.items()}
        self._commits: list[Commit] = []

    @property
    def n_runs(self) -> int:
        return len(self._commits)

    @property
    def n_bytes(self) -> int:
        """Rows kept so far, as files of their own."""
        return sum(t.n_bytes for c in self._commits for t in c.tables if t.path)

    def take(self, run_id: str, *, keep: Collection[str]) -> Commit:
        """Take a run out of the scratch store.

        Args:
            keep: tables whose rows stay readable; of the others digests and counts remain.
        """
        commit = self.scratch.commit(run_id)
        tables = []
        for stored in commit.tables:
            if stored.path is None or stored.table not in keep:
                tables.append(replace(stored, path=None))
                continue
            target = self._tables[stored.table]
            target.add(self.scratch.root / stored.path, commit)
            path = self._layout.shard_folder(self.shard_id) / target.path.name
            tables.append(replace(stored, path=path.relative_to(self._layout.root).as_posix()))
        taken = Commit(commit.run, tuple(tables), self.shard_id)
        self._commits.append(taken)
        scratch = Layout(self.scratch.root)
        shutil.rmtree(scratch.run_folder(run_id), ignore_errors=True)
        scratch.commit_file(run_id).unlink()
        return taken

    def commit(self, notes: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
        """Make all runs exist, and the notes on them (table -> rows).

        Raises:
            StoreError: nothing is committed, unless the message says that only the DuckDB file lags behind.
        """
        if self._lock is None:
            raise StoreError(f"shard {self.shard_id!r} is closed; begin another one")
        shutil.rmtree(self.scratch.root, ignore_errors=True)
        for table in self._tables.values():
            table.close()
        target = self._layout.shard_folder(self.shard_id)
        self._layout.shards.mkdir(exist_ok=True)
        os.rename(self._folder / "tables", target)
        self._folder.rmdir()
        for folder in (target, self._layout.shards):
            fsync(folder)
        write_shard_commit(self._layout, self.shard_id, self._commits, notes)
        self._release()
        if self._publish is not None:
            self._publish()

    def abort(self) -> None:
        """Remove what was written. Does nothing after a commit."""
        if self._lock is not None:
            for folder in (self._folder, self._layout.shard_folder(self.shard_id)):
                shutil.rmtree(folder, ignore_errors=True)
            self._release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.abort()

    def _release(self) -> None:
        if self._lock is not None:
            self._layout.writer_lock(self.shard_id).unlink(missing_ok=True)
            os.close(self._lock)
            self._lock = None


class _Table:
    """One table's file: rows of the runs one after the other, each with its two ids in front."""

    def __init__(self, table: Table, path: Path) -> None:
        import pyarrow as pa

        ids = [pa.field(c.name, c.dtype.arrow, nullable=False) for c in RUN_COLUMNS]
        self.path = path
        self._schema = pa.schema([*ids, *table.arrow_schema()])
        self._plain, self._columns = table.arrow_schema(), table.columns
        self._pending: list[Any] = []
        self._n_pending = 0
        self._file: Any = None

    def add(self, source: Path, commit: Commit) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        rows = pq.read_table(source, partitioning=None).select(self._plain.names).cast(self._plain)
        ids = [pa.repeat(pa.scalar(commit.run[c.name]), rows.num_rows) for c in RUN_COLUMNS]
        self._pending.append(pa.table([*ids, *rows.columns], schema=self._schema))
        self._n_pending += rows.num_rows
        if self._n_pending >= GROUP_ROWS:
            self._write()

    def close(self) -> None:
        if self._pending:
            self._write()
        if self._file is not None:
            self._file.close()
            fsync(self.path)
            self.path.chmod(0o444)

    def _write(self) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        if self._file is None:
            self._file = pq.ParquetWriter(self.path, self._schema, **options((*RUN_COLUMNS, *self._columns)))
        self._file.write_table(pa.concat_tables(self._pending), row_group_size=GROUP_ROWS)
        self._pending, self._n_pending = [], 0
