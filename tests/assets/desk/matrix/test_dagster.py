"""Suites in Dagster: a partition each, checks that block, an alert, a nightly schedule and a sensor of changes."""

from __future__ import annotations

import datetime as dt
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from assets.desk import baselines
from pipelines.alerts import send
from pipelines.definitions import defs
from pipelines.instance import open_instance
from pipelines.schedules import nightly_matrix
from pipelines.suites import changed_scenarios, register_suite
from tests.assets.desk.matrix.conftest import NAMES, Place
from tests.pipelines.conftest import Cli, cli, root  # noqa: F401  (fixtures)


@pytest.fixture
def instance(place: Place, monkeypatch: pytest.MonkeyPatch) -> Iterator[dg.DagsterInstance]:
    warehouse = place.folder / "warehouse"
    monkeypatch.setenv("TRACEMILL_WAREHOUSE", str(warehouse))
    with open_instance(warehouse) as opened:
        register_suite(opened, warehouse, place.suite, place.baselines)
        yield opened


def materialize(place: Place, instance: dg.DagsterInstance, **config: object) -> dg.ExecuteInProcessResult:
    settings = {"workers": 1, "keep": "all", **config}
    return (
        defs()
        .resolve_job_def("matrix")
        .execute_in_process(
            instance=instance,
            partition_key="tiny",
            resources={"store": place.store},
            run_config={
                "loggers": {"console": {"config": {"log_level": "CRITICAL"}}},
                "ops": {"scenarios": {"config": settings}},
            },
            raise_on_error=False,
        )
    )


def checks(result: dg.ExecuteInProcessResult) -> dict[str, bool]:
    return {c.check_name: c.passed for c in result.get_asset_check_evaluations()}


def metadata(result: dg.ExecuteInProcessResult) -> dict[str, dg.MetadataValue]:
    (event,) = result.get_asset_materialization_events()
    return dict(event.step_materialization_data.materialization.metadata)


def test_a_suite_is_one_step_with_its_scenarios_as_rows(place: Place, instance: dg.DagsterInstance) -> None:
    first = materialize(place, instance)
    assert first.success and set(checks(first).values()) == {True} and len(checks(first)) == 3
    told = metadata(first)
    assert told["run"].value == 4 and told["new"].value == 4 and told["dagster/row_count"].value == 4
    assert f"{NAMES[0]} ttft_p99_ms" in told and "data:image/svg" in str(told["trends"].value)
    again = materialize(place, instance)
    assert metadata(again)["run"].value == 0 and metadata(again)["stood"].value == 4


def test_the_nightly_job_twice_gives_the_same(place: Place, instance: dg.DagsterInstance) -> None:
    at = dt.datetime(2030, 1, 2, 2, tzinfo=dt.UTC)
    context = dg.build_schedule_context(instance=instance, scheduled_execution_time=at)
    (request,) = list(nightly_matrix(context))
    assert (request.run_key, request.partition_key) == ("2030-01-02/tiny", "tiny")
    assert nightly_matrix.default_status == dg.DefaultScheduleStatus.STOPPED
    config = request.run_config["ops"]["scenarios"]["config"]
    for _ in range(2):
        assert metadata(materialize(place, instance, **config))["run"].value == 4
    assert place.ask("SELECT count(DISTINCT result_digest), count(*) FROM scenarios GROUP BY scenario") == [(1, 2)] * 4


def test_a_difference_blocks_and_somebody_is_told(
    place: Place, instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = place.folder / "told.json"
    script = place.folder / "tell.py"
    script.write_text(f"import sys; open({str(told)!r}, 'w').write(sys.stdin.read())\n")
    monkeypatch.setenv("TRACEMILL_ALERT", f"'{sys.executable}' '{script}'")
    materialize(place, instance)
    assert not told.exists()
    for name in NAMES:
        baselines.accept(place.store, name, folder=place.baselines, reason="first", author="me")
    place.edit("tiny.yaml", "decode_ms: 2}", "decode_ms: 4}")
    result = materialize(place, instance)
    assert not result.success
    assert {name for name, passed in checks(result).items() if not passed} == {"results_are_as_accepted"}
    assert metadata(result)["differs"].value == 2
    facts = json.loads(told.read_text())
    assert (facts["job"], facts["step"], facts["partition"]) == ("matrix", "scenarios", "tiny")
    assert "results_are_as_accepted" in facts["error"] and facts["matrix_id"]


def test_an_alert_that_cannot_be_sent_says_why() -> None:
    assert "No such file" in str(send("/no/such/command", {}))
    assert "exit code 3" in str(send(f"{sys.executable} -c 'raise SystemExit(3)'", {}))
    assert send(f"{sys.executable} -c 'import sys; sys.stdin.read()'", {"a": 1}) is None
    assert "closing quotation" in str(send("echo 'x", {}))


def test_the_sensor_asks_for_what_changed_once(place: Place, instance: dg.DagsterInstance) -> None:
    def asked() -> list[dg.RunRequest]:
        context = dg.build_sensor_context(instance=instance)
        return [r for r in changed_scenarios(context) if isinstance(r, dg.RunRequest)]  # type: ignore[union-attr]

    (request,) = asked()
    assert request.partition_key == "tiny" and request.tags["tracemill/because"] == "never run"
    materialize(place, instance)
    assert asked() == []
    place.edit("more.jsonl", "90", "95")
    (request,) = asked()
    assert request.tags["tracemill/scenarios"] == "2" and request.tags["tracemill/because"] == "trace"
    assert [r.run_key for r in asked()] == [request.run_key]
    materialize(place, instance)
    assert asked() == []
    baselines.accept(place.store, NAMES[0], folder=place.baselines, reason="first", author="me")
    assert asked() == []
    place.edit("more.jsonl", "95", "90")  # back again: known inputs, and yet another result than the last
    (back,) = asked()
    assert back.run_key != request.run_key
    materialize(place, instance)
    place.edit("few.jsonl", '"timestamp": 0', '"timestamp": "soon"')
    place.edit("few.jsonl", '"timestamp": 5', '"timestamp": "later"')
    assert len(asked()) == 1
    materialize(place, instance)
    assert asked() == []  # it failed, and nothing has changed since
    assert changed_scenarios.default_status == dg.DefaultSensorStatus.STOPPED


def test_a_suite_that_broke_fails_with_its_message(place: Place, instance: dg.DagsterInstance) -> None:
    place.edit("tiny.yaml", "keep: failed", "keep: some")
    result = materialize(place, instance)
    (failed,) = [e.step_failure_data.user_failure_data for e in result.all_events if e.is_step_failure]
    assert failed is not None and "keep='some'" in str(failed.description)


def test_the_commands(place: Place, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    monkeypatch.chdir(place.folder)
    suite = "tiny.yaml"
    assert cli("matrix", "list", "tiny", "--scenarios", ".").stdout.count("tiny.") == 4
    assert "tiny" in cli("matrix", "list", "--scenarios", ".").stdout
    assert cli("matrix", "run", "nobody").exit_code == 2
    assert "4 of 4 to run" in cli("matrix", "status", suite).stdout
    ran = cli("matrix", "run", suite, "--workers", "1", "--keep", "all")
    assert ran.exit_code == 0 and ran.stdout.endswith("4 run. 4 new\n")
    assert "all 4 results stand" in cli("matrix", "status", suite).stdout
    assert cli("matrix", "accept", suite).exit_code == 2
    accepted = cli("matrix", "accept", suite, "--reason", "first", "--author", "me")
    assert accepted.exit_code == 0 and "4 accepted, 0 as they were" in accepted.stdout
    assert cli("matrix", "run", suite).stdout == "0 run; 4 stood, their inputs being the same. 4 same\n"
    place.edit("tiny.yaml", "decode_ms: 2}", "decode_ms: 4}")
    differs = cli("matrix", "run", suite, "--workers", "1")
    assert differs.exit_code == 1
    assert differs.stdout.startswith(
        "differs  tiny.few.fast: configuration: engine.workers.aggregated.timing.decode_ms; price: decode lookup at "
    )
    found = json.loads(cli("matrix", "run", suite, "--json").stdout)
    assert found["run"] == [] and [r["status"] for r in found["scenarios"]] == ["differs", "same"] * 2
    assert json.loads(cli("matrix", "status", suite, "--json").stdout)[0]["last"] == "differs"
    assert cli("matrix", "accept", suite, "--reason", "slower").exit_code == 0
    assert cli("matrix", "run", suite).exit_code == 0
    assert "tiny: choose this partition" in cli("matrix", "register", suite).stdout
    assert (Path("warehouse") / "partitions" / "suites" / "tiny.json").exists()
    elsewhere = place.folder / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    assert cli("matrix", "register", suite, "--dagster-home", elsewhere).exit_code == 0
    with dg.DagsterInstance.from_config(str(elsewhere)) as theirs:
        assert theirs.get_dynamic_partitions("suite") == ["tiny"]
