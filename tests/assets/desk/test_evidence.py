"""An evidence pack says what the diff says, needs nothing but itself, and notices when a cell was changed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from assets.desk import baselines, evidence
from assets.desk.diff import diff_runs
from assets.views import open_store
from tests.assets.desk.matrix.conftest import Place
from tests.assets.desk.tamper import tamper
from tests.assets.desk.test_host import measured
from tests.assets.desk.worlds import deployment, record, traffic
from tests.pipelines.conftest import Cli, cli, root, tiny  # noqa: F401  (fixtures)


@pytest.fixture
def pack(tmp_path: Path) -> Path:
    base = record(tmp_path / "w", "base", deployment(3), traffic(3))
    head = record(tmp_path / "w", "head", deployment(3, max_num_seqs=2), traffic(3))
    pair = evidence.Scenario("head", base.recorded, head.recorded)
    evidence.build([pair], tmp_path / "pack", command="tracemill evidence base head -o pack")
    return tmp_path / "pack"


def test_a_pack_needs_nothing_but_itself(pack: Path, tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / "w")
    moved = pack.rename(tmp_path / "moved")
    assert evidence.rebuild(moved) == []
    assert sorted(p.name for p in moved.iterdir()) == ["evidence.json", "evidence.md", "pack.json", "raw"]
    assert sorted(p.name for p in (moved / "raw").iterdir()) == ["commits", "runs"]
    (scenario,) = json.loads((moved / "evidence.json").read_text())["scenarios"]
    assert scenario["diff"]["mechanism"] == "admission/gate" and scenario["diff"]["explained"]
    assert scenario["anomalies"] == {"base": [], "head": []}
    page = (moved / "evidence.md").read_text()
    assert "**Different.** Input change: configuration: engine.max_num_seqs. Mechanism: admission/gate" in page
    with open_store(moved / "raw").connect() as con:
        assert con.execute("SELECT count(*) FROM runs").fetchall() == [(2,)]


def test_a_changed_cell_is_noticed(pack: Path) -> None:
    path = pack / "evidence.json"
    text = path.read_text()
    data = json.loads(text)
    data["scenarios"][0]["diff"]["attribution"][0]["change_ns"] += 1
    path.write_text(json.dumps(data))
    (fault,) = evidence.rebuild(pack)
    assert fault.startswith("evidence.json: scenarios[0].diff.attribution[0].change_ns: ")
    path.write_text(text)
    (pack / "evidence.md").write_text("all is well\n")
    assert evidence.rebuild(pack) == ["evidence.md: is not what follows from the tables"]


def test_a_changed_table_is_noticed(pack: Path) -> None:
    tamper(pack / "raw", "head", "UPDATE requests SET last_token_ns = last_token_ns + 1 WHERE request_id = 3")
    assert any("attribution[1].change_ns" in fault for fault in evidence.rebuild(pack))


def test_what_is_in_the_way_is_left_alone(pack: Path, tmp_path: Path) -> None:
    run = record(tmp_path / "x", "r", deployment(1), traffic(1)).recorded
    with pytest.raises(evidence.EvidenceError, match="is there already"):
        evidence.build([evidence.Scenario("r", run, run)], pack, command="")
    with pytest.raises(evidence.EvidenceError, match="nothing to compare: x: never run"):
        evidence.build([], tmp_path / "y", command="", missing={"x": "never run"})
    with pytest.raises(evidence.EvidenceError, match="is no evidence pack"):
        evidence.rebuild(tmp_path / "x")


def test_a_baseline_can_be_the_base(tmp_path: Path) -> None:
    record(tmp_path / "w", "a", deployment(3), traffic(3), name="n")
    store = open_store(tmp_path / "w")
    kept, _ = baselines.accept(store, "a", folder=tmp_path / "baselines", reason="first", author="me")
    head = record(tmp_path / "w", "b", deployment(3, max_num_seqs=2), traffic(3), name="n")
    pair = evidence.Scenario("n", kept.recorded, head.recorded)
    data = evidence.build([pair], tmp_path / "pack", command="")
    expected = diff_runs(kept.recorded, head.recorded).as_json()
    assert data["scenarios"][0]["diff"] == json.loads(json.dumps(expected, default=str))
    assert evidence.rebuild(tmp_path / "pack") == []


def test_the_command(cli: Cli, tiny: Path, tmp_path: Path) -> None:  # noqa: F811
    for change in ((), ("--set", "engine.workers.aggregated.timing.decode_ms=4")):
        assert cli("replay", tiny, "--json", *change).exit_code == 0
    first = json.loads(cli("sql", "SELECT min(run_id) AS r FROM runs", "--format", "json").stdout)["r"]
    pack = tmp_path / "pack"
    made = cli("evidence", first, "last", "-o", pack)
    assert made.exit_code == 0 and made.stdout == f"{pack}/evidence.md: different; anomalies: 0\n"
    assert cli("evidence", "--check", pack).exit_code == 0
    (pack / "evidence.md").write_text("")
    assert cli("evidence", "--check", pack).exit_code == 1
    assert cli("evidence", first, "last").exit_code == 2
    assert cli("evidence", first, "last", "-o", pack).exit_code == 2
    assert cli("evidence", first, "last", first, "-o", tmp_path / "odd").exit_code == 2
    several = cli("evidence", first, "last", "last", "last", "-o", tmp_path / "several")
    assert several.exit_code == 0 and several.stdout.endswith("evidence.md: 1 of 2 the same; anomalies: 0\n")
    assert cli("evidence", "--check", tmp_path / "several").exit_code == 0


def test_several_scenarios_in_one_pack(tmp_path: Path) -> None:
    base = record(tmp_path / "w", "base", deployment(3), traffic(3)).recorded
    pairs = [evidence.Scenario("same", base, base)]
    for name, change in (("slots", {"max_num_seqs": 2}), ("blocks", {"blocks": 18})):
        head = record(tmp_path / "w", name, deployment(3, **change), traffic(3))
        pairs.append(evidence.Scenario(name, base, head.recorded))
    data = evidence.build(pairs, tmp_path / "pack", command="x", missing={"lost": "no baseline"})
    assert [s["diff"]["same"] for s in data["scenarios"]] == [True, False, False]
    page = (tmp_path / "pack" / "evidence.md").read_text()
    assert "**1 of 3 hold the same rows.** 1 could not be compared." in page
    assert "| `slots` | different | configuration: engine.max_num_seqs | admission/gate |" in page
    assert page.count("<details>") == 2 and "- not compared: `lost`: no baseline" in page
    shutil.rmtree(tmp_path / "w")
    assert evidence.rebuild(tmp_path / "pack") == []
    tamper(tmp_path / "pack" / "raw", "blocks", "UPDATE metrics SET value = value + 1 WHERE metric = 'ttft'")
    faults = evidence.rebuild(tmp_path / "pack")
    assert any(fault.startswith("evidence.json: scenarios[2].diff.metrics") for fault in faults)


def test_rows_that_were_not_kept_leave_the_figures(tmp_path: Path) -> None:
    base = record(tmp_path / "w", "base", deployment(3), traffic(3)).recorded
    head = record(tmp_path / "w", "head", deployment(3, max_num_seqs=2), traffic(3)).recorded
    pair = evidence.Scenario("x", base, head.only_metrics())
    (scenario,) = evidence.build([pair], tmp_path / "pack", command="x")["scenarios"]
    assert scenario["diff"]["rows_kept"] is False and scenario["diff"]["metrics"]
    assert scenario["anomalies"] == {"base": [], "head": None}
    assert "Rows were not kept" in (tmp_path / "pack" / "evidence.md").read_text()
    assert evidence.rebuild(tmp_path / "pack") == []


def test_host_performance_and_recorded_answers_follow_from_raw_too(tmp_path: Path) -> None:
    run = record(tmp_path / "w", "base", deployment(3), traffic(3)).recorded
    golden = {
        "format": 1, "engine_digest": "e",
        "cases": [
            {"name": "a", "digest": "d", "status": "passed", "n_details": 0, "details": []},
            {"name": "b", "digest": "d", "status": "failed", "n_details": 2,
             "details": ["pass 12, active_blocks: expected 3, got 4", "request r, output: expected 1, got 2"]},
            {"name": "c", "digest": "d", "status": "skipped", "n_details": 1, "details": ["not modelled"]},
        ],
    }  # fmt: skip
    pair = evidence.Scenario("x", run, run)
    data = evidence.build([pair], tmp_path / "pack", command="x", host=measured(), golden=golden)
    assert data["golden"]["departures"] == [
        {"case": "b", "first": "pass 12, active_blocks: expected 3, got 4", "mechanism": "prefix hit/eviction",
         "differences": 2}
    ]  # fmt: skip
    assert data["host"]["figures"]["engine_ms"]["verdict"] == "slower"
    page = (tmp_path / "pack" / "evidence.md").read_text()
    assert "FAILED b: first departure pass 12" in page and "skipped 1: not modelled" in page and "engine_ms" in page
    assert evidence.rebuild(tmp_path / "pack") == []
    path = tmp_path / "pack" / "raw" / "host.json"
    path.write_text(path.read_text().replace("120.0", "100.0"))
    assert any(".ratio.median" in fault for fault in evidence.rebuild(tmp_path / "pack"))


def test_a_suite_against_its_baselines(
    cli: Cli,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place = Place(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert cli("matrix", "run", "tiny.yaml", "--workers", "1", "--keep", "all").exit_code == 0
    assert cli("matrix", "accept", "tiny.yaml", "--reason", "first", "--only", "few.*").exit_code == 0
    place.edit("tiny.yaml", "decode_ms: 2}", "decode_ms: 4}")
    assert cli("matrix", "run", "tiny.yaml", "--workers", "1", "--keep", "all").exit_code == 1
    made = cli("evidence", "--suite", "tiny.yaml", "-o", "pack")
    assert made.exit_code == 0 and "1 of 2 the same" in made.stdout
    assert made.stderr.count("no baseline") == 2
    shutil.rmtree(tmp_path / "warehouse")
    assert cli("evidence", "--check", "pack").exit_code == 0
