"""One scenario: replay it, ask the checks, hold it against its baseline."""

from __future__ import annotations

import time
import traceback
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from assets.desk import baselines
from assets.desk.anomalies import Anomaly, ask, prices
from assets.desk.matrix.inputs import Parts
from assets.desk.matrix.suite import Scenario
from assets.desk.pair import Recorded
from assets.desk.session import open_run
from assets.errors import INPUT_ERRORS
from assets.replay_run import run_replay
from perf_db.commit import find_commit
from perf_db.layout import Layout
from perf_db.store import Store

SAME, WITHIN, NEW, DIFFERS, ANOMALY, FAILED, CRASHED = (
    "same", "within", "new", "differs", "anomaly", "failed", "crashed",
)  # fmt: skip
STATUSES = (SAME, WITHIN, NEW, DIFFERS, ANOMALY, FAILED, CRASHED)
GOOD = (SAME, WITHIN, NEW)


@dataclass(frozen=True)
class Ended:
    """What became of a scenario: its row of table `scenarios` but for `rows_kept`, and what the checks found.

    Attributes:
        run_id: in the store it was replayed into; None if there is no run.
    """

    row: dict[str, Any]
    run_id: str | None
    anomalies: list[Anomaly] = field(default_factory=list)

    @property
    def status(self) -> str:
        return str(self.row["status"])

    def notes(self) -> list[dict[str, Any]]:
        """As rows of table `anomalies`."""
        return [asdict(a) for a in self.anomalies]


def run_one(
    suite: str, matrix_id: str, scenario: Scenario, parts: Parts, *, scratch: Store, store: Store, folder: Path
) -> Ended:
    """Never raises for what one scenario did: the others go on.

    Args:
        scratch: where the run goes.
        store: where earlier runs are.
        folder: of the baselines.
    """
    started = time.perf_counter()
    row = {
        "suite": suite,
        "scenario": scenario.name,
        "matrix_id": matrix_id,
        **{column: scenario.place(axis) for column, axis in _COLUMNS.items()},
        **parts.as_row(),
        **dict.fromkeys(_ABOUT_RUN),
        "n_anomalies": 0,
    }
    found: list[Anomaly] = []
    run_id = None
    try:
        run_id = run_replay(scenario.config, scratch, base=scenario.base, name=scenario.name).run_id
        head = Recorded(find_commit(Layout(scratch.root), run_id), scratch.root)
        row |= {"run_id": run_id, "result_digest": head.run["result_digest"]}
        with open_run(head, history=store.database if store.database.exists() else None) as con:
            found = [*ask(con, run_id), *prices(con, store, head.run)]
        row |= _compared(scenario.name, head, store, folder)
        broken = [a for a in found if a.severity == "error"]
        if broken:
            said = "; ".join(f"{a.check_name}: {a.row_key}: {a.explanation}" for a in broken)
            row |= {"status": ANOMALY, "explanation": said}
        row["n_anomalies"] = len(found)
    except Exception as error:
        inputs = isinstance(error, INPUT_ERRORS) or (isinstance(error, OSError) and error.filename is not None)
        said = str(error) if inputs else "".join(traceback.format_exception(error))[-2000:]
        row |= {"status": FAILED if inputs else CRASHED, "explanation": said, "run_id": None}
        run_id = None
    row["total_ms"] = (time.perf_counter() - started) * 1e3
    return Ended(row, run_id, found if run_id else [])


_COLUMNS = {"trace": "traces", "engine": "engines", "load": "loads", "timing": "timing"}
_ABOUT_RUN = (
    "run_id", "result_digest", "input_change", "mechanism", "explanation", "ttft_change_ns", "e2e_change_ns",
)  # fmt: skip


def _compared(name: str, head: Recorded, store: Store, folder: Path) -> dict[str, Any]:
    """Status and explanation against the baseline of that name."""
    if name not in baselines.names(folder):
        return {"status": NEW}
    check = baselines.compare(baselines.load(folder, name), head, store)
    if check.same:
        return {"status": SAME}
    row: dict[str, Any] = {"status": WITHIN if check.passed else DIFFERS}
    if check.diff is None:
        moved = ", ".join(f"{f.metric} {f.stat}" for f in check.moved[:5])
        return row | {"explanation": f"figures moved ({moved}); the baseline's rows are not here to say why"}
    diff = check.diff
    change = {a.latency: a.change_ns for a in diff.attribution}
    return row | {
        "input_change": "; ".join(diff.input_change),
        "mechanism": diff.mechanism.name if diff.mechanism else None,
        "explanation": diff.mechanism.detail if diff.mechanism else None,
        "ttft_change_ns": change["ttft"],
        "e2e_change_ns": change["e2e"],
    }
