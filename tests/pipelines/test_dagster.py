"""The code location loads, and the graph materialises in this process: no daemon, no subprocess."""

from __future__ import annotations

import datetime as dt
import subprocess
import sys
from pathlib import Path

import dagster as dg
import pytest

from assets.checks import LAWS
from assets.partitions import partition_key, recall
from assets.views import open_store
from perf_db.tables import RESULT_TABLES
from pipelines.definitions import defs
from pipelines.instance import open_instance
from pipelines.materialize import materialize
from pipelines.partitions import register
from pipelines.schedules import nightly_replay

ROOT = Path(__file__).parents[2]


def test_location_loads() -> None:
    location = defs()
    dg.Definitions.validate_loadable(location)
    assert location.resolve_job_def("replay_graph")


def test_every_result_table_is_an_asset_with_its_columns() -> None:
    graph = defs().resolve_asset_graph()
    for table in RESULT_TABLES.values():
        node = graph.get(dg.AssetKey(table.name))
        schema = node.metadata["dagster/column_schema"]
        assert [column.name for column in schema.columns] == list(table.column_names)
        assert schema.columns[0].description == table.columns[0].comment


@pytest.mark.slow
def test_dagster_validates_the_location_from_the_root() -> None:
    command = [sys.executable, "-m", "dagster", "definitions", "validate"]
    got = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert got.returncode == 0, got.stderr
    assert "tracemill" in got.stderr + got.stdout


def test_the_graph_materialises_and_its_checks_pass(tiny: Path, root: Path) -> None:
    got = materialize(root, tiny)
    assert got.passed, got.text()
    assert dict(got.rows)["trace"] == 3 and dict(got.rows)["requests"] == 3 and dict(got.rows)["quarantine"] == 1
    assert {name for name, _ in got.rows} == {"trace", *RESULT_TABLES}
    names = [name for _, name, _ in got.checks]
    assert {law.name for law in LAWS} <= set(names)
    assert names.count("schema") == 1 + len(RESULT_TABLES)
    assert open_store(root).resolve("last") == got.run_id
    assert (root / "traces" / f"{got.partition}.parquet").exists()
    assert (root / "dagster" / "dagster.yaml").read_text().count("enabled: false") == 2


def test_a_partition_is_named_after_file_and_content(tiny: Path, root: Path) -> None:
    with open_instance(root) as instance:
        key = register(instance, root, tiny)
        assert key.startswith("tiny@") and instance.get_dynamic_partitions("trace") == [key]
        assert register(instance, root, tiny) == key
        trace = tiny.with_name("tiny.jsonl")
        trace.write_text(trace.read_text().replace("600", "601"))
        changed = register(instance, root, tiny)
        assert changed != key and sorted(instance.get_dynamic_partitions("trace")) == sorted([key, changed])
    assert recall(root, key).config_file == tiny
    assert partition_key("a/My Trace (1).jsonl", "0123456789abcdef") == "my-trace-1@01234567"
    assert partition_key(None, "0123456789abcdef") == "synthetic@01234567"


def test_a_partition_refuses_another_trace(tiny: Path, root: Path) -> None:
    with open_instance(root) as instance:
        key = register(instance, root, tiny)
        trace = tiny.with_name("tiny.jsonl")
        trace.write_text(trace.read_text().replace("600", "601"))
        got = run_graph(instance, root, key)
    assert not got.success
    assert "the file has changed" in failure(got) and "tracemill register" in failure(got)
    assert not open_store(root).exists


def test_a_broken_configuration_fails_with_its_message_and_no_retry(tiny: Path, root: Path) -> None:
    with open_instance(root) as instance:
        key = register(instance, root, tiny)
        tiny.write_text("engine: {workers: 3}\n")
        got = run_graph(instance, root, key)
    assert not got.success
    assert "problem(s)" in failure(got)
    assert not [event for event in got.all_events if event.is_step_up_for_retry]


def test_a_misspelt_setting_is_refused_before_anything_runs(tiny: Path, root: Path) -> None:
    with open_instance(root) as instance:
        key = register(instance, root, tiny)
        with pytest.raises(dg.DagsterInvalidConfigError, match="config_fil"):
            run_graph(instance, root, key, {"ops": {"trace": {"config": {"config_fil": "x"}}}})


def test_nightly_asks_for_one_run_per_registered_trace(tiny: Path, root: Path) -> None:
    with open_instance(root) as instance:
        key = register(instance, root, tiny)
        at = dt.datetime(2030, 1, 2, 3, tzinfo=dt.UTC)
        context = dg.build_schedule_context(instance=instance, scheduled_execution_time=at)
        requests = list(nightly_replay(context))
    assert [(r.run_key, r.partition_key) for r in requests] == [(f"2030-01-02/{key}", key)]
    assert nightly_replay.default_status == dg.DefaultScheduleStatus.STOPPED


def run_graph(
    instance: dg.DagsterInstance, root: Path, key: str, config: dict[str, object] | None = None
) -> dg.ExecuteInProcessResult:
    quiet = {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}}
    return (
        defs()
        .resolve_job_def("replay_graph")
        .execute_in_process(
            instance=instance,
            partition_key=key,
            resources={"store": open_store(root)},
            run_config=quiet | (config or {}),
            raise_on_error=False,
        )
    )


def failure(result: dg.ExecuteInProcessResult) -> str:
    """Descriptions of the failed steps."""
    failed = [event.step_failure_data.user_failure_data for event in result.all_events if event.is_step_failure]
    return "\n".join(str(each.description) for each in failed if each)
