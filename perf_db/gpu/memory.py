"""How many KV blocks one rank of a deployment holds."""

from __future__ import annotations

from dataclasses import dataclass

from perf_db.gpu.deployment import Deployment
from perf_db.gpu.source import PerfRoot


@dataclass(frozen=True, slots=True)
class Capacity:
    """Bytes of one rank, and what is left of them for the KV cache."""

    gpu_bytes: int
    weights_bytes: int
    activation_bytes: int
    runtime_bytes: int
    comm_bytes: int
    kv_bytes: int  # budget of the KV cache
    kv_bytes_per_token: int
    block_tokens: int
    kv_tokens: int
    blocks: int


def capacity(
    deployment: Deployment,
    root: PerfRoot,
    *,
    max_batched_tokens: int,
    fraction: float | None = None,
    block_tokens: int = 16,
) -> Capacity:
    """Bytes and blocks; `fraction=None` takes the backend's default."""
    raise NotImplementedError
