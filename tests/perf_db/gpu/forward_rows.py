"""Rows of whole-forward tables by hand: one cell, coordinates and milliseconds as a test gives them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from perf_db.gpu.forward import EXECUTION_FLAGS, EXECUTION_TEXT, EXECUTION_WHOLE

IDENTITY: dict[str, Any] = {
    "model_path": "org/model",
    "system": "h200_sxm",
    "backend": "vllm",
    "backend_version": "0.24.0",
    **dict.fromkeys(EXECUTION_TEXT, "bfloat16"),
    **dict.fromkeys(EXECUTION_WHOLE, 1),
    **dict.fromkeys(EXECUTION_FLAGS, False),
}


def rows(
    prefill: Sequence[tuple[int, int, int, float]], decode: Sequence[tuple[int, int, float]], **identity: Any
) -> list[dict[str, Any]]:
    """
    Args:
        prefill: (batch, new tokens, past KV tokens, ms).
        decode: (batch, KV tokens, ms).
    """
    own = {**IDENTITY, "cell_id": "one", **identity}
    work = [("prefill", b, t, kv, ms) for b, t, kv, ms in prefill] + [("decode", b, 0, kv, ms) for b, kv, ms in decode]
    names = ("workload_kind", "batch_size", "total_prefill_tokens", "total_kv_read_tokens", "latency_ms")
    return [{**own, "partition_policy": "balanced_v1", **dict(zip(names, each, strict=True))} for each in work]


# Test 7-A: 8 new tokens cost 10 ms; a decode of one request 2 ms at KV 4, 4 ms at KV 12.
SEVEN_A = rows([(1, 7, 0, 10.0), (1, 8, 0, 10.0)], [(1, 4, 2.0), (1, 12, 4.0)])
