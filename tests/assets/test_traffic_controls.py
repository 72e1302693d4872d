"""Lanes, turns, warm-up and limits for bad rows: from the configuration to the engine and to the metrics."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from assets.ingest import TraceError
from assets.ingest.ingest import ingest
from assets.inputs import prepare
from assets.replay_run import RunReport, run_replay
from assets.views import open_store
from sim.config import ConfigError, load_run_config
from tests.assets.ingest.samples import lines
from tests.assets.ingest.test_agentic import HEADER, after, call, document, step, subagent
from tests.assets.test_inputs import PLAIN, SESSIONS, made

ENGINE = {"engine": {"workers": {"aggregated": {"timing": {"type": "polynomial"}}}}}
FIXED = "engine.workers.aggregated.timing={type: fixed, prefill_ms: 100, decode_ms: 1}"


def replayed(folder: Path, text: str, load: str, *overrides: str) -> RunReport:
    (folder / "t").write_text(text)
    traffic = f"traffic={{source: {{type: trace, path: t}}, load: {load}}}"
    config = load_run_config({}, overrides=[traffic, FIXED, *overrides])
    return run_replay(config, open_store(folder / "warehouse"), base=folder)


def figures(report: RunReport) -> dict[tuple[str, str], Any]:
    return {(metric, stat): value for scope, metric, stat, value, _, _ in report.metrics if scope == "run"}


def arrivals(folder: Path) -> list[float]:
    query = "SELECT arrival_ns / 1e6 FROM requests WHERE arrival_ns >= 0 ORDER BY 1"
    return [at for (at,) in open_store(folder / "warehouse").connect().execute(query).fetchall()]


DOCUMENTS = "\n".join(
    document(call(0, 8, [1, 2], api_time=0.05), call(0.2, 12, [1, 2, 3], api_time=0.05), name=name) for name in "ab"
)


def test_a_folder_of_agent_sessions_is_replayed_with_their_floors(tmp_path: Path) -> None:
    """Each second call: 101 ms of the first and the pause of 150 ms come before 251, after its recorded 200."""
    report = replayed(tmp_path, DOCUMENTS, "{type: trace_timestamps}")
    assert arrivals(tmp_path) == [0, 0, 251, 251]
    found = figures(report)
    assert (found["sessions", "started"], found["sessions", "ended"]) == (2, 2)
    assert found["session_latency", "mean"] == 352
    assert any("recorded pauses" in each for each in report.inputs.warnings)


def test_lanes_run_sessions_one_after_the_other(tmp_path: Path) -> None:
    replayed(tmp_path, DOCUMENTS, "{type: trace_timestamps, agentic_lanes: 1, speedup: 2}")
    # The pause is 75 ms at this speed, the earliest start 100 ms: 101 + 75 each.
    assert arrivals(tmp_path) == [0, 176, 277, 453]


def test_a_graph_keeps_its_identity_on_the_way(tmp_path: Path) -> None:
    """Rows of the trace, in the order of the engine, under their own numbers and names."""
    rows = [HEADER, step("b", not_before=50), step("c", after("a"), after("b")), step("a")]
    found = made(tmp_path, lines(rows))
    assert found.external_id == ["a", "b", "c"]
    assert found.request_id.tolist() == [2, 0, 1]
    assert found.source_line is not None
    assert found.source_line.tolist() == [4, 2, 3]
    assert found.workload.wait_on is not None
    assert sorted(found.workload.wait_on.tolist()) == [0, 1]
    replayed(tmp_path, lines(rows), "{type: trace_timestamps}")
    query = "SELECT external_id, source_line FROM requests ORDER BY arrival_ns"
    con = open_store(tmp_path / "warehouse").connect()
    assert con.execute(query).fetchall() == [("a", 4), ("b", 2), ("c", 3)]


def test_subagents_survive_preparing(tmp_path: Path) -> None:
    text = document(call(0, 8, [1, 2]), subagent(0.6, call(0, 4, [9])), call(2, 12, [1, 2, 3]))
    plain = replayed(tmp_path, text, "{type: trace_timestamps}")
    ingest(tmp_path / "t", tmp_path / "t.trace")
    config = load_run_config(
        {}, overrides=["traffic={source: {type: trace, path: t.trace}, load: {type: trace_timestamps}}", FIXED]
    )
    prepared = run_replay(config, open_store(tmp_path / "other"), base=tmp_path)
    assert prepared.run["result_digest"] == plain.run["result_digest"]
    assert prepared.replay_id == plain.replay_id


def test_turns_end_the_sending(tmp_path: Path) -> None:
    report = replayed(tmp_path, SESSIONS, "{type: concurrency, concurrency: 1}", "traffic.stop.turns=3")
    found = figures(report)
    assert (found["requests", "submitted"], found["requests", "completed"]) == (3, 3)
    assert (found["sessions", "started"], found["sessions", "ended"]) == (2, 1)
    with pytest.raises(TraceError, match=r"the trace has no sessions; use traffic.stop.requests instead of turns"):
        made(tmp_path, PLAIN, "{type: trace_timestamps}", "traffic.stop.turns=3")


def test_turns_of_made_up_sessions() -> None:
    traffic = {
        "source": {"type": "synthetic-session", "turns_per_session": 4, "new_input_tokens_per_turn": 10},
        "load": {"type": "concurrency", "concurrency": 2},
        "stop": {"sessions": 5, "turns": 7},
    }
    load = prepare(load_run_config({"traffic": traffic, **ENGINE}), base=Path()).workload
    assert (len(load), load.send_limit) == (20, 7)
    traffic["source"] = {"type": "synthetic"}
    traffic["stop"] = {"requests": 5, "turns": 7}
    with pytest.raises(ConfigError, match=r"traffic.stop.turns=7: source synthetic has no turns; use requests"):
        load_run_config({"traffic": traffic, **ENGINE})


def test_a_warm_up_is_declared_and_does_not_count(tmp_path: Path) -> None:
    report = replayed(tmp_path, PLAIN, "{type: concurrency, concurrency: 1}", "traffic.warmup.requests=2")
    found = figures(report)
    assert (found["requests", "warmup"], found["requests", "submitted"], found["requests", "completed"]) == (2, 1, 1)
    assert found["duration", "total"] == found["e2e_latency", "mean"] == 106
    assert json.loads(report.run["provenance_json"])["lineage"]["warmup_requests"] == 2
    assert json.loads(report.run["config_json"])["traffic"]["warmup"] == {"requests": 2}
    counted = replayed(tmp_path, PLAIN, "{type: concurrency, concurrency: 1}")
    assert counted.replay_id != report.replay_id
    assert counted.run["result_digest"] != report.run["result_digest"]


@pytest.mark.parametrize(
    ("warmup", "said"),
    [
        ("{}", "traffic.warmup.requests: required"),
        ("{requests: 1, requests_per_load_unit: 2}", "give either requests or requests_per_load_unit, not both"),
        ("{requests: 0}", "traffic.warmup.requests=0"),
    ],
)
def test_warm_ups_that_say_nothing(warmup: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        load_run_config({}, overrides=[f"traffic.warmup={warmup}"])


def test_a_warm_up_counts_per_slot_and_leaves_something(tmp_path: Path) -> None:
    load = "{type: concurrency, concurrency: 1}"
    assert made(tmp_path, PLAIN, load, "traffic.warmup.requests_per_load_unit=2").workload.warmup == 2
    with pytest.raises(TraceError, match=r"traffic.warmup: all 3 requests would be warm-up \(3\); lower it"):
        made(tmp_path, PLAIN, load, "traffic.warmup.requests=3")
    with pytest.raises(
        ConfigError, match=r"load trace_timestamps has no unit to multiply; use traffic.warmup.requests"
    ):
        made(tmp_path, PLAIN, "{type: trace_timestamps}", "traffic.warmup.requests_per_load_unit=2")


BAD = PLAIN + "no JSON\n"


def test_limits_for_bad_rows(tmp_path: Path) -> None:
    load = "{type: trace_timestamps}"
    assert len(made(tmp_path, BAD, load).workload) == 3
    said = made(tmp_path, BAD, load, "traffic.source.quarantine.warn_above=0.1").warnings
    assert any("25.000% of the rows (1 of 4) are in quarantine, more than" in each for each in said)
    with pytest.raises(TraceError, match=r"more than traffic.source.quarantine.fail_above=0.2; mend the file"):
        made(tmp_path, BAD, load, "traffic.source.quarantine.fail_above=0.2")
    with pytest.raises(TraceError, match=r"are bad_json, more than traffic.source.quarantine.reasons.bad_json=0;"):
        made(tmp_path, BAD, load, "traffic.source.quarantine.reasons.bad_json=0")
    with pytest.raises(TraceError, match=r"quarantine.reasons.bad_jason: no such reason; use bad_json"):
        made(tmp_path, BAD, load, "traffic.source.quarantine.reasons.bad_jason=0")
    with pytest.raises(TraceError, match=r"75.000% of the rows"):
        made(tmp_path, PLAIN.splitlines()[0] + "\nx\ny\nz\n", load)


def test_limits_do_not_tell_runs_apart(tmp_path: Path) -> None:
    """What is said about bad rows changes no result."""
    traffic = "traffic={source: {type: trace, path: t}, load: {type: trace_timestamps}}"
    plain = load_run_config(ENGINE, overrides=[traffic])
    told = load_run_config(ENGINE, overrides=[traffic, "traffic.source.quarantine.warn_above=0.3"])
    assert plain.canonical() == told.canonical()


def test_a_prepared_trace_is_as_strict_as_its_source(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text(BAD)
    ingest(tmp_path / "t.jsonl", tmp_path / "t.trace")
    load = "{type: trace_timestamps}"
    for path in ("t.jsonl", "t.trace"):
        with pytest.raises(TraceError, match="line 4: bad_json: no JSON"):
            made(tmp_path, BAD, load, f"traffic.source.path={path}", "traffic.source.strict=true")
    with pytest.raises(TraceError, match="was prepared with ids of 512 tokens, not 16"):
        made(tmp_path, BAD, load, "traffic.source.path=t.trace", "traffic.source.block_size=16")
    with pytest.raises(TraceError, match="was prepared as mooncake, not as qwen_bailian"):
        made(tmp_path, BAD, load, "traffic.source.path=t.trace", "traffic.source.format=qwen_bailian")
