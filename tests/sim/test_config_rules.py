"""Rules over several fields, profile by profile."""

from __future__ import annotations

from typing import Any

import pytest

from sim.config import ConfigError, load_run_config

WORKER = "engine.workers.aggregated"


def config(*overrides: str, **top: Any):  # type: ignore[no-untyped-def]
    values = {"engine": {"workers": {"aggregated": {"timing": {"type": "polynomial"}}}}, **top}
    return load_run_config(values, overrides=overrides, source="c")


def refused(*overrides: str) -> str:
    with pytest.raises(ConfigError) as error:
        config(*overrides)
    return str(error.value)


def test_vllm_refuses_a_budget_below_the_batch_and_parity_warns() -> None:
    overrides = (f"{WORKER}.scheduler.max_batched_tokens=8", f"{WORKER}.scheduler.max_sequences=16")
    said = refused(*overrides)
    assert f"{WORKER}.scheduler.max_batched_tokens=8: is below {WORKER}.scheduler.max_sequences=16" in said
    assert "profile: parity" in said
    warned = config(*overrides, "profile=parity").warnings
    assert any("max_batched_tokens=8 is below max_sequences=16" in each for each in warned)


def test_vllm_refuses_unchunked_prefill_with_a_budget_below_the_context() -> None:
    overrides = (f"{WORKER}.scheduler.chunked_prefill=false", "engine.context_length=9000")
    assert "raise it to 9000 or more, or turn chunked_prefill on" in refused(*overrides)
    config(*overrides, "profile=parity")
    config(f"{WORKER}.scheduler.chunked_prefill=false", "engine.context_length=8192")


def test_vllm_refuses_fifo() -> None:
    override = f"{WORKER}.scheduler.preemption_mode=fifo"
    assert "use lifo, or profile: parity" in refused(override)
    assert config(override, "profile=parity").engine_spec().preemption == "fifo"


def test_vllm_starts_only_if_one_whole_sequence_fits_the_pool() -> None:
    overrides = (f"{WORKER}.kv_cache.capacity={{type: fixed, blocks: 100}}", f"{WORKER}.kv_cache.block_size=16")
    said = refused(*overrides, "engine.context_length=1601")
    assert "takes 101 blocks of 16; raise blocks or lower context_length to 1600" in said
    config(*overrides, "engine.context_length=1600")  # a pool of exactly the needed size serves
    config(*overrides, "engine.context_length=1601", "profile=parity")


@pytest.mark.parametrize("field", ["watermark=0.1", "reserve_full_isl=true", "boundary_arrivals=after"])
def test_vllms_own_options_exist_only_there(field: str) -> None:
    override = f"{WORKER}.scheduler.{field}"
    config(override)
    assert "exists only with profile: vllm; remove it" in refused(override, "profile=parity")


def test_one_kind_of_limit() -> None:
    assert "stands alone" in refused("evaluation.sla={ttft_ms: 1, itl_ms: 1, e2e_ms: 1}")
    assert "must be greater than 0" in refused("evaluation.sla={ttft_ms: 0}")
    assert config("evaluation.sla={e2e_ms: 3000}").sla.e2e_ms == 3000
    assert config().sla is None
    assert config("evaluation.sla={}").sla is None


SYNTHETIC, SESSION, TRACE = "{type: synthetic}", "{type: synthetic-session}", "{type: trace, path: t.jsonl}"


@pytest.mark.parametrize(
    ("source", "load", "stop", "said"),
    [
        (SYNTHETIC, "{type: trace_timestamps}", "{requests: 1}", "source synthetic has no timestamps"),
        (SYNTHETIC, "{type: poisson}", "{requests: 1}", "traffic.load.requests_per_second: required for load poisson"),
        (SESSION, "{type: poisson}", "{sessions: 1}", "traffic.load.sessions_per_second: required"),
        (SESSION, "{type: poisson, requests_per_second: 1}", "{sessions: 1}", "use traffic.load.sessions_per_second"),
        (
            SYNTHETIC,
            "{type: gamma, sessions_per_second: 1, shape: 2}",
            "{requests: 1}",
            "use traffic.load.requests_per_second",
        ),
        (TRACE, "{type: poisson, requests_per_second: 1, sessions_per_second: 1}", "{}", "not both"),
        (SYNTHETIC, "{type: constant_rate, requests_per_second: 0}", "{requests: 1}", "requests_per_second=0"),
        (SYNTHETIC, "{type: constant_rate, requests_per_second: .inf}", "{requests: 1}", "write a finite number"),
        (
            SYNTHETIC,
            "{type: constant_rate, requests_per_second: 1e-310}",
            "{requests: 1}",
            "requests_per_second=1e-310",
        ),
        (SYNTHETIC, "{type: burst}", "{}", "a synthetic source never ends by itself"),
        (SESSION, "{type: burst}", "{requests: 5}", "source synthetic-session counts in sessions"),
        (SYNTHETIC, "{type: burst}", "{sessions: 5}", "source synthetic counts in requests"),
        (SYNTHETIC, "{type: burst}", "{requests: 1, requests_per_load_unit: 1}", "not both"),
        (SYNTHETIC, "{type: burst}", "{requests_per_load_unit: 1}", "load burst has no unit to multiply"),
        (TRACE, "{type: trace_timestamps}", "{requests_per_load_unit: 1}", "load trace_timestamps has no unit"),
        (SYNTHETIC, "{type: concurrency, concurrency: 8}", "{requests_per_load_unit: 1e12}", "than a run can number"),
        ("{type: trace}", "{type: burst}", "{}", "traffic.source.path: required for type: trace"),
        ("{type: trace, path: a, paths: [b]}", "{type: burst}", "{}", "give either path or paths"),
        ("{type: trace, paths: [a, b]}", "{type: burst}", "{}", "one file only"),
        ("{type: trace, path: a, format: wakame}", "{type: burst}", "{}", "use one of mooncake, mooncake-delta, "),
        ("{type: trace, path: a, format: azure, time_unit: s}", "{type: burst}", "{}", "belongs to formats csv, jsonl"),
        ("{type: trace, path: a, time_unit: s}", "{type: burst}", "{}", "add columns or format"),
        ("{type: trace, path: a, columns: {arrived: t}}", "{type: burst}", "{}", "did you mean arrival?"),
        (
            "{type: trace, path: a, format: vidur, nested_timestamp_basis: relative}",
            "{type: burst}",
            "{}",
            "belongs to format weka",
        ),
        (
            "{type: synthetic, shared_prefix_ratio: 0.5}",
            "{type: burst}",
            "{requests: 1}",
            "prefix_groups=0: must be 1 or more",
        ),
        (
            "{type: synthetic, shared_prefix_ratio: 1.5}",
            "{type: burst}",
            "{requests: 1}",
            "must be less than or equal to 1",
        ),
        (
            "{type: synthetic, output_tokens: 0}",
            "{type: burst}",
            "{requests: 1}",
            "vLLM refuses requests for no tokens",
        ),
        (
            "{type: synthetic-session, turns_per_session: 1}",
            "{type: burst}",
            "{sessions: 1}",
            "greater than or equal to 2",
        ),
        (
            "{type: synthetic-session, turns_per_session: 2, session: {turns: 3}}",
            "{type: burst}",
            "{sessions: 1}",
            "not in both",
        ),
        (
            "{type: synthetic, images: {height: 1, width: 1}}",
            "{type: burst}",
            "{requests: 1}",
            "images are not modelled",
        ),
    ],
)
def test_source_load_and_stop_fit_together(source: str, load: str, stop: str, said: str) -> None:
    assert said in refused(f"traffic={{source: {source}, load: {load}, stop: {stop}}}")


@pytest.mark.parametrize(
    ("source", "load", "stop", "count"),
    [
        (SYNTHETIC, "{type: concurrency, concurrency: 8}", "{requests_per_load_unit: 2.5}", 20),
        (SYNTHETIC, "{type: poisson, requests_per_second: 0.1}", "{requests_per_load_unit: 1}", 1),
        (SESSION, "{type: constant_rate, sessions_per_second: 3}", "{sessions_per_load_unit: 4}", 12),
        (TRACE, "{type: trace_timestamps}", "{}", None),
        (TRACE, "{type: concurrency, concurrency: 4}", "{requests: 7}", 7),
    ],
)
def test_how_many(source: str, load: str, stop: str, count: int | None) -> None:
    """Rule 2.3: max(1, round(count per load unit x load unit))."""
    assert config(f"traffic={{source: {source}, load: {load}, stop: {stop}}}").traffic.count == count


def test_two_spellings_of_a_session_are_one() -> None:
    flat = "{type: synthetic-session, turns_per_session: 3, inter_turn_delay_ms: 5}"
    nested = "{type: synthetic-session, session: {turns: 3, inter_turn_delay_ms: 5}}"
    one, other = (
        config(f"traffic={{source: {each}, load: {{type: burst}}, stop: {{sessions: 2}}}}") for each in (flat, nested)
    )
    assert one.canonical() == other.canonical()
    assert other.traffic.source.shape["turns_per_session"] == 3


def test_zero_output_follows_the_profile() -> None:
    assert config().zero_output == "refuse"
    assert config("profile=parity").zero_output == "prefill_only"
    assert config("traffic.zero_output=quarantine").zero_output == "quarantine"
    zero = "traffic={source: {type: synthetic, output_tokens: 0}, load: {type: burst}, stop: {requests: 1}}"
    config(zero, "traffic.zero_output=prefill_only")
    config(zero, "profile=parity")
