"""The commands on a run of three requests."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pyarrow.parquet as pq

from tests.pipelines.conftest import Cli


def test_replay_says_what_happened_and_where_the_tables_are(cli: Cli, tiny: Path, root: Path) -> None:
    got = cli("replay", tiny)
    assert got.exit_code == 0, got.output
    for expected in (
        "3 requests: 3 completed",
        "TTFT",
        "E2E",
        "requests/s",
        "prefix reuse",
        "preemptions   0",
        "KV peak",
        "4 read = 3 clean + 1 quarantined",
        str(root / "tracemill.duckdb"),
    ):
        assert expected in got.stdout
    assert got.stdout.count("tracemill sql") == 3
    assert "\r" not in got.stderr, "no progress bar where nobody looks"


def test_the_three_queries_that_are_offered_can_be_run(cli: Cli, tiny: Path) -> None:
    shown = cli("replay", tiny).stdout
    queries = [line.split('"')[1] for line in shown.splitlines() if "tracemill sql" in line]
    for query in queries:
        got = cli("sql", query)
        assert got.exit_code == 0, got.output
        assert len(got.stdout.splitlines()) > 2


def test_json_holds_ids_and_figures(cli: Cli, tiny: Path, root: Path) -> None:
    got = json.loads(cli("replay", tiny, "--json").stdout)
    assert got["summary"]["completed_requests"] == 3
    # 600 tokens are two passes of at most 512 tokens: 10 + 10 ms, and the second request shares the second pass.
    assert got["summary"]["min_ttft_ms"] > 0
    assert got["database"] == str(root / "tracemill.duckdb")
    assert ["run", "requests", "completed", 3, "requests", 3] in got["metrics"]


def test_the_same_input_twice_is_the_same_replay_with_the_same_bytes(cli: Cli, tiny: Path, root: Path) -> None:
    first, second = (json.loads(cli("replay", tiny, "--json").stdout) for _ in range(2))
    assert first["replay_id"] == second["replay_id"] and first["run_id"] != second["run_id"]
    folders = sorted((root / "runs").glob("*/*"))
    names = [sorted(p.name for p in folder.iterdir()) for folder in folders]
    assert len(folders) == 2 and names[0] == names[1]
    for name in names[0]:
        assert (folders[0] / name).read_bytes() == (folders[1] / name).read_bytes(), name


def test_another_seed_or_option_is_another_replay(cli: Cli, tiny: Path) -> None:
    ids = {json.loads(cli("replay", tiny, "--json", *more).stdout)["replay_id"] for more in ((), ("--set", "seed=7"))}
    assert len(ids) == 2


def test_names_and_output_folder_do_not_change_what_is_replayed(cli: Cli, tiny: Path, tmp_path: Path) -> None:
    here = json.loads(cli("replay", tiny, "--json").stdout)
    there = json.loads(cli("replay", tiny, "--json", "--set", "name=other", "-o", tmp_path / "elsewhere").stdout)
    assert here["replay_id"] == there["replay_id"]
    assert there["database"] == str(tmp_path / "elsewhere" / "tracemill.duckdb")


def test_show_repeats_the_summary(cli: Cli, tiny: Path) -> None:
    replayed = cli("replay", tiny).stdout
    assert cli("show").stdout == replayed
    assert cli("show", "tiny").stdout == replayed


def test_runs_lists_them(cli: Cli, tiny: Path) -> None:
    cli("replay", tiny)
    cli("replay", tiny, "--set", "name=second")
    lines = cli("runs").stdout.splitlines()
    assert [line.split()[1] for line in lines[2:]] == ["tiny", "second"]


def test_runs_says_what_was_set(cli: Cli, tiny: Path) -> None:
    cli("replay", tiny)
    changes = ("--set", "engine.workers.aggregated.timing.decode_ms=4", "--set", "seed=7")
    assert cli("replay", tiny, *changes).exit_code == 0
    cli("replay", tiny)
    other = [line.split()[8:] for line in cli("runs").stdout.splitlines()[2:]]
    assert other == [["–"], ["decode_ms=4,", "seed=7,", "performance", "data"], ["–"]]


def test_sql_speaks_to_people_and_to_programs(cli: Cli, tiny: Path) -> None:
    cli("replay", tiny)
    query = "SELECT request_id, status FROM requests ORDER BY request_id"
    assert "2  completed" not in cli("sql", query).stdout, "row 2 of the source is in quarantine"
    # Ids count the quarantined row: the third request is row 3 of the file.
    assert list(csv.reader(cli("sql", query, "--format", "csv").stdout.splitlines()))[1:] == [
        ["0", "completed"],
        ["1", "completed"],
        ["3", "completed"],
    ]
    assert json.loads(cli("sql", query, "--format", "json").stdout.splitlines()[2]) == {
        "request_id": 3,
        "status": "completed",
    }


def test_sql_hands_rows_on_as_they_come(cli: Cli, tiny: Path) -> None:
    cli("replay", tiny)
    many = "SELECT range + 1000000000 AS i FROM range(200000)"
    got = cli("sql", many, "--format", "csv", "--memory-limit", "64MB")
    assert got.stdout.splitlines()[-1] == "1000199999"
    assert len(cli("sql", many, "--format", "json", "--limit", "7").stdout.splitlines()) == 7
    table = cli("sql", many, "--limit", "1200")
    assert (len(table.stdout.splitlines()), table.stderr) == (1202, "")
    refused = cli("sql", many, "--memory-limit", "much")
    assert refused.exit_code == 2 and "500MB or 2GB" in refused.stderr
    failed = cli("sql", "SELECT string_agg(range::VARCHAR) FROM range(40000000)", "--memory-limit", "20MB")
    assert failed.exit_code == 2 and "memory" in failed.stderr.lower()


def test_the_quarantine_names_line_reason_and_text(cli: Cli, tiny: Path) -> None:
    cli("replay", tiny)
    got = cli("sql", "SELECT source_line, reason, raw FROM quarantine", "--format", "json").stdout
    assert json.loads(got) == {"source_line": 3, "reason": "bad_json", "raw": "this line is no JSON"}


def test_export_writes_every_table(cli: Cli, tiny: Path, tmp_path: Path) -> None:
    cli("replay", tiny)
    assert cli("export", "last", "-o", tmp_path / "csv").exit_code == 0
    with (tmp_path / "csv" / "requests.csv").open() as file:
        assert [row["request_id"] for row in csv.DictReader(file)] == ["0", "1", "3"]
    got = cli("export", "last", "--format", "parquet", "--table", "passes", "-o", tmp_path / "pq")
    assert got.exit_code == 0, got.output
    assert pq.read_table(tmp_path / "pq" / "passes.parquet").num_rows > 0
    assert not list((tmp_path / "pq").glob("requests*"))


def test_validate_refuses_what_a_replay_refuses(cli: Cli, tiny: Path) -> None:
    trace = tiny.with_name("tiny.jsonl")
    for file in (tiny, trace):
        got = cli("validate", file, "--strict")
        assert got.exit_code == 2 and "line 3: bad_json: this line is no JSON" in got.stderr
    trace.write_text("".join(trace.read_text().splitlines(keepends=True)[:1]) + "x\ny\n")
    for command in (("validate", trace), ("validate", tiny), ("replay", tiny)):
        got = cli(*command)
        assert got.exit_code == 2 and "more than traffic.source.quarantine.fail_above=0.5" in got.stderr
    trace.write_text('{"input_length": 600, "output_length": 0, "hash_ids": [1, 2], "dp_rank": 3}\n')
    got = cli("validate", trace)
    assert got.exit_code == 0
    for said in (
        "not every row has an arrival time",
        "replay will refuse this whole trace",
        "has to be 4 or more",
    ):
        assert said in got.stdout


def test_validate_looks_and_runs_nothing(cli: Cli, tiny: Path, root: Path) -> None:
    got = cli("validate", tiny)
    assert got.exit_code == 0 and "3 requests" in got.stdout
    got = cli("validate", tiny.with_name("tiny.jsonl"))
    assert got.exit_code == 0
    assert "4 rows read = 3 clean + 1 quarantined" in got.stdout and "bad_json: 1, first in line 3" in got.stdout
    assert not root.exists()


def test_store_rebuild_after_a_move(cli: Cli, tiny: Path, root: Path, tmp_path: Path) -> None:
    cli("replay", tiny)
    moved = tmp_path / "moved"
    root.rename(moved)
    assert cli("store", "rebuild", "-w", moved).exit_code == 0
    assert cli("sql", "-w", moved, "SELECT count(*) FROM requests").stdout.splitlines()[-1].strip() == "3"


def test_store_sweep_counts_what_it_removed(cli: Cli, tiny: Path, root: Path) -> None:
    cli("replay", tiny)
    (root / "staging" / "left-behind").mkdir()
    assert cli("store", "sweep").stdout == "1 leftover(s) removed\n"


def test_offered_commands_name_the_warehouse_if_it_is_not_the_usual_one(cli: Cli, tiny: Path, tmp_path: Path) -> None:
    shown = cli("replay", tiny, "-o", tmp_path / "else where").stdout
    assert shown.count(f"sql -w '{tmp_path}/else where' ") == 3
    assert " -w " not in cli("replay", tiny).stdout
