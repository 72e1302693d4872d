"""A configuration answers back: every fault at once, each with field, value, what is allowed and what to do."""

from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from sim.config import ConfigError, load_run_config
from sim.spec import EngineSpec, FixedTiming, PolynomialTiming

FIXED = {"type": "fixed", "prefill_ms": 10, "decode_ms": 3}


def minimal(**worker: Any) -> dict[str, Any]:
    """The shortest configuration: timing is the one thing without a default."""
    return {"engine": {"workers": {"aggregated": {"timing": FIXED, **worker}}}}


def lines(values: dict[str, Any], *overrides: str) -> list[str]:
    """The error's lines after the head."""
    with pytest.raises(ConfigError) as error:
        load_run_config(values, overrides=overrides, source="run.yaml")
    head, *rest = str(error.value).splitlines()
    assert head == f"run.yaml: {len(rest)} problem(s)"
    return [line.removeprefix("  ") for line in rest]


def test_defaults_are_those_of_the_specification() -> None:
    config = load_run_config(minimal())
    assert config.engine_spec() == EngineSpec(
        profile="vllm",
        timing=FixedTiming(10.0, 3.0),
        workers=1,
        dp=1,
        block_tokens=64,
        blocks=16384,
        max_num_seqs=256,
        max_batched_tokens=8192,
        max_model_len=None,
        prefix_caching=True,
        chunked_prefill=True,
        async_scheduling=True,
        preemption="lifo",
        prefill_schedule_interval=1,
        watermark=0.0,
        reserve_full_isl=True,
        speedup_ratio=1.0,
        decode_speedup_ratio=1.0,
        stop_ns=None,
    )
    assert config.seed == 42
    assert config.traffic.count == 100
    assert config.traffic.load_unit == 10


def test_every_field_reaches_the_engine() -> None:
    values = {
        "profile": "vllm",
        "traffic": {
            "source": {"type": "synthetic"},
            "load": {"type": "burst"},
            "stop": {"requests": 5, "max_virtual_time_seconds": 1.5},
        },
        "engine": {
            "context_length": 4096,
            "workers": {
                "aggregated": {
                    "parallelism": {"replicas": 2, "attention_data": 4, "tensor": 8},
                    "scheduler": {
                        "max_batched_tokens": 512,
                        "max_sequences": 16,
                        "async_scheduling": False,
                        "prefill_schedule_interval": 3,
                        "chunked_prefill": True,
                        "preemption_mode": "lifo",
                        "watermark": 0.01,
                        "reserve_full_isl": False,
                        "boundary_arrivals": "after",
                    },
                    "kv_cache": {
                        "block_size": 16,
                        "prefix_caching": False,
                        "capacity": {"type": "fixed", "blocks": 999},
                    },
                    "timing": {"type": "polynomial"},
                    "speedups": {"speedup_ratio": 2, "decode_speedup_ratio": 0},
                }
            },
        },
    }
    config = load_run_config(values)
    assert config.engine_spec() == EngineSpec(
        timing=PolynomialTiming(),
        workers=2,
        dp=4,
        block_tokens=16,
        blocks=999,
        max_num_seqs=16,
        max_batched_tokens=512,
        max_model_len=4096,
        prefix_caching=False,
        async_scheduling=False,
        prefill_schedule_interval=3,
        watermark=0.01,
        reserve_full_isl=False,
        boundary_arrivals="after",
        speedup_ratio=2.0,
        decode_speedup_ratio=0.0,
        stop_ns=1_500_000_000,
    )
    assert config.gpus_per_worker == 32


def test_every_fault_in_one_message() -> None:
    values = minimal(
        scheduler={"max_batched_tokens": "8192", "max_sequences": 0, "preemption_mode": "x"},
        kv_cache={"block_sise": 16, "capacity": {"type": "fixed", "blocks": True}},
    )
    values["engine"]["backend"] = "sglang"
    values["profile"] = "vlm"
    assert lines(values) == [
        "profile='vlm': not one of the allowed values; use 'vllm', 'parity' or 'trtllm'",
        "engine.backend='sglang': this backend is not available yet; use backend: vllm or trtllm",
        "engine.workers.aggregated.scheduler.max_batched_tokens='8192': write a whole number",
        "engine.workers.aggregated.scheduler.max_sequences=0: must be greater than 0",
        "engine.workers.aggregated.scheduler.preemption_mode='x': not one of the allowed values; use 'lifo' or 'fifo'",
        "engine.workers.aggregated.kv_cache.capacity.blocks=True: write a whole number",
        "engine.workers.aggregated.kv_cache.block_sise=16: unknown field; did you mean block_size?",
    ]


def test_plain_faults_and_joined_rules_are_reported_together() -> None:
    values = minimal(scheduler={"max_batched_tokens": 8, "max_sequences": 16})
    values["engine"]["workers"]["aggregated"]["timing"] = {"type": "fixed", "prefill_ms": -1, "decode_ms": 3}
    found = lines(values)
    assert len(found) == 2
    assert found[0] == "engine.workers.aggregated.timing.prefill_ms=-1: must be greater than or equal to 0"
    assert "raise it to 16 or more" in found[1]


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("async_scheduling", 1, "write true or false"),
        ("async_scheduling", 0, "write true or false"),
        ("async_scheduling", "true", "write true or false"),
        ("async_scheduling", 1.0, "write true or false"),
        ("chunked_prefill", 1, "write true or false"),
        ("max_sequences", 4.0, "write a whole number"),
        ("max_sequences", True, "write a whole number"),
        ("max_sequences", None, "write a whole number"),
        ("max_sequences", 2**31, "must be less than or equal to 2147483647"),
        ("watermark", 1.0, "must be less than 1"),
        ("watermark", float("nan"), "write a finite number"),
        ("prefill_schedule_interval", 0, "must be greater than 0"),
        ("prefill_decode_interval", 2, "use prefill_schedule_interval"),
        ("boundary_arrivals", "during", "use 'before' or 'after'"),
    ],
)
def test_scheduler_values_are_never_coerced(path: str, value: Any, said: str) -> None:
    (found,) = lines(minimal(scheduler={path: value}))
    assert found.startswith(f"engine.workers.aggregated.scheduler.{path}=")
    assert said in found


@pytest.mark.parametrize("value", [None, True])
def test_asynchronous_scheduling_is_on_unless_switched_off(value: bool | None) -> None:
    """Rule 6.3: unset and null mean the backend's default."""
    assert load_run_config(minimal(scheduler={"async_scheduling": value})).engine_spec().async_scheduling
    assert not load_run_config(minimal(scheduler={"async_scheduling": False})).engine_spec().async_scheduling


def test_null_capacity_is_an_error_and_no_capacity_is_the_default() -> None:
    (found,) = lines(minimal(kv_cache={"capacity": None}))
    assert found.startswith("engine.workers.aggregated.kv_cache.capacity=None: null is not the default")
    assert load_run_config(minimal(kv_cache={})).engine_spec().blocks == 16384


@pytest.mark.parametrize(
    ("capacity", "said"),
    [
        ({"type": "fixed"}, "capacity.blocks: required; add it"),
        ({"blocks": 5}, "capacity.type: required; add it"),
        ({"type": "fixd", "blocks": 5}, "capacity.type='fixd': not one of the allowed values; use 'fixed', 'default'"),
        (
            {"type": "fixed", "blocks": 5, "memory_fraction": 0.9},
            "capacity.memory_fraction=0.9: type: fixed takes blocks",
        ),
    ],
)
def test_capacity(capacity: dict[str, Any], said: str) -> None:
    (found,) = lines(minimal(kv_cache={"capacity": capacity}))
    assert said in found


def test_the_field_is_named_as_the_user_wrote_it_even_where_a_type_bears_its_name() -> None:
    values = minimal()
    values["traffic"] = {
        "source": {"type": "synthetic"},
        "load": {"type": "concurrency", "concurrency": "x", "speedup": 2},
        "stop": {"requests": 1},
    }
    assert lines(values) == [
        "traffic.load.concurrency='x': write a whole number",
        "traffic.load.speedup=2: unknown field; remove it, or use one of: type, concurrency",
    ]


def test_an_unknown_type_names_the_known_ones() -> None:
    values = minimal()
    values["traffic"] = {"source": {"type": "live"}, "load": {"type": "concurrency"}, "stop": {"requests": 1}}
    assert lines(values) == [
        "traffic.source.type='live': not one of the allowed values; use 'synthetic', 'synthetic-session', 'trace'"
    ]


def test_a_given_traffic_section_replaces_the_default() -> None:
    values = minimal()
    values["traffic"] = {"source": {"type": "synthetic"}}
    assert lines(values) == [
        "traffic.load: required; add it",
        "traffic.stop.requests: required: a synthetic source never ends by itself; add it",
    ]


def test_canonical_is_json_without_what_changes_nothing() -> None:
    values = minimal()
    values |= {"name": "a", "output": "out"}
    values["engine"] |= {"estimation_mode": "op_level", "fallback_policy": "deny", "database_mode": "SILICON"}
    plain = load_run_config(minimal()).canonical()
    assert load_run_config(values).canonical() == plain
    assert json.loads(json.dumps(plain, allow_nan=False)) == plain
    assert plain["engine"]["workers"]["aggregated"]["scheduler"]["async_scheduling"] is True
    assert plain["engine"]["workers"]["aggregated"]["kv_cache"]["capacity"]["blocks"] == 16384


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("engine.context_length=max", "engine.context_length=40960"),
        (
            "engine.workers.aggregated.scheduler.async_scheduling=null",
            "engine.workers.aggregated.scheduler.async_scheduling=true",
        ),
        ("engine.workers.aggregated.timing.prefill_ms=10.0", "engine.workers.aggregated.timing.prefill_ms=10"),
        ("traffic.zero_output=refuse", "traffic.zero_output=null"),
    ],
)
def test_canonical_is_equal_for_spellings_of_one_thing(one: str, other: str) -> None:
    values = minimal()
    values["engine"]["model"] = "Qwen/Qwen3-32B"
    assert (
        load_run_config(values, overrides=[one]).canonical() == load_run_config(values, overrides=[other]).canonical()
    )


@pytest.mark.parametrize(
    "override",
    ["seed=1", "profile=parity", "engine.model=x", "engine.hardware=x", "engine.workers.aggregated.timing.decode_ms=4"],
)
def test_canonical_differs_where_the_run_does(override: str) -> None:
    assert load_run_config(minimal(), overrides=[override]).canonical() != load_run_config(minimal()).canonical()


def test_nothing_changes_after_loading() -> None:
    values = minimal()
    before = deepcopy(values)
    config = load_run_config(values, overrides=["seed=7"])
    assert values == before
    with pytest.raises(ValueError, match="frozen"):
        config.seed = 8  # type: ignore[misc]


def test_model_limits() -> None:
    values = minimal()
    values["engine"] |= {"context_length": "max", "model": "meta-llama/Llama-3.1-8B-Instruct"}
    assert load_run_config(values).max_model_len == 131072
    values["engine"]["model"] = "acme/Unheard-Of"
    assert lines(values) == [
        "engine.context_length='max': the limit of engine.model='acme/Unheard-Of' is not known here; give a number"
    ]
    del values["engine"]["model"]
    assert "name the model or give a number" in lines(values)[0]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "expected sections such as traffic: and engine:"),
        ("- a\n- b\n", "expected sections"),
        ("a: [1\n", "not readable as YAML"),
        ("seed: 1\nseed: 2\n", "'seed' is given twice"),
        ("seed: 010\n", "010 is read as a number to another base; write 10"),
        ("seed: 1:30\n", "1:30 is read as a number to another base; write it out"),
        ("name: last\n", "means the latest run in commands; choose another name"),
        (
            "engine:\n  workers:\n    aggregated: {timing: {type: polynomial}, timing: {type: polynomial}}\n",
            "given twice",
        ),
    ],
)
def test_files_that_are_no_configuration(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "run.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=said):
        load_run_config(file)


def test_a_missing_file_and_a_folder(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"absent\.yaml: no such file"):
        load_run_config(tmp_path / "absent.yaml")
    with pytest.raises(ConfigError, match="cannot be read"):
        load_run_config(tmp_path)


def test_exponents_are_numbers(tmp_path: Path) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("engine: {workers: {aggregated: {timing: {type: fixed, prefill_ms: 1e1, decode_ms: 2.5e-1}}}}\n")
    assert load_run_config(file).engine_spec().timing == FixedTiming(10.0, 0.25)
