"""Trace files that somebody puts into a folder: which of them are complete and new, and a prepared trace for each.

A file is known by its bytes: another name for it is nothing new, another content is.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from assets.ingest.lines import ENDINGS, digest_of
from assets.ingest.trace import TraceError
from assets.partitions import partition_key

FOLDER, TEMPLATE = "inbox", "inbox.yaml"
# Names that programs give to files they are still writing.
UNFINISHED = (".partial", ".part", ".tmp", ".crdownload", ".swp", "~")

State = list[list[str | int]]  # name, size and time of change of each file


class Arrival(NamedTuple):
    """A trace that was not there before.

    Attributes:
        name: of the file (or folder) in the inbox.
        digest: of its bytes, 32 hex digits.
        key: its partition.
    """

    name: str
    digest: str
    key: str


class Seen(NamedTuple):
    """What is remembered between two looks.

    Attributes:
        states: of each name, its files as they were at the last look.
        digests: of each name whose content is known.
        asked: digests of which an ingest has been asked for.
    """

    states: dict[str, State]
    digests: dict[str, str]
    asked: list[str]

    @classmethod
    def of(cls, text: str | None) -> Seen:
        """From what `text()` gave; nothing has been seen if that is None."""
        values = json.loads(text) if text else {}
        return cls(values.get("states", {}), values.get("digests", {}), values.get("asked", []))

    def text(self) -> str:
        """For keeping."""
        return json.dumps(self._asdict())


def look(inbox: Path, seen: Seen) -> tuple[list[Arrival], Seen]:
    """New traces, and what to remember.

    A file is taken once two looks have found it with the same size and time of change: what is being written changes.
    """
    states, digests, asked, found = {}, {}, list(seen.asked), []
    for path in candidates(inbox):
        state = state_of(path)
        if state is None:
            continue
        states[path.name] = state
        if seen.states.get(path.name) != state:
            continue
        digest = seen.digests.get(path.name) or digest_of(path)
        if state_of(path) != state:
            continue  # somebody wrote while it was read
        digests[path.name] = digest
        if digest not in asked:
            asked.append(digest)
            found.append(Arrival(path.name, digest, partition_key(path.name, digest)))
    return found, Seen(states, digests, asked)


def candidates(inbox: Path) -> Iterator[Path]:
    """What could be traces, by name: files, and folders of JSON documents."""
    if not inbox.is_dir():
        return
    for path in sorted(inbox.iterdir()):
        if path.name.startswith(".") or path.name.endswith(UNFINISHED) or path.is_symlink():
            continue
        if path.is_file() or (path.is_dir() and any(each.name.endswith(ENDINGS) for each in path.iterdir())):
            yield path


def state_of(path: Path) -> State | None:
    """Sizes and times of change; None while there is nothing in it, or it is gone."""
    try:
        files = sorted(each for each in path.iterdir() if each.name.endswith(ENDINGS)) if path.is_dir() else [path]
        stats = [(each.name, each.stat()) for each in files]
    except OSError:
        return None
    if any(stat.st_size == 0 for _, stat in stats):
        return None
    return [["" if path.is_file() else name, stat.st_size, stat.st_mtime_ns] for name, stat in stats]


def file_of(inbox: Path, name: str, digest: str) -> Path:
    """Where a trace is by now: under its name, or under another one.

    Raises:
        TraceError: nothing in the inbox has this content any more.
    """
    others = [path for path in candidates(inbox) if path.name != name]
    for path in (inbox / name, *others):
        if path.exists() and digest_of(path) == digest:
            return path
    raise TraceError(f"{inbox / name}: has changed or gone, and no other file in {inbox} has its content")


def prepared_path(root: Path, key: str, digest: str) -> Path:
    """Where the prepared trace of a partition is kept. Named so that its own partition is the same one."""
    return root.absolute() / "traces" / digest / f"{key.partition('@')[0]}.trace"
