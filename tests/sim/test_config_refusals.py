"""Prediction files that people already have: run where we model what they ask for, refused by name where we do not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sim.config import ConfigError, load_run_config

EXAMPLES = Path(__file__).parents[2] / "examples"

# A file as found in the wild, with every field spelled out.
FOUND: dict[str, Any] = {
    "traffic": {
        "source": {"type": "synthetic", "input_tokens": 1024, "output_tokens": 128},
        "load": {"type": "concurrency", "concurrency": 64},
        "stop": {"requests": 64},
    },
    "engine": {
        "mode": "aggregated",
        "model": "Qwen/Qwen3-32B",
        "hardware": "b200_sxm",
        "backend": "vllm",
        "backend_version": "0.24.0",
        "estimation_mode": "op_level",
        "fallback_policy": "deny",
        "context_length": "max",
        "workers": {
            "aggregated": {
                "parallelism": {
                    "replicas": 1,
                    "tensor": 4,
                    "pipeline": 1,
                    "attention_data": 1,
                    "moe_tensor": 1,
                    "moe_expert": 1,
                },
                "scheduler": {"max_batched_tokens": 8192, "max_sequences": 256},
                "kv_cache": {
                    "block_size": 64,
                    "prefix_caching": True,
                    "bytes_per_token": "auto",
                    "capacity": {"type": "fixed", "blocks": 16384, "cuda_graph_reserved_bytes": 0},
                },
                "timing": {"type": "fixed", "prefill_ms": 1, "decode_ms": 1},
                "startup_seconds": 0,
            }
        },
    },
    "router": {"policy": "round_robin", "prefill_load_model": {"type": "none"}},
    "planner": {"policy": "disabled"},
    "evaluation": {"sla": {"ttft_ms": 500, "itl_ms": 50}},
}


def test_a_file_that_asks_for_nothing_we_lack_runs_unchanged() -> None:
    config = load_run_config(FOUND)
    assert config.max_model_len == 40960
    assert config.sla is not None
    assert config.sla.ttft_ms == 500


@pytest.mark.parametrize(
    ("override", "field", "said"),
    [
        (
            "engine.workers.aggregated.timing={type: default, forward_model: fpm}",
            "engine.workers.aggregated.timing.forward_model",
            "not one of the allowed values; use 'op_level', 'fpm_interpolation', 'fpm_regression' or 'auto'",
        ),
        (
            "engine.workers.aggregated.timing={type: default, forward_model: auto}",
            "engine.workers.aggregated.timing.forward_model",
            "contradicts engine.estimation_mode='op_level'",
        ),
        (
            "engine.workers.aggregated.timing={type: default, factors: {gemm: 0}}",
            "engine.workers.aggregated.timing.factors.gemm",
            "greater than 0",
        ),
        (
            "engine.workers.aggregated.timing={type: default, factors: {gemm: 1e308}}",
            "engine.workers.aggregated.timing.factors.gemm",
            "less than or equal to 1000000",
        ),
        (
            "engine.workers.aggregated.kv_cache.bytes_per_token=9000000000000000000",
            "kv_cache.bytes_per_token",
            "write a whole number from 1 to 2,147,483,647, or auto",
        ),
        ("engine.context_length=0", "engine.context_length", "write a whole number from 1 to 2,147,483,647, or max"),
        (
            "engine.workers.aggregated.timing={type: default, strict: {max_extrapolated_share: 2}}",
            "engine.workers.aggregated.timing.strict.max_extrapolated_share",
            "less than or equal to 1",
        ),
        ("engine.kv_transfer={bandwidth_gb_per_second: 400}", "engine.kv_transfer", "remove it"),
        ("engine.backend=sglang", "engine.backend", "use backend: vllm"),
        ("engine.decoder_replay=true", "engine.decoder_replay", "give speculation or nextn"),
        ("engine.database_mode=HYBRID", "engine.database_mode", "remove it"),
        ("engine.fallback_policy=allow", "engine.fallback_policy", "remove it"),
        ("engine.estimation_mode=magic", "engine.estimation_mode", "not one of the allowed values"),
        ("engine.tokenization={workers: 2}", "engine.tokenization", "unknown field; remove it"),
        ("engine.workers.aggregated.kv_cache.host_offload={num_host_blocks: 1}", "kv_cache.host_offload", "remove it"),
        ("engine.workers.aggregated.kv_cache.capacity={type: default, bytes: 5}", "capacity.bytes", "in blocks"),
        (
            "engine.workers.aggregated.kv_cache.capacity={type: default, memory_fraction: 1.2}",
            "capacity.memory_fraction",
            "less than or equal to 1",
        ),
        ("engine.workers.aggregated.parallelism.pipeline=2", "parallelism.pipeline", "use 1"),
        ("engine.workers.aggregated.startup_seconds=30", "startup_seconds", "use 0"),
        ("router.policy=random", "router.policy", "use round_robin or kv_aware"),
        ("router={policy: kv_aware, temperature: 0.5}", "router.temperature", "the least cost wins; use 0"),
        ("router={policy: kv_aware, overlap_credit: 1.5}", "router.overlap_credit", "less than or equal to 1"),
        ("router={policy: kv_router, prefill_load_scale: -1}", "router.prefill_load_scale", "than or equal to 0"),
        ("router.overlap_credit=0.5", "router.overlap_credit", "of no use to policy: round_robin"),
        ("router.prefill_load_scale=2", "router.prefill_load_scale", "remove it, or use kv_aware"),
        ("router.prefill_load_model={type: aic}", "router.prefill_load_model", "by their tokens; remove it"),
        ("planner.policy=enabled", "planner.policy", "use disabled"),
        ("optimization={target: throughput}", "optimization", "a search is not a run"),
    ],
)
def test_what_we_lack_is_refused_by_name_and_with_a_remedy(override: str, field: str, said: str) -> None:
    with pytest.raises(ConfigError) as error:
        load_run_config(FOUND, overrides=[override])
    (line,) = str(error.value).splitlines()[1:]
    assert field in line.partition(":")[0]
    assert said in line


@pytest.mark.parametrize(
    "override",
    [
        "engine.nextn=0",
        "engine.database_mode=SILICON",
        "engine.enable_shared_layer=true",
        "engine.estimation_mode=auto",
        "engine.speculation=null",
        "engine.workers.aggregated.kv_cache.bytes_per_token=160",
        "engine.workers.aggregated.kv_cache.host_offload=null",
        "router.prefill_load_model=none",
        "router.temperature=0",
    ],
)
def test_what_means_nothing_here_is_accepted(override: str) -> None:
    assert load_run_config(FOUND, overrides=[override]).engine_spec() == load_run_config(FOUND).engine_spec()


@pytest.mark.parametrize(
    ("mode", "setting"),
    [
        ("fpm_regression", "data_version=0.12.0"),
        ("fpm_regression", "perf_root=data"),
        ("fpm_regression", "strict={max_octaves: 0}"),
        ("fpm_interpolation", "data_version=0.12.0"),
        ("op_level", "fpm_cell=one"),
        ("auto", "fpm_cell=one"),
    ],
)
def test_a_setting_of_another_estimator_is_refused(mode: str, setting: str) -> None:
    name = setting.partition("=")[0]
    file = {"fpm_regression": "fpm_jsonl_path=f", "fpm_interpolation": "fpm_parquet_path=f"}.get(mode)
    settings = ", ".join(part.replace("=", ": ", 1) for part in (setting, file) if part)
    overrides = [f"engine.estimation_mode={mode}", f"engine.workers.aggregated.timing={{type: default, {settings}}}"]
    shown = "op_level" if mode == "auto" else mode
    with pytest.raises(ConfigError, match=rf"timing\.{name}(=.*)?: of no use to estimation_mode: {shown}; remove it"):
        load_run_config(FOUND, overrides=overrides)


@pytest.mark.parametrize(
    ("mode", "file"), [("fpm_interpolation", "fpm_parquet_path"), ("fpm_regression", "fpm_jsonl_path")]
)
def test_whole_forward_estimators_need_their_file_and_know_neither_drafts_nor_operators(mode: str, file: str) -> None:
    overrides = [f"engine.estimation_mode={mode}", "engine.workers.aggregated.timing={type: default}"]
    with pytest.raises(ConfigError, match=rf"timing\.{file}: required by estimation_mode: {mode}; name the file"):
        load_run_config(FOUND, overrides=overrides)
    overrides[1] = f"engine.workers.aggregated.timing={{type: default, {file}: x, factors: {{gemm: 2}}}}"
    with pytest.raises(ConfigError, match=f"{mode} has no operators; remove them"):
        load_run_config(FOUND, overrides=overrides)


@pytest.mark.parametrize("asker", ["timing", "kv_cache.capacity"])
def test_prices_and_memory_from_data_need_a_model_and_its_hardware(asker: str) -> None:
    overrides = [f"engine.workers.aggregated.{asker}={{type: default}}", "engine.model=null", "engine.hardware=null"]
    with pytest.raises(ConfigError) as error:
        load_run_config(FOUND, overrides=[*overrides, "engine.context_length=4096"])
    first, second = str(error.value).splitlines()[1:]
    assert f"engine.model: required by {asker.split('.')[-1]}.type: default" in first.replace("kv_cache.", "")
    assert "engine.hardware: required by" in second


def test_a_file_without_timing_is_told_what_there_is() -> None:
    with pytest.raises(ConfigError, match=r"timing: required; use \{type: default\} .* fixed\|polynomial\|table"):
        load_run_config({"engine": {"workers": {"aggregated": {}}}})


# What each reference workload needs that is not there yet; an empty set runs.
REFERENCE = {
    "dense-vllm": set(),
    "dense-trtllm": set(),
    "vllm-c256-fixed": set(),
    "pd-vllm": set(),
    "mla-dp8": set(),
    "mtp-vllm": set(),
}


def test_the_six_reference_workloads_ship() -> None:
    assert {path.stem for path in (EXAMPLES / "reference").glob("*.yaml")} == set(REFERENCE)


@pytest.mark.parametrize("name", sorted(REFERENCE))
def test_a_reference_workload_runs_or_names_what_it_needs(name: str) -> None:
    try:
        load_run_config(EXAMPLES / "reference" / f"{name}.yaml")
        refused: set[str] = set()
    except ConfigError as error:
        refused = {line.strip().partition("=")[0].partition(": ")[0] for line in str(error).splitlines()[1:]}
    assert refused == REFERENCE[name]


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_our_own_examples_load_without_a_word(path: Path) -> None:
    config = load_run_config(path)
    assert config.name == path.stem
    assert config.warnings == ()


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("dense-vllm", {"engine.workers.aggregated.timing={type: polynomial}"}),
        ("mla-dp8", {"engine.workers.aggregated.timing={type: polynomial}"}),
        ("mtp-vllm", {"engine.workers.aggregated.timing={type: polynomial}"}),
    ],
)
def test_following_the_remedy_helps(name: str, changes: set[str]) -> None:
    load_run_config(EXAMPLES / "reference" / f"{name}.yaml", overrides=sorted(changes))
