"""Passes of a two-layer model, worked out by hand."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest

from perf_db.gpu.deployment import resolve
from perf_db.gpu.errors import PerfDataError
from perf_db.gpu.memory import capacity
from perf_db.gpu.oplevel import EXTRAPOLATED, INTERPOLATED, MEASURED, OpLevel
from perf_db.gpu.ops.attention import spread
from tests.perf_db.gpu.measured import extra_root, rows_of
from tests.perf_db.gpu.tiny import (
    REDUCE_MS,
    context_ms,
    decode_ms,
    deployed,
    gemm_ms,
    mem_ms,
    tables,
    write_tiny,
)

H, LAYERS = 64, 2
# Rope on queries and keys, the write of K and V; one token, one layer, 1.1 times.
EXTRAS = 1.1 * (2 * mem_ms(2 * (64 + 32)) + 2 * mem_ms(2 * 32))


@pytest.fixture
def root(tmp_path):
    return write_tiny(tmp_path)


@pytest.fixture
def level(root):
    return OpLevel(deployed(root), root, clean=False)


def shared_ms(x, layers=LAYERS, once=1.0):
    """Everything but attention and logits on one GPU."""
    norms, activation = 2 * mem_ms(8 * H * x), mem_ms(2 * (256 + 128) * x)
    return once * mem_ms(2 * H * x) + layers * (norms + activation + 4 * gemm_ms(x))


def attention_ms(b, s, p=0):
    full = s + p
    return LAYERS * (context_ms(b, full) * (full**2 - p**2) / full**2 + EXTRAS)


def test_prefill_is_the_sum_of_its_operators(level):
    assert level.shared("context", 150) == pytest.approx(shared_ms(150), rel=1e-12)
    assert level.logits("context", 3) == pytest.approx(gemm_ms(3), rel=1e-12)
    assert level.prefill(2, 100, 0) == pytest.approx(shared_ms(200) + gemm_ms(2) + attention_ms(2, 100), rel=1e-12)
    # The square root of this table is linear in the length, so between its knots it is met exactly.
    assert level.prefill(1, 250, 0) == pytest.approx(shared_ms(250) + gemm_ms(1) + attention_ms(1, 250), rel=1e-12)


def test_a_cached_prefix_leaves_its_share_of_the_square_out(level):
    assert level.context_attention(2, 50, 50) == pytest.approx(attention_ms(2, 50, 50), rel=1e-12)
    assert level.lookup("context", 2, 100) == pytest.approx(LAYERS * context_ms(2, 100), rel=1e-12)


def test_decode_attention_is_the_mean_of_five_lengths(level):
    assert [int(v[0]) for v in spread(np.array([16.0]))] == [14, 14, 15, 16, 17]
    assert [int(v[0]) for v in spread(np.array([1.0]))] == [1, 1, 1, 1, 1]
    lengths = [900, 950, 1000, 1050, 1100]
    expected = LAYERS * sum(decode_ms(2, c) for c in lengths) / 5
    assert level.generation_attention(2, 1000) == pytest.approx(expected, rel=1e-12)
    assert level.decode(2, 1000) == pytest.approx(shared_ms(2) + gemm_ms(2) + expected, rel=1e-12)
    assert level.decode_looks() == 5


def test_arguments_broadcast(level):
    both = level.decode(np.array([1, 2])[:, None], np.array([10, 100, 1000])[None, :])
    assert both.shape == (2, 3) and both[1, 2] == level.decode(2, 1000)
    assert level.prefill(1, np.array([5, 7]), 0).shape == (2,)


def test_draft_tokens_multiply_the_batch_and_lengthen_the_list(root):
    level = OpLevel(deployed(root, nextn=1), root, clean=False)
    stretch = (LAYERS + 1) / LAYERS
    attention = LAYERS * stretch * sum(decode_ms(2, c) for c in (900, 950, 1000, 1050, 1100)) / 5
    expected = shared_ms(2, LAYERS * stretch, stretch) + stretch * gemm_ms(2) + attention
    assert level.decode(1, 1000) == pytest.approx(expected, rel=1e-12)
    assert level.prefill(1, 100, 0) == pytest.approx(OpLevel(deployed(root), root, clean=False).prefill(1, 100, 0))


def test_a_mixed_pass_is_one_forward_over_all_tokens(level):
    # Two prompts with 120 new and 60 cached tokens in all, three requests decoding at 400 each.
    expected = shared_ms(123) + gemm_ms(1) + level.context_attention(2, 60, 30) + level.generation_attention(3, 400)
    assert level.mixed(2, 120, 60, 3, 1200) == pytest.approx(expected, rel=1e-12)
    assert level.mixed(2, 120, 60, 0, 0) == level.prefill(2, 60, 30)
    assert level.mixed(0, 0, 0, 3, 1200) == level.decode(3, 400)
    assert level.mixed(1, 0, 50, 3, 1200) == level.decode(3, 400)  # a prompt all of which is cached
    assert level.mixed(0, 0, 0, 0, 0) == 0
    # Means are floors: 121 // 2 new tokens each, so the new tokens make up three such prompts.
    uneven = level.shared("context", 124) + level.logits("context", 1)
    uneven = uneven + level.context_attention(3, 60, 30) + level.generation_attention(3, 400)
    assert level.mixed(2, 121, 61, 3, 1202) == uneven
    with pytest.raises(ValueError, match="prefill tokens without prefill requests: 5"):
        level.mixed(0, 5, 0, 3, 1200)
    with pytest.raises(ValueError, match="decode tokens without decode requests: 7"):
        level.mixed(1, 5, 0, 0, 7)


def test_a_mixed_pass_verifies_draft_tokens(root):
    level = OpLevel(deployed(root, nextn=2), root, clean=False)
    expected = level.shared("context", 120 + 9) + level.logits("context", 1)
    expected = expected + level.context_attention(2, 60, 30) + level.generation_attention(9, 400)
    assert level.mixed(2, 120, 60, 3, 1200) == expected


def test_the_planner_form_averages_the_chunks_of_a_prompt(level):
    shared, prefill, decode = level.planner_mixed(100, 2, 200, 40, 50)
    assert shared == level.shared("context", 102) + level.logits("context", 1)
    assert prefill == level.context_attention(1, 150, 50) / 2
    assert decode == level.generation_attention(2, 221)
    # Prompts that fit whole are not computed where they are cached.
    shared, prefill, _ = level.planner_mixed(400, 2, 200, 40, 50)
    assert shared == level.shared("context", 302) + level.logits("context", 1)
    assert prefill == level.context_attention(2, 150, 50)


def test_tensor_parallel_ranks_pay_the_all_reduce_of_captured_graphs(tmp_path):
    frames = tables()
    (path,) = [p for p in frames if p.endswith("context_attention_perf.parquet")]
    halves = frames[path].with_columns(num_heads=pl.lit(2, pl.Int64), num_key_value_heads=pl.lit(1, pl.Int64))
    root = write_tiny(tmp_path, context_attention=halves)
    level = OpLevel(deployed(root, tp=2), root, clean=False)
    lines = {line.op: line for line in level.breakdown("context", 1, 100)}
    assert lines["context_ar_1"].ms == pytest.approx(LAYERS * REDUCE_MS)
    assert lines["context_embedding_ar"] == ("context_embedding_ar", REDUCE_MS, "silicon")
    # Decode heads were not measured at this count.
    with pytest.raises(PerfDataError, match="num_heads=2, num_key_value_heads=1") as caught:
        level.decode(1, 100)
    assert caught.value.reason == "missing_shape" and level.phases == ("context",)


def test_the_breakdown_adds_up_and_says_where_it_comes_from(level):
    prefill, decode = level.breakdown("context", 2, 70, 30), level.breakdown("generation", 3, 500)
    assert sum(line.ms for line in prefill) == pytest.approx(float(level.prefill(2, 70, 30)), rel=1e-12)
    assert sum(line.ms for line in decode) == pytest.approx(float(level.decode(3, 500)), rel=1e-12)
    sources = {line.op: line.source for line in prefill}
    assert sources["context_qkv_gemm"] == "silicon" and sources["context_add_norm_1"] == "empirical"
    assert sources["context_attention"] == "mixed"


def test_lineage_names_the_rows_that_answer(level):
    rows = level.lineage("context", 1, 51)
    qkv = [(row.row, row.share) for row in rows if row.op == "context_qkv_gemm"]
    low, high = 0.5 * gemm_ms(1), 0.5 * gemm_ms(101)  # half way between the first two points of the site
    assert qkv == [(0, pytest.approx(low / (low + high))), (1, pytest.approx(high / (low + high)))]
    assert {row.file for row in rows} == {
        "systems/data/h200_sxm/gemm/vllm/0.24.0/gemm_perf.parquet",
        "systems/data/h200_sxm/attention/vllm/0.24.0/context_attention_perf.parquet",
    }
    per_operator: dict[str, float] = {}
    for row in level.lineage("generation", 3, 500):
        per_operator[row.op] = per_operator.get(row.op, 0.0) + row.share
    assert all(share == pytest.approx(1.0) for share in per_operator.values())
    assert "generation_add_norm_1" not in per_operator and "generation_attention" in per_operator


def test_coverage_and_axes_tell_what_was_measured(level):
    found = level.coverage("context", [1, 3, 8], [100, 60, 100], [0, 0, 0])
    assert found.kind.tolist() == [MEASURED, INTERPOLATED, EXTRAPOLATED]
    assert found.octaves.tolist() == [0, 0, 1.0]
    assert level.coverage("generation", 1, 8000).kind == EXTRAPOLATED
    axes = level.axes("generation")
    assert axes.batch.tolist() == [1, 2, 4] and axes.length.tolist() == [1, 101, 1001, 4001]
    assert axes.prefix.tolist() == [0] and axes.frontier.tolist() == [4001] * 3


def test_latencies_below_the_roofline_are_raised_to_it(tmp_path):
    frames = tables()
    (path,) = [p for p in frames if p.endswith("/gemm_perf.parquet")]
    fast = frames[path].with_columns(latency=pl.lit(2e-3), m=pl.col("m") * 10_000_000)
    root = write_tiny(tmp_path, gemm=fast)
    level = OpLevel(deployed(root), root, clean=False)
    m = 10_000_000
    bound = 2 * (m * 256 + m * 64 + 256 * 64) / 4.8e12 * 1000
    assert level.logits("context", m) == pytest.approx(bound, rel=1e-12)


def test_what_if_factors_multiply_what_they_name(root, level):
    halved = OpLevel(deployed(root), root, clean=False, factors={"gemm": 0.5, "qkv_gemm": 3.0})
    plain = {line.op: line.ms for line in level.breakdown("context", 1, 100)}
    now = {line.op: line.ms for line in halved.breakdown("context", 1, 100)}
    assert now["context_ffn2_gemm"] == pytest.approx(0.5 * plain["context_ffn2_gemm"])
    assert now["context_qkv_gemm"] == pytest.approx(1.5 * plain["context_qkv_gemm"])
    assert now["context_attention"] == plain["context_attention"]
    assert float(halved.prefill(1, 100, 0)) == pytest.approx(sum(now.values()))
    with pytest.raises(PerfDataError, match="unknown operator, kind or link 'gem'; nearest: gemm; kinds: "):
        OpLevel(deployed(root), root, clean=False, factors={"gem": 0.5})


def test_provenance_is_plain_and_names_every_file(level):
    told = level.provenance()
    assert told["deployment"]["model"] == "tiny/dense" and told["clean"] is False
    assert told["source"]["kind"] == "folder" and len(told["source"]["files"]) == 5
    assert "systems/h200_sxm.yaml" in told["source"]["files"]
    assert all(len(digest) == 32 for digest in told["source"]["files"].values())


@pytest.mark.parametrize(
    ("left_out", "named", "reason", "said"),
    [
        ("gemm", {}, "missing_table", "no gemm table for vllm 0.24.0 on h200_sxm"),
        (None, {"gemm": "fp8"}, "missing_precision", "no gemm rows with gemm_dtype=fp8"),
        ("generation_attention", {"fmha": "fp8"}, "missing_precision", "attn_dtype there: bfloat16"),
    ],
)
def test_what_is_missing_names_the_file_that_would_hold_it(tmp_path, left_out, named, reason, said):
    root = write_tiny(tmp_path, **({left_out: None} if left_out else {}))
    with pytest.raises(PerfDataError) as caught:
        OpLevel(deployed(root, **named), root, clean=False)
    assert caught.value.reason == reason and said in str(caught.value)
    assert "_perf.parquet" in str(caught.value)


def test_the_lane_a_backend_prefers_answers(tmp_path):
    frames = tables()
    (path,) = [p for p in frames if p.endswith("context_attention_perf.parquet")]
    other = frames[path].with_columns(kernel_source=pl.lit("some_kernel"), latency=pl.col("latency") * 7)
    root = write_tiny(tmp_path, context_attention=pl.concat([other, frames[path]]))
    level = OpLevel(deployed(root), root, clean=False)
    assert level.lookup("context", 1, 100) == pytest.approx(LAYERS * context_ms(1, 100))
    # Alone, a kernel that is no lane by name is the default lane.
    alone = write_tiny(tmp_path / "alone", context_attention=other)
    assert OpLevel(deployed(alone), alone, clean=False).lookup("context", 1, 100) == pytest.approx(
        7 * LAYERS * context_ms(1, 100)
    )


def test_as_many_kv_heads_as_heads_are_stored_under_none(tmp_path):
    # Rows whose KV heads equal their heads do not answer for two KV heads, whatever their number.
    alike = {"num_heads": 2, "num_key_value_heads": 2, "kv_cache_dtype": "bfloat16", "attn_dtype": "bfloat16"}
    rows = rows_of("context_attention", [alike | {"isl": 100, "latency": 0.5}], head_dim=16, window_size=0, step=0)
    root = write_tiny(tmp_path, context_attention=rows)
    refused = OpLevel(deployed(root), root, clean=False).refusal("context")
    assert refused is not None and refused.reason == "missing_shape"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "named"),
    [
        ("Qwen/Qwen3-32B", {"system": "b200_sxm", "tp": 4, "gemm": "fp8"}),
        ("Qwen/Qwen3-30B-A3B", {"system": "h200_sxm", "tp": 2}),
        ("deepseek-ai/DeepSeek-V3.2", {"system": "b200_sxm", "dp": 8}),
    ],
)
def test_cleaned_tables_make_more_work_cost_no_less(model, named):
    root = extra_root()
    level = OpLevel(resolve(root, model, backend="vllm", **named), root, clean=True)
    tokens = np.arange(1, 9217)
    for phase in level.phases:
        assert (np.diff(level.shared(phase, tokens)) >= 0).all()
    batch, kv = 2 ** np.arange(9)[:, None], np.unique(np.round(2 ** np.linspace(0, 17, 60)).astype(int))[None, :]
    ms, known = level.generation_attention(batch, kv), level.coverage("generation", batch, kv).kind < EXTRAPOLATED
    assert np.isfinite(ms).all() and (ms > 0).all()
    # Beyond the measured points the nearest ones decide, and they may differ from knot to knot.
    assert (np.diff(ms, axis=0)[known[1:] & known[:-1]] >= -1e-12).all()
    assert (np.diff(ms, axis=1)[known[:, 1:] & known[:, :-1]] >= -1e-12).all()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "backend", "named"),
    [
        ("openai/gpt-oss-120b", "vllm", {"tp": 2}),
        ("deepseek-ai/DeepSeek-R1", "vllm", {"tp": 8}),  # a measured module
        ("deepseek-ai/DeepSeek-R1", "sglang", {"tp": 8}),  # put together from kernel and products
        ("moonshotai/Kimi-K2.5", "vllm", {"tp": 8}),
        ("zai-org/GLM-5-FP8", "vllm", {"dp": 8}),
        ("MiniMaxAI/MiniMax-M3", "vllm", {"tp": 8}),
        ("MiniMaxAI/MiniMax-M2.5", "sglang", {"tp": 4}),
        ("Qwen/Qwen3.5-35B-A3B", "vllm", {"tp": 2}),
        ("Qwen/Qwen3.5-27B", "sglang", {"tp": 2}),
        ("Qwen/Qwen3-32B-FP8-Static-PerTensor", "vllm", {"tp": 2}),
        ("meta-llama/Meta-Llama-3.1-70B", "trtllm", {"tp": 4}),
        ("meta-llama/Llama-4-Maverick-17B-128E-Instruct", "vllm", {"tp": 8}),
        ("XiaomiMiMo/MiMo-V2-Flash", "sglang", {"tp": 4}),
        ("google/gemma-4-26B-A4B", "vllm", {"tp": 1}),
    ],
)
def test_every_architecture_is_priced(model, backend, named):
    root = extra_root()
    level = OpLevel(resolve(root, model, "h200_sxm", backend, **named), root, clean=False)
    assert level.phases == ("context", "generation")
    prefill = level.prefill(np.array([1, 2, 8]), np.array([64, 1000, 3000]), np.array([0, 500, 0]))
    decode = level.decode(np.array([1, 32, 200]), np.array([100, 3000, 50_000]))
    assert (prefill > 0).all() and (np.diff(prefill) > 0).all() and (np.diff(decode) > 0).all()
    for phase, at in (("context", (2, 300, 100)), ("generation", (7, 500))):
        lines = level.breakdown(phase, *at)
        whole = level.prefill(*at) if phase == "context" else level.decode(*at)
        assert sum(line.ms for line in lines) == pytest.approx(float(whole), rel=1e-9)
        shares: dict[str, float] = {}
        for row in level.lineage(phase, *at):
            shares[row.op] = shares.get(row.op, 0.0) + row.share
        assert all(share == pytest.approx(1.0) for share in shares.values())
    assert capacity(level.deployment, root, max_batched_tokens=8192).blocks > 0
