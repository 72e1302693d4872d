"""Measured deployments of closed loops, from their labels to the amounts that predictions are made of.

One deployment is looked up once, one schedule is replayed once; what a loop's passes cost on a deployment is kept on
disk under the digests of everything it depends on.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from assets.accuracy.amounts import COMPONENTS, Amounts, Pricer, amounts
from assets.accuracy.closed_loop import BLOCK_TOKENS, Loop, play
from assets.accuracy.labels import BLACKWELL, Labels, mended
from assets.calibration.host_model import LoopRows
from assets.identity import canonical_json, digest, sources_digest
from perf_db.gpu.deployment import Deployment, resolve
from perf_db.gpu.errors import PerfDataError
from perf_db.gpu.memory import capacity
from perf_db.gpu.oplevel import OpLevel
from perf_db.gpu.source import PerfRoot
from sim.errors import ReplayError

BUDGET = 8192  # batched tokens, of every backend's benchmark scripts
FRACTION = 0.90  # of GPU memory
TIGHT = 0.10  # of demand: nearer than this, capacity decides by factors and is worth a warning
PROFILE = {"vllm": "vllm", "trtllm": "trtllm", "sglang": "vllm"}
PROVISIONAL = ("sglang",)  # priced with another engine's scheduler
# Latent-attention models in 4-bit weights: the memory rule leaves far less than measured runs had.
UNLIMITED_KV = ("Kimi",)

# Runs whose figures no load like the labelled one gives: a batch of 8 decodes at a twentieth of the speed of the same
# model on the GPUs before.
DOUBTED = ({"origin": "lab_runs", "backend": "trtllm", "system": "gb200", "model_family": "qwen3-32b", "tp": 2},)


@dataclass(frozen=True, slots=True)
class Case:
    """One measured loop, ready to be replayed, or the reason why it is not.

    Attributes:
        clients: of the whole engine.
        evidence: what was decided on the way: rules applied, capacity, precisions.
    """

    row_id: str
    labels: Labels | None
    loop: Loop | None
    clients: int
    reason: str | None = None
    provisional: bool = False

    @property
    def key(self) -> str:
        """Of the deployment: loops with the same key are priced from the same tables."""
        assert self.labels is not None
        kept = ("model", "system", "backend", "tp", "pp", "dp", "moe_tp", "moe_ep", "gemm", "moe", "kv_cache")
        return canonical_json({name: getattr(self.labels, name) for name in kept})


def case_of(row: Mapping[str, Any]) -> Case:
    """A row of `ground_truth` of grain deployment as a loop."""
    provisional = row["backend"] in PROVISIONAL
    refused = Case(row["row_id"], None, None, 0, provisional=provisional)
    if row["mode"] == "disagg":
        return replace(refused, reason="disaggregated")
    if row["backend"] not in PROFILE:
        return replace(refused, reason="unknown_backend")
    if row["prompt_tokens"] is None or row["output_tokens"] is None:
        return replace(refused, reason="unknown_lengths")
    if any(all(row[name] == value for name, value in doubt.items()) for doubt in DOUBTED):
        return replace(refused, reason="load_not_as_labelled")
    labels = mended(row)
    if not labels.clients:
        return replace(refused, reason="unknown_load")
    loop = Loop(
        profile=PROFILE[labels.backend],
        clients=max(1, round(labels.clients / labels.dp)),
        prompt_tokens=labels.prompt_tokens,
        output_tokens=max(labels.output_tokens, 1),
        exact=labels.exact_lengths,
        budget=BUDGET,
    )
    return Case(row["row_id"], labels, loop, labels.clients, provisional=provisional)


@dataclass(frozen=True, slots=True, eq=False)
class Priced:
    """A case with its amounts, or with the reason why it has none."""

    case: Case
    amounts: Amounts | None
    layers: int
    prompt_mean: float
    reason: str | None
    evidence: dict[str, Any]


class Pricers:
    """Deployments looked up in the performance data, each once.

    Args:
        cache: folder for amounts; None keeps nothing.
    """

    def __init__(self, root: PerfRoot, *, clean: bool = True, cache: Path | None = None) -> None:
        self.root, self.clean, self.cache = root, clean, cache
        self._sources = digest(sources_digest("sim"), sources_digest("perf_db"), _own_sources())

    def price(self, cases: Sequence[Case], progress: Callable[[int, int], None] | None = None) -> list[Priced]:
        """Amounts of every case, in the order given. One deployment's loops are priced one after the other."""
        by_key: dict[str, list[Case]] = {}
        found: dict[str, Priced] = {}
        for case in cases:
            if case.reason is not None:
                found[case.row_id] = Priced(case, None, 0, 0.0, case.reason, {})
            else:
                by_key.setdefault(case.key, []).append(case)
        done = len(found)
        for key, members in by_key.items():
            for priced in self._deployment(key, members):
                found[priced.case.row_id] = priced
            done += len(members)
            if progress is not None:
                progress(done, len(cases))
        return [found[case.row_id] for case in cases]

    def _deployment(self, key: str, cases: list[Case]) -> Iterable[Priced]:
        path = None if self.cache is None else self.cache / f"{digest(key, self._sources, str(self.clean))}.json"
        kept: dict[str, Any] = json.loads(path.read_text()) if path is not None and path.exists() else {}
        wanted = {case.row_id: canonical_json([asdict(case.loop), case.labels.model]) for case in cases}  # type: ignore[arg-type,union-attr]
        missing = [case for case in cases if wanted[case.row_id] not in kept]
        if missing:
            self._work_out(missing, wanted, kept)
            if path is not None:
                path.parent.mkdir(parents=True, exist_ok=True)
                aside = path.with_name(f".{path.name}.{os.getpid()}")
                aside.write_text(json.dumps(kept))
                os.replace(aside, path)
        for case in cases:
            yield _priced(case, kept[wanted[case.row_id]])

    def _work_out(self, cases: list[Case], wanted: Mapping[str, str], kept: dict[str, Any]) -> None:
        labels = cases[0].labels
        assert labels is not None
        try:
            oplevel = self._look_up(labels)
        except PerfDataError as error:
            refusal = {"reason": error.reason, "evidence": {"refusal": str(error), "labels": labels.notes}}
            kept |= {wanted[case.row_id]: refusal for case in cases}
            return
        # A pass holds its budget of tokens, or one per client where those are more.
        most = max(BUDGET, max(case.loop.clients for case in cases if case.loop)) + 1
        pricer = Pricer(oplevel, most)
        for case in cases:
            assert case.loop is not None
            blocks, memory = self._blocks(oplevel.deployment, case.loop)
            evidence = {
                "deployment": oplevel.deployment.as_dict(),
                "labels": labels.notes,
                "sources": sorted({op.source for op in oplevel.operators("generation")}),
                "memory": memory,
            }
            try:
                passes = play(replace(case.loop, blocks=binding(case.loop, blocks)))
            except ReplayError as error:
                kept[wanted[case.row_id]] = {"reason": "not_servable", "evidence": {**evidence, "refusal": str(error)}}
                continue
            found = amounts(pricer, passes, with_share=True)
            kept[wanted[case.row_id]] = {
                "ttft": found.ttft.tolist(),
                "tpot": found.tpot.tolist(),
                **{name: getattr(found, name).tolist() for name in ("e2e", "itl", "whole")},
                "n_tokens": found.n_tokens,
                "n_passes": found.n_passes,
                "n_preempted": found.n_preempted,
                "extrapolated_share": found.extrapolated_share,
                "layers": int(oplevel.model.symbols["L"]),
                "prompt_mean": float(passes.prompt_tokens.mean()),
                "evidence": evidence,
            }

    def _look_up(self, labels: Labels) -> OpLevel:
        """The deployment in the data; precisions and backends that may stand in are tried in turn.

        Raises:
            PerfDataError: the refusal of the first try.
        """
        first: PerfDataError | None = None
        # Another backend's kernel of the right precision is nearer than the own one of another.
        for moe in (labels.moe, *labels.moe_fallbacks):
            for backend in (labels.backend, *labels.borrow):
                # Attention reads the cache in the precision that its capacity is reckoned with, where there are data.
                for kv_cache in dict.fromkeys((labels.kv_cache, None)):
                    try:
                        found = OpLevel(self._resolved(labels, backend, moe, kv_cache), self.root, clean=self.clean)
                        for phase in ("context", "generation"):
                            found.operators(phase)  # type: ignore[arg-type]
                    except PerfDataError as error:
                        first = first or error
                        continue
                    if backend != labels.backend or moe != labels.moe:
                        labels.notes.append(f"priced from {backend} tables, experts in {moe}")
                    if kv_cache != labels.kv_cache:
                        labels.notes.append(f"attention over a cache in {labels.kv_cache} is not in the data")
                    return found
        assert first is not None
        raise first

    def _resolved(self, labels: Labels, backend: str, moe: str | None, kv_cache: str | None) -> Deployment:
        from perf_db.gpu.models import load_model

        experts = bool(load_model(self.root, labels.model).symbols["E"])
        split = (labels.moe_tp or 1, labels.moe_ep or 1)
        if experts and split[0] * split[1] != labels.tp * labels.dp:
            split = (labels.tp * labels.dp, 1)
        return resolve(
            self.root,
            labels.model,
            labels.system,
            backend,
            tp=labels.tp,
            dp=labels.dp,
            moe_tp=split[0] if experts else None,
            moe_ep=split[1] if experts else None,
            gemm=labels.gemm,
            moe=moe if experts else None,
            kv_cache=kv_cache,
        )

    def _blocks(self, deployment: Deployment, loop: Loop) -> tuple[int | None, dict[str, Any]]:
        """KV blocks of one rank, and how they were found."""
        if any(name in deployment.model for name in UNLIMITED_KV):
            return None, {"blocks": None, "because": "the memory rule does not fit latent attention in 4-bit weights"}
        kv_cache = "fp8" if deployment.backend == "trtllm" or deployment.system != "h100_sxm" else "bfloat16"
        try:
            held = capacity(
                replace(deployment, kv_cache=kv_cache),
                self.root,
                max_batched_tokens=loop.budget,
                fraction=FRACTION,
                block_tokens=BLOCK_TOKENS,
            )
        except PerfDataError as error:
            return None, {"blocks": None, "because": str(error)}
        asked = loop.clients * (loop.prompt_tokens + loop.output_tokens)
        told = {"blocks": held.blocks, "kv_cache": kv_cache, "fraction": FRACTION, "asked_tokens": asked}
        if abs(held.kv_tokens / asked - 1) < TIGHT:
            told["warning"] = "capacity is within a tenth of demand: queueing there changes by factors"
        return held.blocks, told


def binding(loop: Loop, blocks: int | None) -> int | None:
    """The pool where it can ever be full, else None: loops that no pool limits share one replay."""
    longest = loop.prompt_tokens + loop.output_tokens * (2 if loop.exact else 1)
    most = loop.clients * (longest // BLOCK_TOKENS + 2)
    return None if blocks is None or blocks >= most else blocks


def _priced(case: Case, kept: Mapping[str, Any]) -> Priced:
    if "reason" in kept:
        return Priced(case, None, 0, 0.0, kept["reason"], dict(kept["evidence"]))
    found = Amounts(
        np.array(kept["ttft"]),
        np.array(kept["tpot"]),
        kept["n_passes"],
        kept["n_preempted"],
        kept["extrapolated_share"],
        **{name: np.array(kept[name]) for name in ("e2e", "itl", "whole")},
        n_tokens=kept["n_tokens"],
    )
    return Priced(case, found, kept["layers"], kept["prompt_mean"], None, dict(kept["evidence"]))


def loop_rows(priced: Sequence[Priced], truth: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> LoopRows:
    """Answered cases with their measurements, for fits and predictions.

    Args:
        truth: row_id -> metric -> row of `ground_truth`.
    """
    answered = [p for p in priced if p.amounts is not None]

    def measured(metric: str) -> np.ndarray:
        rows = [truth.get(p.case.row_id, {}).get(metric) for p in answered]
        return np.array([np.nan if row is None else row["value"] for row in rows], float)

    def about(name: str) -> np.ndarray:
        return np.array([str(next(iter(truth[p.case.row_id].values()))[name]) for p in answered], dtype=object)

    labels = [p.case.labels for p in answered]
    priced_as = [p.evidence["deployment"] for p in answered]
    release = about("backend_version")
    moe = [COMPONENTS.index("moe_prefill"), COMPONENTS.index("moe_decode")]
    experts = [bool(p.amounts.ttft[moe].any()) for p in answered]  # type: ignore[union-attr]
    empty = np.zeros((0, len(COMPONENTS)))
    return LoopRows(
        row_id=np.array([p.case.row_id for p in answered], dtype=object),
        ttft=np.array([p.amounts.ttft for p in answered]) if answered else empty,  # type: ignore[union-attr]
        tpot=np.array([p.amounts.tpot for p in answered]) if answered else empty,  # type: ignore[union-attr]
        truth_ttft_ms=measured("ttft"),
        truth_tpot_ms=measured("tpot"),
        layers=np.array([p.layers for p in answered], float),
        clients=np.array([p.case.clients for p in answered], float),
        prompt_tokens=np.array([p.prompt_mean for p in answered], float),
        mla=np.array(["Kimi" in each.model or "DeepSeek" in each.model for each in labels if each], bool),
        blackwell=np.array([each.system in BLACKWELL for each in labels if each], bool),
        laboratory=np.array([each.exact_lengths for each in labels if each], bool),
        ranks=np.array([each.dp > 1 for each in labels if each], bool),
        releases=np.array([releases_behind(own, told["version"]) for own, told in zip(release, priced_as)], float),
        group=about("deployment_group"),
        model=about("model_family"),
        system=np.array([told["system"] for told in priced_as], dtype=object),
        precision=np.array([told["moe"] if split else told["gemm"] for told, split in zip(priced_as, experts)], object),
        dense_precision=np.array([told["gemm"] for told in priced_as], dtype=object),
    )


def releases_behind(measured: str, tables: str) -> int:
    """How many minor releases older the measured engine is than the tables' one; 0 where either cannot be told."""
    found = [re.match(r"v?(\d+)\.(\d+)", version) for version in (measured, tables)]
    if not all(found) or found[0][1] != found[1][1]:  # type: ignore[index]
        return 0
    return max(int(found[1][2]) - int(found[0][2]), 0)  # type: ignore[index]


def _own_sources() -> str:
    """Digest of the files of this package that amounts depend on."""
    here = Path(__file__).parent
    names = ("amounts.py", "closed_loop.py", "labels.py", "loops.py")
    return digest(*(part for name in names for part in (name, (here / name).read_bytes())))
