"""Examining a run: every law and every sign of trouble, as rows of table `anomalies`."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from assets.checks import LAWS as FIRST_LAWS
from assets.checks import check_run
from assets.desk import sound_rows
from assets.desk.checks import Check, Severity
from assets.desk.laws import LAWS
from assets.desk.signs import SIGNS
from perf_db.layout import StoreError
from perf_db.store import Store
from perf_db.tables import ANOMALIES

CHECKS = (*LAWS, *SIGNS)
FILES_CHECK = "rows_are_as_committed"
FILES_CLAIM = "the files hold what was committed, by their digests"


@dataclass(frozen=True, slots=True)
class Anomaly:
    """A row of table `anomalies`."""

    run_id: str
    check_name: str
    severity: Severity
    table_name: str
    row_key: str
    figure: float | None
    n_rows: int
    explanation: str


def claims() -> dict[str, tuple[Severity, str, str]]:
    """Every check there is: name -> (severity, table, what holds)."""
    found: dict[str, tuple[Severity, str, str]] = {FILES_CHECK: ("error", "requests", FILES_CLAIM)}
    found |= {law.name: ("error", law.table, law.claim) for law in FIRST_LAWS}
    found |= {check.name: (check.severity, check.table, check.claim) for check in CHECKS}
    return found | {sound_rows.NAME: ("warning", sound_rows.TABLE, sound_rows.CLAIM)}


def examine(store: Store, run: str) -> list[Anomaly]:
    """Ask every check of a committed run and note what was found; errors come first.

    Args:
        store: with the views that ship.
        run: anything `Store.resolve` understands.
    """
    run_id = store.resolve(run)
    if not store.commit(run_id).kept:
        raise StoreError(f"rows of run {run_id} were not kept; what was found when it was made is in table anomalies")
    found = _files(store, run_id)
    with store.connect() as con:
        found += ask(con, run_id)
        found += prices(con, store, store.commit(run_id).run)
    found.sort(key=_order)
    store.note(ANOMALIES, run_id, [asdict(a) for a in found])
    return found


def ask(con: Any, run_id: str) -> list[Anomaly]:
    """What the checks find in the tables that a connection offers; errors come first."""
    found = []
    for verdict in check_run(con, run_id):
        if not verdict.passed:
            law = verdict.law
            says = f"not so: {law.claim}"
            found.append(Anomaly(run_id, law.name, "error", law.table, verdict.example, None, verdict.n_broken, says))
    found += [a for check in CHECKS if (a := _ask(con, check, run_id)) is not None]
    return sorted(found, key=_order)


def prices(con: Any, store: Store, run: dict[str, Any]) -> list[Anomaly]:
    """What the performance data behind the run's prices are worth, as far as the store knows."""
    found = sound_rows.doubtful(con, store.root, run)
    if found is None:
        return []
    key, share, n = found
    says = f"{share:.1%} of the time is priced from rows that cannot be right; most from this one"
    return [Anomaly(run["run_id"], sound_rows.NAME, "warning", sound_rows.TABLE, key, share, n, says)]


def _order(anomaly: Anomaly) -> tuple[bool, str]:
    return anomaly.severity != "error", anomaly.check_name


def _ask(con: Any, check: Check, run_id: str) -> Anomaly | None:
    query = f"""
        SELECT row_key, figure::DOUBLE, count(*) OVER () FROM ({check.query})
        ORDER BY abs(figure) DESC NULLS LAST, row_key LIMIT 1
    """
    row = con.execute(query, {"run": run_id}).fetchone()
    if row is None:
        return None
    key, figure, n = row
    says = check.says.format(figure=figure or 0.0, key=key)
    return Anomaly(run_id, check.name, check.severity, check.table, key, figure, n, says)


def _files(store: Store, run_id: str) -> list[Anomaly]:
    faults = store.verify(run_id)
    if not faults:
        return []
    table = faults[0].split(":", 1)[0]
    return [Anomaly(run_id, FILES_CHECK, "error", table, table, None, len(faults), "; ".join(faults))]
