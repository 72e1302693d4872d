"""Removing what killed processes left in a store. Nothing here is ever read, so it only costs disk space."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from perf_db.layout import Layout, locked, try_lock

_SPILL = re.compile(r"duckdb_temp_(\d+)_")


def sweep(layout: Layout) -> list[Path]:
    """Remove leftovers of killed writers and readers; living ones are left alone. Returns what was removed."""
    return [*_runs(layout), *_faces(layout), *_spills(layout)]


def _runs(layout: Layout) -> Iterator[Path]:
    """Staging folders, and folders of runs and shards and half-written records without a commit."""
    left: dict[str, list[Path]] = {}
    for path in _entries(layout.staging):
        left.setdefault(path.name.removesuffix(".lock"), []).append(path)
    for path in _entries(layout.runs):
        left.setdefault(path.name.removeprefix("run_id="), []).append(path)
    for path in _entries(layout.shards):
        left.setdefault(path.name, []).append(path)
    for path in _entries(layout.commits):
        if path.name.startswith("."):
            left.setdefault(path.name[1:].rsplit(".json.", 1)[0], []).append(path)
    for run_id, paths in sorted(left.items()):
        lock_file = layout.writer_lock(run_id)
        lock = try_lock(lock_file)
        if lock is None:
            continue  # its writer lives
        try:
            # Asked with the lock in hand: the writer may have committed a moment ago.
            committed = layout.commit_file(run_id).exists()
            for path in paths:
                if path == lock_file or (committed and path.parent in (layout.runs, layout.shards)):
                    continue
                _remove(path)
                yield path
        finally:
            lock_file.unlink(missing_ok=True)
            os.close(lock)


def _faces(layout: Layout) -> Iterator[Path]:
    with locked(layout.lock, timeout_s=0.0) as held:
        for path in _entries(layout.root) if held else ():
            if path.name.startswith(f".{layout.face.name}."):
                _remove(path)
                yield path


def _spills(layout: Layout) -> Iterator[Path]:
    for path in _entries(layout.spill):
        match = _SPILL.match(path.name)
        if match and not _lives(int(match[1])):
            _remove(path)
            yield path


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _entries(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
