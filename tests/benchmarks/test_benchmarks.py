"""The benchmarks run and agree with themselves. Nothing here looks at how long anything took."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

import benchmarks.__main__ as command
from benchmarks import growth, point
from benchmarks.process import run
from benchmarks.report import _growth_of_pools, report
from benchmarks.rounds import compare, differences
from benchmarks.workloads import workloads

ROOT = Path(__file__).parents[2]
TINY = 0.001


@pytest.mark.parametrize("key", ["a", "e", "g1600", "ngram", "mtp8"])
def test_case_and_configuration_are_the_same_replay(key: str) -> None:
    # Ranks, a closed loop, rows from a file, drafts: whatever differs would show in the answers.
    found = compare(workloads(None, scale=TINY)[key], rounds=1, peer_python=None, say=lambda text: None)
    assert found["differences"] == []
    completed = {"a": 262, "e": 33, "g1600": 20, "ngram": 131, "mtp8": 131}[key]
    assert found["runs"]["ours"]["answers"]["completed_requests"] == completed
    assert set(found["ratios"]) == {"noise", "noise_wall"}  # nobody to compare with


def test_the_report_says_what_was_not_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TRACEMILL_PEER_PYTHON", "TRACEMILL_MOONCAKE"):
        monkeypatch.delenv(name, raising=False)
    done = CliRunner().invoke(
        command.main,
        ["engines", "--quick", "--only", "b", "--rounds", "1", "-o", str(tmp_path)],
        catch_exceptions=False,
    )
    assert done.exit_code == 0
    page = (tmp_path / "RESULTS.md").read_text()
    assert "The other engine was not measured" in page and "Workload h was left out" in page
    # From the raw figures alone, without measuring, comes the same page.
    assert report(json.loads((tmp_path / "results.json").read_text())) == page


def test_unknown_workloads_and_missing_files_are_refused(tmp_path: Path) -> None:
    runner = CliRunner()
    for options, said in (
        (["--only", "a,z"], "z; there are a, b, c, d, d64, e, f, ngram, mtp8, g, g1600"),
        (["--peer-python", str(tmp_path / "python")], "does not exist"),
        (["--mooncake", str(tmp_path / "trace.jsonl")], "does not exist"),
    ):
        done = runner.invoke(command.main, ["engines", "--quick", "-o", str(tmp_path), *options])
        assert done.exit_code == 2 and said in done.output
    assert not (tmp_path / "results.json").exists()


def test_rows_are_exact_in_milliseconds(tmp_path: Path) -> None:
    workload = workloads(None, scale=TINY)["g"]
    case, config = workload.write(tmp_path)
    rows = [json.loads(line) for line in (tmp_path / "g.jsonl").read_text().splitlines()]
    assert len(rows) == 20 and rows[0]["timestamp"] == 0
    assert all(float(f"{row['timestamp']:.3f}") == row["timestamp"] for row in rows)
    # Nothing is shared.
    assert len({row["hash_ids"][0] for row in rows}) == 20
    read = {
        json.loads(case.read_text())["traffic"]["path"],
        yaml.safe_load(config.read_text())["traffic"]["source"]["path"],
    }
    assert read == {str(tmp_path / "g.jsonl")}


def test_a_point_counts_its_events() -> None:
    got = point.measure(
        {
            "profile": "parity", "concurrency": 4, "requests": 8, "prompt": 64, "output": 66, "block_tokens": 64,
            "blocks": 64, "budget": 256, "repeats": 2,
        }
    )  # fmt: skip
    # Per request: arrival, admission, one chunk, end, and two blocks for 66 tokens behind a full one: the newest token
    # has no KV yet, so 64 + 65 tokens are in 3 blocks.
    assert got["events"] == 8 * 6
    assert len(got["engine_ms"]) == 2 and got["passes"] == 2 * 66


def test_a_point_of_separate_pools_counts_handoffs_as_well() -> None:
    got = point.measure(
        {
            "profile": "parity", "pools": 2, "shared": True, "concurrency": 4, "requests": 8, "prompt": 64,
            "output": 66, "block_tokens": 64, "blocks": 64, "budget": 256, "repeats": 1,
        }
    )  # fmt: skip
    # Per request: arrival, an admission and a row of chunks on either side, end, two blocks, five of the handoff.
    assert got["events"] == 8 * 13
    rows = [
        {"workers": n, "shared": shared, "passes": 10, "engine_ms": 1.0, "ns_per_event": 100.0 * n + shared,
         "ns_per_request": 5.0, "rss_mib": 1.0}
        for n in (1, 4) for shared in (False, True)
    ]  # fmt: skip
    page = _growth_of_pools(rows)
    assert "| 4 + 4 | 10 / 10 | 1 / 1 | 5 / 5 | 400 / 401 | 1 / 1 |" in page
    assert "From 1 + 1 to 4 + 4 workers, time per event: 4.00× / 3.97×" in page


def test_growth_is_a_ratio_of_two_points() -> None:
    points = [{"concurrency": c, "profile": "vllm", "cost": c + 1.0} for c in growth.CONCURRENCY]
    assert growth.grown(points, "vllm", "cost") == (growth.TO + 1) / (growth.FROM + 1)
    assert growth.grown(points[:2], "vllm", "cost") is None


def test_another_answer_is_noticed(tmp_path: Path) -> None:
    def answers(duration: float) -> list[str]:
        summary = {"duration_ms": duration, "completed_requests": 1, "mean_ttft_ms": 1.0}
        return [sys.executable, "-c", f"print('{json.dumps({'summary': summary})}')"]

    runs = {"ours": [run(answers(1000.0))], "peer": [run(answers(1000.0000001)), run(answers(1000.1))]}
    assert differences(runs) == ["peer: duration_ms 1000.1 instead of 1000.0"]


def test_a_failing_run_says_why() -> None:
    with pytest.raises(RuntimeError, match=r"exit code 3 of .*\nno such engine"):
        run([sys.executable, "-c", "import sys; sys.stderr.write('no such engine'); sys.exit(3)"])
