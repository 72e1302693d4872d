"""Files in the warehouse's inbox: each content is prepared once, whatever it is called, when it is complete."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from assets.inbox import Seen, look, prepared_path
from assets.ingest import read_trace
from assets.partitions import recall
from assets.views import open_store
from pipelines.definitions import defs
from pipelines.inbox import inbox_traces
from pipelines.instance import open_instance
from tests.pipelines.conftest import TINY, TRACE


@pytest.fixture
def inbox(root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TRACEMILL_WAREHOUSE", str(root))
    (root / "inbox").mkdir(parents=True)
    return root / "inbox"


class Ticks:
    """The sensor, tick after tick, as the daemon runs it; new requests are executed here."""

    def __init__(self, instance: dg.DagsterInstance, root: Path) -> None:
        self.instance, self.root = instance, root
        self.cursor: str | None = None
        self.run_keys: set[str] = set()
        self.results: list[dg.ExecuteInProcessResult] = []

    def __call__(self) -> list[str]:
        """Partitions prepared by this tick."""
        context = dg.build_sensor_context(self.instance, cursor=self.cursor)
        found = inbox_traces(context)
        assert isinstance(found, dg.SensorResult)
        self.cursor = found.cursor
        for each in found.dynamic_partitions_requests or ():
            self.instance.add_dynamic_partitions("inbox", list(each.partition_keys))
        keys = []
        for request in found.run_requests or ():
            if request.run_key not in self.run_keys:
                self.run_keys.add(str(request.run_key))
                keys.append(str(request.partition_key))
                self.results.append(self.run(request))
        return keys

    def run(self, request: dg.RunRequest) -> dg.ExecuteInProcessResult:
        return (
            defs()
            .resolve_job_def("inbox")
            .execute_in_process(
                instance=self.instance,
                partition_key=request.partition_key,
                resources={"store": open_store(self.root)},
                run_config={
                    **request.run_config,
                    "loggers": {"console": {"config": {"log_level": "CRITICAL"}}},
                },
                raise_on_error=False,
            )
        )


@pytest.fixture
def ticks(inbox: Path, root: Path) -> Iterator[Ticks]:
    with open_instance(root) as instance:
        yield Ticks(instance, root)


def test_a_new_file_becomes_a_partition_and_is_prepared_once(inbox: Path, root: Path, ticks: Ticks) -> None:
    assert ticks() == []
    (inbox / "My Trace.jsonl").write_text(TRACE)
    assert ticks() == [], "it may still be written"
    (key,) = ticks()
    assert key.startswith("my-trace@")
    assert ticks.results[0].success
    assert ticks.instance.get_dynamic_partitions("inbox") == [key]
    (made,) = (root / "traces").glob("*/my-trace.trace")
    assert len(read_trace(made)) == 3
    for _ in range(3):
        assert ticks() == []


def test_another_name_is_nothing_new(inbox: Path, ticks: Ticks) -> None:
    (inbox / "a.jsonl").write_text(TRACE)
    ticks()
    assert len(ticks()) == 1
    (inbox / "a.jsonl").rename(inbox / "b.jsonl")
    shutil.copy(inbox / "b.jsonl", inbox / "c.jsonl")
    assert [ticks() for _ in range(3)] == [[], [], []]
    ticks.cursor = None  # forgotten, as by a reset in the UI: the run key still knows it
    assert [ticks() for _ in range(3)] == [[], [], []]


def test_another_content_is_another_partition(inbox: Path, ticks: Ticks) -> None:
    (inbox / "a.jsonl").write_text(TRACE)
    ticks()
    (one,) = ticks()
    (inbox / "a.jsonl").write_text(TRACE.replace("600", "601"))
    assert ticks() == []
    (two,) = ticks()
    assert one != two
    assert all(result.success for result in ticks.results)


def test_what_is_being_written_is_left_alone(inbox: Path, ticks: Ticks) -> None:
    for name in ("empty.jsonl", ".hidden.jsonl", "a.jsonl.partial", "b.part", "c.tmp", "d~"):
        (inbox / name).write_text("" if name == "empty.jsonl" else TRACE)
    (inbox / "link.jsonl").symlink_to(inbox / "c.tmp")
    growing = inbox / "growing.jsonl"
    for line in TRACE.splitlines(keepends=True):
        with growing.open("a") as file:
            file.write(line)
        assert ticks() == [], "each look finds another size"
    (key,) = ticks()
    assert key.startswith("growing@")
    assert ticks.results[0].asset_materializations_for_node("inbox_trace")[0].metadata["rows_read"].value == 4


def test_a_rewrite_of_the_same_size_is_seen_by_its_time(inbox: Path) -> None:
    path = inbox / "a.jsonl"
    path.write_text(TRACE)
    os.utime(path, ns=(10**18, 10**18))
    _, seen = look(inbox, Seen.of(None))
    path.write_text(TRACE.replace("600", "601"))
    found, seen = look(inbox, Seen.of(seen.text()))
    assert found == []
    found, _ = look(inbox, seen)
    assert len(found) == 1


def test_a_file_that_is_renamed_before_its_run_is_found_by_its_content(inbox: Path, ticks: Ticks) -> None:
    (inbox / "a.jsonl").write_text(TRACE)
    (inbox / "z.jsonl").write_text(TRACE.replace("600", "601"))
    _, seen = look(inbox, Seen.of(None))
    found, _ = look(inbox, seen)
    (inbox / "a.jsonl").rename(inbox / "y.jsonl")
    ticks.instance.add_dynamic_partitions("inbox", [found[0].key])
    config = {"ops": {"inbox_trace": {"config": {"file": "a.jsonl", "digest": found[0].digest}}}}
    assert ticks.run(dg.RunRequest(partition_key=found[0].key, run_config=config)).success
    assert read_trace(prepared_path(ticks.root, found[0].key, found[0].digest)).prompt_tokens.tolist()[0] == 600
    (inbox / "y.jsonl").unlink()
    got = ticks.run(dg.RunRequest(partition_key=found[0].key, run_config=config))
    assert not got.success
    failed = [event.step_failure_data.user_failure_data for event in got.all_events if event.is_step_failure]
    assert "no other file in" in str(failed[0].description if failed[0] else "")


def test_a_broken_file_fails_once_and_leaves_nothing(inbox: Path, root: Path, ticks: Ticks) -> None:
    (inbox / "a.jsonl").write_text("this\nis\nno trace\n")
    ticks()
    assert len(ticks()) == 1
    assert not ticks.results[0].success
    assert ticks() == []
    assert not list((root / "traces").rglob("*.trace"))


def test_bad_rows_beyond_the_limit_fail_the_check(inbox: Path, ticks: Ticks) -> None:
    (inbox / "a.jsonl").write_text(TRACE + "no JSON\n" * 5)
    ticks()
    assert len(ticks()) == 1
    checks = {c.check_name: c for c in ticks.results[0].get_asset_check_evaluations()}
    assert checks["every_row_accounted_for"].passed
    assert not checks["quarantine_within_limits"].passed
    assert checks["quarantine_within_limits"].severity == dg.AssetCheckSeverity.ERROR


def test_with_a_configuration_beside_the_inbox_the_trace_can_be_replayed(inbox: Path, root: Path, ticks: Ticks) -> None:
    (root / "inbox.yaml").write_text(TINY.replace(", format: mooncake", ""))
    (inbox / "a.jsonl").write_text(TRACE)
    ticks()
    (key,) = ticks()
    assert ticks.instance.get_dynamic_partitions("trace") == [key]
    loaded = recall(root, key).load()
    assert loaded.traffic.source.file.endswith("/a.trace")  # type: ignore[union-attr]
    got = (
        defs()
        .resolve_job_def("replay_graph")
        .execute_in_process(
            instance=ticks.instance,
            partition_key=key,
            resources={"store": open_store(root)},
            run_config={"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}},
            raise_on_error=False,
        )
    )
    assert got.success


def test_a_folder_of_documents_is_one_trace(inbox: Path, ticks: Ticks) -> None:
    call = '{"t": 0, "type": "n", "model": "m", "in": 4, "out": 2, "hash_ids": [1], "api_time": 0.5}'
    (inbox / "agents").mkdir()
    for name in ("one", "two"):
        text = f'{{"id": "{name}", "block_size": 4, "requests": [{call}]}}'
        (inbox / "agents" / f"{name}.json").write_text(text)
    ticks()
    (key,) = ticks()
    assert key.startswith("agents@")
    assert ticks.results[0].success


def test_the_sensor_is_off_until_it_is_switched_on() -> None:
    assert inbox_traces.default_status == dg.DefaultSensorStatus.STOPPED
    assert inbox_traces in (defs().sensors or ())
