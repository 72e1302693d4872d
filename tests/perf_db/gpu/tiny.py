"""A made-up model of two layers on a made-up data set: every price can be worked out by hand.

Every GEMM of m tokens takes `gemm_ms(m)`, context attention of b prompts of s tokens `context_ms(b, s)` at its knots,
decode attention of b requests at KV length c `decode_ms(b, c)`, an all-reduce of any size `REDUCE_MS`.
"""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl

from perf_db.gpu.deployment import Deployment, resolve
from perf_db.gpu.source import PerfRoot
from tests.perf_db.gpu.measured import SYSTEM, rows_of, write_root

MODEL = "tiny/dense"
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "num_hidden_layers": 2,
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "intermediate_size": 128,
    "vocab_size": 256,
    "max_position_embeddings": 4096,
}
TOKENS = (1, 101, 1001)
BATCHES = (1, 2, 4)
PROMPTS = (1, 100, 400)
KV = (1, 101, 1001, 4001)
REDUCE_MS = 0.25


def gemm_ms(m: float) -> float:
    return 0.01 + 0.001 * (m - 1)


def context_ms(b: float, s: float) -> float:
    """Linear in the batch; its square root is linear in the length."""
    return b * (0.1 + 0.001 * s) ** 2


def decode_ms(b: float, c: float) -> float:
    return 0.02 + 0.0001 * b * c


def mem_ms(nbytes: float) -> float:
    """Time of a kernel that only moves bytes, on the made-up system."""
    return (nbytes / (SYSTEM["gpu"]["mem_bw"] * 0.8) + 3e-6) * 1000


def tables() -> dict[str, pl.DataFrame]:
    """The data files, by path below systems/data."""
    sites = [(128, 64), (64, 64), (256, 64), (64, 128), (32, 64), (64, 32)]
    gemms = [
        {"n": n, "k": k, "m": m, "latency": gemm_ms(m), "gemm_dtype": "bfloat16"} for n, k in sites for m in TOKENS
    ]
    head = {"kv_cache_dtype": "bfloat16", "head_dim": 16, "kernel_source": "vllm_flash_attn_fa3", "num_heads": 4}
    head |= {"attn_dtype": "bfloat16", "num_key_value_heads": 2, "window_size": 0}
    context = [
        head | {"isl": s, "batch_size": b, "step": 0, "latency": context_ms(b, s)} for s in PROMPTS for b in BATCHES
    ]
    decode = [
        head | {"isl": 1, "step": c - 1, "batch_size": b, "latency": decode_ms(b, c)} for b in BATCHES for c in KV
    ]
    reduce = [
        {"num_gpus": n, "message_size": size, "latency": REDUCE_MS, "kernel_source": f"custom_{kind}"}
        for kind in ("eager", "graph")
        for n in (2, 4)
        for size in (64, 1 << 20)
    ]
    for row in reduce:
        row["latency"] = 9.0 if row["kernel_source"] == "custom_eager" else REDUCE_MS
    at = "h200_sxm/{}/vllm/0.24.0/{}_perf.parquet"
    return {
        at.format("gemm", "gemm"): rows_of("gemm", gemms),
        at.format("attention", "context_attention"): rows_of("context_attention", context),
        at.format("attention", "generation_attention"): rows_of("generation_attention", decode),
        at.format("comm", "custom_allreduce"): rows_of("custom_allreduce", reduce),
    }


def write_tiny(folder: Path, **changes: pl.DataFrame | None) -> PerfRoot:
    """The data set on disk. `changes`: table name -> other rows, or None to leave the file out."""
    files = tables()
    for name, rows in changes.items():
        (path,) = [p for p in files if p.endswith(f"/{name}_perf.parquet")]
        del files[path]
        if rows is not None:
            files[path] = rows
    root = write_root(folder, files)
    (folder / "model_configs" / "tiny--dense_config.json").write_text(json.dumps(CONFIG))
    return root


def deployed(root: PerfRoot, **more: object) -> Deployment:
    return resolve(root, MODEL, "h200_sxm", "vllm", **more)  # type: ignore[arg-type]
