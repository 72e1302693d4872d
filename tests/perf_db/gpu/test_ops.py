"""Operator families one by one, on tables of a few rows."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from perf_db.gpu import quant
from perf_db.gpu.deployment import Deployment
from perf_db.gpu.errors import PerfDataError
from perf_db.gpu.hardware import load_hardware
from perf_db.gpu.ops import build, dsa, moe
from perf_db.gpu.ops.base import Operator, Phase, Tables
from perf_db.gpu.ops.lanes import lane_order
from tests.perf_db.gpu.measured import SYSTEM, rows_of, write_root

BW, FLOPS = SYSTEM["gpu"]["mem_bw"], SYSTEM["gpu"]["bfloat16_tc_flops"]
NVLINK, NETWORK = SYSTEM["node"]["intra_node_bw"], SYSTEM["node"]["inter_node_bw"]


def at(x: float) -> np.ndarray:
    return np.array([float(x)])


def made(
    folder: Path,
    shape: Mapping[str, object],
    files: Mapping[str, pl.DataFrame],
    *,
    backend: str = "vllm",
    phase: Phase = "context",
    **named: object,
) -> Operator:
    """One operator of a deployment on the tables given (file name -> rows)."""
    where = {name: f"h200_sxm/family/{backend}/1.0/{name}_perf.parquet" for name in files}
    where |= {name: f"h200_sxm/comm/{name}/2.27.3/{name}_perf.parquet" for name in files if name == "nccl"}
    root = write_root(folder, {where[name]: rows for name, rows in files.items()})
    deployment = Deployment("m", "h200_sxm", backend, "1.0", **named)  # type: ignore[arg-type]
    tables = Tables(deployment, root, load_hardware(root, "h200_sxm"), clean=False)
    (operator,) = build([{"op": "it", "scale": 1, **shape}], tables, phase, 1.0)
    return operator


EXPERTS = {"kind": "moe", "hidden": 64, "inter": 32, "active": 2, "experts": 8, "quant": "bfloat16"}
EXPERTS |= {"distribution": "power_law_1.2"}
DIMS = {"hidden_size": 64, "inter_size": 32, "topk": 2, "num_experts": 8, "moe_dtype": "bfloat16"}


def experts(ms: Mapping[int, float], **more: object) -> pl.DataFrame:
    base = DIMS | {"distribution": "power_law_1.2", "moe_tp_size": 1, "moe_ep_size": 1} | more
    return rows_of("moe", [{"num_tokens": n, "latency": v} for n, v in ms.items()], **base)


def test_experts_see_the_tokens_of_all_data_parallel_ranks(tmp_path):
    rows = experts({8: 1.0, 16: 2.0, 32: 4.0}, moe_ep_size=4)
    operator = made(tmp_path, EXPERTS, {"moe": rows}, dp=4, moe_ep=4)
    assert operator.ms(at(4))[0] == 2.0 and operator.ms(at(6))[0] == 3.0


def test_a_spread_that_was_not_measured_falls_back_to_an_even_one(tmp_path):
    rows = pl.concat([experts({8: 1.0}, distribution="power_law_1.01"), experts({8: 3.0}, distribution="balanced")])
    assert made(tmp_path, EXPERTS, {"moe": rows}).ms(at(8))[0] == 3.0


def test_one_kernel_makes_a_curve_and_not_one_for_tiny_batches(tmp_path):
    rows = [
        experts({8: 0.1}, kernel_source="some_min_latency"),
        experts({8: 1.0, 16: 2.0}, kernel_source="first"),
        experts({8: 9.0, 12: 9.0}, kernel_source="second"),
    ]
    operator = made(tmp_path, EXPERTS, {"moe": pl.concat(rows)})
    assert operator.ms(np.array([8.0, 12.0, 16.0])).tolist() == [1.0, 1.5, 2.0]


def test_experts_beyond_the_measured_tokens_hold_their_utilisation(tmp_path):
    operator = made(tmp_path, EXPERTS, {"moe": experts({8: 1.0, 16: 2.0})})
    limit = lambda n: moe.roofline(  # noqa: E731
        at(n), hidden=64, inter=32, active=2, experts=8, tp=1, ep=1, precision=quant.GEMM["bfloat16"],
        hardware=operator.curve.roofline.keywords["hardware"],
    )  # fmt: skip
    # 16 tokens make 32 routed ones, on all 8 experts: bytes of tokens in and out, between the products, and weights.
    assert limit(16)[0] == pytest.approx(2 * (2 * 32 * 64 + 3 * 32 * 32 + 3 * 64 * 32 * 8) / BW * 1000)
    assert operator.ms(at(64))[0] == pytest.approx(2.0 * limit(64)[0] / limit(16)[0])


def test_experts_of_another_shape_are_refused(tmp_path):
    with pytest.raises(PerfDataError, match="topk=2, num_experts=8, hidden_size=64, inter_size=32, moe_tp_size=2"):
        made(tmp_path, EXPERTS, {"moe": experts({8: 1.0})}, tp=2, moe_tp=2)


def reduce_rows() -> pl.DataFrame:
    points = [
        {"num_gpus": n, "message_size": size, "latency": 0.1 * n * size / 64, "kernel_source": "custom_graph"}
        for n in (2, 4, 8)
        for size in (64, 128, 1024)
    ]
    return rows_of("custom_allreduce", points)


def nccl_rows() -> pl.DataFrame:
    cost = {"all_gather": 1.0, "reduce_scatter": 2.0}
    points = [
        {"op_name": op, "num_gpus": n, "message_size": size, "latency": ms * size / 64 * n}
        for op, ms in cost.items()
        for n in (2, 4, 8)
        for size in (64, 128, 1024)
    ]
    return rows_of("nccl", points, nccl_dtype="half")


def test_an_all_reduce_counts_elements_and_one_rank_pays_nothing(tmp_path):
    shape = {"kind": "all_reduce", "hidden": 64, "ranks": 4}
    operator = made(tmp_path, shape, {"custom_allreduce": reduce_rows()}, tp=4)
    assert operator.ms(at(1.5))[0] == pytest.approx(0.4 * 1.5) and operator.link == "intra_node"
    alone = made(tmp_path, shape | {"ranks": 1}, {"custom_allreduce": reduce_rows()})
    assert alone.ms(at(5))[0] == 0 and alone.link is None and alone.source == "empirical"


def test_more_ranks_than_measured_pay_the_ring_and_the_slower_link(tmp_path):
    shape = {"kind": "all_reduce", "hidden": 64, "ranks": 16}
    operator = made(tmp_path, shape, {"custom_allreduce": reduce_rows()}, tp=16)
    assert operator.ms(at(1))[0] == pytest.approx(0.8 * (15 / 16) * (8 / 7) * NVLINK / NETWORK)
    assert operator.link == "inter_node"


@pytest.mark.parametrize(
    ("backend", "tp", "dp", "before", "after"),
    [
        # All-reduce 0.1 n, all-gather n, reduce-scatter 2 n per 64 elements over n ranks.
        ("vllm", 2, 1, 0.2, 0.2),
        ("vllm", 1, 2, 2 * 2, 4 * 2),  # twice the elements: both ranks' tokens
        ("vllm", 2, 2, 0.4 + 4 * 2, 0.4 + 8 * 2),
        ("sglang", 2, 1, 0.2, 0.2),
        ("sglang", 2, 2, 4 + 4 * 2, 8 * 2 + 2),
        ("trtllm", 2, 1, 0.2, 0.2),
        ("trtllm", 1, 2, 2 * 2, 4 * 2),
        ("vllm", 1, 1, 0.0, 0.0),
    ],
)
def test_how_tokens_reach_their_experts(tmp_path, backend, tp, dp, before, after):
    files = {"custom_allreduce": reduce_rows(), "nccl": nccl_rows()}
    shape = {"kind": "dispatch", "hidden": 64, "active": 2, "experts": 8, "quant": "bfloat16"}
    for side, ms in ((True, before), (False, after)):
        operator = made(tmp_path, shape | {"before": side}, files, backend=backend, tp=tp, dp=dp, moe_tp=tp, moe_ep=dp)
        assert operator.ms(at(1))[0] == pytest.approx(ms)


def test_two_streams_cost_what_the_slower_one_costs(tmp_path):
    norm = {"op": "norm", "kind": "elementwise", "scale": 3, "bytes_per_token": 1e6}
    shape = {"kind": "overlap", "a": [norm, norm], "b": [norm | {"scale": 5}]}
    root = write_root(tmp_path, {"h200_sxm/family/vllm/1.0/gemm_perf.parquet": rows_of("gemm", [{}])})
    tables = Tables(Deployment("m", "h200_sxm", "vllm", "1.0"), root, load_hardware(root, "h200_sxm"), clean=False)
    (operator,) = build([{"op": "both", **shape}], tables, "generation", 2.0)
    one = (1e6 * 7 / (BW * 0.8) + 3e-6) * 1000
    assert operator.total(at(7))[0] == pytest.approx(2 * 6 * one)
    # Making the slower stream cheap leaves the other one.
    for member in operator.streams[0]:
        member.apply({"norm": 0.1})
    assert operator.total(at(7))[0] == pytest.approx(2 * 5 * one)


V32 = dict.fromkeys(("hidden", "q_lora", "kv_lora", "rope", "nope", "v_dim", "index_heads", "index_dim", "topk"), 0)
V32 |= {"hidden": 7168, "q_lora": 1536, "kv_lora": 512, "rope": 64, "nope": 128, "v_dim": 128}
V32 |= {"index_heads": 64, "index_dim": 128, "topk": 2048}


def v32(tmp_path: Path) -> dsa.Sizes:
    root = write_root(tmp_path, {"h200_sxm/family/vllm/1.0/gemm_perf.parquet": rows_of("gemm", [{}])})
    return dsa.Sizes(
        **V32, kv_bytes=1, gemm=quant.GEMM["fp8_block"], fmha=quant.FMHA["bfloat16"],
        hardware=load_hardware(root, "h200_sxm"),
    )  # fmt: skip


def test_the_roofline_of_sparse_attention_in_decode(tmp_path):
    # Few requests: weights once, 576 bytes per key kept, 132 per key scored.
    limit = dsa.generation_roofline(np.array([[128.0, 2.0, 4096.0]]), sizes=v32(tmp_path))[0]
    assert limit == pytest.approx((29_097_984 + 128 * 1_212_416 + 2 * (2048 * 576 + 4096 * 132)) / BW * 1000)
    # Many: projections and indexer at the fp8 rate, attention at the bfloat16 rate.
    limit = dsa.generation_roofline(np.array([[128.0, 512.0, 4096.0]]), sizes=v32(tmp_path))[0]
    dense, index, core = 2 * (29_097_984 + 128 * 1_343_488), 2 * 8192 * 4096, 2 * 128 * 1088 * 2048
    assert limit == pytest.approx(512 * ((dense + index) / (2 * FLOPS) + core / FLOPS) * 1000)


def test_the_roofline_of_sparse_attention_in_prefill(tmp_path):
    sizes = v32(tmp_path)
    # Short: memory; every head reads keys of its own; nothing is scored up to 2,048 tokens.
    short = dsa.context_roofline(np.array([[128.0, 100.0, 4.0, 1.0]]), sizes=sizes)[0]
    moved = 29_097_984 + 128 * 1_212_416 + 128 * (104 * 576 + 4 * 768)
    assert short == pytest.approx(moved / BW * 1000)
    # Long: query j attends to min(j, 2048) keys, and the indexer scores all of them.
    long = dsa.context_roofline(np.array([[16.0, 1000.0, 3000.0, 2.0]]), sizes=sizes)[0]
    attended = 2 * sum(min(j, 2048) for j in range(1001, 4001))
    dense = 2 * 2 * 3000 * (29_097_984 + 16 * 1_343_488)
    index = 2 * 8192 * 2 * 3000 * 4000
    core = 2 * 16 * 1088 * attended
    assert long == pytest.approx(((dense + index) / (2 * FLOPS) + core / FLOPS) * 1000)


def dsa_rows(phase: str, points: list[dict[str, object]]) -> pl.DataFrame:
    common = {"architecture": "Sparse", "mla_dtype": "bfloat16", "kv_cache_dtype": "bfloat16", "gemm_type": "bfloat16"}
    return rows_of(f"dsa_{phase}_module", points, num_heads=8, op_name=f"dsa_{phase}_module", **common)


def test_a_prefix_is_an_axis_of_sparse_attention(tmp_path):
    points = [
        {"step": p, "isl": s, "batch_size": b, "latency": b * (s + 0.01 * p)}
        for p in (0, 128)
        for s in (64, 256)
        for b in (1, 2)
    ]
    points.append(
        {"step": 0, "isl": 64, "batch_size": 1, "latency": 99.0, "op_name": "dsa_context_module_skip_indexer"}
    )
    shape = {"kind": "dsa", "module": "Sparse", "heads": 8, "quant": "bfloat16", **V32}
    operator = made(tmp_path, shape, {"dsa_context_module": dsa_rows("context", points)})
    assert operator.context_ms(at(1), at(64), at(0))[0] == 64
    assert operator.context_ms(at(2), at(160), at(64))[0] == pytest.approx(2 * (160 + 0.64))
    batch, length, prefix, frontier = operator.knots()
    assert (batch.tolist(), length.tolist(), prefix.tolist()) == ([1, 2], [64, 256], [0, 128])
    assert frontier.tolist() == [256, 256]


def test_decode_modules_are_asked_once(tmp_path):
    points = [{"isl": 1, "step": c - 1, "batch_size": 1, "latency": c / 100} for c in (100, 1000)]
    shape = {"kind": "dsa", "module": "Sparse", "heads": 8, "quant": "bfloat16", **V32}
    operator = made(tmp_path, shape, {"dsa_generation_module": dsa_rows("generation", points)}, phase="generation")
    assert operator.looks == 1 and operator.generation_ms(at(1), at(300))[0] == pytest.approx(3.0)


LATENT = {k: V32[k] for k in ("hidden", "q_lora", "kv_lora", "rope", "nope", "v_dim")}
MLA_KEY = {"mla_dtype": "bfloat16", "kv_cache_dtype": "bfloat16"}


def test_latent_attention_comes_as_a_module_or_is_put_together(tmp_path):
    kernel = [{"isl": s, "batch_size": 1, "step": 0, "latency": s * s / 1e4} for s in (10, 100)]
    products = [{"m": m, "latency": 0.5} for m in (1, 1000)]
    files = {
        "context_mla": rows_of("context_mla", kernel, num_heads=8, **MLA_KEY),
        "gemm": rows_of("gemm", products, gemm_dtype="bfloat16", n=64, k=7168),
    }
    first = {"op": "attention", "kind": "mla_module", "scale": 2, "heads": 8, "quant": "bfloat16", **LATENT}
    second = [
        {"op": "down", "kind": "gemm", "scale": 2, "n": 64, "k": 7168, "quant": "bfloat16"},
        first | {"kind": "mla"},
    ]
    shapes = [{"op": "attention", "kind": "fallback", "first": [first], "second": second}]

    def operators(tables_of: Mapping[str, pl.DataFrame], where: Path) -> list[Operator]:
        at_path = {f"h200_sxm/family/vllm/1.0/{name}_perf.parquet": rows for name, rows in tables_of.items()}
        root = write_root(where, at_path)
        deployment = Deployment("m", "h200_sxm", "vllm", "1.0")
        return build(shapes, Tables(deployment, root, load_hardware(root, "h200_sxm"), clean=False), "context", 1.0)

    down, attention = operators(files, tmp_path / "apart")
    assert (down.part, attention.part) == ("shared", "attention")
    # The square root of the latency is linear in the length; a prefix leaves its share of the square out.
    assert attention.context_ms(at(1), at(25), at(25))[0] == pytest.approx(2500 / 1e4 * 0.75)
    module = rows_of(
        "mla_context_module", kernel, num_heads=8, op_name="mla_context_module", gemm_type="bfloat16", **MLA_KEY
    )
    (whole,) = operators(files | {"mla_context_module": module}, tmp_path / "whole")
    assert whole.name == "context_attention" and whole.scale == 2
    with pytest.raises(
        PerfDataError, match=r"no mla_context_module table .* nor can it be put together: no context_mla"
    ):
        operators({"gemm": files["gemm"]}, tmp_path / "neither")


def test_gated_delta_attention_goes_with_tokens(tmp_path):
    heads = {"num_k_heads": 2, "num_v_heads": 4, "head_k_dim": 16, "head_v_dim": 16, "d_model": 64, "d_conv": 4}
    points = [
        {"phase": "context", "seq_len": s, "batch_size": b, "kernel_source": kernel, "latency": ms * s * b}
        for kernel, ms in (("causal_conv1d_fn", 0.01), ("chunk_delta", 0.1))
        for s in (10, 100)
        for b in (1, 2)
    ]
    points += [
        {"phase": "generation", "seq_len": 1, "batch_size": b, "kernel_source": kernel, "latency": ms * b}
        for kernel, ms in (("causal_conv1d_update", 0.02), ("recurrent_delta", 0.2))
        for b in (1, 8)
    ]
    shape = {"kind": "gated_delta", "hidden": 64, "k_heads": 2, "v_heads": 4, "k_dim": 16, "v_dim": 16, "conv": 4}
    rows = rows_of("gdn", points, **heads)
    assert made(tmp_path, shape, {"gdn": rows}).ms(at(50))[0] == pytest.approx(50 * 0.11)
    assert made(tmp_path, shape, {"gdn": rows}, phase="generation").ms(at(4))[0] == pytest.approx(4 * 0.22)


def test_a_static_scale_saves_the_quantisation_kernels(tmp_path):
    curve = [{"m": 1, "latency": 1.0}, {"m": 101, "latency": 2.0}]
    files = {
        "gemm": rows_of("gemm", curve, gemm_dtype="fp8", n=64, k=64),
        "computescale": rows_of("computescale", [{"m": m, "latency": 0.25} for m in (1, 101)], k=64, quant_dtype="fp8"),
        "scale_matrix": rows_of(
            "scale_matrix", [{"m": m, "latency": 0.125} for m in (1, 101)], k=64, quant_dtype="fp8"
        ),
    }
    shape = {"kind": "gemm", "n": 64, "k": 64, "quant": "fp8_static"}
    assert made(tmp_path, shape, files).ms(at(51))[0] == pytest.approx(1.5 - 0.375)


def test_lanes_in_order_of_preference():
    assert lane_order("vllm", 90, "context")[:2] == ("vllm_flash_attn_fa3", "vllm_flash_attn_fa4")
    assert lane_order("vllm", 100, "context")[0] == "vllm_flashinfer_trtllmprefill"
    assert lane_order("vllm", 100, "generation")[0] == "vllm_flashinfer_trtllmdecode"
    assert lane_order("vllm", 100, "context")[-2:] == ("default", "vllm_flashinfer")
    assert lane_order("sglang", 100, "context") == ("triton", "trtllm_mha", "flashinfer", "fa3", "fla", "default")
    assert lane_order("trtllm", 90, "context") == ("default",)
    assert all("default" in lane_order(backend, 89, "context") for backend in ("vllm", "sglang", "trtllm"))
