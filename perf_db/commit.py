"""Commit records: the truth about what a store holds. One JSON file per run, written last and whole."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from perf_db.layout import Layout, StoreError, write_whole

FORMAT = 1


@dataclass(frozen=True, slots=True)
class StoredTable:
    """One result table of a run.

    Attributes:
        path: relative to the store's root; None without rows.
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


@dataclass(frozen=True, slots=True)
class Commit:
    """A run that exists: its row of `runs`, and where its rows are."""

    run: dict[str, Any]
    tables: tuple[StoredTable, ...]

    @property
    def run_id(self) -> str:
        return self.run["run_id"]

    def table(self, name: str) -> StoredTable | None:
        return next((t for t in self.tables if t.table == name), None)


def write_commit(layout: Layout, commit: Commit) -> None:
    """From here on the run exists."""
    record = {"format": FORMAT, "run": commit.run, "tables": [asdict(t) for t in commit.tables]}
    write_whole(layout.commit_file(commit.run_id), json.dumps(record, indent=1))


def read_commit(path: Path) -> Commit:
    """
    Raises:
        StoreError: the record is damaged, or of a later release.
    """
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        if record["format"] != FORMAT:
            raise StoreError(
                f"{path} has format {record['format']}, this release reads {FORMAT}; use the release that wrote it"
            )
        return Commit(record["run"], tuple(StoredTable(**t) for t in record["tables"]))
    except (ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{path} is no commit record ({error}); remove it to drop the run") from error


def read_commits(layout: Layout) -> list[Commit]:
    """Every run that exists, oldest first."""
    return [read_commit(layout.commit_file(run_id)) for run_id in layout.committed_ids()]
