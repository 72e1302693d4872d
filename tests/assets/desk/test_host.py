"""Paired measurements: two real arms in fresh processes, and what figures amount to inside their noise."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from assets.desk import host
from assets.desk.host import BASE, HEAD, BenchError
from assets.desk.host_summary import differing, predictions, summarise, summary_text
from tests.pipelines.conftest import Cli, cli, root, tiny  # noqa: F401  (fixtures)

ROOT = Path(__file__).parents[3]


def measured(head: float = 120.0, noise: float = 1.02, rounds: int = 3) -> dict[str, Any]:
    """Made-up rounds: the base takes 100, and second runs are `noise` times the first."""
    figures = ("engine_ms", "total_ms", "wall_s", "cpu_s", "rss_mib")

    def run(arm: str, value: float) -> dict[str, Any]:
        return {"arm": arm} | dict.fromkeys(figures, value)

    values = {BASE: 100.0, HEAD: head}
    listed = []
    for number in range(rounds):
        seen: set[str] = set()
        runs = []
        for arm in host.ORDERS[number % 2]:
            runs.append(run(arm, values[arm] * (noise if arm in seen else 1.0)))
            seen.add(arm)
        listed.append(runs)
    column = {"rows": 2, "digests": {"a": "1", "b": "2"}}
    side = {
        "called": "x",
        "overrides": [],
        "run": {"result_digest": "r", "schema_digest": "s"},
        "tables": {"t": column},
    }
    return {
        "format": 1, "config": "c.yaml", "same_configuration": True, "machine": {},
        "arms": {BASE: side, HEAD: side}, "rounds": listed,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("head", "noise", "verdict"),
    [
        (120.0, 1.02, "slower"),
        (120.0, 1.3, "no difference beyond the noise"),
        (80.0, 1.02, "faster"),
        (100.0, 1.0, "no difference beyond the noise"),
    ],
)
def test_a_ratio_is_read_inside_the_noise(head: float, noise: float, verdict: str) -> None:
    found = summarise(measured(head, noise))["figures"]["engine_ms"]
    assert found["verdict"] == verdict
    assert found["ratio"]["median"] == pytest.approx(head / 100)
    assert found["noise"] == pytest.approx({"least": 1 / noise, "most": noise})


def test_the_summary_in_words() -> None:
    assert summarise(measured(80.0))["figures"]["rss_mib"]["verdict"] == "less"
    assert "× 1.200 (1.200 to 1.200); noise 0.980 to 1.020: slower" in summary_text(summarise(measured()))


def test_every_second_round_begins_with_the_other_arm() -> None:
    assert host.ORDERS == ((BASE, HEAD, HEAD, BASE), (HEAD, BASE, BASE, HEAD))


def test_predictions_are_compared_column_by_column() -> None:
    found = json.loads(json.dumps(measured()))
    assert predictions(found) == "same"
    head = found["arms"][HEAD]
    head["run"] = {"result_digest": "other", "schema_digest": "other"}
    head["tables"]["t"]["digests"]["c"] = "9"
    assert predictions(found) == "same in the columns that both write"
    head["tables"]["t"]["digests"]["b"] = "9"
    assert predictions(found) == "different" and differing(found) == ["t"]
    with pytest.raises(BenchError):
        summarise({"format": 9})


def test_what_is_no_other_installation(tmp_path: Path) -> None:
    with pytest.raises(BenchError, match="neither a checkout"):
        host.other_arm(tmp_path)
    assert host.other_arm(ROOT).sources == ROOT


@pytest.mark.slow
def test_two_checkouts_and_two_configurations(
    cli: Cli,  # noqa: F811
    tiny: Path,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NUMBA_DISABLE_JIT", "1")  # changed sources would be compiled anew
    other = tmp_path / "other"
    for package in ("pipelines", "assets", "sim", "perf_db"):
        shutil.copytree(ROOT / package, other / package, ignore=shutil.ignore_patterns("__pycache__"))
    kept = tmp_path / "bench.json"
    same = cli("bench", tiny, "--vs", other, "--rounds", "1", "-o", kept)
    assert same.exit_code == 0, same.stderr
    assert "predictions   same" in same.stdout and "head this installation over base checkout other" in same.stdout
    assert len(json.loads(kept.read_text())["rounds"][0]) == 4

    dearer = ("--head-set", "engine.workers.aggregated.timing.decode_ms=4")
    found = json.loads(cli("bench", tiny, *dearer, "--rounds", "1", "--json").stdout)
    assert found["predictions"] == "different" and not found["same_configuration"]
    # The same configuration and other rows: somebody changed what the engine does.
    source = other / "sim" / "config" / "run.py"
    passed_on = "prefix_caching=worker.kv_cache.prefix_caching"
    assert passed_on in source.read_text()
    source.write_text(source.read_text().replace(passed_on, "prefix_caching=False"))
    differs = cli("bench", tiny, "--vs", other, "--rounds", "1")
    assert differs.exit_code == 1 and "predictions   different: " in differs.stdout
    broken = cli("bench", tiny, "--vs", other, "--rounds", "1", "--base-set", "engine.nonsense=1")
    assert broken.exit_code == 2 and "engine.nonsense" in broken.stderr
    assert cli("bench", tiny).exit_code == 2
