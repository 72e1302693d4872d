"""Names, defaults and degrees of a deployment; what a checkpoint says about itself."""

from __future__ import annotations

import json
import sys

import pytest

from perf_db.gpu.deployment import resolve
from perf_db.gpu.errors import PerfDataError
from perf_db.gpu.models import load_model
from perf_db.gpu.source import open_root
from tests.perf_db.gpu.measured import extra_root
from tests.perf_db.gpu.tiny import CONFIG, MODEL, deployed, tables, write_tiny


@pytest.fixture
def root(tmp_path):
    return write_tiny(tmp_path)


def model(root, name, quantisation=None, **fields):
    """Write a configuration and read it back."""
    stem = root.model_configs / name.replace("/", "--")
    stem.with_name(stem.name + "_config.json").write_text(json.dumps(CONFIG | fields))
    if quantisation:
        stem.with_name(stem.name + "_hf_quant_config.json").write_text(json.dumps({"quantization": quantisation}))
    return load_model(root, name)


def test_defaults_are_the_current_version_and_the_checkpoints_precisions(root):
    found = deployed(root)
    assert (found.version, found.gemm, found.kv_cache, found.fmha) == ("0.24.0", "bfloat16", "bfloat16", "bfloat16")
    assert (found.moe_tp, found.moe_ep) == (1, 1)
    assert "tiny/dense on h200_sxm, vllm 0.24.0, TP 1" in found.label


def test_experts_are_split_over_the_same_ranks(root):
    model(root, "tiny/experts", architectures=["Qwen3MoeForCausalLM"], num_experts=8, num_experts_per_tok=2)
    split = [
        (d.moe_tp, d.moe_ep)
        for named in ({"tp": 2}, {"dp": 4}, {"tp": 2, "dp": 2, "moe_ep": 4}, {"tp": 4, "moe_tp": 2})
        for d in [resolve(root, "tiny/experts", "h200_sxm", "vllm", **named)]
    ]
    assert split == [(2, 1), (1, 4), (1, 4), (2, 2)]


def test_a_version_may_be_named_by_its_place(tmp_path):
    files = tables()
    (path,) = [p for p in files if p.endswith("/gemm_perf.parquet")]
    root = write_tiny(tmp_path)
    later = root.data / path.replace("0.24.0", "0.26.0")
    later.parent.mkdir(parents=True)
    files[path].write_parquet(later)
    (root.systems / "query_versions.yaml").write_text("defaults: {vllm: {current: 0.24.0}}")
    assert [deployed(root, version=v).version for v in (None, "current", "next")] == ["0.24.0", "0.24.0", "0.26.0"]


@pytest.mark.parametrize(
    ("named", "reason", "said"),
    [
        ({"model": "tiny/dens"}, "unknown_model", "nearest: tiny/dense; `tracemill perf list` shows all"),
        ({"model": "Foo/Bar"}, "unknown_model", "unknown model 'Foo/Bar'; no known name is like it; `tracemill perf"),
        ({"model": "../etc/passwd"}, "unknown_model", "unknown model"),
        ({"system": "h200"}, "unknown_system", "nearest: h200_sxm"),
        ({"backend": "vlm"}, "unknown_backend", "nearest: vllm"),
        ({"backend": "trtllm"}, "unknown_backend", "unknown backend 'trtllm'"),
        ({"version": "0.23"}, "unknown_version", "current: 0.24.0; all: 0.24.0"),
        ({"gemm": "fp9"}, "unknown_quantisation", "nearest: fp8"),
        ({"kv_cache": "fp16"}, "unknown_quantisation", "all: bfloat16, fp8, int8"),
        ({"tp": 3}, "bad_parallelism", "tp=3 does not divide the 4 attention heads"),
        ({"tp": 0}, "bad_parallelism", "tp=0 is not at least 1"),
        ({"nextn": -1}, "bad_parallelism", "nextn=-1"),
    ],
)
def test_what_does_not_fit_says_what_would(root, named, reason, said):
    asked = {"model": MODEL, "system": "h200_sxm", "backend": "vllm"} | named
    with pytest.raises(PerfDataError) as caught:
        resolve(root, **asked)
    assert caught.value.reason == reason and said in str(caught.value)


def test_ranks_of_attention_and_of_experts_agree(root):
    model(root, "tiny/experts", architectures=["Qwen3MoeForCausalLM"], num_experts=8, num_experts_per_tok=2)
    with pytest.raises(PerfDataError, match=r"tp \* dp = 2 ranks, but moe_tp \* moe_ep = 4"):
        resolve(root, "tiny/experts", "h200_sxm", "vllm", tp=2, moe_tp=4, moe_ep=1)
    with pytest.raises(PerfDataError, match="moe_ep=3 does not divide the 8 experts"):
        resolve(root, "tiny/experts", "h200_sxm", "vllm", dp=3)


FP8 = {"quant_method": "fp8", "weight_block_size": [128, 128]}
INT4 = {"group_0": {"weights": {"num_bits": 4, "type": "int"}}}


@pytest.mark.parametrize(
    ("fields", "quantisation", "precisions"),
    [
        ({}, None, {}),
        ({"quantization_config": FP8}, None, {"gemm": "fp8_block", "moe": "fp8_block"}),
        ({"quantization_config": {"quant_method": "mxfp4"}}, None, {"moe": "w4a16_mxfp4"}),
        (
            {"quantization_config": {"quant_method": "compressed-tensors", "config_groups": INT4}},
            None,
            {"moe": "int4_wo"},
        ),
        (
            {},
            {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8", "exclude_modules": ["lm_head"]},
            {"gemm": "fp8_static", "moe": "fp8", "kv_cache": "fp8"},
        ),
        (
            {},
            {"quant_algo": "NVFP4", "exclude_modules": ["model.layers.0.self_attn*"]},
            {"gemm": "nvfp4", "moe": "nvfp4", "attention": "bfloat16"},
        ),
        (
            {},
            {"quant_algo": "NVFP4", "exclude_modules": ["model.layers.0.mlp.gate"]},
            {"gemm": "nvfp4", "moe": "nvfp4"},
        ),
        ({}, {"quant_algo": "MIXED_PRECISION"}, {"moe": "nvfp4"}),
    ],
)
def test_precisions_of_a_checkpoint(root, fields, quantisation, precisions):
    assert dict(model(root, "tiny/stored", quantisation, **fields).precisions) == precisions


def test_symbols_of_a_checkpoint(root):
    plain = model(root, "tiny/plain").symbols
    assert [plain[s] for s in "LhHGdFVE"] == [2, 64, 4, 2, 16, 128, 256, 0]
    nested = model(root, "tiny/nested", text_config={"num_hidden_layers": 7, "layer_types": ["full_attention"] * 7})
    assert (nested.symbols["L"], nested.symbols["L_full"]) == (7, 7)
    assert model(root, "tiny/heads", head_dim=None).symbols["d"] == 16


def test_a_configuration_that_is_none(root):
    (root.model_configs / "tiny--odd_config.json").write_text("{")
    with pytest.raises(PerfDataError, match=r"model_configs/tiny--odd_config.json: not JSON"):
        load_model(root, "tiny/odd")
    with pytest.raises(PerfDataError, match=r"no L \(num_hidden_layers\)"):
        model(root, "tiny/short", num_hidden_layers=None)


def test_a_folder_of_another_layout_is_no_root(tmp_path):
    with pytest.raises(PerfDataError, match=r"no systems/ and no model_configs/") as caught:
        open_root(tmp_path)
    assert caught.value.reason == "no_source"


def test_hardware_that_is_no_number(root):
    (root.systems / "h200_sxm.yaml").write_text("gpu: {mem_bw: fast}")
    with pytest.raises(PerfDataError, match=r"systems/h200_sxm.yaml: .* = .*expected a number"):
        resolve(root, MODEL, "h200_sxm", "vllm")


def test_an_architecture_nobody_wrote_down(root):
    from perf_db.gpu.oplevel import OpLevel

    model(root, "tiny/other", architectures=["OtherForCausalLM"])
    with pytest.raises(PerfDataError, match=r"is OtherForCausalLM; priced are dense_gqa \(") as caught:
        OpLevel(resolve(root, "tiny/other", "h200_sxm", "vllm"), root, clean=False)
    assert caught.value.reason == "unsupported_architecture"


def test_the_extra_is_a_carrier_of_files_its_code_is_never_run():
    root = extra_root()
    resolve(root, "Qwen/Qwen3-32B", "h200_sxm", "vllm", tp=4)
    assert root.kind == "extra" and root.provenance([])["distribution"] == "aiconfigurator-core"
    assert not any(name.split(".")[0] == "aiconfigurator_core" for name in sys.modules)
