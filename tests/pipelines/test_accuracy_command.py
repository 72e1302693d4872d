"""Measurements on the command line and in Dagster: a log, a calibration by replay, a report, a drift check."""

from __future__ import annotations

import datetime as dt
import json
import re
from pathlib import Path

import dagster as dg
import pytest

from assets.accuracy.registry import Watched, recall
from assets.accuracy.study import stored
from assets.calibration.recovery import made_up
from assets.views import open_store
from pipelines.definitions import defs
from pipelines.instance import open_instance
from pipelines.truths import drift_check, register_truth
from tests.pipelines.conftest import Cli

ENGINE = """\
traffic:
  source: {type: synthetic, input_tokens: 16, output_tokens: 16}
  load: {type: concurrency, concurrency: 1}
  stop: {requests: 1}
engine:
  model: org/model
  workers:
    aggregated:
      scheduler: {max_sequences: 48, max_batched_tokens: 2048}
      kv_cache: {block_size: 16, prefix_caching: false, capacity: {type: fixed, blocks: 6000}}
      timing: {type: fixed, prefill_ms: 30, decode_ms: 15}
"""
CALIBRATE = ("calibrate", "{log}", "-o", "{out}", "--deployments", "{engine}")


@pytest.fixture
def engine(tmp_path: Path) -> Path:
    path = tmp_path / "engine.yaml"
    path.write_text(ENGINE)
    return path


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """60 requests of a made-up deployment, as an engine writes them."""
    _, made = made_up(3, 60)
    rows = zip(made.row_id, made.prompt_tokens, made.output_tokens, made.arrival_s, made.first_s, made.last_s)
    path = tmp_path / "log.jsonl"
    path.write_text(
        "".join(
            json.dumps(
                {
                    "request_id": name, "input_toks": int(p), "output_toks": int(o), "queued_ts": 50 + float(a),
                    "first_token_ts": 50 + float(f), "last_token_ts": 50 + float(last),
                }
            )
            + "\n"
            for name, p, o, a, f, last in rows
        )
    )  # fmt: skip
    return path


def test_a_report_is_made_again_from_the_stored_tables(
    cli: Cli, engine: Path, log: Path, root: Path, tmp_path: Path
) -> None:
    got = cli("accuracy", log, "--deployments", engine, "--about", "model=org/model", "-o", tmp_path / "out")
    assert got.exit_code == 0, got.output
    assert "180 measured figures of requests" in got.stdout and "distributions" in got.stdout
    assert got.stdout.startswith("constants: the configuration's own timing\n")
    again = cli("accuracy", "log")
    assert again.stdout.strip() == got.stdout.split("\n\nwritten:")[0].strip()
    kept = json.loads((tmp_path / "out" / "report.json").read_text())
    assert kept["cells"] == stored(open_store(root), "log").report.as_json()["cells"]
    assert (tmp_path / "out" / "errors.svg").read_text().startswith("<svg")
    rows = cli("sql", "SELECT metric, count(*) AS n, count(prediction) AS told FROM accuracy GROUP BY ALL ORDER BY ALL")
    assert "60" in rows.stdout


@pytest.mark.slow
def test_observe_calibrate_replay_compare(cli: Cli, engine: Path, log: Path, root: Path, tmp_path: Path) -> None:
    snapshot = tmp_path / "snapshot.json"
    got = cli("calibrate", log, "--deployments", engine, "-o", snapshot, "--repeats", 40)
    assert got.exit_code == 0, got.output
    assert "held out" in got.stdout and "weights_ms" in got.stdout
    made = json.loads(snapshot.read_text())
    assert {"identity", "corrections", "host_constants", "provenance"} <= made.keys()
    assert abs(made["provenance"]["held_out"]["e2e"]["total"]) < 0.05
    got = cli("accuracy", log, "--deployments", engine, "--snapshot", snapshot, "--drift")
    assert got.exit_code == 0, got.output
    assert re.search(rf"^constants: of snapshot [0-9a-f]{{12}} \({re.escape(str(snapshot))}\)$", got.stdout, re.M)
    assert "standing" in got.stdout and "in_sample" in got.stdout and "holds" in got.stdout
    assert "fitted to" not in got.stderr
    # Used for another deployment, they say so.
    other = engine.with_name("other.yaml")
    other.write_text(engine.read_text().replace("      scheduler:", "      parallelism: {tensor: 4}\n      scheduler:"))
    got = cli("accuracy", log, "--deployments", other, "--snapshot", snapshot)
    told = f"the constants of {snapshot} were fitted to tensor 1 (here 4); calibrate this deployment to rely on them"
    assert got.exit_code == 0 and f"warning: {told}" in got.stderr
    timing = f"engine.workers.aggregated.timing={{type: pass_cost, snapshot: {snapshot}}}"
    got = cli("replay", other, "--set", timing)
    assert got.exit_code == 0 and f"warning: engine.workers.aggregated.timing.snapshot: {told}" in got.stderr
    # The same deployment at half the speed: what was accepted does not hold any more.
    slow = tmp_path / "slow.jsonl"
    rows = [json.loads(line) for line in log.read_text().splitlines()]
    for row in rows:
        for name in ("first_token_ts", "last_token_ts"):
            row[name] = row["queued_ts"] + 2 * (row[name] - row["queued_ts"])
    slow.write_text("".join(json.dumps(row) + "\n" for row in rows))
    got = cli("accuracy", slow, "--deployments", engine, "--snapshot", snapshot, "--drift")
    assert got.exit_code == 1 and "DRIFT" in got.stdout
    shown = cli("sql", "SELECT count(DISTINCT check_id) AS checks, sum(alert::INT) AS alerts FROM accuracy_history")
    assert "2" in shown.stdout


@pytest.mark.slow
def test_the_same_steps_in_dagster(engine: Path, log: Path, root: Path, tmp_path: Path) -> None:
    watched = Watched("log", str(log), str(tmp_path / "s.json"), deployments=str(engine))
    with open_instance(root) as instance:
        assert register_truth(instance, root, watched) == "log"
        assert recall(root, "log") == watched
        job = defs().resolve_job_def("accuracy_graph")
        result = job.execute_in_process(
            instance=instance,
            partition_key="log",
            run_config={"resources": {"store": {"config": {"root": str(root)}}}},
        )
        assert result.success
        checks = {e.check_name: e.passed for e in result.get_asset_check_evaluations()}
        assert checks["no_row_is_lost"] and checks["has_not_drifted"] and "is_identified" in checks
        context = dg.build_schedule_context(
            instance=instance, scheduled_execution_time=dt.datetime(2026, 1, 5, 4, tzinfo=dt.UTC)
        )
        (request,) = list(drift_check(context))
        assert (request.partition_key, request.run_key) == ("log", "2026-01-05/log")
    assert (tmp_path / "s.json").exists()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("accuracy", "nothing"), "nothing: no such file, and no stored set of that name"),
        (("accuracy", "{log}"), "describe it with --deployments RUN.yaml"),
        (("accuracy", "{log}", "--drift"), "needs the --snapshot"),
        (("accuracy", "{log}.gone", "--register", "--snapshot", "{out}"), "log.jsonl.gone: no such file"),
        (("accuracy", "{engine}", "--register", "--snapshot", "{out}"), "engine.yaml"),
        (("accuracy", "{log}", "--register"), "needs the --snapshot"),
        (("accuracy", "{log}", "--where", "colour", "--deployments", "{engine}"), "write COLUMN=VALUE"),
        (
            ("accuracy", "{log}", "--where", "status=ok", "--deployments", "{engine}"),
            "--where status=ok: 'status' is no column of ground_truth; there are: statistic, ",
        ),
        (("accuracy", "{log}", "--about", "tp=two", "--deployments", "{engine}"), "a whole number is needed"),
        (("accuracy", "{log}", "--deployments", "{engine}", "--snapshot", "{engine}"), "engine.yaml: is no snapshot: "),
        (("calibrate", "{log}", "-o", "{out}"), "needs the engine it was measured on"),
        (("accuracy", "{log}", "--deployments", "{engine}", "--snapshot", "{out}"), "no such file; make a snapshot"),
        ((*CALIBRATE, "--train-share", "0.9"), "6 requests to hold"),
        ((*CALIBRATE, "--train-share", "0.001", "--fix", "base_ms=2"), "0 requests to fit"),
        ((*CALIBRATE, "--fix", "base=2"), "--fix: base=2: no constant is called 'base'; there are: base_ms, "),
        ((*CALIBRATE, "--free", "colour"), "--free: colour: no constant is called 'colour'; there are: base_ms, "),
        ((*CALIBRATE, "--prior", "base_ms=0"), "must lie within"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_and_nothing_is_written(
    cli: Cli, engine: Path, log: Path, root: Path, tmp_path: Path, words: tuple[str, ...], says: str
) -> None:
    out = tmp_path / "out.json"
    got = cli(*(word.format(log=log, engine=engine, out=out) for word in words))
    assert got.exit_code == 2 and says in got.output, got.output
    assert not out.exists() and not (root / "truths").exists()


def test_what_a_log_lacks_is_named_as_its_column(cli: Cli, engine: Path, tmp_path: Path) -> None:
    row = {"prompt_tokens": 8, "output_tokens": 2, "arrival_ms": 0, "ttft_ms": 10, "e2e_ms": 20}
    for column in ("arrival_ms", "ttft_ms", "e2e_ms"):
        log = tmp_path / "l2.jsonl"
        log.write_text(json.dumps({k: v for k, v in row.items() if k != column}) + "\n")
        got = cli("accuracy", log, "--deployments", engine)
        assert got.exit_code == 2 and "calibration" not in got.stderr
        assert f"l2.jsonl:1: request line-1 has no {column}; add column(s) {column}: a replay needs" in got.stderr


def test_a_file_that_is_not_there_is_no_such_file(cli: Cli, tmp_path: Path) -> None:
    told = cli("accuracy", tmp_path / "missing.csv")
    assert told.exit_code == 2 and f"{tmp_path / 'missing.csv'}: no such file" in told.stderr
