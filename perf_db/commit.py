"""Commit records: the truth about what a store holds. One JSON file per run or per shard of runs, written last and
whole."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from perf_db.layout import SHARD, Layout, StoreError, write_whole

FORMAT = 1
SHARD_FORMAT = 2
Notes = Mapping[str, Sequence[Mapping[str, Any]]]


@dataclass(frozen=True, slots=True)
class StoredTable:
    """One result table of a run.

    Attributes:
        path: relative to the store's root; None without rows, and where they were not kept.
        columns: name -> type (DuckDB's name) as written, so that older declarations can still be read.
        digests: name -> digest of the column.
    """

    table: str
    n_rows: int
    n_bytes: int
    digest: str
    path: str | None
    columns: dict[str, str]
    digests: dict[str, str]

    @property
    def shared(self) -> bool:
        """Whether the file holds rows of other runs too; then it has columns run_id and replay_id."""
        return self.path is not None and self.path.startswith("shards/")

    @property
    def kept(self) -> bool:
        """Whether its rows can be read, if it has any."""
        return self.path is not None or not self.n_rows


@dataclass(frozen=True, slots=True)
class Commit:
    """A run that exists: its row of `runs`, and where its rows are.

    Attributes:
        record: name of the record that says so: the run's id, or that of its shard.
    """

    run: dict[str, Any]
    tables: tuple[StoredTable, ...]
    record: str = ""

    @property
    def run_id(self) -> str:
        return self.run["run_id"]

    @property
    def kept(self) -> bool:
        """Whether the rows of all its tables can be read."""
        return all(t.kept for t in self.tables)

    def table(self, name: str) -> StoredTable | None:
        return next((t for t in self.tables if t.table == name), None)


def write_commit(layout: Layout, commit: Commit) -> None:
    """From here on the run exists."""
    record = {"format": FORMAT, **_plain(commit)}
    write_whole(layout.commit_file(commit.run_id), json.dumps(record, indent=1))


def write_shard_commit(layout: Layout, shard_id: str, commits: Sequence[Commit], notes: Notes) -> None:
    """From here on all its runs exist, and what is noted about them."""
    record = {"format": SHARD_FORMAT, "runs": [_plain(c) for c in commits], "notes": notes}
    write_whole(layout.commit_file(shard_id), json.dumps(record, separators=(",", ":")))


def read_commit(path: Path) -> Commit:
    """The record of a single run.

    Raises:
        StoreError: the record is damaged, or of a later release.
    """
    (commit,) = read_record(path)[0]
    return commit


def read_record(path: Path) -> tuple[list[Commit], Notes]:
    """Runs of a record, and notes about them.

    Raises:
        StoreError: the record is damaged, or of a later release.
    """
    if path.name.startswith(SHARD):
        about = path.stat()
        return _read_shard(path, about.st_mtime_ns, about.st_ino)
    return _read(path)


def read_commits(layout: Layout) -> list[Commit]:
    """Every run that exists, oldest first."""
    found = [c for name in layout.records() for c in read_record(layout.commit_file(name))[0]]
    return sorted(found, key=lambda c: c.run_id)


def read_shard_notes(layout: Layout, table: str) -> list[dict[str, Any]]:
    """What the shards say in a table of notes, in the order of their names."""
    names = [name for name in layout.records() if name.startswith(SHARD)]
    return [dict(row) for name in names for row in read_record(layout.commit_file(name))[1].get(table, ())]


def run_ids(layout: Layout) -> list[str]:
    """Ids of the runs that exist, oldest first; reads the records of shards only."""
    names = layout.records()
    ids = [name for name in names if not name.startswith(SHARD)]
    for name in [n for n in names if n.startswith(SHARD)]:
        ids += [c.run_id for c in read_record(layout.commit_file(name))[0]]
    return sorted(ids)


def find_commit(layout: Layout, run_id: str) -> Commit:
    """The record of a run that exists, wherever it stands."""
    if layout.commit_file(run_id).exists():
        return read_commit(layout.commit_file(run_id))
    for name in layout.records():
        if name.startswith(SHARD):
            for commit in read_record(layout.commit_file(name))[0]:
                if commit.run_id == run_id:
                    return commit
    raise StoreError(f"{layout.commits} has no record of run {run_id!r}")


@lru_cache(maxsize=64)
def _read_shard(path: Path, mtime_ns: int, inode: int) -> tuple[list[Commit], Notes]:
    # A record never changes under its name; time and inode tell a file that was put in its place.
    return _read(path)


def _read(path: Path) -> tuple[list[Commit], Notes]:
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        if record["format"] not in (FORMAT, SHARD_FORMAT):
            raise StoreError(
                f"{path} has format {record['format']}, this release reads up to {SHARD_FORMAT}; use the release that "
                "wrote it"
            )
        runs, notes = (record["runs"], record["notes"]) if record["format"] == SHARD_FORMAT else ([record], {})
        name = path.name.removesuffix(".json")
        return [Commit(r["run"], tuple(StoredTable(**t) for t in r["tables"]), name) for r in runs], notes
    except (ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{path} is no commit record ({error}); remove it to drop the run") from error


def _plain(commit: Commit) -> dict[str, Any]:
    return {"run": commit.run, "tables": [asdict(t) for t in commit.tables]}
