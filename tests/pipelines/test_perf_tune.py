"""`perf tune` and `perf time`: a snapshot that a replay takes, and where its time went."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
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


IDLE = {"wall_time": 0.01, "num_prefill_requests": 0}
BUSY = {"num_prefill_requests": 1, "sum_prefill_tokens": 300}


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([], "no iteration can be used: the file is empty"),
        ([BUSY | {"wall_time": t} for t in (0, -1.0, float("nan"), float("inf"), 10**400)] + [BUSY],
         "6 without a finite wall time above 0"),
        ([IDLE], "1 that computed nothing"),
        ([{"wall_time": 0.01, "num_prefill_requests": 1, "sum_prefill_tokens": 9_000}, IDLE],
         "1 that computed nothing, 1 without a price of their own"),
    ],
)  # fmt: skip
def test_observations_that_cannot_be_used_leave_no_snapshot(cli, tmp_path: Path, lines: list, said: str) -> None:
    config = deployment(tmp_path)
    (tmp_path / "bad.jsonl").write_text("\n".join(map(json.dumps, lines)))
    made = cli("perf", "tune", config, tmp_path / "bad.jsonl", "-o", tmp_path / "tuned.json")
    assert made.exit_code == 2 and said in made.stderr and "bad.jsonl" in made.stderr
    assert not (tmp_path / "tuned.json").exists()


def test_rows_left_out_are_counted(cli, tmp_path: Path) -> None:
    config = deployment(tmp_path)
    with (tmp_path / "seen.jsonl").open("a") as file:
        file.write("".join("\n" + json.dumps(line) for line in (IDLE, BUSY | {"wall_time": -1.0}, BUSY)))
    made = cli("perf", "tune", config, tmp_path / "seen.jsonl", "-o", tmp_path / "tuned.json")
    assert made.exit_code == 0 and made.stdout.splitlines()[1:3] == [
        "left out: 1 that computed nothing", "left out: 2 without a finite wall time above 0",
    ]  # fmt: skip
    told = json.loads((tmp_path / "tuned.json").read_text())["provenance"]["observations"]
    assert (told["iterations"], told["used"], told["idle"], told["untimed"]) == (13, 10, 1, 2)


def test_a_snapshot_goes_into_a_folder_that_is_there(cli, tmp_path: Path) -> None:
    config = deployment(tmp_path)
    made = cli("perf", "tune", config, tmp_path / "seen.jsonl", "-o", tmp_path / "none" / "tuned.json")
    assert made.exit_code == 2 and f"the folder {tmp_path / 'none'} does not exist" in " ".join(made.stderr.split())
    assert not (tmp_path / "none").exists()


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
