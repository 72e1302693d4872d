"""Running a suite: what has to be run goes out to processes, the rest stands."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assets.desk.matrix.batch import Batch, batches, follow_parent, run_batch
from assets.desk.matrix.one import CRASHED, FAILED, GOOD
from assets.desk.matrix.plan import Planned, plan
from assets.desk.matrix.suite import Suite
from assets.identity import new_run_id
from assets.views import open_store
from perf_db.store import Store

Say = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class Outcome:
    """One execution of a matrix.

    Attributes:
        rows: of table `scenarios`, of what was run now, by name.
        standing: scenarios whose last result stands, with that row.
    """

    suite: str
    matrix_id: str
    rows: list[dict[str, Any]]
    standing: list[dict[str, Any]]

    @property
    def all_rows(self) -> list[dict[str, Any]]:
        """The newest row of every chosen scenario."""
        return sorted([*self.rows, *self.standing], key=lambda row: row["scenario"])

    def count(self, *statuses: str) -> int:
        return sum(row["status"] in statuses for row in self.all_rows)

    @property
    def passed(self) -> bool:
        return self.count(*GOOD) == len(self.all_rows)

    @property
    def exit_code(self) -> int:
        """As decided for all commands: 70 a defect of ours, 2 the input's fault, 1 something differs, 0 all is well."""
        if self.count(CRASHED):
            return 70
        if self.count(FAILED):
            return 2
        return 0 if self.passed else 1


def run_matrix(
    suite: Suite,
    store: Store,
    folder: Path,
    *,
    only: Sequence[str] = (),
    force: bool = False,
    keep: str | None = None,
    workers: int | None = None,
    say: Say | None = None,
) -> Outcome:
    """Run the scenarios whose inputs changed since their last result, or that have none.

    Args:
        folder: of the baselines.
        only: patterns of names; empty: all.
        force: run all of them, changed or not.
        keep: whose rows; None: as the suite says.
        workers: processes; None: one per core. One means this process.
        say: called with each row of table `scenarios` when its batch is committed.
    """
    planned = plan(suite, store, folder, only=only)
    wanted = [p for p in planned if force or p.reasons]
    matrix_id = new_run_id()
    rows: list[dict[str, Any]] = []
    if wanted:
        store.sweep()  # what a killed run of it left
        n = max(1, min(workers or len(os.sched_getaffinity(0)), len(wanted)))
        work = [(p.scenario, p.parts) for p in wanted]
        cut = batches(
            suite.name, matrix_id, work,
            workers=n, root=store.root, folder=folder.absolute(), keep=keep or suite.keep,
        )  # fmt: skip
        for done in _map(cut, n):
            rows += done
            for row in done if say is not None else ():
                assert say is not None
                say(row)
        store.connect().close()  # shows what was committed
    standing = [_standing(p) for p in planned if not force and not p.reasons]
    rows.sort(key=lambda row: row["scenario"])
    return Outcome(suite.name, matrix_id, rows, standing)


def _map(cut: list[Batch], workers: int) -> Iterator[list[dict[str, Any]]]:
    """The batches' rows as they are done."""
    if cut and open_store(cut[0].root).exists:
        # Workers look at earlier runs: the file that shows them is brought up to date once, here.
        open_store(cut[0].root).connect().close()
    # Machine code is compiled once, before everybody would.
    from sim.engine import load_kernels

    load_kernels()
    if workers == 1:
        yield from map(run_batch, cut)
        return
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=follow_parent)
    try:
        for done in as_completed([pool.submit(run_batch, batch) for batch in cut]):
            yield done.result()
    except BaseException:
        # Interrupted: what is committed stays, what is being run leaves nothing.
        for process in list((pool._processes or {}).values()):
            process.terminate()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _standing(planned: Planned) -> dict[str, Any]:
    """The last row; a result that was accepted since is the same as its baseline now."""
    assert planned.last is not None
    row = dict(planned.last)
    if row["baseline_digest"] != planned.parts.baseline_digest:
        row |= {"status": "same", "baseline_digest": planned.parts.baseline_digest}
    return row
