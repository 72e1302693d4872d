"""The sum of the operators' rooflines, from the files of the model and the system alone."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from perf_db.gpu.deployment import Deployment
from perf_db.gpu.errors import PerfDataError
from perf_db.gpu.ops import attention, dsa, mla, msa
from perf_db.gpu.ops.base import AttentionOperator
from perf_db.gpu.quant import FMHA, GEMM
from perf_db.gpu.source import PerfRoot
from perf_db.gpu.whole_roofline import WholeRoofline, deployment_of_cell
from tests.perf_db.gpu.forward_rows import IDENTITY
from tests.perf_db.gpu.measured import SYSTEM, extra_root, write_root
from tests.perf_db.gpu.tiny import CONFIG, MODEL

CELL = {**IDENTITY, "model_path": MODEL}
BW, FLOPS = SYSTEM["gpu"]["mem_bw"], SYSTEM["gpu"]["bfloat16_tc_flops"]


def bare_root(folder: Path, config: dict[str, Any] = CONFIG) -> PerfRoot:
    """A model and a system, and no table of any operator."""
    root = write_root(folder, {})
    (folder / "model_configs" / "tiny--dense_config.json").write_text(json.dumps(config))
    return root


def test_every_operator_of_a_dense_model_by_hand(tmp_path: Path) -> None:
    """Two layers of width 64, 4 heads of 16 over 2 KV heads, FFN 128, 256 words; 2 requests, 200 new, 100 cached.

    All of it is so small that memory is the bound: bytes / 4.8 TB/s.
    """
    whole = WholeRoofline(deployment_of_cell(CELL, bare_root(tmp_path)), bare_root(tmp_path))
    n, t, q = 2, 200, 100
    layer = 2 * 8 * 64 * t + 2 * (2 * 128 + 128) * t  # two norms, the activation
    for width, inner in ((128, 64), (64, 64), (256, 64), (64, 128)):
        layer += 2 * (t * width + t * inner + width * inner)
    layer += 4 * 64 * t + 2 * 2 * 16 * 2 * (t + q)  # attention: queries and results, then keys and values
    model = 2 * 64 * t + 2 * (n * 256 + n * 64 + 256 * 64)  # embedding, logits of one row a request
    assert float(whole.prefill_ms(n, t, q)) == pytest.approx((2 * layer + model) / BW * 1000, rel=1e-12)
    # A long prompt is bound by the pairs of tokens: 4 H d of them, halved by causality, less those among the cached.
    t, q = 4_000_000, 1_000_000
    assert float(whole.prefill_ms(1, t, q) - whole.tokens_ms(t)) == pytest.approx(
        2 * 2 * (5e6**2 - 1e6**2) * 64 / FLOPS * 1000, rel=1e-3
    )


def test_ranks_share_the_work_and_pay_for_messages(tmp_path: Path) -> None:
    root = bare_root(tmp_path)
    one, two = (WholeRoofline(Deployment(MODEL, "h200_sxm", "vllm", "1", tp=tp), root) for tp in (1, 2))
    t = np.array([1_000.0])
    reduce = 5 * 2 * 2 * 64 * t * (1 / 2) / SYSTEM["node"]["intra_node_bw"] * 1000  # embedding, two per layer
    # Norms, the embedding and inputs of projections are whole on every rank.
    assert reduce < two.tokens_ms(t) < one.tokens_ms(t) + reduce


def test_attention_rows_are_the_rooflines_of_the_operators() -> None:
    """Compute, memory, windows and kept keys: every family at lengths below and above what it keeps."""
    deployment = Deployment("m", "s", "vllm", "1", fmha="fp8", kv_cache="fp8", gemm="fp8")
    hardware = SimpleNamespace(flops={"bfloat16": 989e12, "fp8": 1978e12}, mem_bw=4.8e12)
    base = {"kind": "", "op": "attention", "scale": 3, "heads": 16, "quant": "fp8"}
    latent = {"hidden": 7168, "q_lora": 1536, "kv_lora": 512, "rope": 64, "nope": 128, "v_dim": 128}
    indexed = latent | {"index_heads": 64, "index_dim": 128, "topk": 2048}
    blocks = {"hidden": 6144, "head_size": 128, "group": 8, "index": 512, "topk": 2048}
    common = {"kv_bytes": 1, "gemm": GEMM["fp8"], "fmha": FMHA["fp8"], "hardware": hardware}
    dense = {"index_heads": 0, "index_dim": 0, "topk": mla.DENSE}

    def module(rule: Any, sizes: Any) -> Any:
        return lambda n, s, p: rule(np.stack([np.full(n.shape, 16.0), p, s, n], axis=-1), sizes=sizes)

    wanted = {
        "dsa": (indexed, module(dsa.context_roofline, dsa.Sizes(**indexed, **common))),
        "mla_module": (latent, module(dsa.context_roofline, dsa.Sizes(**latent, **dense, **common))),
        "mla": (
            latent,
            module(dsa.context_roofline, dsa.Sizes(**(latent | {"hidden": 0, "q_lora": 0}), **dense, **common)),
        ),
        "msa": (blocks, module(msa.context_roofline, msa.Sizes(**blocks, **common))),
    }
    rng = np.random.default_rng(4)
    n = rng.integers(1, 9, 400).astype(float)
    s, p = (np.round(2.0 ** rng.uniform(low, 15, 400)) for low in (0, -3))
    for window in (0, 512):
        head = SimpleNamespace(size=128, window=window, kv_bytes=1)
        wanted["attention"] = (
            {"kv_heads": 2, "head_size": 128, "window": window},
            lambda n, s, p, head=head: attention.context_roofline(
                np.full(n.shape, 16.0), np.full(n.shape, 2.0), head, n, s, "fp8", hardware
            ),
        )
        for kind, (dims, rule) in wanted.items():
            whole = made(deployment, hardware, {**base, **dims, "kind": kind})
            cached = p if kind != "attention" else np.zeros(p.shape)  # its table has no prefix
            got = whole.prefill_ms(n, n * s, n * cached)
            np.testing.assert_allclose(got, 3 * rule(n, s, cached), rtol=1e-9, err_msg=kind)


def made(deployment: Deployment, hardware: Any, *shapes: dict[str, Any]) -> WholeRoofline:
    """A roofline of given operators."""
    from perf_db.gpu import whole_roofline

    whole = object.__new__(WholeRoofline)
    whole.deployment, whole.hardware, whole.shared = deployment, hardware, []
    rows = []
    for shape in shapes:
        row = whole_roofline._ATTENTION[shape["kind"]](whole, shape)
        rows.append([*row[:3], *(shape["scale"] * value for value in row[3:])])
    whole.attention, whole.logits = np.array(rows), np.zeros((0, 3))
    return whole


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"model_path": "org/model"}, "unknown_model"),
        ({"system": "b200"}, "unknown_system"),
        ({"gemm_quant_mode": "fp7"}, "unknown_quantisation"),
        ({"gemm_quant_mode": "nvfp4"}, "unknown_quantisation"),
        ({"tp": 3}, "bad_parallelism"),
        ({"cp": 2}, "bad_parallelism"),
    ],
)
def test_what_is_not_known_is_refused_by_reason(tmp_path: Path, change: dict[str, Any], reason: str) -> None:
    root = bare_root(tmp_path)
    with pytest.raises(PerfDataError) as error:
        WholeRoofline(deployment_of_cell({**CELL, **change}, root), root)
    assert error.value.reason == reason


@pytest.mark.parametrize(
    ("model", "shape"),
    [
        ("Qwen/Qwen3-32B", {"tp": 4}),
        ("Qwen/Qwen3-30B-A3B", {"tp": 2}),
        ("deepseek-ai/DeepSeek-V3", {"tp": 8}),
        ("deepseek-ai/DeepSeek-V3.2", {"dp": 8}),
    ],
)
def test_recorded_deployments_do_not_beat_their_roofline(model: str, shape: dict[str, int]) -> None:
    """The roofline is the sum of those that the operators are measured against, and real passes take longer."""
    from perf_db.gpu.deployment import resolve
    from perf_db.gpu.oplevel import OpLevel

    root = extra_root()
    deployment = resolve(root, model, "h200_sxm", "vllm", **shape)  # type: ignore[arg-type]
    op_level, whole = OpLevel(deployment, root, clean=False), WholeRoofline(deployment, root)
    x = np.array([16.0, 700.0, 8192.0])
    gemms = [op for op in op_level.operators("context") if op.kind == "gemm" and op.part == "shared"]
    part = sum(op.scale * op.sites.roofline(x) for op in gemms)  # type: ignore[attr-defined]
    part += sum(op.scale * op.curve.roofline(x * op.pool) for op in op_level.operators("context") if op.kind == "moe")
    assert (part < whole.tokens_ms(x)).all()
    attentions = [op for op in op_level.operators("context") if isinstance(op, AttentionOperator)]
    assert len(whole.attention) == len(attentions)
    for n, s, p in ((1, 64, 0), (4, 512, 1024), (1, 8192, 0), (1, 1024, 8192)):
        share = float(whole.prefill_ms(n, n * s, n * p)) / float(op_level.prefill(n, s, p))
        assert 0.05 < share < 1.0, (n, s, p, share)
