"""engine.tokenization and engine.host: what they come to, where they come from, and where they cannot act."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sim.config import ConfigError, RunConfig, load_run_config
from sim.spec import FrontEnd

FIXED = {"type": "fixed", "prefill_ms": 30, "decode_ms": 15}
PRICED = {"model": "Qwen/Qwen3-32B", "hardware": "b200_sxm"}


def loaded(
    engine: dict[str, Any], *, timing: dict[str, Any] | None = None, base: Path | None = None, **top: Any
) -> RunConfig:
    workers = {"aggregated": {"timing": timing or FIXED}}
    return load_run_config({"engine": {"workers": workers, **engine}, **top}, base=base)


def test_without_them_there_is_no_front_end_and_the_run_is_called_as_before() -> None:
    bare = loaded({})
    for nothing in (
        {"tokenization": None, "host": None},
        {"tokenization": {"ms_per_1024_tokens": 0}, "host": {"client_ms": 0.0, "factors": {}}},
    ):
        config = loaded(nothing)
        assert config.engine_spec().front is None and config.canonical() == bare.canonical()
    assert not {"host", "tokenization"} & bare.canonical()["engine"].keys()


def test_milliseconds_become_the_ways_of_the_engine() -> None:
    config = loaded(
        {
            "tokenization": {"ms_per_1024_tokens": 7.5},
            "host": {"request_path_ms": 2, "client_ms": 0.67, "output_path_ms": 1},
        }
    )
    front = config.engine_spec().front
    assert front == FrontEnd(2_000_000, 7_500_000, 670_000, 1_000_000)
    assert config.canonical()["engine"]["host"] == {"request_path_ms": 2, "client_ms": 0.67, "output_path_ms": 1}
    import numpy as np

    assert front.inbound(np.array([1024, 512, 1]), None).tolist() == [9_500_000, 5_750_000, 2_007_324]
    assert front.inbound(np.array([1024]), 10).tolist() == [16_200_000]


def test_a_snapshot_holds_them_for_the_backend(tmp_path: Path) -> None:
    constants = {
        "vllm.client_ms": 0.6, "vllm.tokenization_ms_per_1024": 7, "vllm.request_ms": 3,
        "vllm.prefill_pass_ms_per_layer": 0.4, "vllm.moe_decode_factor": 1.1, "vllm.laboratory_request_ms": 30,
        "vllm.decode_factor_of_model[qwen3-32b]": 0.9, "trtllm.client_ms": 5,
    }  # fmt: skip
    (tmp_path / "s.json").write_text(json.dumps({"host_constants": constants}))
    config = loaded({**PRICED, "host": {"snapshot": "s.json"}}, timing={"type": "default"}, base=tmp_path)
    written = loaded(
        {
            **PRICED,
            "tokenization": {"ms_per_1024_tokens": 7.0},
            "host": {
                "client_ms": 0.6, "request_path_ms": 3.0, "prefill_pass_ms_per_layer": 0.4,
                "factors": {"moe_decode_factor": 1.1, "decode_factor_of_model[qwen3-32b]": 0.9},
            },
        },
        timing={"type": "default"},
    )  # fmt: skip
    assert config.canonical() == written.canonical()


@pytest.mark.parametrize(
    ("engine", "top", "says"),
    [
        ({"host": {"path_ms": 1}}, {}, "engine.host.path_ms=1: unknown field; did you mean output_path_ms"),
        ({"host": {"client_ms": -1}}, {}, "engine.host.client_ms=-1: must be greater than or equal to 0"),
        ({"tokenization": 3}, {}, "engine.tokenization"),
        ({"host": {"request_path_ms": 1}}, {"profile": "parity"}, "engine.host: the reference simulator has none"),
        ({"tokenization": {"ms_per_1024_tokens": 1}}, {"profile": "parity"}, "engine.tokenization: the reference"),
        ({"host": {"prefill_pass_ms": 1}}, {}, "acts on prices of timing.type: default; with fixed"),
        ({"host": {"factors": {"moe_factor": 2.0}}}, {}, "acts on prices of timing.type: default"),
        ({"host": {"snapshot": "s.json"}}, {}, "No such file"),
        ({"host": {"snapshot": "cost.json"}}, {}, "none of vllm; a pass cost belongs into timing"),
        ({"host": {"snapshot": "text.json"}}, {}, "is no snapshot of tracemill calibrate"),
        ({"host": {"snapshot": "ahead.json"}}, {}, "vllm.lookahead_passes=3 has no counterpart in a replay"),
        ({"host": {"snapshot": "ahead.json", "client_ms": 2}}, {}, "not both: host.client_ms"),
        (
            {"host": {"snapshot": "ahead.json"}, "tokenization": {"ms_per_1024_tokens": 1}},
            {},
            "not both: tokenization",
        ),
    ],
)
def test_what_cannot_be_is_refused_by_name(
    tmp_path: Path, engine: dict[str, Any], top: dict[str, Any], says: str
) -> None:
    (tmp_path / "cost.json").write_text(json.dumps({"host_constants": {"base_ms": 1.0}}))
    (tmp_path / "text.json").write_text("[1]")
    (tmp_path / "ahead.json").write_text(json.dumps({"host_constants": {"vllm.lookahead_passes": 3}}))
    with pytest.raises(ConfigError) as error:
        loaded(engine, base=tmp_path, **top)
    assert says in str(error.value)


def test_separate_pools_refuse_them() -> None:
    pools = {role: {"timing": FIXED} for role in ("prefill", "decode")}
    values = {"engine": {"mode": "disaggregated", "workers": pools, "host": {"request_path_ms": 1}}}
    with pytest.raises(ConfigError, match=r"engine\.host: is not modelled around separate pools; remove it"):
        load_run_config(values)
