"""Every conservation law holds on a real run, and notices when its tables are bent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
import pytest

from assets.checks import LAWS, check_run
from assets.views import open_store
from tests.pipelines.conftest import Cli

# One bend per law: an UPDATE of a copy of the tables.
BENDS = {
    "requests_end_once": "UPDATE requests SET end_ns = NULL WHERE request_id = 1",
    "every_row_accounted_for": "DELETE FROM requests WHERE request_id = 1",
    "spans_hold_every_token": "UPDATE spans SET n_tokens = n_tokens + 1 WHERE request_id = 1",
    "spans_do_not_overlap": "INSERT INTO spans SELECT * REPLACE (1 AS span_no) FROM spans WHERE request_id = 1",
    "bursts_hold_every_token": "UPDATE spans SET n_passes = n_passes + 1 WHERE request_id = 1",
    "passes_make_every_token": "UPDATE passes SET n_tokens = 0",
    "passes_follow_each_other": "UPDATE passes SET start_ns = 0 WHERE pass_no = 3",
    "kv_blocks_are_conserved": "UPDATE passes SET free_blocks = free_blocks + 1 WHERE pass_no = 1",
    "evidence_adds_up": "UPDATE evidence SET total_ns = total_ns + 1 WHERE phase = 'decode'",
    "preemptions_are_recorded": "UPDATE requests SET n_preemptions = 1 WHERE request_id = 0",
    "admissions_are_recorded": "DELETE FROM admissions WHERE request_id = 0",
    "chunks_add_up": "UPDATE chunks SET n_tokens = n_tokens - 1 WHERE request_id = 0",
}
TABLES = (
    *("runs", "requests", "spans", "bursts", "passes", "evidence"),
    *("pressure", "quarantine", "admissions", "chunks", "handoffs"),
)


@pytest.fixture
def copy(cli: Cli, tiny: Path, root: Path) -> tuple[duckdb.DuckDBPyConnection, str]:
    """A writable copy of a run's tables in memory, and its run id."""
    run_id = json.loads(cli("replay", tiny, "--json").stdout)["run_id"]
    con = duckdb.connect()
    con.execute(f"ATTACH '{open_store(root).database}' AS store (READ_ONLY)")
    for table in TABLES:
        con.execute(f"CREATE TABLE {table} AS FROM store.{table}")
    return con, run_id


def broken(con: Any, run_id: str) -> set[str]:
    return {verdict.law.name for verdict in check_run(con, run_id) if not verdict.passed}


def test_all_hold(copy: tuple[duckdb.DuckDBPyConnection, str]) -> None:
    assert broken(*copy) == set()


def test_every_law_has_a_bend() -> None:
    assert set(BENDS) == {law.name for law in LAWS}


def test_a_bent_table_is_noticed_with_an_example(copy: tuple[duckdb.DuckDBPyConnection, str]) -> None:
    con, run_id = copy
    for name, bend in BENDS.items():
        con.execute("BEGIN")
        con.execute(bend)
        verdict = next(v for v in check_run(con, run_id) if v.law.name == name)
        con.execute("ROLLBACK")
        assert not verdict.passed and verdict.n_broken > 0 and verdict.example, name
