"""What a performance root can price: systems, backends and precisions at a glance, deployments of a model in full."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from perf_db.gpu.architecture import architecture_of
from perf_db.gpu.deployment import Deployment, resolve
from perf_db.gpu.errors import PerfDataError
from perf_db.gpu.hardware import systems
from perf_db.gpu.imports import FORWARD
from perf_db.gpu.load import BACKENDS, backends, current_version, versions
from perf_db.gpu.models import load_model, models
from perf_db.gpu.names import unknown
from perf_db.gpu.oplevel import OpLevel, Phase
from perf_db.gpu.quality import PerfVersion, files_of_version
from perf_db.gpu.source import PerfRoot

# Precision column of the tables that decide what a backend can be priced in.
_PRECISION = {"gemm": "gemm_dtype", "moe": "moe_dtype", "context_attention": "attn_dtype"}
_KV = ("generation_attention", "kv_cache_dtype")
DEGREES = (1, 2, 4, 8)
PHASES: tuple[Phase, ...] = ("context", "generation")
_CALLED = {"context": "prefill", "generation": "decode"}


@dataclass(frozen=True, slots=True)
class Holding:
    """What there is of one system under one backend version."""

    system: str
    backend: str
    version: str
    current: bool
    files: int
    rows: int
    gemm: tuple[str, ...]
    moe: tuple[str, ...]
    attention: tuple[str, ...]
    kv_cache: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Priced:
    """One deployment that was asked for: what can be priced of it, or why it cannot.

    Attributes:
        phases: of prefill and decode those that can be priced.
        prefill, decode: longest measured prompt and KV length, and the share of the attention grid that was measured;
            None where the phase has no attention grid.
        reason: of `PerfDataError`, for the first phase that cannot be priced; '' when both can.
    """

    deployment: Deployment
    phases: tuple[str, ...]
    prefill: tuple[int, float] | None
    decode: tuple[int, float] | None
    reason: str
    message: str


def holdings(root: PerfRoot, *, system: str | None = None, backend: str | None = None) -> Iterator[Holding]:
    """Systems and backends, current version first.

    Raises:
        PerfDataError: an unknown system or backend.
    """
    for name in chosen_systems(root, system):
        for each in _chosen_backends(root, name, backend):
            current = current_version(root, name, each)
            for version in sorted(versions(root, name, each), key=lambda v: v != current):
                yield _holding(root, PerfVersion(name, each, version), version == current)


@dataclass(frozen=True, slots=True)
class WholePasses:
    """One cell of a whole-forward table under `forward/`."""

    model: str
    system: str
    backend: str
    version: str
    precision: str
    kv_cache: str
    tp: int
    dp: int
    rows: int
    file: str  # below the root
    cell: str


def whole_passes(root: PerfRoot, *, system: str | None = None, backend: str | None = None) -> Iterator[WholePasses]:
    """Cells of the whole-forward tables that were imported into a root.

    Raises:
        PerfDataError: `bad_file`: a pair is not whole.
    """
    from perf_db.gpu.forward import read_forward_table

    for path in sorted((root.path / FORWARD).glob("*/*/*/*.parquet")):
        table = read_forward_table(path)
        counts = Counter(table.columns["cell_id"])
        for cell, own in table.cells.items():
            if system in (None, own["system"]) and backend in (None, own["backend"]):
                place = (own["system"], own["backend"], own["backend_version"])
                precision = (own["gemm_quant_mode"], own["kv_cache_dtype"], own["tp"], own["dp"])
                yield WholePasses(own["model_path"], *place, *precision, counts[cell], root.relative(path), cell)


def chosen_systems(root: PerfRoot, system: str | None) -> list[str]:
    """All systems with tables, or the one asked for; PerfDataError when nobody knows it."""
    known = [name for name in systems(root) if backends(root, name)]
    if system is None:
        return known
    if system not in known:
        raise PerfDataError("unknown_system", unknown("system", system, known, f"all: {', '.join(known)}"))
    return [system]


def priceable_models(root: PerfRoot, like: str | None = None) -> list[str]:
    """Models whose architecture can be priced; of them those whose name contains `like`, letter case apart.

    Raises:
        PerfDataError: `unknown_model`: no model's name contains it.
    """
    known = [name for name in models(root) if _supported(root, name)]
    if like is None:
        return known
    found = [name for name in known if like.casefold() in name.casefold()]
    if not found:
        raise PerfDataError("unknown_model", unknown("model", like, known, "`tracemill perf list` shows all"))
    return [like] if like in found else found


def deployments(
    root: PerfRoot,
    model: str,
    *,
    system: str | None = None,
    backend: str | None = None,
    precision: str | None = None,
    degrees: Sequence[int] = DEGREES,
) -> Iterator[Priced]:
    """Every combination of system, backend, precision and tensor parallelism of a model, tried.

    Args:
        precision: of projections and experts; default: the checkpoint's own and all that the tables hold.
    """
    own = load_model(root, model).precisions.get("gemm", "bfloat16")
    for name in chosen_systems(root, system):
        for each in _chosen_backends(root, name, backend):
            held = _holding(root, PerfVersion(name, each, current_version(root, name, each)), True)
            precisions = [precision] if precision else sorted({own, *held.gemm})
            for gemm in precisions:
                # Small models stop where heads no longer divide.
                for tp in degrees:
                    yield _try(root, model, name, each, gemm, tp)


def _try(root: PerfRoot, model: str, system: str, backend: str, gemm: str, tp: int) -> Priced:
    asked = Deployment(model, system, backend, current_version(root, system, backend), tp=tp, gemm=gemm)
    try:
        asked = resolve(root, model, system, backend, tp=tp, gemm=gemm, moe=gemm)
        priced = OpLevel(asked, root, clean=False)
    except PerfDataError as error:
        return Priced(asked, (), None, None, error.reason, str(error))
    refusals = [refused for phase in PHASES if (refused := priced.refusal(phase)) is not None]
    phases = tuple(_CALLED[phase] for phase in priced.phases)
    first = refusals[0] if refusals else None
    return Priced(
        asked,
        phases,
        _reach(priced, "context"),
        _reach(priced, "generation"),
        first.reason if first else "",
        str(first) if first else "",
    )


def _reach(priced: OpLevel, phase: Phase) -> tuple[int, float] | None:
    """(longest measured length, share of the batch x length grid that was measured)."""
    if phase not in priced.phases:
        return None
    try:
        axes = priced.axes(phase)
    except IndexError:
        return None
    held = sum(int(np.searchsorted(axes.length, end, side="right")) for end in axes.frontier)
    return int(axes.length[-1]), held / (len(axes.batch) * len(axes.length))


def _holding(root: PerfRoot, version: PerfVersion, current: bool) -> Holding:
    import pyarrow.parquet as pq

    files = files_of_version(root, version)
    kinds = {path.stem.removesuffix("_perf"): path for path in files}
    found = {name: _values(kinds.get(name), column) for name, column in _PRECISION.items()}
    return Holding(
        *version,
        current=current,
        files=len(files),
        rows=sum(pq.read_metadata(path).num_rows for path in files),
        gemm=found["gemm"],
        moe=found["moe"],
        attention=found["context_attention"],
        kv_cache=_values(kinds.get(_KV[0]), _KV[1]),
    )


def _values(path: Path | None, column: str) -> tuple[str, ...]:
    """Different values of a text column; none where the file or the column is not there."""
    import pyarrow.parquet as pq

    if path is None or column not in pq.read_schema(path).names:
        return ()
    values: list[Any] = pq.read_table(path, columns=[column])[column].unique().to_pylist()
    return tuple(sorted(str(v) for v in values if v is not None))


def _chosen_backends(root: PerfRoot, system: str, backend: str | None) -> list[str]:
    if backend is not None and backend not in BACKENDS:
        raise PerfDataError("unknown_backend", unknown("backend", backend, BACKENDS, f"all: {', '.join(BACKENDS)}"))
    return [name for name in backends(root, system) if name in BACKENDS and backend in (None, name)]


def _supported(root: PerfRoot, name: str) -> bool:
    try:
        architecture_of(load_model(root, name))
    except PerfDataError:
        return False
    return True
