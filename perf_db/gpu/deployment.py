"""A deployment: one model on one GPU system under one backend, with its parallelism and precisions."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from perf_db.gpu.errors import PerfDataError
from perf_db.gpu.hardware import load_hardware
from perf_db.gpu.load import BACKENDS, current_version, versions
from perf_db.gpu.models import Model, load_model
from perf_db.gpu.names import unknown
from perf_db.gpu.quant import FMHA, GEMM, KV_BYTES, MESSAGE_BYTES
from perf_db.gpu.source import PerfRoot


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

    @property
    def label(self) -> str:
        """One line for people."""
        parts = [f"{self.model} on {self.system}, {self.backend} {self.version}, TP {self.tp}"]
        for name, value in (("PP", self.pp), ("DP", self.dp), ("expert TP", self.moe_tp), ("EP", self.moe_ep)):
            if value > 1:
                parts.append(f"{name} {value}")
        parts.append(f"gemm {self.gemm}, kv {self.kv_cache}, attention {self.fmha}")
        if self.nextn:
            parts.append(f"{self.nextn} draft tokens")
        return ", ".join(parts)


def resolve(
    root: PerfRoot,
    model: str,
    system: str,
    backend: str,
    *,
    version: str | None = None,
    tp: int = 1,
    pp: int = 1,
    dp: int = 1,
    moe_tp: int | None = None,
    moe_ep: int | None = None,
    gemm: str | None = None,
    moe: str | None = None,
    kv_cache: str | None = None,
    fmha: str | None = None,
    comm: str = "half",
    nextn: int = 0,
) -> Deployment:
    """A deployment with everything that was left open filled in, and every name checked.

    `version` may be `current`, or `next`: the newest one that has tables. Defaults: the current version of the data;
    the checkpoint's own precisions, bfloat16 where it says nothing; experts split by expert parallelism over the
    data-parallel ranks and by tensor parallelism over the others.

    Raises:
        PerfDataError: an unknown name, or degrees that do not fit the model.
    """
    facts = load_model(root, model)
    load_hardware(root, system)
    if backend not in BACKENDS and not versions(root, system, backend):
        raise PerfDataError("unknown_backend", unknown("backend", backend, BACKENDS, f"all: {', '.join(BACKENDS)}"))
    current = current_version(root, system, backend)
    version = _slot(version, current, versions(root, system, backend))
    if version is not None and version not in versions(root, system, backend):
        known = versions(root, system, backend)
        raise PerfDataError(
            "unknown_version",
            unknown(f"{backend} version on {system}", version, known, f"current: {current}; all: {', '.join(known)}"),
        )
    if moe_tp is None and moe_ep is None:
        moe_tp, moe_ep = (tp, dp) if facts.symbols["E"] else (1, 1)
    elif moe_tp is None:
        moe_tp = max(1, tp * dp // (moe_ep or 1))
    elif moe_ep is None:
        moe_ep = max(1, tp * dp // moe_tp)
    stated = facts.precisions
    sparse = facts.symbols["topk_index"] > 0
    # A sparse-attention model stored in fp8 keeps its latent KV cache in fp8 too.
    kv_default = "fp8" if sparse and str(stated.get("gemm", "")).startswith("fp8") else "bfloat16"
    deployment = Deployment(
        model=model,
        system=system,
        backend=backend,
        version=version or current,
        tp=tp,
        pp=pp,
        dp=dp,
        moe_tp=moe_tp,
        moe_ep=moe_ep or 1,
        gemm=gemm or stated.get("gemm", "bfloat16"),
        moe=moe or stated.get("moe", "bfloat16"),
        kv_cache=kv_cache or stated.get("kv_cache", kv_default),
        fmha=fmha or "bfloat16",
        comm=comm,
        nextn=nextn,
    )
    check(deployment, facts)
    return deployment


def _slot(version: str | None, current: str, known: list[str]) -> str | None:
    if version == "current":
        return current
    return known[-1] if version == "next" else version


def check(deployment: Deployment, model: Model) -> None:
    """Precisions exist and parallel degrees fit the model.

    Raises:
        PerfDataError: `unknown_quantisation` or `bad_parallelism`.
    """
    d = deployment
    for what, value, table in (
        ("gemm", d.gemm, GEMM),
        ("moe", d.moe, GEMM),
        ("kv_cache", d.kv_cache, KV_BYTES),
        ("fmha", d.fmha, FMHA),
        ("comm", d.comm, MESSAGE_BYTES),
    ):
        if value not in table:
            raise PerfDataError(
                "unknown_quantisation", unknown(f"{what} precision", value, table, f"all: {', '.join(table)}")
            )
    faults = [
        f"{name}={value} is not at least {least}"
        for name, value, least in (
            ("tp", d.tp, 1), ("pp", d.pp, 1), ("dp", d.dp, 1), ("moe_tp", d.moe_tp, 1), ("moe_ep", d.moe_ep, 1),
            ("nextn", d.nextn, 0),
        )
        if value < least
    ]  # fmt: skip
    heads, experts = model.symbols["H"], model.symbols["E"]
    if not faults and heads % d.tp:
        faults.append(f"tp={d.tp} does not divide the {heads} attention heads of {d.model}")
    if not faults and experts:
        if d.tp * d.dp != d.moe_tp * d.moe_ep:
            faults.append(f"tp * dp = {d.tp * d.dp} ranks, but moe_tp * moe_ep = {d.moe_tp * d.moe_ep}")
        if experts % d.moe_ep:
            faults.append(f"moe_ep={d.moe_ep} does not divide the {experts} experts of {d.model}")
    if faults:
        raise PerfDataError("bad_parallelism", "; ".join(faults))
