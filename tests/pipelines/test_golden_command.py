"""`golden check`: one line per case, a closing count, exit code 1 when an answer differs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from tests.pipelines.conftest import Cli

RECORDED = Path(__file__).parents[1] / "golden"


def test_cases_of_both_kinds_pass(cli: Cli, tmp_path: Path) -> None:
    shutil.copy(RECORDED / "vllm" / "slot_freed_async.json", tmp_path)
    shutil.copy(RECORDED / "peer" / "vllm_chunked.json", tmp_path)
    shutil.copy(RECORDED / "peer" / "sglang_chunked.json", tmp_path)
    got = cli("golden", "check", tmp_path)
    assert got.exit_code == 0, got.output
    lines = got.stdout.splitlines()
    assert lines[0].startswith("skipped  sglang_chunked: ")
    assert lines[1:] == ["passed   slot_freed_async", "passed   vllm_chunked", "2 passed, 0 failed, 1 skipped"]


def test_a_difference_is_named_and_exits_with_1(cli: Cli, tmp_path: Path) -> None:
    case = json.loads((RECORDED / "peer" / "vllm_chunked.json").read_text())
    case["expected"]["summary"]["duration_ms"] += 1
    (tmp_path / "bent.json").write_text(json.dumps(case))
    got = cli("golden", "check", tmp_path)
    assert got.exit_code == 1
    assert "failed   bent: summary.duration_ms" in got.stdout
    assert got.stdout.splitlines()[-1] == "0 passed, 1 failed, 0 skipped"


def test_a_folder_without_cases_is_no_success(cli: Cli, tmp_path: Path) -> None:
    assert cli("golden", "check", tmp_path).exit_code == 1
    assert cli("golden", "check", tmp_path / "nowhere").exit_code == 2
