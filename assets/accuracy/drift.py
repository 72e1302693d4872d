"""Whether a snapshot still holds: new truth against the errors it was accepted with, one history of all checks."""

from __future__ import annotations

import datetime as dt
import secrets
from typing import TYPE_CHECKING, Any

from assets.accuracy.report import OURS
from assets.accuracy.study import Study
from perf_db.store import Store
from perf_db.tables import ACCURACY_HISTORY

if TYPE_CHECKING:
    from assets.calibration.snapshot import Snapshot

POINTS, RELATIVE = 0.02, 0.10  # worse by both: an alert


def check(study: Study, snapshot: Snapshot, store: Store, *, now: dt.datetime | None = None) -> list[dict[str, Any]]:
    """Rows of `accuracy_history`, one per metric that the snapshot has a held-out error of; kept in the store."""
    at = now or dt.datetime.now(dt.UTC)
    check_id = f"{at:%Y%m%dT%H%M%S%f}-{secrets.token_hex(2)}"
    rows = []
    for name, reference in snapshot.held_out().items():
        backend, _, metric = name.rpartition(".")
        label = {"backend": backend} if backend else {}
        cell = study.report.cell(OURS, metric, "backend" if backend else "all", **label)
        if cell is None or cell.figures.mape.value is None:
            continue
        error = cell.figures.mape.value
        rows.append(
            {
                "check_id": check_id,
                "checked_at": at.replace(tzinfo=None).isoformat(sep=" ", timespec="seconds"),
                "snapshot": snapshot.digest,
                "truth_set": study.report.truth_set,
                "metric": name,
                "n_rows": cell.figures.n_rows,
                "n_answered": cell.figures.n_answered,
                "error": error,
                "reference_error": reference,
                "alert": is_drift(error, reference),
            }
        )
    if rows:
        store.note(ACCURACY_HISTORY, check_id, rows)
    return rows


def is_drift(error: float, reference: float) -> bool:
    """Worse by two points and by a tenth: small errors may double, large ones wobble."""
    return error - reference >= POINTS and error >= reference * (1 + RELATIVE)


def drift_text(rows: list[dict[str, Any]]) -> str:
    return "\n".join(
        f"{'DRIFT ' if row['alert'] else 'holds '} {row['metric']:12} {100 * row['error']:.1f} % on "
        f"{row['n_answered']:,} of {row['n_rows']:,} rows, {100 * row['reference_error']:.1f} % when it was made"
        for row in rows
    )
