"""A deployment: one model on one GPU system under one backend, with its parallelism and precisions."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Deployment:
    """Identity of what is priced. Precisions are those of the tables, e.g. `bfloat16`, `fp8`, `fp8_block`, `nvfp4`.

    Attributes:
        model: name of a checkpoint, `Qwen/Qwen3-32B`.
        system, backend, version: `h200_sxm`, `vllm`, `0.24.0`.
        tp, pp, dp: tensor, pipeline and attention-data parallel degrees.
        moe_tp, moe_ep: how the same ranks split the experts; `tp * dp == moe_tp * moe_ep` for models with experts.
        gemm, moe, kv_cache, fmha, comm: precision of projections, experts, KV cache, attention compute, messages.
        nextn: draft tokens that every decode request verifies on top of its own.
    """

    model: str
    system: str
    backend: str
    version: str
    tp: int = 1
    pp: int = 1
    dp: int = 1
    moe_tp: int = 1
    moe_ep: int = 1
    gemm: str = "bfloat16"
    moe: str = "bfloat16"
    kv_cache: str = "bfloat16"
    fmha: str = "bfloat16"
    comm: str = "half"
    nextn: int = 0

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for keys of caches and for provenance."""
        return asdict(self)
