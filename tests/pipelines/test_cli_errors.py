"""What people meet when something is wrong: one message with a remedy, the right exit code, nothing half-written."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from pipelines.exits import report
from sim.errors import Deadlock
from sim.result import SPANS
from tests.pipelines.conftest import TINY, TRACE, Cli


def test_every_fault_of_a_configuration_in_one_message(cli: Cli, tiny: Path, root: Path) -> None:
    tiny.write_text(TINY.replace("block_size: 16", "block_tokens: 16").replace("max_sequences: 8", "max_sequences: no"))
    got = cli("replay", tiny)
    assert got.exit_code == 2
    assert got.stderr.startswith(f"error: {tiny}: 2 problem(s)\n")
    assert "block_tokens=16: unknown field" in got.stderr and "max_sequences=" in got.stderr
    assert got.stdout == "" and not root.exists()


def test_what_pricing_finds_names_the_file_as_well(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And is said before anything is compiled for it."""
    monkeypatch.setattr("pipelines.compiling.compile_for", lambda configs: pytest.fail("compiled too early"))
    one = "{kv_cache: {bytes_per_token: auto}, timing: {type: fixed, prefill_ms: 1, decode_ms: 1}}"
    config = tmp_path / "pools.yaml"
    config.write_text(
        "engine:\n  mode: disaggregated\n  model: org/m\n  kv_transfer: {bandwidth_gb_per_second: 1}\n"
        f"  workers: {{prefill: {one}, decode: {one}}}\n"
    )
    got = cli("replay", config)
    assert got.exit_code == 2
    assert f"error: {config}: engine.workers.prefill.kv_cache.bytes_per_token: " in got.stderr
    assert "(engine.hardware is not given)" in got.stderr


def test_a_missing_configuration(cli: Cli, tmp_path: Path) -> None:
    got = cli("replay", tmp_path / "nowhere.yaml")
    assert got.exit_code == 2
    assert "nowhere.yaml" in got.stderr and "Traceback" not in got.stderr


def test_a_missing_trace(cli: Cli, tiny: Path, root: Path) -> None:
    tiny.with_name("tiny.jsonl").unlink()
    for command in ("replay", "validate"):
        got = cli(command, tiny)
        assert got.exit_code == 2
        assert got.stderr.startswith(f"error: {tiny}: traffic.source.path='tiny.jsonl': ")
        assert "tiny.jsonl: no such trace file; " in got.stderr
    assert not root.exists()


def test_a_missing_trace_of_a_merge(cli: Cli, tiny: Path) -> None:
    got = cli("validate", tiny, "--set", "traffic.source.shape=[{type: merge, path: other.jsonl}]")
    assert got.exit_code == 2 and f"{tiny}: traffic.source.shape.0.path='other.jsonl': " in got.stderr


def test_bad_rows_beyond_the_limit_may_be_of_another_block_size(cli: Cli, tiny: Path) -> None:
    row = json.dumps({"timestamp": 7, "input_length": 9, "output_length": 1, "hash_ids": [9]}) + "\n"
    tiny.with_name("tiny.jsonl").write_text(TRACE + row)
    got = cli("validate", tiny, "--set", "traffic.source.block_size=16")
    assert got.exit_code == 2
    assert "; mend the file or traffic.source.block_size=16, or raise the limit" in got.stderr


def test_unknown_hardware_is_named_by_file_and_field(cli: Cli, tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("perf_db.gpu.source.PACKAGE", "no_such_package")
    timing = ("--set", "engine.workers.aggregated.timing={type: default}", "--set", "engine.model=Qwen/Qwen3-32B")
    for command in ("replay", "validate"):
        got = cli(command, tiny, "--set", "engine.hardware=h100", *timing)
        assert got.exit_code == 2
        assert got.stderr.splitlines()[-1].startswith(
            f"error: {tiny}: engine.hardware='h100': unknown system 'h100'; did you mean h100_sxm? "
        )


@pytest.mark.parametrize("text", ["", "no JSON\nneither\n"], ids=["empty", "all rows quarantined"])
def test_a_trace_without_usable_rows(cli: Cli, tiny: Path, root: Path, text: str) -> None:
    tiny.with_name("tiny.jsonl").write_text(text)
    got = cli("replay", tiny)
    assert got.exit_code == 2
    assert "tiny.jsonl" in got.stderr and "Traceback" not in got.stderr
    assert not root.exists()


def test_an_override_that_is_none(cli: Cli, tiny: Path) -> None:
    got = cli("replay", tiny, "--set", "engine.hardware")
    assert got.exit_code == 2 and "write path.to.field=value" in got.stderr


def test_a_prompt_that_can_never_fit_with_chunking_off(cli: Cli, tiny: Path, root: Path) -> None:
    got = cli("replay", tiny, "--set", "engine.workers.aggregated.scheduler.chunked_prefill=false")
    assert got.exit_code == 2 and "Traceback" not in got.stderr
    assert not root.exists()


def test_nothing_to_replay_is_a_usage_error(cli: Cli) -> None:
    got = cli("replay")
    assert got.exit_code == 2 and "configuration file" in got.stderr


def test_a_replay_that_cannot_end_leaves_nothing_behind(
    cli: Cli, tiny: Path, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sim.engine

    whole = sim.engine.replay

    def stuck(spec, workload, sink, **more):
        whole(spec, workload, sink, **more)
        raise Deadlock("request 1 waits for 40 blocks, 12 are there; enlarge the pool")

    monkeypatch.setattr(sim.engine, "replay", stuck)
    got = cli("replay", tiny)
    assert got.exit_code == 2
    assert got.stderr == "error: request 1 waits for 40 blocks, 12 are there; enlarge the pool\n"
    left = [path for path in root.rglob("*") if path.is_file() and path.suffix in {".json", ".parquet"}]
    assert left == []


def test_a_defect_of_ours_shows_the_traceback_and_says_so(
    cli: Cli, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sim.engine

    def broken(*_, **__):
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr(sim.engine, "replay", broken)
    got = cli("replay", tiny)
    assert got.exit_code == 70
    assert "Traceback" in got.stderr and "ZeroDivisionError" in got.stderr and "report" in got.stderr


def test_questions_to_an_empty_warehouse(cli: Cli) -> None:
    for words in (("runs",), ("show",), ("sql", "FROM runs"), ("export", "last"), ("store", "rebuild")):
        got = cli(*words)
        assert got.exit_code == 2, words
        assert got.stderr.startswith("error: ") and "Traceback" not in got.stderr


def test_sql_only_reads(cli: Cli, tiny: Path, tmp_path: Path) -> None:
    cli("replay", tiny)
    for query in (
        "DROP VIEW requests",
        f"COPY runs TO '{tmp_path / 'out.csv'}'",
        f"SELECT * FROM read_csv('{tiny}')",
        "SELEKT 1",
    ):
        got = cli("sql", query)
        assert got.exit_code == 2, query
        assert got.stderr.startswith("error: ") and "Traceback" not in got.stderr
    assert not (tmp_path / "out.csv").exists()


def test_an_unknown_run(cli: Cli, tiny: Path) -> None:
    cli("replay", tiny)
    got = cli("show", "yesterday")
    assert got.exit_code == 2 and "no run answers to 'yesterday'" in got.stderr


def test_a_case_that_is_none(cli: Cli, tmp_path: Path) -> None:
    case = tmp_path / "case.json"
    for text in ("{", "{}", "[]"):
        case.write_text(text)
        got = cli("replay", "--case", case, "--json", "--summary-only")
        assert got.exit_code == 2 and str(case) in got.stderr and "Traceback" not in got.stderr


def test_ctrl_c_leaves_nothing_behind(cli: Cli, tiny: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sim.engine

    def interrupted(spec, workload, sink, **_):
        sink.rows("spans", {name: np.zeros(3, np.int64) for name in SPANS})
        raise KeyboardInterrupt

    monkeypatch.setattr(sim.engine, "replay", interrupted)
    assert cli("replay", tiny).exit_code == 130
    assert [path for path in root.rglob("*") if path.suffix in {".json", ".parquet"}] == []


BIG = [
    ("engine.workers.aggregated.kv_cache.capacity.blocks=2147483646", "exceed 2^31 blocks"),
    ("traffic={source: {type: synthetic, input_tokens: 2147483647, output_tokens: 2147483647}, "
     "load: {type: concurrency, concurrency: 1}, stop: {requests: 1}}", "prompt and output together exceed"),
]  # fmt: skip


@pytest.mark.parametrize(("override", "said"), BIG)
def test_what_the_engine_cannot_take_is_the_inputs_fault(cli: Cli, tiny: Path, override: str, said: str) -> None:
    refused = cli("replay", tiny, "--set", override)
    assert refused.exit_code == 2, refused.output
    assert said in refused.stderr and "Traceback" not in refused.stderr


@pytest.mark.parametrize("text", ["[" * 4000 + "]" * 4000, "seed: " + "9" * 5000])
def test_yaml_beyond_reason_is_unreadable_yaml(cli: Cli, tmp_path: Path, text: str) -> None:
    config = tmp_path / "deep.yaml"
    config.write_text(text)
    refused = cli("replay", config)
    assert refused.exit_code == 2 and "not readable as YAML" in refused.stderr


def test_a_case_that_is_no_json_has_failed_and_the_others_are_run(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("{")
    shutil.copy(Path(__file__).parents[1] / "golden" / "peer" / "pd_sglang.json", tmp_path / "b.json")
    got = cli("golden", "check", tmp_path)
    assert got.exit_code == 1
    lines = got.stdout.splitlines()
    assert lines[0].startswith("failed   a: cannot be read as JSON")
    assert lines[1].startswith("skipped  b: ")
    assert lines[2] == "0 passed, 1 failed, 1 skipped"


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(28, "Error writing bytes to file"), "make room"),
        (MemoryError("Unable to allocate"), "not enough memory"),
    ],
)
def test_a_full_disk_and_a_full_memory_are_no_defects(
    capsys: pytest.CaptureFixture[str], error: Exception, said: str
) -> None:
    assert report(error) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("line", ['"' + "x" * 200_000 + '",1,2', '"2023-11-16 18:15:46"\r,1,2'])
def test_one_line_that_is_no_csv_is_set_aside(cli: Cli, tmp_path: Path, line: str) -> None:
    trace = tmp_path / "azure.csv"
    good = "2023-11-16 18:15:46.6805900,374,44\n"
    trace.write_bytes(f"TIMESTAMP,ContextTokens,GeneratedTokens\n{good}{line}\n{good}".encode())
    seen = cli("validate", trace)
    assert seen.exit_code == 0, seen.output
    assert "bad_line" in seen.output


@pytest.mark.parametrize("name", ["tiny.jsonl", "tiny.json"])
def test_a_trace_where_a_configuration_is_asked_for(cli: Cli, tiny: Path, name: str) -> None:
    (tiny.parent / name).write_text((tiny.parent / "tiny.jsonl").read_text())
    result = cli("replay", tiny.parent / name)
    assert result.exit_code == 2
    assert "this looks like a trace; name it in a run configuration (traffic.source.path)" in result.stderr


def test_suites_outside_the_clone(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for words in (["list"], ["run", "default"], ["status", "default"]):
        result = cli("matrix", *words)
        assert result.exit_code == 2, words
        assert "no suites in ./examples/scenarios; stand in the clone, or give --scenarios DIR" in result.stderr
