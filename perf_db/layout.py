"""Where things lie under a store's root, and the few file operations that must survive a kill.

- `staging/<run_id>/`: being written; never read. `staging/<run_id>.lock` is held by the writer as long as it lives.
- `runs/run_id=<run_id>/replay_id=<replay_id>/*.parquet`: the folder names add the two ids that the rows do not hold.
- `shards/<shard_id>/*.parquet`: rows of many runs, which say themselves whose they are.
- `commits/<run_id or shard_id>.json`: makes the run, or all runs of the shard, exist.
- `notes/<table>/*.json`: what is said about runs afterwards.
- `tracemill.duckdb`: the face, derived from the commits and notes.
"""

from __future__ import annotations

import fcntl
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

FACE_NAME = "tracemill.duckdb"
SHARD = "shard-"  # names of shards begin with it, those of runs must not
# Ids become folder names and parts of SQL texts.
_SAFE_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class StoreError(RuntimeError):
    """The store cannot do what was asked; the message says why and what helps."""


class Layout:
    """Paths of one store."""

    def __init__(self, root: Path) -> None:
        self.root = root.expanduser().resolve()
        if "?" in str(self.root):
            raise StoreError(
                f"{self.root}: DuckDB cannot keep a database in a folder with '?' in its name; choose another"
            )
        self.staging = self.root / "staging"
        self.runs = self.root / "runs"
        self.shards = self.root / "shards"
        self.commits = self.root / "commits"
        self.notes = self.root / "notes"
        self.face = self.root / FACE_NAME
        self.lock = self.root / ".lock"
        self.spill = self.root / "spill"  # made by DuckDB when a sort does not fit into memory

    def create(self) -> None:
        for folder in (self.staging, self.runs, self.commits):
            folder.mkdir(parents=True, exist_ok=True)

    def staged(self, run_id: str) -> Path:
        return self.staging / run_id

    def writer_lock(self, run_id: str) -> Path:
        return self.staging / f"{run_id}.lock"

    def run_folder(self, run_id: str) -> Path:
        return self.runs / f"run_id={run_id}"

    def commit_file(self, run_id: str) -> Path:
        return self.commits / f"{run_id}.json"

    def shard_folder(self, shard_id: str) -> Path:
        return self.shards / shard_id

    def records(self) -> list[str]:
        """Names of all commit records: run ids, oldest first, then shards."""
        if not self.commits.is_dir():
            return []
        return sorted(p.name.removesuffix(".json") for p in self.commits.iterdir() if p.suffix == ".json")


def checked_id(kind: str, value: str) -> str:
    if not _SAFE_ID.fullmatch(value):
        raise StoreError(
            f"{kind}={value!r}: use letters, digits, '.', '_' and '-', at most 100, starting with a letter or digit"
        )
    return value


def fsync(path: Path) -> None:
    """Bring a file or a folder's entries to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_whole(path: Path, text: str) -> None:
    """Readers see the file whole or not at all, whatever happens to this process."""
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    with open(aside, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    aside.chmod(0o444)
    os.replace(aside, path)
    fsync(path.parent)


def try_lock(path: Path) -> int | None:
    """Take an advisory lock, or return None if somebody living holds it. A killed process holds nothing."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


@contextmanager
def locked(path: Path, *, timeout_s: float = 60.0) -> Iterator[bool]:
    """Hold a lock that is only ever needed for a moment; yields whether it was had in time."""
    give_up = time.monotonic() + timeout_s
    while (descriptor := try_lock(path)) is None and time.monotonic() < give_up:
        time.sleep(0.01)
    try:
        yield descriptor is not None
    finally:
        if descriptor is not None:
            os.close(descriptor)
