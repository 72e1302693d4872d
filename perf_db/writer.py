"""One replay on its way into the store: rows come in, a committed run comes out, or nothing does."""

from __future__ import annotations

import datetime as dt
import os
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pyarrow as pa

from perf_db.commit import Commit, StoredTable, write_commit
from perf_db.digest import result_digest
from perf_db.layout import SHARD, Layout, StoreError, checked_id, fsync, try_lock
from perf_db.parquet import TableWriter
from perf_db.schema import Dtype, SchemaError, as_arrow
from perf_db.tables import RESULT_TABLES, schema_digest
from perf_db.tables.metrics import METRICS
from perf_db.tables.quarantine import QUARANTINE
from perf_db.tables.requests import REQUESTS
from perf_db.tables.runs import RUNS

# The engine numbers requests as it got them; tables speak of rows of the source. Engine's name -> column.
REQUEST_INDEX = {"request": "request_id", "asker": "asker_id"}


@dataclass(frozen=True, slots=True, eq=False)
class Identity:
    """Who the engine's requests are in the source. Every column is indexed by the engine's request number.

    Attributes:
        request_id: shape (n,), position of its row in the source, from 0, quarantined rows included.
        external_id: names in the source (text or None each), or None if it has none.
        source_line: shape (n,), line from 1, -1 for none; or None.
        session_id: session names, text or numbers (-1 for none); or None.
        turn: shape (n,), turn within its session, -1 for none; or None.
    """

    request_id: np.ndarray
    external_id: Sequence[str | None] | np.ndarray | pa.Array | None = None
    source_line: np.ndarray | None = None
    session_id: Sequence[str | None] | np.ndarray | pa.Array | None = None
    turn: np.ndarray | None = None


class RunWriter:
    """Receives the tables of one replay (it is a sink of the engine) and commits them.

    Leaving the `with` block without a commit removes everything.
    """

    def __init__(self, layout: Layout, run_id: str, identity: Identity, publish: Callable[[], None]) -> None:
        self.run_id = checked_id("run_id", run_id)
        if run_id.startswith(SHARD):
            raise StoreError(f"run_id={run_id!r}: names that begin with {SHARD!r} are those of shards")
        self._started = dt.datetime.now(dt.UTC)
        self._layout = layout
        self._publish = publish
        self._request_id = np.ascontiguousarray(identity.request_id, np.int64)
        self._identity = _identity_columns(identity, len(self._request_id))
        layout.create()
        self._folder = layout.staged(run_id)
        lock = try_lock(layout.writer_lock(run_id))
        if lock is None:
            raise StoreError(f"run {run_id!r} is being written by another process")
        self._lock: int | None = lock
        try:
            if layout.commit_file(run_id).exists():
                raise StoreError(f"run {run_id!r} is already in {layout.root}; a committed run never changes")
            for leftover in (self._folder, layout.run_folder(run_id)):
                shutil.rmtree(leftover, ignore_errors=True)
            self._folder.mkdir()
        except BaseException:
            self._release()
            raise
        self._writers = {n: TableWriter(t, self._folder / f"{n}.parquet") for n, t in RESULT_TABLES.items()}

    def rows(self, table: str, columns: Mapping[str, np.ndarray]) -> None:
        """Append engine rows: int64 columns of equal length; the arrays belong to the writer from now on."""
        if self._lock is None:
            raise StoreError(f"run {self.run_id!r} is closed; begin another one")
        if table not in self._writers:
            raise SchemaError(f"table {table!r} is not declared; there are {', '.join(self._writers)}")
        out: dict[str, Any] = {}
        for name, values in columns.items():
            out[REQUEST_INDEX.get(name, name)] = self._request_id[values] if name in REQUEST_INDEX else values
        if table == REQUESTS.name:
            index = columns["request"]
            for name, whole in self._identity.items():
                out[name] = whole.take(pa.array(index)) if isinstance(whole, pa.Array) else whole[index]
        self._writers[table].add(out)

    def metrics(self, rows: Iterable[tuple[str, str, str, float | None, str, int]]) -> None:
        """Append (scope, metric, stat, value, unit, n)."""
        columns = list(zip(*rows, strict=True)) or [()] * len(METRICS.columns)
        values: dict[str, Any] = dict(zip(METRICS.column_names, map(list, columns), strict=True))
        values["value"] = np.array(values["value"], np.float64)  # None becomes NaN, which is stored as null
        self._writers[METRICS.name].add(values)

    def quarantine(self, rows: Any) -> None:
        """Append rows of the source that were set aside: an arrow table, a polars frame or a mapping of columns."""
        table = as_arrow(rows)
        if table.num_rows:
            self._writers[QUARANTINE.name].add(
                {n: _engine_like(table[n]) if n == "source_line" else table[n] for n in table.column_names}
            )

    @property
    def counts(self) -> dict[str, int]:
        """Rows per table so far."""
        return {name: writer.n_rows for name, writer in self._writers.items()}

    def commit(self, run: Mapping[str, Any]) -> dict[str, Any]:
        """Make the run exist, and show it in the DuckDB file. Returns its row of table `runs`.

        Args:
            run: that row, but for what the store counts itself: digests of schema and result, and every `n_` column.

        Raises:
            SchemaError: the row does not match table `runs`; every fault is listed. Nothing is committed.
            StoreError: nothing is committed, unless the message says that only the DuckDB file lags behind.
        """
        if self._lock is None:
            raise StoreError(f"run {self.run_id!r} is closed; begin another one")
        try:
            commit = self._commit(run)
        except BaseException:
            self.abort()
            raise
        self._release()
        self._publish()
        return commit.run

    def abort(self) -> None:
        """Remove what was written. Does nothing after a commit."""
        if self._lock is not None:
            # First the record: whatever dies from here on, no run is left that lacks its files.
            self._layout.commit_file(self.run_id).unlink(missing_ok=True)
            for folder in (self._folder, self._layout.run_folder(self.run_id)):
                shutil.rmtree(folder, ignore_errors=True)
            self._release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.abort()

    def _commit(self, run: Mapping[str, Any]) -> Commit:
        digests = {}
        for name, writer in self._writers.items():
            writer.close()
            digests[name] = writer.digest()
        row = _run_row({"started_at": self._started, **run}, self._filled(digests))
        replay_id = checked_id("replay_id", row["replay_id"])
        target = self._layout.run_folder(self.run_id) / f"replay_id={replay_id}"
        tables = []
        for name, writer in self._writers.items():
            n_bytes, path = 0, None
            if writer.n_rows:
                fsync(writer.path)
                # Committed rows never change; a slip of the hand should not be able to either.
                writer.path.chmod(0o444)
                n_bytes = writer.path.stat().st_size
                path = (target / writer.path.name).relative_to(self._layout.root).as_posix()
            types = {c.name: c.dtype.value for c in writer.table.columns}
            tables.append(
                StoredTable(name, writer.n_rows, n_bytes, digests[name], path, types, writer.column_digests())
            )
        commit = Commit(row, tuple(tables))
        target.parent.mkdir()
        os.rename(self._folder, target)
        for folder in (target, target.parent, self._layout.runs):
            fsync(folder)
        write_commit(self._layout, commit)
        return commit

    def _filled(self, digests: Mapping[str, str]) -> dict[str, Any]:
        requests, counts = self._writers[REQUESTS.name], self.counts
        return {
            "run_id": self.run_id,
            "schema_digest": schema_digest(),
            "result_digest": result_digest(digests),
            "n_requests": len(self._request_id),
            "n_completed": requests.count("status", "completed"),
            "n_rejected": requests.count("status", "rejected"),
            "n_failed": requests.count("status", "failed"),
            "n_canceled": requests.count("status", "canceled"),
            "n_unfinished": requests.count("status", "unfinished"),
            "n_quarantined": counts["quarantine"],
            "n_passes": counts["passes"],
            "n_preemptions": counts["pressure"],
        }

    def _release(self) -> None:
        if self._lock is not None:
            self._layout.writer_lock(self.run_id).unlink(missing_ok=True)
            os.close(self._lock)
            self._lock = None


def _identity_columns(identity: Identity, n: int) -> dict[str, Any]:
    """Columns of `requests` that the engine does not know, by request number."""
    columns: dict[str, Any] = {"request_id": np.ascontiguousarray(identity.request_id, np.int64)}
    for name in ("external_id", "session_id"):
        if (values := getattr(identity, name)) is not None:
            columns[name] = _text(values)
    for name in ("source_line", "turn"):
        if (values := getattr(identity, name)) is not None:
            columns[name] = np.ascontiguousarray(values, np.int64)
    for name, values in columns.items():
        if len(values) != n:
            raise SchemaError(f"identity.{name} has {len(values)} values for {n} requests")
    return columns


def _text(values: Any) -> pa.Array:
    """Names as text; numbers are spelled out, and a number below zero is no name."""
    array = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    if not isinstance(array, pa.Array):
        array = pa.array(array)
    if pa.types.is_integer(array.type):
        numbers = array.to_numpy(zero_copy_only=False)
        array = pa.array(numbers, mask=numbers < 0)
    return array.cast(pa.string())


def _engine_like(values: pa.ChunkedArray) -> np.ndarray:
    return values.combine_chunks().to_numpy(zero_copy_only=False)


def _run_row(given: Mapping[str, Any], filled: Mapping[str, Any]) -> dict[str, Any]:
    """The row in declared order and plain types, or one SchemaError with every fault."""
    faults = [f"{n!r} is {given[n]!r}, but the tables say {v!r}" for n, v in filled.items() if given.get(n, v) != v]
    faults += [f"{n!r} is not declared" for n in given if n not in RUNS.column_names]
    out: dict[str, Any] = {}
    for c in RUNS.columns:
        value = filled.get(c.name, given.get(c.name))
        if isinstance(value, np.generic):
            value = value.item()
        if isinstance(value, dt.datetime):
            value = value.astimezone(dt.UTC).replace(tzinfo=None).isoformat(sep=" ")
        if value is None:
            if not c.nullable:
                faults.append(f"{c.name!r} is missing")
        elif not isinstance(value, _PYTHON[c.dtype]) or isinstance(value, bool):
            faults.append(f"{c.name!r} is {value!r}, declared {c.dtype.value}")
        elif c.dtype.range is not None and value not in c.dtype.range:
            faults.append(f"{c.name!r} is {value!r}, beyond {c.dtype.value}")
        out[c.name] = value
    if faults:
        raise SchemaError(f"run {filled['run_id']!r} does not match table 'runs': " + "; ".join(faults))
    return out


_PYTHON: dict[Dtype, tuple[type, ...]] = {
    Dtype.INT32: (int,),
    Dtype.INT64: (int,),
    Dtype.UINT64: (int,),
    Dtype.FLOAT64: (int, float),
    Dtype.TEXT: (str,),
    Dtype.TIMESTAMP: (str,),
}
