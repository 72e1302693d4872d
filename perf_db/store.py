"""The store: where replays are kept and read from. See `perf_db.layout` for what lies where."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb

from perf_db.commit import Commit, find_commit, read_commits, run_ids
from perf_db.digest import digest_columns
from perf_db.face import CURRENT, UNUSABLE, Face, attach
from perf_db.layout import Layout, StoreError, locked
from perf_db.notes import write_notes
from perf_db.rows import batches
from perf_db.schema import Table
from perf_db.sweep import sweep
from perf_db.tables import RESULT_TABLES
from perf_db.views import View
from perf_db.writer import Identity, RunWriter

__all__ = ["Identity", "RunWriter", "Store", "StoreError", "UnknownRun"]

_HELD = "{} has been held by another process for a minute; end that process and retry"


class UnknownRun(StoreError):
    """No run, or more than one, answers to what was given."""


class Store:
    """Committed runs under one folder.

    Any number of processes may write and read at the same time: a run exists from its commit record on, readers see
    whole runs only, and nobody waits for a reader.
    """

    def __init__(self, root: Path | str, views: Sequence[View] | None = None) -> None:
        """
        Args:
            root: folder of the store; made with the first run.
            views: derived views the DuckDB file offers; None leaves those it has (`assets.views.open_store` gives
                the ones that ship).
        """
        self._layout = Layout(Path(root))
        self._views = views

    @property
    def root(self) -> Path:
        return self._layout.root

    @property
    def database(self) -> Path:
        """The DuckDB file; opens from anywhere, with any client."""
        return self._layout.face

    @property
    def exists(self) -> bool:
        return self._layout.commits.is_dir()

    def begin(self, run_id: str, *, identity: Identity) -> RunWriter:
        """Start writing a run.

        Raises:
            StoreError: the id is not usable, already committed, or being written by another process.
        """
        return RunWriter(self._layout, run_id, identity, self._publish)

    def connect(self) -> duckdb.DuckDBPyConnection:
        """A read-only connection with all tables and views; a snapshot that later commits do not disturb.

        Raises:
            StoreError: nothing was ever stored here.
        """
        self._require()
        state = Face(self._layout, self._views).state()
        if state != CURRENT:
            # A writer died between its commit and this, or is just about to do it; the store was moved; the views are
            # new. If somebody is at it, or nothing can be written here, an older whole file is answer enough.
            try:
                self._update(wait=state == UNUSABLE)
            except (OSError, duckdb.Error):
                if state == UNUSABLE:
                    raise
        return attach(self._layout)

    def runs(self) -> list[dict[str, Any]]:
        """Rows of table `runs`, oldest first, straight from the commit records."""
        return [commit.run for commit in read_commits(self._layout)]

    def commit(self, run: str) -> Commit:
        """The commit record of a run: files, row counts, digests."""
        return find_commit(self._layout, self.resolve(run))

    def resolve(self, run: str) -> str:
        """The run_id that `run` means: itself, "last", a name (its latest run), or an unambiguous beginning of a run_id
        or replay_id.

        Raises:
            UnknownRun: nothing, or too much, answers to it.
        """
        ids = run_ids(self._layout)
        if not ids:
            raise UnknownRun(f"{self.root} holds no run yet")
        if run in ids:
            return run
        if run == "last":
            return ids[-1]
        runs = self.runs()
        if named := [r["run_id"] for r in runs if r["name"] == run]:
            return named[-1]
        if begun := [run_id for run_id in ids if run and run_id.startswith(run)]:
            if len(begun) > 1:
                raise UnknownRun(f"run {run!r} fits {len(begun)} runs: {', '.join(begun[-5:])}; give more of the id")
            return begun[0]
        if replayed := [r["run_id"] for r in runs if run and r["replay_id"].startswith(run)]:
            return replayed[-1]
        latest = ", ".join(f"{r['run_id']} ({r['name']})" for r in runs[-5:])
        raise UnknownRun(f"no run answers to {run!r}; give a run_id, its beginning, a name or 'last'. Latest: {latest}")

    def files(self, run: str) -> dict[str, Path]:
        """Parquet file of every result table that has one of its own."""
        return {t.table: self.root / t.path for t in self.commit(run).tables if t.path and not t.shared}

    def note(self, table: Table, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Replace what `name` (a run, say) has to tell in a table of notes, and show it.

        Raises:
            SchemaError: the rows do not match the declaration.
        """
        self._layout.create()  # measurements may be noted before anything was replayed
        write_notes(self._layout, table, name, rows)
        self._update()

    def rebuild(self) -> None:
        """Make the DuckDB file anew from the commit records, for instance after the folder was moved."""
        self._require()
        with locked(self._layout.lock) as held:
            if not held:
                raise StoreError(_HELD.format(self._layout.lock))
            Face(self._layout, self._views).build()

    def verify(self, run: str) -> list[str]:
        """Compare a run's files with the digests of its commit; returns what differs, in words."""
        faults = []
        commit = self.commit(run)
        for stored in commit.tables:
            table = RESULT_TABLES.get(stored.table)
            if stored.path is None or table is None:
                continue
            path = self.root / stored.path
            if not path.exists():
                faults.append(f"{stored.table}: {path} is missing")
                continue
            n_rows, digests = digest_columns(table, batches(self.root, stored, commit.run_id))
            if n_rows != stored.n_rows:
                faults.append(f"{stored.table}: {n_rows} rows, committed {stored.n_rows}")
            changed = [name for name, digest in digests.items() if digest != stored.digests[name]]
            if changed:
                faults.append(f"{stored.table}: changed column(s) {', '.join(changed)}")
        return faults

    def sweep(self) -> list[Path]:
        """Remove what killed writers and readers left; returns what was removed."""
        return sweep(self._layout) if self.exists else []

    def _require(self) -> None:
        if not self.exists:
            raise StoreError(f"{self.root} holds no store; replay something into it first")

    def _update(self, *, wait: bool = True) -> None:
        """Bring the DuckDB file up to date; without `wait`, leave it if another process holds the lock."""
        self._layout.create()
        with locked(self._layout.lock, timeout_s=60.0 if wait else 0.0) as held:
            if not held and wait:
                raise StoreError(_HELD.format(self._layout.lock))
            face = Face(self._layout, self._views)
            # Another process may have done it in the meantime.
            if held and face.state() != CURRENT:
                face.update()

    def _publish(self) -> None:
        try:
            self._update()
        except Exception as error:
            raise StoreError(
                f"the run is committed, but {self.database} does not show it yet ({error}); the next reader retries"
            ) from error
