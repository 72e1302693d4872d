"""Separate pools by operators: each needs prices of its own phase alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from assets.identity import digest, performance_digest, timing_digest
from assets.pricing import _kv_bytes, price_deployment
from assets.replay_run import run_replay
from assets.views import open_store
from perf_db.gpu.errors import PerfDataError
from sim.config import ConfigError, load_run_config
from sim.spec import EngineSpec, PoolsSpec, Transfer
from tests.perf_db.gpu.tiny import MODEL, write_tiny

FIXED = {"type": "fixed", "prefill_ms": 5, "decode_ms": 2}
MEASURED = {"type": "default", "perf_root": "data"}


def pools(prefill: dict[str, Any], decode: dict[str, Any], blocks: int = 300) -> dict[str, Any]:
    def worker(timing: dict[str, Any], blocks: int) -> dict[str, Any]:
        return {
            "scheduler": {"max_batched_tokens": 256, "max_sequences": 4},
            "kv_cache": {
                "block_size": 16,
                "bytes_per_token": 1024,
                "capacity": {"type": "fixed", "blocks": blocks},
            },
            "timing": timing,
        }

    return {
        "traffic": {
            "source": {"type": "synthetic", "input_tokens": 60, "output_tokens": 40},
            "load": {"type": "concurrency", "concurrency": 4},
            "stop": {"requests": 8},
        },
        "engine": {
            "mode": "disaggregated",
            "model": MODEL,
            "hardware": "h200_sxm",
            "backend_version": "0.24.0",
            "context_length": 256,
            "estimation_mode": "op_level",
            "kv_transfer": {"bandwidth_gb_per_second": 20},
            "workers": {"prefill": worker(prefill, 300), "decode": worker(decode, blocks)},
        },
    }


@pytest.mark.parametrize("absent", ["context_attention", "generation_attention"])
def test_a_pool_is_priced_where_only_its_own_phase_was_measured(tmp_path: Path, absent: str) -> None:
    """Prices are those of the same pool where both phases were measured, and the other phase's refusal is recorded."""
    write_tiny(tmp_path / "data", **{absent: None})
    decodes = absent == "context_attention"
    content = pools(FIXED, MEASURED) if decodes else pools(MEASURED, FIXED)
    report = run_replay(load_run_config(content), open_store(tmp_path / "warehouse"), base=tmp_path)
    assert report.run["n_completed"] == 8
    role, phase = ("decode", "context") if decodes else ("prefill", "generation")
    refused = json.loads(report.run["provenance_json"])["performance"][role]["refused"]
    assert list(refused) == [phase] and f"{absent}_perf.parquet" in refused[phase]["why"]
    write_tiny(tmp_path / "data")
    whole = run_replay(load_run_config(content), open_store(tmp_path / "other"), base=tmp_path)
    assert whole.run["end_ns"] == report.run["end_ns"]
    assert "refused" not in json.loads(whole.run["provenance_json"])["performance"][role]


@pytest.mark.parametrize(
    ("absent", "prefill", "decode"),
    [("context_attention", MEASURED, FIXED), ("generation_attention", FIXED, MEASURED)],
)
def test_the_phase_a_pool_lives_on_must_be_priced(
    tmp_path: Path, absent: str, prefill: dict[str, Any], decode: dict[str, Any]
) -> None:
    write_tiny(tmp_path / "data", **{absent: None})
    with pytest.raises(PerfDataError, match=rf"{absent}_perf\.parquet") as error:
        price_deployment(load_run_config(pools(prefill, decode)), base=tmp_path)
    assert error.value.reason == "missing_table"


def test_workers_that_do_both_need_both_whatever_a_pool_left_in_the_cache(tmp_path: Path) -> None:
    write_tiny(tmp_path / "data", context_attention=None)
    content = pools(FIXED, MEASURED)
    price_deployment(load_run_config(content), base=tmp_path)
    engine = content["engine"]
    engine["workers"] = {"aggregated": engine["workers"]["decode"]}
    del engine["mode"], engine["kv_transfer"]
    with pytest.raises(PerfDataError, match=r"context_attention_perf\.parquet"):
        price_deployment(load_run_config(content), base=tmp_path)


@pytest.mark.parametrize("widths", [(1, 1), (2, 1), (1, 4), (4, 2), (4, 4)])
def test_pd_9_every_kv_head_is_sent_once_whatever_the_tensor_widths(tmp_path: Path, widths: tuple[int, int]) -> None:
    """2 layers of 2 KV heads of 16, K and V, 2 bytes each. Beyond width 2, ranks hold copies, which nobody sends."""
    write_tiny(tmp_path / "data")
    content = pools(MEASURED, FIXED)
    for role, tensor in zip(("prefill", "decode"), widths, strict=True):
        content["engine"]["workers"][role]["parallelism"] = {"tensor": tensor}
    content["engine"]["workers"]["prefill"]["kv_cache"]["bytes_per_token"] = "auto"
    size, said = _kv_bytes(load_run_config(content), tmp_path)
    assert (size, said) == (2 * 2 * 2 * 16 * 2, ())


def test_faults_of_a_pool_are_told_by_its_own_name(tmp_path: Path) -> None:
    write_tiny(tmp_path / "data")
    content = pools(FIXED, MEASURED)
    content["engine"]["workers"]["decode"]["timing"] = {**MEASURED, "data_version": "0.0.1"}
    with pytest.raises(ConfigError, match=r"^engine\.workers\.decode\.timing\.data_version='0\.0\.1': "):
        price_deployment(load_run_config(content), base=tmp_path)


def test_settings_that_were_added_later_leave_digests_of_other_prices_alone() -> None:
    side = EngineSpec()
    first = "bytes_per_token=1.0, bytes_per_second=2.0, missing_only=False, fixed_bytes=0.0, fallback_ns=0"
    known = digest(timing_digest(side.timing), timing_digest(side.timing), f"Transfer({first})")
    assert performance_digest(PoolsSpec(side, side, Transfer(1.0, 2.0))) == known
    assert performance_digest(PoolsSpec(side, side, Transfer(1.0, 2.0, seed=7))) == known, "nothing is drawn"
    drawn = {performance_digest(PoolsSpec(side, side, Transfer(1.0, 2.0, failure_rate=0.5, seed=s))) for s in (7, 8)}
    assert len({known, *drawn}) == 3


@pytest.mark.parametrize(
    ("absent", "said"),
    [
        (("hardware",), "(engine.hardware is not given)"),
        (("model",), "(engine.model is not given)"),
        (("model", "hardware"), "(engine.model and engine.hardware are not given)"),
    ],
)
def test_bytes_that_do_not_follow_name_what_is_missing(tmp_path: Path, absent: tuple[str, ...], said: str) -> None:
    content = pools(FIXED, FIXED)
    content["engine"]["workers"]["prefill"]["kv_cache"]["bytes_per_token"] = "auto"
    content["engine"]["workers"]["prefill"]["timing"] = FIXED
    for name in absent:
        del content["engine"][name]
    write_tiny(tmp_path / "data")
    del content["engine"]["estimation_mode"]
    with pytest.raises(ConfigError) as error:
        price_deployment(load_run_config(content), base=tmp_path)
    assert said in str(error.value)
    content["engine"]["kv_transfer"]["fallback_ms"] = 0
    found = price_deployment(load_run_config(content), base=tmp_path)
    assert isinstance(found.spec, PoolsSpec) and found.spec.transfer.bytes_per_token is None
    assert [text for text in found.warnings if text.startswith("every transfer takes") and said in text]
