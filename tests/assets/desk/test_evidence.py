"""An evidence pack says what the diff says, needs nothing but itself, and notices when a cell was changed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from assets.desk import baselines, evidence
from assets.desk.diff import diff_runs
from assets.views import open_store
from tests.assets.desk.tamper import tamper
from tests.assets.desk.worlds import deployment, record, traffic
from tests.pipelines.conftest import Cli, cli, root, tiny  # noqa: F401  (fixtures)


@pytest.fixture
def pack(tmp_path: Path) -> Path:
    base = record(tmp_path / "w", "base", deployment(3), traffic(3))
    head = record(tmp_path / "w", "head", deployment(3, max_num_seqs=2), traffic(3))
    evidence.build(base.recorded, head.recorded, tmp_path / "pack", command="tracemill evidence base head -o pack")
    return tmp_path / "pack"


def test_a_pack_needs_nothing_but_itself(pack: Path, tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / "w")
    moved = pack.rename(tmp_path / "moved")
    assert evidence.rebuild(moved) == []
    assert sorted(p.name for p in moved.iterdir()) == ["evidence.json", "evidence.md", "pair.json", "raw"]
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
        evidence.build(run, run, pack, command="")
    with pytest.raises(evidence.EvidenceError, match="is no evidence pack"):
        evidence.rebuild(tmp_path / "x")


def test_a_baseline_can_be_the_base(tmp_path: Path) -> None:
    record(tmp_path / "w", "a", deployment(3), traffic(3), name="n")
    store = open_store(tmp_path / "w")
    kept, _ = baselines.accept(store, "a", folder=tmp_path / "baselines", reason="first", author="me")
    head = record(tmp_path / "w", "b", deployment(3, max_num_seqs=2), traffic(3), name="n")
    data = evidence.build(kept.recorded, head.recorded, tmp_path / "pack", command="")
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
