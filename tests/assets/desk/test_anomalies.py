"""Clean runs pass every check; a planted fault is noticed by the checks it must be noticed by, and by no other."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import duckdb
import pytest

from assets.desk import sound_rows
from assets.desk.anomalies import FILES_CHECK, claims, examine
from assets.views import open_store
from tests.assets.desk.faults import LAWS, SIGNS, Fault
from tests.assets.desk.large import long_run
from tests.assets.desk.tamper import tamper
from tests.assets.desk.worlds import deployment, record, traffic
from tests.pipelines.conftest import Cli, cli, root, tiny  # noqa: F401  (fixtures)

HISTORY = {"throughput_history", "same_replay_gives_the_same"}


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("small")
    record(folder, "run", deployment(2, workers=1, dp=2, blocks=20, async_scheduling=False), traffic(2))
    return folder


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("long")
    long_run(folder, "run", 20_000)
    return folder


def noticed(original: Path, copy: Path, planted: Fault) -> set[str]:
    shutil.copytree(original, copy)
    tamper(copy, "run", *planted.statements, run=dict(planted.run))
    return {a.check_name for a in examine(open_store(copy), "run")}


def test_every_check_has_a_fault() -> None:
    assert set(claims()) == set(LAWS) | set(SIGNS) | HISTORY | {FILES_CHECK, sound_rows.NAME}


@pytest.mark.parametrize("name", LAWS)
def test_a_broken_law_is_noticed(name: str, small: Path, tmp_path: Path) -> None:
    assert noticed(small, tmp_path / "copy", LAWS[name]) == {name} | LAWS[name].notices


@pytest.mark.parametrize("name", SIGNS)
def test_a_sign_of_trouble_is_noticed(name: str, long: Path, tmp_path: Path) -> None:
    assert noticed(long, tmp_path / "copy", SIGNS[name]) == {name} | SIGNS[name].notices


@pytest.mark.parametrize("seed", range(8))
def test_clean_runs_pass(seed: int, tmp_path: Path) -> None:
    record(tmp_path, "run", deployment(seed), traffic(seed))
    assert examine(open_store(tmp_path), "run") == []


def test_rows_that_are_not_as_committed(small: Path, tmp_path: Path) -> None:
    shutil.copytree(small, tmp_path / "copy")
    store = open_store(tmp_path / "copy")
    commit = next((tmp_path / "copy" / "commits").iterdir())
    text = commit.read_text()
    tamper(tmp_path / "copy", "run", "UPDATE passes SET n_waiting = n_waiting + 1")
    commit.write_text(text)  # the old signature over the new rows
    (found,) = examine(store, "run")
    assert found.check_name == FILES_CHECK and found.explanation == "passes: changed column(s) n_waiting"


def test_a_slower_run_of_the_same_name_is_noticed(tmp_path: Path) -> None:
    for i in range(3):
        record(tmp_path, f"r{i}", deployment(2), traffic(2))
    record(tmp_path, "r3", deployment(2, speedup_ratio=0.2), traffic(2))
    store = open_store(tmp_path)
    assert examine(store, "r2") == []
    (found,) = examine(store, "r3")
    assert found.check_name == "throughput_history" and found.figure is not None and found.figure < 0.9


def test_settings_tried_in_turn_are_not_each_other_s_history(tmp_path: Path) -> None:
    """The slow setting is told once; from then on both have runs of their own to be held against."""
    for i in range(3):
        record(tmp_path, f"r{2 * i}", deployment(2), traffic(2))
        record(tmp_path, f"r{2 * i + 1}", deployment(2, speedup_ratio=0.2), traffic(2))
    store = open_store(tmp_path)
    told = {run: [a.check_name for a in examine(store, run)] for run in ("r1", "r2", "r3", "r4", "r5")}
    assert told == {"r1": ["throughput_history"], "r2": [], "r3": [], "r4": [], "r5": []}


def test_another_answer_to_the_same_question_is_noticed(small: Path, tmp_path: Path) -> None:
    shutil.copytree(small, tmp_path / "copy")
    record(tmp_path / "copy", "again", deployment(2, workers=1, dp=2, blocks=20, async_scheduling=False), traffic(2))
    store = open_store(tmp_path / "copy")
    assert examine(store, "again") == []
    tamper(tmp_path / "copy", "again", "UPDATE metrics SET value = value + 1")
    (found,) = examine(store, "again")
    assert found.check_name == "same_replay_gives_the_same" and found.row_key == "run_id=run"


def test_prices_from_measurements_that_cannot_be_right(long: Path, tmp_path: Path) -> None:
    """Half of the decode cell's time is an operator whose only row an examination has found fault with."""
    shutil.copytree(long, tmp_path / "copy")
    rows = """
        INSERT INTO cell_ops BY NAME
        SELECT 'aggregated' AS role, phase, 7 AS cell, op AS operator, 'gemm.parquet' AS file, 'd' AS file_digest,
               row_no, 1.0 AS share, 1.0 AS operator_ms, 0.5 AS operator_share, 1 AS requests, 1 AS length, 0 AS prefix
        FROM (VALUES ('decode', 'gemm', 3), ('decode', 'other', 4)) t(phase, op, row_no)"""
    tamper(tmp_path / "copy", "run", "UPDATE evidence SET cell = 7 WHERE phase = 'decode'", rows)
    store = open_store(tmp_path / "copy")
    usual = {a.check_name for a in examine(store, "run")}
    assert sound_rows.NAME not in usual  # nothing was examined
    folder = tmp_path / "copy" / "performance" / "s" / "b" / "v"
    folder.mkdir(parents=True)
    for kind, repair, told in (
        ("spike", "none", True),
        ("hole", "none", False),
        ("spike", "the value on the line between its neighbours", False),
    ):
        with duckdb.connect() as con:
            con.execute(
                f"COPY (SELECT 'gemm.parquet' AS file, 3 AS row_no, '{kind}' AS kind, '{repair}' AS repair) "
                f"TO '{folder}/perf_anomalies.parquet'"
            )
        found = {a.check_name: a for a in examine(store, "run")}
        assert (sound_rows.NAME in found) is told
        if told:
            worst = found[sound_rows.NAME]
            assert worst.row_key == "file=gemm.parquet, row_no=3 (spike)" and worst.n_rows == 1
            assert worst.figure == pytest.approx(0.45)  # decoding is nine tenths of the time


def test_findings_are_a_table_and_examining_twice_doubles_nothing(small: Path, tmp_path: Path) -> None:
    shutil.copytree(small, tmp_path / "copy")
    store = open_store(tmp_path / "copy")
    tamper(tmp_path / "copy", "run", "UPDATE passes SET n_admitted = 0 WHERE pass_no = 0 AND dp_rank = 0")
    for _ in range(2):
        examine(store, "run")
        with store.connect() as con:
            rows = con.execute("SELECT run_id, check_name, severity, n_rows FROM anomalies").fetchall()
        assert rows == [("run", "passes_count_their_requests", "error", 1)]
    store.rebuild()
    with store.connect() as con:
        assert con.execute("SELECT count(*) FROM anomalies").fetchall() == [(1,)]


def test_the_command(cli: Cli, tiny: Path, root: Path) -> None:  # noqa: F811
    run_id = json.loads(cli("replay", tiny, "--json").stdout)["run_id"]
    answer = cli("anomalies")
    assert answer.exit_code == 0 and answer.stdout == f"run {run_id}: {len(claims())} checks, all fine\n"
    tamper(root, run_id, "UPDATE passes SET n_admitted = 0 WHERE pass_no = 0")
    answer = cli("anomalies", run_id)
    assert answer.exit_code == 1
    assert answer.stdout.startswith("error    passes_count_their_requests  (passes, 1 row)\n")
    assert json.loads(cli("anomalies", run_id, "--json").stdout)[0]["row_key"] == "worker=0, dp_rank=0, pass_no=0"
    assert cli("anomalies", "nobody").exit_code == 2


def test_the_page_explains_every_check() -> None:
    page = (Path(__file__).parents[3] / "docs" / "regression.md").read_text()
    for name, (severity, _, claim) in claims().items():
        assert f"| `{name}` | {severity} | {claim} |\n" in page
