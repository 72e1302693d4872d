"""`perf tune` and `perf time`: a snapshot that a replay takes, and where its time went."""

from __future__ import annotations

import json
from pathlib import Path

import yaml

from perf_db.gpu.forward import write_forward_table
from tests.assets.test_pricing import values
from tests.perf_db.gpu.forward_rows import rows


def deployment(folder: Path) -> Path:
    """A configuration beside a whole-forward table and metrics of an engine that is twice as slow in its prefills."""
    prefill = [(b, t, 0, 5.0 + t / 100) for b in (1, 2, 3, 4) for t in (b, 1_000)]
    decode = [(b, kv, 2.0 + kv / 1_000) for b in (1, 2, 3, 4) for kv in (b, 5_000)]
    own = {"model_path": "Qwen/Qwen3-32B", "tp": 2}
    write_forward_table(folder / "t.parquet", rows(prefill, decode, **own), measurement_policy="by hand")
    lines = [
        {"wall_time": 2 * (5.0 + t / 100) / 1e3, "num_prefill_requests": 1, "sum_prefill_tokens": t}
        for t in range(300, 400, 10)
    ]
    (folder / "seen.jsonl").write_text("\n".join(map(json.dumps, lines)))
    config = folder / "run.yaml"
    config.write_text(yaml.safe_dump(values({"fpm_parquet_path": "t.parquet"}, estimation_mode="fpm_interpolation")))
    return config


def test_a_snapshot_is_made_used_and_refused_elsewhere(cli, tmp_path: Path) -> None:
    config = deployment(tmp_path)
    made = cli("perf", "tune", config, tmp_path / "seen.jsonl", "-o", tmp_path / "tuned.json")
    assert made.exit_code == 0, made.output
    assert made.stdout.splitlines() == [
        f"{tmp_path / 'tuned.json'}: 10 iterations used (10 prefill, 0 decode, 0 mixed)",
        "median error 50.0% before, 0.0% with the corrections",
    ]
    snapshot = "engine.workers.aggregated.timing.snapshot=tuned.json"
    assert cli("replay", config, "--set", snapshot).exit_code == 0
    elsewhere = "engine.workers.aggregated.timing.fpm_parquet_path=u.parquet"
    assert cli("replay", config, "--set", snapshot, "--set", elsewhere).exit_code == 2
    other = cli("perf", "tune", config, tmp_path / "seen.jsonl", "-o", tmp_path / "x.json", "--set",
                "engine.workers.aggregated.timing={type: polynomial}")  # fmt: skip
    assert other.exit_code == 2 and not (tmp_path / "x.json").exists()
    assert "only prices from performance data can be tuned" in other.stderr


def test_where_the_time_of_a_run_went(cli, tmp_path: Path) -> None:
    assert cli("replay", deployment(tmp_path)).exit_code == 0
    told = cli("perf", "time")
    assert told.exit_code == 0 and told.stdout.splitlines()[1].split() == [
        "role", "phase", "operator", "n_lookups", "total_ms", "share",
    ]  # fmt: skip
    found = [json.loads(line) for line in cli("perf", "time", "last", "--json").stdout.splitlines()]
    assert {each["phase"] for each in found} >= {"prefill", "decode"}
    assert abs(sum(each["share"] for each in found) - 1.0) < 1e-9
    assert cli("perf", "time", "nobody").exit_code == 2
