"""`replay --case FILE --json --summary-only`: what benchmark scripts call."""

from __future__ import annotations

import json
from pathlib import Path

from tests.pipelines.conftest import Cli

CASE = {
    "name": "two",
    "topology": {"mode": "aggregated", "workers": 1, "router_mode": "round_robin"},
    "config": {
        "engine": {
            "backend": "vllm",
            "block_size": 4,
            "num_gpu_blocks": 64,
            "max_num_seqs": 4,
            "max_num_batched_tokens": 64,
            "timing_model": {"type": "fixed", "prefill_ms": 10.0, "decode_ms": 3.0},
        },
        "dp_size": 1,
    },
    "traffic": {"kind": "synthetic", "input_tokens": 8, "output_tokens": 4, "request_count": 2, "concurrency": 1},
}


def test_summary_in_the_recorders_key_names(cli: Cli, tmp_path: Path, root: Path) -> None:
    case = tmp_path / "case.json"
    case.write_text(json.dumps(CASE))
    got = cli("replay", "--case", case, "--json", "--summary-only")
    assert got.exit_code == 0, got.output
    answer = json.loads(got.stdout)
    assert set(answer) == {"summary"}
    summary = answer["summary"]
    # Each request: 10 ms prefill with the first token, then three passes of 3 ms; one after the other.
    assert summary["completed_requests"] == 2
    assert summary["duration_ms"] == 2 * (10 + 3 * 3)
    assert summary["mean_ttft_ms"] == 10
    assert summary["wall_time_ms"] > 0
    assert not root.exists()


def test_the_whole_answer_has_a_row_per_request(cli: Cli, tmp_path: Path) -> None:
    case = tmp_path / "case.json"
    case.write_text(json.dumps(CASE))
    rows = json.loads(cli("replay", "--case", case, "--json").stdout)["per_request"]
    assert [row["last_token_ms"] for row in rows] == [19, 38]
