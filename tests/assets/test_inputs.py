"""From a configuration to columns for the engine: loads over traces, made-up traffic, identity and provenance."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from assets.ingest import TraceError
from assets.inputs import Inputs, prepare
from sim.config import load_run_config

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"


def rows(*each: dict[str, Any]) -> str:
    base = {"input_length": 600, "output_length": 7, "hash_ids": [1, 2]}
    return "".join(json.dumps({**base, **row}) + "\n" for row in each)


PLAIN = rows({"timestamp": 100}, {"timestamp": 200, "request_id": "b"}, {"timestamp": 400})
SESSIONS = rows(
    {"timestamp": 100, "session_id": "a"},
    {"timestamp": 150, "session_id": "b"},
    {"timestamp": 180, "session_id": "a"},
    {"timestamp": 200, "session_id": "b", "delay": 30},
)


def made(tmp_path: Path, text: str, load: str = "{type: trace_timestamps}", *overrides: str) -> Inputs:
    (tmp_path / "t.jsonl").write_text(text)
    values = {"engine": {"workers": {"aggregated": {"timing": {"type": "polynomial"}}}}}
    traffic = f"traffic={{source: {{type: trace, path: t.jsonl}}, load: {load}}}"
    return prepare(load_run_config(values, overrides=[traffic, *overrides]), base=tmp_path)


def test_trace_timestamps_divided_by_the_speedup(tmp_path: Path) -> None:
    """Rule WL-12."""
    found = made(tmp_path, PLAIN, "{type: trace_timestamps, speedup: 3}")
    assert found.workload.arrival_ns.tolist() == [0, 33_333_333, 100_000_000]
    assert found.workload.concurrency is None
    assert found.external_id == [None, "b", None]
    assert found.source_line is not None
    assert found.source_line.tolist() == [1, 2, 3]
    assert found.provenance["lineage"]["arrivals"] == "the trace, 3 times as fast"
    assert found.provenance["path"] == "t.jsonl"
    assert len(found.provenance["digest"]) == 32


def test_speedup_divides_delays_too(tmp_path: Path) -> None:
    found = made(tmp_path, SESSIONS, "{type: trace_timestamps, speedup: 2}")
    assert found.workload.delay_ns is not None
    assert found.workload.delay_ns.tolist() == [0, 0, 40_000_000, 15_000_000]
    assert found.session_id == ["a", "b", "a", "b"]
    assert found.turn is not None
    assert found.turn.tolist() == [0, 0, 1, 1]


def test_concurrency_over_a_trace(tmp_path: Path) -> None:
    found = made(tmp_path, rows({}, {}, {}), "{type: concurrency, concurrency: 2}")  # no timestamps needed
    assert found.workload.concurrency == 2
    assert len(found.workload) == 3


def test_other_loads_over_a_trace_count_in_its_units(tmp_path: Path) -> None:
    found = made(tmp_path, PLAIN, "{type: constant_rate, requests_per_second: 10}")
    assert found.workload.arrival_ns.tolist() == [0, 100_000_000, 200_000_000]
    found = made(tmp_path, SESSIONS, "{type: constant_rate, sessions_per_second: 10}")
    assert found.workload.arrival_ns.tolist() == [0, 100_000_000, 100_000_000, 100_000_000]
    assert made(tmp_path, PLAIN, "{type: burst}").workload.arrival_ns.tolist() == [0, 0, 0]
    with pytest.raises(TraceError, match=r"the trace has sessions; give traffic.load.sessions_per_second"):
        made(tmp_path, SESSIONS, "{type: poisson, requests_per_second: 1}")
    with pytest.raises(TraceError, match=r"the trace has no sessions; give traffic.load.requests_per_second"):
        made(tmp_path, PLAIN, "{type: poisson, sessions_per_second: 1}")


def test_a_stop_takes_the_first_rows(tmp_path: Path) -> None:
    found = made(tmp_path, PLAIN, "{type: trace_timestamps}", "traffic.stop={requests: 2}")
    assert len(found.workload) == len(found.request_id) == 2
    assert found.workload.hash_ids is not None
    assert len(found.workload.hash_ids) == 4
    assert found.provenance["replayed"] == 2
    assert found.provenance["clean"] == 3


def test_rows_in_quarantine_leave_gaps_in_the_ids(tmp_path: Path) -> None:
    found = made(tmp_path, PLAIN.replace('"b"', "{}"))
    assert found.request_id.tolist() == [0, 2]
    assert found.quarantine["source_line"] == [2]
    assert found.quarantine["reason"] == ["wrong_type"]
    assert found.provenance["rows_read"] == 3
    assert any("1 of 3 rows are in quarantine: 1 wrong_type" in each for each in found.warnings)


def test_requests_for_no_tokens(tmp_path: Path) -> None:
    text = rows({"timestamp": 0}, {"timestamp": 1, "output_length": 0})
    with pytest.raises(
        TraceError, match=r"1 row\(s\) ask for no output, the first on line 2; .* prefill_only or quarantine"
    ):
        made(tmp_path, text)
    assert made(
        tmp_path, text, "{type: burst}", "traffic.zero_output=prefill_only"
    ).workload.output_tokens.tolist() == [7, 0]
    assert made(tmp_path, text, "{type: burst}", "profile=parity").workload.output_tokens.tolist() == [7, 0]
    aside = made(tmp_path, text, "{type: burst}", "traffic.zero_output=quarantine")
    assert aside.quarantine["reason"] == ["zero_output"]


def test_a_pinned_rank_must_exist(tmp_path: Path) -> None:
    text = rows({"timestamp": 0, "dp_rank": 1})
    with pytest.raises(TraceError, match=r"line 1 is pinned to dp_rank 1, but .*attention_data=1 has ranks 0 to 0"):
        made(tmp_path, text)
    found = made(tmp_path, text, "{type: burst}", "engine.workers.aggregated.parallelism.attention_data=2")
    assert found.workload.pinned_rank is not None
    assert found.workload.pinned_rank.tolist() == [1]


def test_with_separate_pools_a_pin_counts_through_the_decode_workers(tmp_path: Path) -> None:
    pools = [
        "engine.mode=disaggregated",
        "engine.mode=disaggregated",
        "engine.workers={prefill: {timing: {type: fixed, prefill_ms: 1, decode_ms: 1}}, decode: {timing: {type: fixed, "
        "prefill_ms: 1, decode_ms: 1}, parallelism: {replicas: 2}}}",
    ]
    found = made(tmp_path, rows({"timestamp": 0, "dp_rank": 1}), "{type: burst}", *pools)
    assert found.workload.pinned_rank is not None
    assert found.workload.pinned_rank.tolist() == [1]
    with pytest.raises(TraceError, match=r"dp_rank 2, but the decode pool, 2 worker\(s\) .*=1, has ranks 0 to 1"):
        made(tmp_path, rows({"timestamp": 0, "dp_rank": 2}), "{type: burst}", *pools)


def test_a_prompt_that_could_never_run(tmp_path: Path) -> None:
    off = (
        "engine.workers.aggregated.scheduler.chunked_prefill=false",
        "engine.workers.aggregated.scheduler.max_batched_tokens=512",
    )
    with pytest.raises(TraceError, match=r"3 prompt\(s\) of up to 600 tokens can never run"):
        made(tmp_path, PLAIN, "{type: burst}", *off)
    made(tmp_path, PLAIN, "{type: burst}", *off, "engine.context_length=512")  # rejected on arrival instead


def test_no_prefixes_stay_unknown(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2024-01-01 00:00:00,5,6\n")
    text = (tmp_path / "t.jsonl").read_text()
    found = made(tmp_path, text)
    assert found.workload.hash_offsets is None
    assert found.provenance["lineage"]["prefixes"].startswith("unknown")


def synthetic(source: str, load: str, stop: str, *overrides: str) -> Inputs:
    values = {"engine": {"workers": {"aggregated": {"timing": {"type": "polynomial"}}}}}
    traffic = f"traffic={{source: {source}, load: {load}, stop: {stop}}}"
    return prepare(load_run_config(values, overrides=[traffic, *overrides]), base=Path())


def test_made_up_requests() -> None:
    found = synthetic("{type: synthetic}", "{type: concurrency, concurrency: 4}", "{requests: 9}")
    assert found.workload.concurrency == 4
    assert found.request_id.tolist() == list(range(9))
    assert found.source_line is None
    assert found.provenance["format"] == "synthetic"
    assert found.provenance["rows_read"] == 9
    assert found.workload.hash_offsets is not None  # known to share nothing


def test_made_up_sessions() -> None:
    found = synthetic("{type: synthetic-session}", "{type: constant_rate, sessions_per_second: 1}", "{sessions: 3}")
    assert len(found.workload) == 12
    assert found.workload.arrival_ns.tolist() == [s * 1_000_000_000 for s in range(3) for _ in range(4)]
    assert found.turn is not None
    assert found.turn.tolist() == [0, 1, 2, 3] * 3


def test_digest_of_made_up_traffic_follows_what_it_depends_on() -> None:
    def digest(*overrides: str) -> str:
        load = "{type: poisson, requests_per_second: 1}"
        return str(synthetic("{type: synthetic}", load, "{requests: 2}", *overrides).provenance["digest"])

    assert digest() == digest("name=x", "engine.workers.aggregated.timing={type: fixed, prefill_ms: 1, decode_ms: 1}")
    assert len({digest(), digest("seed=1"), digest("traffic.stop.requests=3"), digest("traffic.load.seed=5")}) == 4


def test_one_seed_drives_arrivals_unless_the_load_has_its_own() -> None:
    def arrivals(*overrides: str) -> list[int]:
        load = "{type: poisson, requests_per_second: 1}"
        return synthetic("{type: synthetic}", load, "{requests: 5}", *overrides).workload.arrival_ns.tolist()

    assert arrivals("seed=1") != arrivals("seed=2")
    assert arrivals("seed=1", "traffic.load.seed=3") == arrivals("seed=2", "traffic.load.seed=3") == arrivals("seed=3")


def test_arrivals_that_do_not_end() -> None:
    with pytest.raises(TraceError, match=r"traffic\.load: .* raise the rate or stop earlier"):
        synthetic("{type: synthetic}", "{type: poisson, requests_per_second: 1e-300}", "{requests: 5}")


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_examples_have_inputs(path: Path) -> None:
    found = prepare(load_run_config(path), base=path.parent)
    assert len(found.workload) >= 400
    assert (np.diff(found.workload.arrival_ns) >= 0).all()
    json.dumps(found.provenance, allow_nan=False)


def test_the_demo_trace_is_what_its_maker_makes() -> None:
    maker = runpy.run_path(str(EXAMPLES / "traces" / "make_demo.py"))
    made_rows = maker["requests"](maker["Draw"](maker["SEED"]))
    text = "".join(f"{line}\n" for line in maker["with_faults"](made_rows))
    assert (EXAMPLES / "traces" / "demo.jsonl").read_text() == text


def test_the_demo_trace_shows_a_quarantine() -> None:
    path = EXAMPLES / "demo.yaml"
    found = prepare(load_run_config(path), base=path.parent)
    assert (found.provenance["clean"], found.provenance["quarantined"]) == (2000, 8)
    assert set(found.provenance["reasons"]) == {
        "bad_json",
        "duplicate_id",
        "hash_count_mismatch",
        "missing_field",
        "negative",
        "not_finite",
        "wrong_type",
    }


def read_as(tmp_path: Path, text: str, source: str, load: str) -> Inputs:
    (tmp_path / "t").write_text(text)
    values = {"engine": {"workers": {"aggregated": {"timing": {"type": "polynomial"}}}}}
    traffic = f"traffic={{source: {{type: trace, path: t, {source}}}, load: {load}}}"
    return prepare(load_run_config(values, overrides=[traffic]), base=tmp_path)


def test_columns_and_units_come_from_the_configuration(tmp_path: Path) -> None:
    source = "columns: {arrival: t, prompt_tokens: in, output_tokens: out}, time_unit: s"
    found = read_as(tmp_path, "t,in,out\n1,5,2\n2.5,6,3\n", source, "{type: trace_timestamps}")
    assert found.workload.arrival_ns.tolist() == [0, 1_500_000_000]
    assert found.provenance["format"] == "csv"


def test_generated_text_of_delta_sessions_reaches_the_engine(tmp_path: Path) -> None:
    text = rows({"timestamp": 0, "session_id": "a"}, {"session_id": "a", "delay": 1})
    found = read_as(tmp_path, text, "format: mooncake-delta", "{type: trace_timestamps}")
    assert found.workload.hashed_tokens is not None
    assert found.workload.hashed_tokens.tolist() == [607, 1214]
    assert found.workload.hash_block_tokens == found.spec.block_tokens


def test_requests_that_wait_for_several_others_reach_the_engine(tmp_path: Path) -> None:
    text = rows({"request_id": "a", "timestamp": 0, "wait_for": []})
    joined = text.replace('"a"', '"c"').replace("[]", '["b", "a"], "delay": 8')
    late = text.replace('"a"', '"b"').replace('"timestamp": 0', '"timestamp": 50')
    load = read_as(tmp_path, joined + late + text, "block_size: 512", "{type: trace_timestamps, speedup: 2}").workload
    assert load.session is not None
    assert load.session.tolist() == [0, 0, 0]
    assert load.wait_offsets is not None
    assert load.wait_offsets.tolist() == [0, 0, 0, 2], "a, b, c"
    columns = (load.wait_on, load.wait_delay_ns, load.wait_on_dispatch, load.not_before_ns)
    assert [None if x is None else x.tolist() for x in columns] == [
        *([1, 0], [4_000_000, 4_000_000], [0, 0]),
        [0, 25_000_000, 0],
    ]


def test_strict_is_passed_on(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="line 2: bad_json"):
        read_as(tmp_path, PLAIN.split("\n")[0] + "\nx\n", "strict: true", "{type: trace_timestamps}")


def test_shaping_comes_before_load_and_stands_in_the_lineage(tmp_path: Path) -> None:
    shape = "shape: [{type: slice_rows, end: 2}, {type: merge, path: t, offset_seconds: 1}]"
    found = read_as(tmp_path, PLAIN, shape, "{type: trace_timestamps, speedup: 2}")
    assert found.workload.arrival_ns.tolist() == [0, 50_000_000, 500_000_000, 550_000_000, 650_000_000]
    assert [each["requests_after"] for each in found.provenance["lineage"]["shape"]] == [2, 5]
    assert found.request_id.tolist() == [0, 1, 3, 4, 5]
    plain = read_as(tmp_path, PLAIN, "format: mooncake", "{type: trace_timestamps}")
    assert found.provenance["digest"] != plain.provenance["digest"]
    assert "shape" not in plain.provenance["lineage"]


def test_a_prepared_trace_replays_as_its_source(tmp_path: Path) -> None:
    from assets.ingest.ingest import ingest

    (tmp_path / "t").write_text(SESSIONS + PLAIN + "x\n")
    plain = read_as(tmp_path, SESSIONS + PLAIN + "x\n", "format: mooncake", "{type: trace_timestamps}")
    ingest(tmp_path / "t", tmp_path / "t.trace")
    values = {"engine": {"workers": {"aggregated": {"timing": {"type": "polynomial"}}}}}
    traffic = "traffic={source: {type: trace, path: t.trace}, load: {type: trace_timestamps}}"
    prepared = prepare(load_run_config(values, overrides=[traffic]), base=tmp_path)
    for name in ("arrival_ns", "prompt_tokens", "output_tokens", "hash_offsets", "hash_ids", "session", "delay_ns"):
        assert getattr(prepared.workload, name).tolist() == getattr(plain.workload, name).tolist(), name
    assert prepared.quarantine == plain.quarantine
    assert prepared.external_id == plain.external_id
    assert prepared.provenance["digest"] == plain.provenance["digest"]
