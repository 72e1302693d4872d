"""Which scenarios of a suite have to be run, and why: those whose inputs changed, or that did not end well."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assets.desk import baselines
from assets.desk.matrix.inputs import WORDS, Parts, parts_of
from assets.desk.matrix.suite import Scenario, Suite
from perf_db.store import Store

NEVER, FAILED = "never run", "failed the last time"
UNDONE = ("failed", "crashed")


@dataclass(frozen=True)
class Planned:
    """A scenario and what is known about it.

    Attributes:
        last: its newest row of table `scenarios`; None if it was never run.
        reasons: why it has to be run; empty if its last result stands.
    """

    scenario: Scenario
    parts: Parts
    last: Mapping[str, Any] | None
    reasons: tuple[str, ...]


def plan(suite: Suite, store: Store, folder: Path, *, only: Sequence[str] = ()) -> list[Planned]:
    """
    Args:
        folder: of the baselines.
        only: patterns of names; empty: all.

    Raises:
        ConfigError: a pattern fits nothing.
    """
    last = last_rows(store, suite.name)
    found = []
    for scenario in suite.chosen(only):
        parts, row = parts_of(scenario, folder), last.get(scenario.name)
        found.append(Planned(scenario, parts, row, tuple(_reasons(parts, row, folder, scenario.name))))
    return found


def last_rows(store: Store, suite: str) -> dict[str, dict[str, Any]]:
    """The newest row of every scenario that was ever run, by name."""
    if not store.exists:
        return {}
    with store.connect() as con:
        cursor = con.execute(
            "SELECT * FROM scenarios WHERE suite = ? QUALIFY row_number() OVER (PARTITION BY scenario "
            "ORDER BY matrix_id DESC) = 1",
            [suite],
        )
        names = [column[0] for column in cursor.description]
        rows = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
    return {row["scenario"]: row for row in rows}


def _reasons(parts: Parts, row: Mapping[str, Any] | None, folder: Path, name: str) -> Iterable[str]:
    if row is None:
        yield NEVER
        return
    if row["status"] in UNDONE:
        yield FAILED
    for column, value in parts.as_row().items():
        if row[column] != value and not (column == "baseline_digest" and _accepted(row, folder, name)):
            yield WORDS[column]


def _accepted(row: Mapping[str, Any], folder: Path, name: str) -> bool:
    """Whether the baseline is the very result that the row is about."""
    if row["status"] == "anomaly" or name not in baselines.names(folder):
        return False
    return bool(baselines.load(folder, name).recorded.run["result_digest"] == row["result_digest"])
