"""Running a suite: what changed is run, the rest stands; a failure of one is no failure of the others."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from assets.desk import baselines
from assets.desk.diff import diff_runs
from assets.desk.matrix import one
from assets.desk.matrix.plan import plan
from assets.desk.matrix.suite import load_suite
from assets.desk.pair import Recorded
from tests.assets.desk.matrix.conftest import NAMES, Place

ROOT = Path(__file__).parents[4]


def names(outcome: object) -> list[str]:
    return [row["scenario"] for row in outcome.rows]  # type: ignore[attr-defined]


def accept_all(place: Place) -> None:
    for name in NAMES:
        baselines.accept(place.store, name, folder=place.baselines, reason="first", author="me")


def test_what_ran_stands_until_an_input_changes(place: Place) -> None:
    first = place.run(keep="all")
    assert names(first) == NAMES and first.exit_code == 0 and first.count("new") == 4
    again = place.run()
    assert names(again) == [] and len(again.standing) == 4 and again.count("new") == 4

    place.edit("few.jsonl", "600", "601")
    assert names(place.run()) == NAMES[:2]
    place.edit("tiny.yaml", "decode_ms: 2}", "decode_ms: 2.5}")
    assert names(place.run()) == [NAMES[0], NAMES[2]]
    assert names(place.run(force=True, only=["more.*"])) == NAMES[2:]
    assert place.ask("SELECT count(*), count(DISTINCT run_id), count(DISTINCT matrix_id) FROM scenarios") == [
        (10, 10, 4)
    ]


def test_the_reasons_are_named(place: Place) -> None:
    def reasons() -> dict[str, tuple[str, ...]]:
        found = plan(load_suite(place.suite), place.store, place.baselines)
        return {p.scenario.name: p.reasons for p in found}

    assert set(reasons().values()) == {("never run",)}
    place.run(keep="all")
    assert set(reasons().values()) == {()}
    accept_all(place)
    assert set(reasons().values()) == {()}  # the baseline is the very result
    place.edit("more.jsonl", "90", "91")
    place.edit("tiny.yaml", "prefill_ms: 5", "prefill_ms: 6")
    assert reasons() == {
        NAMES[0]: ("configuration", "performance data"),
        NAMES[1]: (),
        NAMES[2]: ("configuration", "trace", "performance data"),
        NAMES[3]: ("trace",),
    }
    place.run(keep="all")
    baselines.accept(place.store, NAMES[3], folder=place.baselines, reason="later", author="me")
    place.run(keep="all", force=True)
    (place.baselines / NAMES[3] / "baseline.json").write_text(
        (place.baselines / NAMES[3] / "baseline.json")
        .read_text()
        .replace('"tolerances": {}', '"tolerances": {"*": 1.0}')
    )
    assert reasons()[NAMES[3]] == ()  # its rows are those of the baseline, whatever may differ otherwise
    (place.baselines / NAMES[0]).rename(place.baselines / "elsewhere")
    assert reasons()[NAMES[0]] == ("baseline",)


def test_a_difference_from_the_baseline_is_explained(place: Place) -> None:
    place.run(keep="all")
    accept_all(place)
    same = place.run(force=True)
    assert same.count("same") == 4 and same.exit_code == 0
    place.edit("tiny.yaml", "decode_ms: 2}", "decode_ms: 4}")
    outcome = place.run()
    assert names(outcome) == [NAMES[0], NAMES[2]] and outcome.exit_code == 1
    row = outcome.rows[0]
    assert (row["status"], row["mechanism"]) == ("differs", "price")
    assert row["input_change"] == "configuration: engine.workers.aggregated.timing.decode_ms"
    assert row["e2e_change_ns"] > 0 and row["explanation"].startswith("decode lookup at 1 request")
    # Rows of what differs are kept, so that the difference can be looked at; of the others figures remain.
    kept = dict(place.ask(f"SELECT scenario, rows_kept FROM scenarios WHERE matrix_id = '{outcome.matrix_id}'"))
    assert kept == {NAMES[0]: True, NAMES[2]: True}
    base = baselines.load(place.baselines, NAMES[0]).recorded
    assert diff_runs(base, Recorded.of_store(place.store, row["run_id"])).mechanism is not None


@pytest.mark.parametrize(("keep", "passes"), [("all", 4), ("failed", 0), ("none", 0)])
def test_whose_rows_are_kept(place: Place, keep: str, passes: int) -> None:
    place.run(keep=keep)
    assert place.ask("SELECT count(DISTINCT run_id) FROM passes") == [(passes,)]
    assert place.ask("SELECT count(DISTINCT run_id) FROM metrics") == [(4,)]
    assert place.ask("SELECT count(DISTINCT run_id) FROM evidence") == [(4,)]
    (digests,) = place.ask("SELECT count(*) FROM files WHERE n_rows > 0 AND path IS NULL")
    assert (digests[0] == 0) is (keep == "all")
    if keep == "none":
        with pytest.raises(baselines.BaselineError, match="were not kept"):
            accept_all(place)


def test_one_that_fails_leaves_the_others_alone(place: Place) -> None:
    place.edit("few.jsonl", '"output_length": 4', '"output_length": 5000')
    outcome = place.run()
    assert {row["status"] for row in outcome.rows[2:]} == {"new"}
    assert {row["status"] for row in outcome.rows[:2]} == {"new"} or outcome.exit_code == 2
    place.edit("few.jsonl", '"timestamp": 0', '"timestamp": "soon"')
    place.edit("few.jsonl", '"timestamp": 5', '"timestamp": "later"')
    outcome = place.run()
    assert names(outcome) == NAMES[:2] and outcome.exit_code == 2
    assert {row["status"] for row in outcome.rows} == {"failed"} and outcome.rows[0]["run_id"] is None
    # Nothing changed, and what failed is run again all the same, and alone.
    assert names(place.run()) == NAMES[:2]


def test_a_defect_of_ours_is_told_from_bad_input(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    real = one.run_replay

    def breaks(*words: object, **options: object) -> object:
        if options["name"] == NAMES[1]:
            raise ZeroDivisionError("ours")
        return real(*words, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(one, "run_replay", breaks)
    outcome = place.run()
    assert outcome.exit_code == 70 and outcome.count("crashed") == 1 and outcome.count("new") == 3
    monkeypatch.undo()
    assert names(place.run()) == [NAMES[1]]
    assert place.run().exit_code == 0


def test_a_broken_law_is_noticed_and_its_rows_kept(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    from assets.desk.anomalies import Anomaly

    real = one.ask

    def finds(con: object, run_id: str) -> list[Anomaly]:
        return [*real(con, run_id), Anomaly(run_id, "made_up", "error", "passes", "k", 1.0, 1, "wrong")]

    monkeypatch.setattr(one, "ask", finds)
    outcome = place.run(only=["few.fast"])
    assert outcome.exit_code == 1
    (row,) = outcome.rows
    assert (row["status"], row["n_anomalies"], row["rows_kept"]) == ("anomaly", 1, True)
    assert row["explanation"] == "made_up: k: wrong"
    assert place.ask("SELECT check_name FROM anomalies") == [("made_up",)]


def test_forced_twice_gives_the_same_digests(place: Place) -> None:
    digests = [{row["scenario"]: row["result_digest"] for row in place.run(force=True).rows} for _ in range(2)]
    assert digests[0] == digests[1] and len(digests[0]) == 4
    assert place.ask("SELECT max(n) FROM (SELECT count(DISTINCT result_digest) AS n FROM runs GROUP BY replay_id)") == [
        (1,)
    ]
    trends = place.ask("SELECT DISTINCT change FROM scenario_trends WHERE metric = 'ttft' AND stat = 'p99'")
    assert sorted(trends, key=str) == [(0.0,), (None,)]


def test_several_processes_say_the_same(place: Place, tmp_path: Path) -> None:
    alone = {row["scenario"]: row["result_digest"] for row in place.run(force=True).rows}
    together = place.run(force=True, workers=2)
    assert {row["scenario"]: row["result_digest"] for row in together.rows} == alone


KILLED = """
import sys, time
from pathlib import Path
from assets.desk.matrix import batch, one
from tests.assets.desk.matrix.conftest import Place
batch.MAX_RUNS = 1
real, calls = one.run_replay, []
def slowly(*words, **options):
    calls.append(options["name"])
    print(len(calls), flush=True)
    if len(calls) == 3:
        time.sleep(60)
    return real(*words, **options)
one.run_replay = slowly
place = Place.__new__(Place)
place.folder, place.baselines = Path(sys.argv[1]), Path(sys.argv[1]) / "baselines"
place.suite = place.folder / "tiny.yaml"
place.run()
"""


def test_killed_on_the_way_it_goes_on_where_it_was(place: Place) -> None:
    command = [sys.executable, "-c", KILLED, str(place.folder)]
    child = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    for line in child.stdout:
        if line.strip() == "3":
            break
    time.sleep(0.2)
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    done = {name for (name,) in place.ask("SELECT scenario FROM scenarios")}
    assert len(done) == 2
    assert list((place.folder / "warehouse" / "staging").iterdir())  # what it left
    outcome = place.run()
    assert set(names(outcome)) == set(NAMES) - done
    assert list((place.folder / "warehouse" / "staging").iterdir()) == []
    assert place.ask("SELECT scenario, count(*) FROM scenarios GROUP BY ALL ORDER BY ALL") == [(n, 1) for n in NAMES]
    assert place.ask("SELECT count(*), count(DISTINCT replay_id) FROM runs") == [(4, 4)]
    assert place.run().exit_code == 0
