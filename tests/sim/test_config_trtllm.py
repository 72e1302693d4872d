"""Backend trtllm: its defaults, and vLLM's options refused by name."""

from dataclasses import replace

import pytest

from sim.config import ConfigError, load_run_config
from sim.spec import EngineSpec, PolynomialTiming

TRTLLM = {"engine": {"backend": "trtllm", "workers": {"aggregated": {"timing": {"type": "polynomial"}}}}}


def test_the_backend_brings_its_profile_and_its_block_size() -> None:
    spec = load_run_config(TRTLLM).engine_spec()
    assert spec == EngineSpec(profile="trtllm", block_tokens=32, async_scheduling=False, timing=PolynomialTiming())


def test_its_capacity_policies() -> None:
    named = load_run_config(
        TRTLLM, overrides=["engine.workers.aggregated.scheduler.capacity_policy=guaranteed_no_evict"]
    )
    assert named.engine_spec() == load_run_config(TRTLLM).engine_spec()
    assert named.canonical() == load_run_config(TRTLLM).canonical()
    other = load_run_config(TRTLLM, overrides=["engine.workers.aggregated.scheduler.capacity_policy=max_utilization"])
    assert other.engine_spec() == replace(named.engine_spec(), capacity_policy="max_utilization")
    assert other.canonical() != named.canonical()


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("scheduler.async_scheduling=true", "TensorRT-LLM's own overlap is not modelled"),
        ("scheduler.async_scheduling=false", "TensorRT-LLM's own overlap is not modelled"),
        ("scheduler.prefill_schedule_interval=2", "only with backend: vllm"),
        ("scheduler.preemption_mode=lifo", "never preempts"),
        ("scheduler.watermark=0.1", "only with profile: vllm"),
        ("scheduler.capacity_policy=static_batch", "only guaranteed_no_evict and max_utilization are modelled"),
    ],
)
def test_what_it_has_no_counterpart_for_is_refused_by_name(override: str, said: str) -> None:
    field = f"engine.workers.aggregated.{override}"
    with pytest.raises(ConfigError, match=said) as error:
        load_run_config(TRTLLM, overrides=[field])
    assert f"  {field.partition('=')[0]}=" in str(error.value)


@pytest.mark.parametrize("profile", ["vllm", "parity"])
def test_profiles_of_vllm_do_not_go_with_it(profile: str) -> None:
    with pytest.raises(ConfigError, match=f"profile='{profile}': use trtllm, or leave it out"):
        load_run_config(TRTLLM, overrides=[f"profile={profile}"])


def test_nor_its_profile_and_policy_with_vllm() -> None:
    with pytest.raises(ConfigError, match=r"profile='trtllm': goes with engine.backend: trtllm"):
        load_run_config(TRTLLM, overrides=["engine.backend=vllm", "profile=trtllm"])
    with pytest.raises(ConfigError, match="exists only with backend: trtllm; remove it"):
        load_run_config(
            TRTLLM,
            overrides=[
                "engine.backend=vllm",
                "engine.workers.aggregated.scheduler.capacity_policy=guaranteed_no_evict",
            ],
        )
