"""Baselines: runs that were accepted as reference for later ones, kept in git under `baselines/<name>/`.

`baseline.json` holds the run's facts, its digests, the tolerances and the history; beside it lie the tables themselves
as long as they are small, so that a fresh clone can explain a difference. Of a large run only the metrics are copied,
and the run stays pinned by its id.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from assets.desk.anomalies import examine
from assets.desk.diff import Diff, diff_runs
from assets.desk.figures import Figure, figures
from assets.desk.pair import Recorded, open_pair, same_rows
from perf_db.commit import Commit, StoredTable
from perf_db.layout import StoreError, checked_id, write_whole
from perf_db.rows import copy_rows
from perf_db.store import Store
from perf_db.tables import BASELINES, METRICS

FOLDER = Path("baselines")
COPIED_BYTES = 2_000_000
EVERY = "*"


class BaselineError(StoreError):
    """The baseline cannot be used, or the run not be accepted, as asked; the message says why."""


@dataclass(frozen=True)
class Baseline:
    """An accepted run.

    Attributes:
        recorded: its facts and tables; tables of a large run are in the store that `pinned` names a run of.
        tolerances: "metric.stat", "metric" or "*" -> largest relative change of the figure that is no difference.
            Empty: the rows must be the same.
        history: acceptances, oldest first.
    """

    name: str
    recorded: Recorded
    pinned: bool
    tolerances: dict[str, float] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)

    def history_rows(self) -> list[dict[str, Any]]:
        """As rows of table `baselines`."""
        return [{c: entry.get(c) for c in BASELINES.column_names} for entry in self.history]


@dataclass(frozen=True)
class Check:
    """A run held against a baseline.

    Attributes:
        diff: None where the baseline's rows are not at hand; then only figures were compared.
        beyond: figures that differ by more than their tolerance.
    """

    baseline: Baseline
    run: dict[str, Any]
    diff: Diff | None
    moved: list[Figure]
    beyond: list[Figure]

    @property
    def same(self) -> bool:
        return self.diff is not None and self.diff.same

    @property
    def passed(self) -> bool:
        return self.same or bool(self.baseline.tolerances and not self.beyond)


def names(folder: Path) -> list[str]:
    """Every baseline in the folder."""
    return sorted(p.parent.name for p in folder.glob("*/baseline.json")) if folder.is_dir() else []


def load(folder: Path, name: str) -> Baseline:
    """
    Raises:
        BaselineError: there is none of that name, or its file is damaged.
    """
    path = folder / checked_id("baseline", name) / "baseline.json"
    if not path.exists():
        known = ", ".join(names(folder)) or "none yet"
        raise BaselineError(f"no baseline {name!r} in {folder}; there is: {known}")
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
        commit = Commit(kept["run"], tuple(StoredTable(**t) for t in kept["tables"]))
        recorded = Recorded(commit, path.parent.absolute())
        return Baseline(name, recorded, kept["pinned"], kept["tolerances"], kept["history"])
    except (ValueError, KeyError, TypeError) as error:
        raise BaselineError(f"{path} is no baseline ({error})") from error


def rows_of(baseline: Baseline, store: Store) -> Recorded | None:
    """Where the baseline's rows are: beside it, or in the store if it is pinned; None if they are nowhere."""
    if not baseline.pinned:
        return baseline.recorded
    run_id = baseline.recorded.run["run_id"]
    return Recorded.of_store(store, run_id) if any(r["run_id"] == run_id for r in store.runs()) else None


def accept(
    store: Store,
    run: str,
    *,
    folder: Path,
    reason: str,
    author: str,
    name: str | None = None,
    tolerances: Mapping[str, float] | None = None,
) -> tuple[Baseline, Diff | None]:
    """Make a run the baseline of its name, and record what it changes.

    Args:
        name: of the baseline; None: the run's own.
        tolerances: None leaves those it has.

    Returns:
        The baseline, and its difference from the one before (None for the first).

    Raises:
        BaselineError: no reason, an unexplained difference, or a run that breaks laws. Nothing is changed.
    """
    if not reason.strip():
        raise BaselineError("a baseline needs a reason: --reason 'why this is right'")
    head = Recorded.of_store(store, run)
    if lost := head.lost():
        raise BaselineError(
            f"run {head.run['run_id']}: rows of {', '.join(lost)} were not kept, so it cannot be accepted; run it "
            "again and keep them (--keep all)"
        )
    name = checked_id("baseline", name or head.run["name"].replace(" ", "-"))
    broken = [a.check_name for a in examine(store, head.run["run_id"]) if a.severity == "error"]
    if broken:
        raise BaselineError(f"run {head.run['run_id']} breaks laws and cannot be accepted: {', '.join(broken)}")
    before = load(folder, name) if name in names(folder) else None
    diff = _explained(before, head, store) if before else None
    entry = _entry(name, len(before.history) if before else 0, head.run, reason.strip(), author, diff)
    kept = before.tolerances if before else {}
    history = [*(before.history if before else []), entry]
    baseline = _write(folder, name, head, dict(kept if tolerances is None else tolerances), history)
    store.note(BASELINES, name, baseline.history_rows())
    return baseline, diff


def check(baseline: Baseline, head: Recorded, store: Store) -> Check:
    """Hold a run against a baseline, and note the baseline's history in the store."""
    store.note(BASELINES, baseline.name, baseline.history_rows())
    return compare(baseline, head, store)


def compare(baseline: Baseline, head: Recorded, store: Store) -> Check:
    """Hold a run against a baseline: rows first, figures where rows differ."""
    if same_rows(baseline.recorded, head):
        return Check(baseline, head.run, diff_runs(baseline.recorded, head), [], [])
    rows = rows_of(baseline, store)
    if rows is not None and not head.lost():
        diff = diff_runs(rows, head)
        found = diff.figures
    else:
        diff = None
        with open_pair(baseline.recorded.only_metrics(), head.only_metrics()) as pair:
            found = figures(pair)
    moved = [f for f in found if f.base != f.head]
    beyond = [f for f in moved if _is_beyond(f, tolerance(baseline.tolerances, f))]
    return Check(baseline, head.run, diff, moved, beyond)


def tolerance(tolerances: Mapping[str, float], figure: Figure) -> float:
    """Of this figure: the most exact name decides; 0 where none is given."""
    for name in (f"{figure.metric}.{figure.stat}", figure.metric, EVERY):
        if name in tolerances:
            return tolerances[name]
    return 0.0


def latest_run(store: Store, baseline: Baseline) -> Recorded:
    """The newest run with the name of the baseline's run."""
    return Recorded.of_store(store, baseline.recorded.run["name"])


def _is_beyond(figure: Figure, allowed: float) -> bool:
    if figure.base is None or figure.head is None:
        return True
    return abs(figure.head - figure.base) > allowed * abs(figure.base)


def _explained(before: Baseline, head: Recorded, store: Store) -> Diff:
    rows = rows_of(before, store)
    if rows is None:
        pinned = before.recorded.run["run_id"]
        raise BaselineError(
            f"baseline {before.name!r} is pinned to run {pinned}, which {store.root} does not hold, so what would "
            "change cannot be explained; use the warehouse that has it, or remove the baseline to start anew"
        )
    diff = diff_runs(rows, head)
    if diff.same:
        raise BaselineError(f"run {head.run['run_id']} holds the accepted rows of {before.name!r} already")
    if not diff.explained:
        why = diff.mechanism.detail if diff.mechanism else "no input differs"
        named = diff.mechanism.name if diff.mechanism else "none"
        raise BaselineError(
            f"the difference from {before.name!r} is not explained and cannot be accepted: input change "
            f"{', '.join(diff.input_change)}; mechanism {named} ({why})"
        )
    return diff


def _entry(
    name: str, number: int, run: Mapping[str, Any], reason: str, author: str, diff: Diff | None
) -> dict[str, Any]:
    change = {a.latency: a for a in diff.attribution} if diff else {}
    row = {
        "baseline": name,
        "entry_no": number,
        "accepted_at": dt.datetime.now(dt.UTC).replace(tzinfo=None).isoformat(sep=" ", timespec="seconds"),
        "author": author,
        "reason": reason,
        **{k: run[k] for k in ("run_id", "replay_id", "result_digest")},
        "input_change": "; ".join(diff.input_change) if diff else None,
        "mechanism": diff.mechanism.name if diff and diff.mechanism else None,
        "detail": diff.mechanism.detail if diff and diff.mechanism else None,
        "ttft_change_ns": change["ttft"].change_ns if change else None,
        "e2e_change_ns": change["e2e"].change_ns if change else None,
    }
    accepted = None
    if diff:
        whole = diff.as_json()
        accepted = {k: whole[k] for k in ("inputs", "attribution", "tables", "requests")}
        accepted["metrics"] = [m for m in whole["metrics"] if m["base"] != m["head"]]
        accepted["first_divergent_pass"] = list(diff.first_pass.key) if diff.first_pass else None
    return row | {"diff": accepted}


def _write(
    folder: Path, name: str, head: Recorded, tolerances: dict[str, float], history: Sequence[dict[str, Any]]
) -> Baseline:
    """The whole folder is made aside and put in place, so that a killed process leaves the old one or the new one."""
    pinned = sum(t.n_bytes for t in head.commit.tables) > COPIED_BYTES
    aside, target = folder / f".{name}.{os.getpid()}", folder / name
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    tables = []
    for stored in head.commit.tables:
        if stored.path is None or (pinned and stored.table != METRICS.name):
            tables.append(replace(stored, path=None))
        else:
            copy_rows(head.root, stored, head.run["run_id"], aside / f"{stored.table}.parquet")
            tables.append(replace(stored, path=f"{stored.table}.parquet"))
    kept = {
        "name": name,
        "pinned": pinned,
        "tolerances": tolerances,
        "history": list(history),
        "run": head.run,
        "tables": [asdict(t) for t in tables],
    }
    write_whole(aside / "baseline.json", json.dumps(kept, indent=1) + "\n")
    (aside / "baseline.json").chmod(0o644)  # git and people may write here
    old = folder / f".{name}.old.{os.getpid()}"
    if target.exists():
        os.replace(target, old)
    os.replace(aside, target)
    shutil.rmtree(old, ignore_errors=True)
    return load(folder, name)
