"""The tables. To add one: declare it in a file of its own and list it here.

`perf_db` does not know the engine; a test holds these declarations to the column names the engine hands out.
"""

from __future__ import annotations

import hashlib

from perf_db.schema import Column, Table
from perf_db.tables.acceptance import ACCEPTANCE
from perf_db.tables.accuracy import ACCURACY
from perf_db.tables.accuracy_history import ACCURACY_HISTORY
from perf_db.tables.admissions import ADMISSIONS
from perf_db.tables.anomalies import ANOMALIES
from perf_db.tables.baselines import BASELINES
from perf_db.tables.bursts import BURSTS
from perf_db.tables.calibrations import CALIBRATIONS
from perf_db.tables.cell_ops import CELL_OPS
from perf_db.tables.chunks import CHUNKS
from perf_db.tables.evidence import EVIDENCE
from perf_db.tables.files import FILES
from perf_db.tables.ground_truth import GROUND_TRUTH
from perf_db.tables.handoffs import HANDOFFS
from perf_db.tables.metrics import METRICS
from perf_db.tables.passes import PASSES
from perf_db.tables.perf_anomalies import PERF_ANOMALIES
from perf_db.tables.perf_repairs import PERF_REPAIRS
from perf_db.tables.perf_tables import PERF_TABLES
from perf_db.tables.pressure import PRESSURE
from perf_db.tables.quarantine import QUARANTINE
from perf_db.tables.requests import REQUESTS
from perf_db.tables.runs import REPLAY_ID, RUN_ID, RUNS
from perf_db.tables.scenarios import SCENARIOS
from perf_db.tables.spans import SPANS
from perf_db.tables.traces import TRACES

__all__ = [
    "ACCEPTANCE",
    "ACCURACY",
    "ACCURACY_HISTORY",
    "ADMISSIONS",
    "ANOMALIES",
    "BASELINES",
    "BURSTS",
    "CALIBRATIONS",
    "CELL_OPS",
    "CHUNKS",
    "EVIDENCE",
    "FILES",
    "GROUND_TRUTH",
    "HANDOFFS",
    "METRICS",
    "NATIVE_TABLES",
    "NOTE_TABLES",
    "PASSES",
    "PERFORMANCE_TABLES",
    "PERF_ANOMALIES",
    "PERF_REPAIRS",
    "PERF_TABLES",
    "PRESSURE",
    "QUARANTINE",
    "REQUESTS",
    "RESULT_TABLES",
    "RUNS",
    "RUN_COLUMNS",
    "SCENARIOS",
    "SPANS",
    "TABLES",
    "TRACES",
    "schema_digest",
]

# What one replay produces. Parquet holds these columns and nothing else: no host time, no run id, so that the same
# replay gives the same bytes.
RESULT_TABLES: dict[str, Table] = {
    t.name: t
    for t in (
        *(REQUESTS, SPANS, BURSTS, PASSES, EVIDENCE, CELL_OPS, PRESSURE, QUARANTINE),
        *(ADMISSIONS, CHUNKS, ACCEPTANCE, HANDOFFS, METRICS),
    )
}
# Kept inside the DuckDB file: few rows per replay.
_ACCURACY = (GROUND_TRUTH, ACCURACY, CALIBRATIONS, ACCURACY_HISTORY)
NATIVE_TABLES: dict[str, Table] = {
    t.name: t for t in (RUNS, FILES, METRICS, ANOMALIES, BASELINES, SCENARIOS, *_ACCURACY)
}
# Those among them that are written after a run and may be written again: `perf_db.notes`.
NOTE_TABLES: dict[str, Table] = {t.name: t for t in (ANOMALIES, BASELINES, SCENARIOS, *_ACCURACY)}
# What is known of performance data, before any replay.
PERFORMANCE_TABLES: dict[str, Table] = {t.name: t for t in (PERF_TABLES, PERF_ANOMALIES, PERF_REPAIRS)}
TABLES: dict[str, Table] = {
    t.name: t
    for t in (
        RUNS, *RESULT_TABLES.values(), FILES, *NOTE_TABLES.values(), TRACES, *PERFORMANCE_TABLES.values()
    )
}  # fmt: skip

# In front of every result table when rows of several replays are seen together.
RUN_COLUMNS: tuple[Column, ...] = (RUN_ID, REPLAY_ID)


def schema_digest() -> str:
    """Digest of what the result tables hold: another column, type or category, another digest. Wording is free."""
    state = hashlib.blake2b(digest_size=16)
    for table in RESULT_TABLES.values():
        for c in table.columns:
            state.update(f"{table.name}|{c.name}|{c.dtype.value}|{c.unit}|{c.nullable}|{','.join(c.values)}\n".encode())
    return state.hexdigest()
