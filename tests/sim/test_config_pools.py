"""`engine.mode: disaggregated`: two roles, what they share, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from assets.pricing import price_deployment
from sim.config import ConfigError, load_run_config
from sim.models import MAX_CONTEXT_TOKENS, layers_of
from sim.spec import Routing, Speculation

FIXED = {"type": "fixed", "prefill_ms": 10, "decode_ms": 3}
AHEAD = {"timing": FIXED, "scheduler": {"async_scheduling": True}}


def pools(**engine: Any) -> dict[str, Any]:
    given = {"prefill": {"timing": FIXED}, "decode": {"timing": FIXED}}
    given |= engine.pop("workers", {})
    return {"engine": {"mode": "disaggregated", "workers": given, **engine}}


def faults_of(values: dict[str, Any]) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load_run_config(values)
    return [line.strip() for line in str(caught.value).splitlines()[1:]]


def test_each_role_is_a_configuration_of_its_own() -> None:
    decode = {"timing": FIXED, "parallelism": {"replicas": 2, "tensor": 4, "attention_data": 2}}
    config = load_run_config(pools(workers={"decode": decode}))
    prefill, other = (side.engine_spec() for side in config.sides)
    assert (prefill.workers, prefill.max_num_seqs, prefill.async_scheduling) == (1, 1, False)
    assert (other.workers, other.dp, other.max_num_seqs) == (2, 2, 256)
    assert config.gpus_per_worker == (1, 8)


def test_one_pool_is_one_side() -> None:
    config = load_run_config({"engine": {"workers": {"aggregated": {"timing": FIXED}}}})
    assert config.sides == (config,) and config.gpus_per_worker == 1


def test_transfers() -> None:
    given = {"bandwidth_gb_per_second": 400, "timing_mode": "full_prompt", "fallback_ms": 2.5}
    transfer = load_run_config(pools(kv_transfer=given)).transfer(1024.0)
    assert (transfer.bytes_per_second, transfer.missing_only, transfer.fallback_ns) == (400e9, False, 2_500_000)
    assert transfer.seconds(1000) == 1024 * 1000 / 400e9
    assert load_run_config(pools()).transfer(None).missing_only


def test_transfers_that_share_links_fail_or_come_too_late() -> None:
    given: dict[str, Any] = {
        "bandwidth_gb_per_second": 20,
        "links": "per_source",
        "sharing": "fair",
        "first_byte_ms": 0.5,
        "failure_rate": 0.1,
        "retries": 2,
    }
    given["overlap"] = {"layers": 61}
    config = load_run_config({**pools(kv_transfer={**given, "timeout_ms": 3}), "seed": 9})
    transfer = config.transfer(1024.0)
    assert (transfer.links, transfer.sharing, transfer.first_byte_ns) == ("per_source", "fair", 500_000)
    assert (transfer.failure_rate, transfer.retries, transfer.timeout_ns, transfer.seed) == (0.1, 2, 3_000_000, 9)
    assert transfer.layers == 61 and not transfer.plain
    assert not any("kv_transfer" in said for said in config.warnings)


def test_settings_that_ask_for_nothing_are_not_part_of_what_was_replayed() -> None:
    said = {"links": "none", "sharing": "fifo", "first_byte_ms": 0, "failure_rate": 0, "retries": 0, "timeout_ms": None}
    config = load_run_config(pools(kv_transfer={"bandwidth_gb_per_second": 20, **said}))
    plain = load_run_config(pools(kv_transfer={"bandwidth_gb_per_second": 20}))
    assert config.canonical() == plain.canonical() and config.transfer(1.0).plain
    fast = {"bandwidth_gb_per_second": 20, "sharing": "fair", "retries": 1}
    warned = load_run_config(pools(kv_transfer=fast)).warnings
    assert [text for text in warned if "kv_transfer" in text] == [
        "kv_transfer.sharing acts only where kv_transfer.links are shared",
        "kv_transfer.retries acts only with a failure_rate",
    ]


NO_RATE = "kv_transfer.bandwidth_gb_per_second is not set"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, f"transfers take no time: {NO_RATE}; give it, or kv_transfer.fallback_ms"),
        ({"first_byte_ms": 2}, f"transfers take kv_transfer.first_byte_ms and no more: {NO_RATE}; give it, or"),
        ({"fallback_ms": 0}, f"every transfer takes kv_transfer.fallback_ms=0: {NO_RATE}"),
        ({"fallback_ms": 3, "links": "shared"}, f"every transfer takes kv_transfer.fallback_ms=3: {NO_RATE}"),
    ],
)
def test_transfers_without_a_rate_are_told_of(given: dict[str, Any], said: str) -> None:
    for engine in ({"kv_transfer": given}, {} if not given else {"kv_transfer": given}):
        assert any(text.startswith(said) for text in load_run_config(pools(**engine)).warnings)


def test_no_more_layers_are_sent_than_the_model_has() -> None:
    def warned(layers: int, model: str) -> list[str]:
        transfer = {"bandwidth_gb_per_second": 20, "overlap": {"layers": layers}}
        config = load_run_config(pools(kv_transfer=transfer, model=model))
        return [said for said in config.warnings if "overlap.layers" in said]

    said = "kv_transfer.overlap.layers=65 is above the 64 layers of engine.model='Qwen/Qwen3-32B-FP8'"
    assert warned(65, "Qwen/Qwen3-32B-FP8") == [said]
    assert not warned(64, "Qwen/Qwen3-32B-FP8") and not warned(9000, "org/unknown")
    assert all(layers_of(model) for model in MAX_CONTEXT_TOKENS)


def test_placement() -> None:
    plain, given = load_run_config(pools()), {"local_prefill_tokens": 512}
    local = load_run_config(pools(conditional_disaggregation=given))
    assert (plain.local_prefill_tokens, local.local_prefill_tokens) == (None, 512)
    router = {"policy": "kv_router", "overlap_credit": 0.5}
    routed = load_run_config(pools() | {"router": router})
    assert routed.router.routing == Routing(0.5, 1.0)
    assert all(side.engine_spec().routing is None for side in routed.sides)
    spelt = load_run_config(pools() | {"router": router | {"policy": "kv_aware", "prefill_load_scale": 1}})
    assert spelt.canonical() == routed.canonical() != plain.canonical() != local.canonical()
    turns = load_run_config(pools() | {"router": {"policy": "round_robin"}})
    assert turns.canonical() == plain.canonical() and "router" not in plain.canonical()
    assert price_deployment(local, base=Path()).spec.local_prefill_tokens == 512
    assert price_deployment(routed, base=Path()).spec.routing == Routing(0.5, 1.0)


def test_both_roles_are_part_of_what_was_replayed() -> None:
    canonical = load_run_config(pools()).canonical()
    assert set(canonical["engine"]["workers"]) == {"prefill", "decode"}
    other = load_run_config(pools(), overrides=["engine.workers.decode.scheduler.max_sequences=7"]).canonical()
    assert canonical != other


def test_trtllm_blocks_are_its_own_on_both_sides() -> None:
    config = load_run_config(pools(backend="trtllm"))
    assert [side.engine_spec().block_tokens for side in config.sides] == [32, 32]


def test_each_role_chooses_ahead_where_asked() -> None:
    config = load_run_config(pools(workers={"decode": AHEAD}))
    assert [side.engine_spec().async_scheduling for side in config.sides] == [False, True]
    workers = config.canonical()["engine"]["workers"]
    assert [workers[role]["scheduler"]["async_scheduling"] for role in workers] == [False, True]
    assert "decode: async_scheduling in separate pools has never been compared with a real engine" in config.warnings
    assert config.canonical() != load_run_config(pools()).canonical()


def test_both_roles_draft() -> None:
    config = load_run_config(pools(nextn=2, nextn_accepted=1.5))
    assert {side.engine_spec().speculation for side in config.sides} == {Speculation("mtp", 2, (1.0, 0.5))}


def test_each_role_has_a_capacity_policy_of_its_own() -> None:
    decode = {"timing": FIXED, "scheduler": {"capacity_policy": "max_utilization"}}
    config = load_run_config(pools(backend="trtllm", workers={"decode": decode}))
    found = [side.engine_spec().capacity_policy for side in config.sides]
    assert found == ["guaranteed_no_evict", "max_utilization"]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (
            pools(workers={"aggregated": {"timing": FIXED}}),
            "engine.workers.aggregated: engine.mode: disaggregated has no",
        ),
        (pools(workers={"decode": None}), "engine.workers.decode: required; add it"),
        (
            {"engine": {"workers": {"prefill": {"timing": FIXED}}}},
            "engine.workers.prefill: engine.mode: aggregated has no",
        ),
        ({"engine": {"workers": {}}}, "engine.workers.aggregated: required; add it"),
        (
            pools(workers={"decode": {"timing": FIXED, "kv_cache": {"block_size": 16}}}),
            "engine.workers.decode.kv_cache.block_size=16: blocks are handed over whole; use that of the prefill",
        ),
        (
            {"profile": "parity", **pools(workers={"decode": AHEAD})},
            "engine.workers.decode.scheduler.async_scheduling=True: separate pools choose synchronously in profile",
        ),
        (
            pools(workers={"prefill": {"timing": FIXED, "scheduler": {"max_batched_tokens": 4, "max_sequences": 9}}}),
            "engine.workers.prefill.scheduler.max_batched_tokens=4: is below "
            "engine.workers.prefill.scheduler.max_sequences=9",
        ),
        (
            {"engine": {"workers": {"aggregated": {"timing": FIXED}}, "kv_transfer": {}}},
            "engine.kv_transfer: KV moves only between separate pools",
        ),
        (pools(kv_transfer={"bandwidth_gb_per_second": 0}), "engine.kv_transfer.bandwidth_gb_per_second=0: must be"),
        (pools(kv_transfer={"links": "per_gpu"}), "engine.kv_transfer.links='per_gpu': "),
        (pools(kv_transfer={"failure_rate": 1.5}), "engine.kv_transfer.failure_rate=1.5: must be"),
        (pools(kv_transfer={"overlap": {"layers": 0}}), "engine.kv_transfer.overlap.layers=0: must be"),
        (
            pools(
                kv_transfer={"overlap": {"layers": 8}},
                workers={"prefill": {"timing": FIXED, "scheduler": {"async_scheduling": True}}},
            ),
            "engine.workers.prefill.scheduler.async_scheduling=True: with kv_transfer.overlap",
        ),
        (pools(kv_transfer={"timeout_ms": 0}), "engine.kv_transfer.timeout_ms=0: must be greater than 0"),
        (
            pools(kv_transfer={"links": "shared", "first_byte_ms": 1}),
            "engine.kv_transfer.links='shared': transfers that take no time share no link; give "
            "kv_transfer.bandwidth_gb_per_second, or fallback_ms",
        ),
        (
            pools(kv_transfer={"overlap": {"layers": 8}, "fallback_ms": 0}),
            "engine.kv_transfer.overlap: transfers that take no time overlap with nothing; give kv_transfer.bandwidth",
        ),
        (
            {"engine": {"workers": {"aggregated": {"timing": FIXED}}, "conditional_disaggregation": {}}},
            "engine.conditional_disaggregation: without separate pools every prompt is prefilled where it decodes",
        ),
        (
            pools(conditional_disaggregation={"local_prefill_tokens": 9}, nextn=1, nextn_accepted=1),
            "engine.conditional_disaggregation: is not available with engine.nextn; keep one of them",
        ),
        (
            pools(conditional_disaggregation={"local_prefill_tokens": 0}),
            "engine.conditional_disaggregation.local_prefill_tokens=0: must be greater than 0",
        ),
        (
            pools(workers={"decode": AHEAD}, conditional_disaggregation={"local_prefill_tokens": 9}),
            "engine.conditional_disaggregation: is not available with engine.workers.decode.scheduler.async_scheduling",
        ),
        (pools(mode="split"), "engine.mode='split': use aggregated, or disaggregated"),
        (pools(nextn=2), "engine.nextn_accepted: required with engine.nextn=2; add it"),
    ],
)
def test_what_is_refused(values: dict[str, Any], said: str) -> None:
    found = faults_of(values)
    assert any(line.startswith(said) for line in found), found
