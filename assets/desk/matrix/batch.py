"""A batch of scenarios in one process: one after the other into a shard, which is committed when it is large or old
enough. What was committed is never run again; a killed process loses the scenarios of one shard."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assets.desk.matrix.inputs import Parts
from assets.desk.matrix.one import ANOMALY, DIFFERS, Ended, run_one
from assets.desk.matrix.suite import Scenario
from assets.identity import new_run_id
from assets.views import open_store
from perf_db.layout import SHARD
from perf_db.shard import ALWAYS_KEPT, ShardWriter
from perf_db.store import Store
from perf_db.tables import RESULT_TABLES

MAX_RUNS = 1000
MAX_BYTES = 64_000_000
MAX_SECONDS = 60.0


@dataclass(frozen=True)
class Batch:
    """Work for one process.

    Attributes:
        root: of the store.
        folder: of the baselines.
        keep: whose rows: "all", "failed" or "none".
    """

    suite: str
    matrix_id: str
    work: tuple[tuple[Scenario, Parts], ...]
    root: Path
    folder: Path
    keep: str


def run_batch(batch: Batch) -> list[dict[str, Any]]:
    """Run it and commit what came of it; returns its rows of table `scenarios`."""
    store = open_store(batch.root)
    rows: list[dict[str, Any]] = []
    left = list(batch.work)
    while left:
        rows += _shard(batch, store, left)
    return rows


def _shard(batch: Batch, store: Store, left: list[tuple[Scenario, Parts]]) -> list[dict[str, Any]]:
    """Fill one shard from the front of `left`."""
    began = time.monotonic()
    ended: list[Ended] = []
    with ShardWriter(store, SHARD + new_run_id()) as shard:
        while left and not _is_full(shard, began):
            scenario, parts = left.pop(0)
            done = run_one(
                batch.suite, batch.matrix_id, scenario, parts,
                scratch=shard.scratch, store=store, folder=batch.folder,
            )  # fmt: skip
            whole = batch.keep == "all" or (batch.keep == "failed" and done.status in (ANOMALY, DIFFERS))
            if done.run_id is not None:
                shard.take(done.run_id, keep=RESULT_TABLES if whole else ALWAYS_KEPT)
            done.row["rows_kept"] = whole and done.run_id is not None
            ended.append(done)
        shard.commit(
            {"scenarios": [e.row for e in ended], "anomalies": [note for e in ended for note in e.notes()]},
        )
    return [e.row for e in ended]


def _is_full(shard: ShardWriter, began: float) -> bool:
    return shard.n_runs >= MAX_RUNS or shard.n_bytes >= MAX_BYTES or time.monotonic() - began >= MAX_SECONDS


def batches(
    suite: str,
    matrix_id: str,
    work: Sequence[tuple[Scenario, Parts]],
    *,
    workers: int,
    root: Path,
    folder: Path,
    keep: str,
) -> list[Batch]:
    """Cut the work so that every process has some, four times over, and none more than a shard holds."""
    # Names begin with the trace: the file is in the system's cache when the next one reads it.
    ordered = sorted(work, key=lambda each: each[0].name)
    size = min(MAX_RUNS, max(1, -(-len(ordered) // (workers * 4)))) if workers > 1 else MAX_RUNS
    cuts = [ordered[i : i + size] for i in range(0, len(ordered), size)]
    return [Batch(suite, matrix_id, tuple(cut), root, folder, keep) for cut in cuts]


def follow_parent() -> None:
    """Let this process end with the one that started it: a killed parent must not leave a worker waiting for ever."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
