"""From a configuration to prices: which estimator, from which data, into which arrays; and how large the KV pool is.

The engine knows nothing of this: it gets arrays. Everything that decided them is recorded with the run.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assets.pricing_host import extras as host_extras
from assets.pricing_host import factors as host_factors
from assets.pricing_host import told as host_told
from perf_db.gpu.errors import PerfDataError
from sim.config import ConfigError
from sim.config.engine import DerivedCapacity
from sim.config.timing import DefaultTiming, Strict
from sim.spec import Deployment as Deployed
from sim.spec import EngineSpec, PoolsSpec, Timing
from sim.timing.tables import ArrayTiming, MixedPass, mixed_pass

if TYPE_CHECKING:
    from perf_db.gpu.deployment import Deployment
    from perf_db.gpu.forward import ForwardTable
    from perf_db.gpu.oplevel import OpLevel, Phase
    from perf_db.gpu.source import PerfRoot
    from perf_db.gpu.whole_roofline import WholeRoofline
    from sim.config import RunConfig

# Phases that the workers of a pool must have prices for.
BOTH: tuple[Phase, ...] = ("context", "generation")
POOLS: Mapping[str, tuple[Phase, ...]] = {"prefill": ("context",), "decode": ("generation",)}

EMBEDDED_SAID = (
    "priced from the small table that comes with this package (a sample, a few percent off in the median); "
    "install the measured operators with pip install 'tracemill[perfdata]' for more"
)


@dataclass(frozen=True, slots=True, eq=False)
class Pricing:
    """A deployment that is ready to run.

    Attributes:
        spec: what the engine takes.
        source: `given`, `op_level`, `embedded`, `fpm_interpolation` or `fpm_regression`.
        identity: the deployment that is priced, by the names of its data; empty for given timing.
        provenance: data, digests, cleaning, factors, deviation of the arrays; ready for JSON. Empty for given timing.
        warnings: what is allowed and yet probably not meant.
        estimated_blocks: KV blocks per rank by the memory model; None where nobody could say.
        strict: limits on what may be extrapolated.
        model: makes the operator model again, to say which raw rows a cell rests on; None where there is none.
        cells: file that keeps what was said of cells.
        pools: of separate pools, prefill and decode by themselves.
    """

    spec: Deployed
    source: str = "given"
    identity: dict[str, Any] = field(default_factory=dict)
    provenance: dict[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    estimated_blocks: int | None = None
    strict: Strict = field(default_factory=Strict)
    model: Callable[[], OpLevel] | None = None
    cells: Path | None = None
    pools: tuple[Pricing, ...] = ()

    @property
    def sides(self) -> tuple[Pricing, ...]:
        """The pools, or the only one."""
        return self.pools or (self,)

    @property
    def mixed_pass(self) -> MixedPass:
        """How a pass with prefill and decode work is priced."""
        side = self.spec.sides[-1]
        return mixed_pass(side.timing, side.profile)

    @property
    def timing(self) -> str:
        """What answers, by name: one word, or one for each pool where they differ."""
        found = [
            spec.timing.kind if side.source == "given" else side.source
            for side, spec in zip(self.sides, self.spec.sides, strict=True)
        ]
        return "+".join(dict.fromkeys(found))


@dataclass(slots=True)
class _Made:
    """What an estimator hands over."""

    timing: Timing
    source: str
    identity: dict[str, Any]
    provenance: dict[str, Any]
    warnings: tuple[str, ...] = ()
    model: Callable[[], OpLevel] | None = None
    cells: Path | None = None


def price_deployment(
    config: RunConfig, *, base: Path, corrected: bool = True, needs: tuple[Phase, ...] = BOTH
) -> Pricing:
    """Resolve a configuration's timing and KV pool.

    Args:
        base: folder that relative paths of the configuration start from.
        corrected: apply the snapshot that the configuration names.
        needs: phases that must be priced. Workers of a decode pool prefill only what was preempted, and those of a
            prefill pool never decode.

    Raises:
        ConfigError: what the configuration asks for cannot be had; the message says why and what to do.
        PerfDataError: the data have no answer, or are not what they should be.
    """
    if len(config.sides) > 1:
        return _price_pools(config, base, corrected)
    worker = config.worker
    timing, capacity = worker.timing, worker.kv_cache.capacity
    if not isinstance(timing, DefaultTiming) and not isinstance(capacity, DerivedCapacity):
        return Pricing(config.engine_spec())
    blocks, estimated, memory = _blocks(config, base)
    if not isinstance(timing, DefaultTiming):
        spec = config.engine_spec(blocks=blocks)
        return Pricing(spec, provenance={"memory": memory} if memory else {}, estimated_blocks=estimated)
    made = _estimate(config, timing, base, needs)
    if timing.snapshot is not None and corrected:
        _correct(made, base / timing.snapshot)
    if memory:
        made.provenance["memory"] = memory
    spec = config.engine_spec(timing=made.timing, blocks=blocks)
    return Pricing(
        spec=spec,
        source=made.source,
        identity=made.identity,
        provenance=made.provenance,
        warnings=made.warnings,
        estimated_blocks=estimated,
        strict=timing.strict,
        model=made.model,
        cells=made.cells,
    )


def _price_pools(config: RunConfig, base: Path, corrected: bool) -> Pricing:
    """Each pool by itself, and the transfers between them."""
    # Where decode workers prefill what they lack little of, both phases have to have prices there.
    phases = {**POOLS, "decode": POOLS["decode"] if config.local_prefill_tokens is None else BOTH}
    prefill, decode = (
        _price_role(role, side, base, corrected, needs)
        for side, (role, needs) in zip(config.sides, phases.items(), strict=True)
    )
    assert isinstance(prefill.spec, EngineSpec) and isinstance(decode.spec, EngineSpec)
    size, warnings = _kv_bytes(config, base)
    told = {role: side.provenance for role, side in (("prefill", prefill), ("decode", decode)) if side.provenance}
    if size is not None:
        told["kv_bytes_per_token"] = {"of a replica": size}
    return Pricing(
        spec=PoolsSpec(
            prefill.spec,
            decode.spec,
            config.transfer(size),
            routing=config.router.routing,
            local_prefill_tokens=config.local_prefill_tokens,
        ),
        source=decode.source,
        identity=decode.identity,
        provenance=told,
        warnings=(
            *(f"prefill: {said}" for said in prefill.warnings),
            *(f"decode: {said}" for said in decode.warnings),
            *warnings,
        ),
        estimated_blocks=decode.estimated_blocks,
        strict=decode.strict,
        pools=(prefill, decode),
    )


def _price_role(role: str, side: RunConfig, base: Path, corrected: bool, needs: tuple[Phase, ...]) -> Pricing:
    """One pool, whose faults are told by its own name."""

    def named(error: Exception) -> str:
        said = str(error).replace("engine.workers.aggregated", f"engine.workers.{role}")
        return said if "engine." in said else f"engine.workers.{role}: {said}"

    try:
        return price_deployment(side, base=base, corrected=corrected, needs=needs)
    except PerfDataError as error:
        raise PerfDataError(error.reason, named(error)) from error
    except ConfigError as error:
        raise ConfigError(named(error)) from error


def _kv_bytes(config: RunConfig, base: Path) -> tuple[float | None, tuple[str, ...]]:
    """KV bytes of one token over all ranks of a prefill replica, None unknown; and what to say about it."""
    prefill = config.sides[0]
    given = prefill.worker.kv_cache.bytes_per_token
    if isinstance(given, int):
        return float(given), ()
    transfer = config.engine.kv_transfer
    if transfer is None or transfer.bandwidth_gb_per_second is None:
        return None, ()  # the configuration warns of it
    timing = prefill.worker.timing
    try:
        from perf_db.gpu.memory import kv_bytes_per_token

        # Before the data are looked for: installing them would not help.
        missing = [name for name in ("model", "hardware") if getattr(config.engine, name) is None]
        if missing:
            verb = "are" if len(missing) > 1 else "is"
            raise ConfigError(f"{' and '.join(f'engine.{name}' for name in missing)} {verb} not given")
        root = perf_root(timing if isinstance(timing, DefaultTiming) else DefaultTiming(type="default"), base)
        # A token's KV as a whole: tensor ranks send their shares side by side over the bandwidth of their worker.
        whole = replace(deployment_of(prefill, root), tp=1)
        return float(kv_bytes_per_token(whole, root)), ()
    except (PerfDataError, ConfigError) as unknown:
        if "fallback_ms" in transfer.model_fields_set:  # written down for this case, 0 too
            return None, (
                f"every transfer takes kv_transfer.fallback_ms={transfer.fallback_ms:g}, whatever its bandwidth: the "
                f"size of a token's KV does not follow from the model here ({unknown})",
            )
        raise ConfigError(
            "engine.workers.prefill.kv_cache.bytes_per_token: transfers need the size of a token's KV, and it does not "
            f"follow from the model here ({unknown}); give the bytes, over all ranks of a replica, or "
            "engine.kv_transfer.fallback_ms"
        ) from None


# ---------------------------------------------------------------- which estimator
def _estimate(config: RunConfig, timing: DefaultTiming, base: Path, needs: tuple[Phase, ...]) -> _Made:
    mode = config.estimation_mode
    if mode == "auto":
        mode = "fpm_interpolation" if timing.fpm_parquet_path else "fpm_regression" if timing.fpm_jsonl_path else None
    if mode == "fpm_interpolation":
        return _forward(config, timing, base)
    if mode == "fpm_regression":
        return _regression(config, timing, base)
    if mode == "op_level":
        return _op_level(config, timing, base, needs)
    # auto: the measured operators where they are at hand, else the embedded sample, and the run says which.
    try:
        return _op_level(config, timing, base, needs)
    except PerfDataError as error:
        if error.reason != "no_source" or timing.perf_root is not None:
            raise
        return _embedded(config, timing, error)


def perf_root(timing: DefaultTiming, base: Path) -> PerfRoot:
    """The folder of operator tables: the configuration's own, else the optional extra's."""
    from perf_db.gpu.source import open_root

    return open_root(None if timing.perf_root is None else base / timing.perf_root)


def deployment_of(config: RunConfig, root: PerfRoot) -> Deployment:
    """The deployment a configuration describes, what it leaves open filled in from the data."""
    from perf_db.gpu.deployment import resolve

    engine = config.engine
    shape, given = config.worker.parallelism, engine.precision
    assert engine.model is not None and engine.hardware is not None, "checked with the configuration"
    experts = (
        {"moe_tp": shape.moe_tensor, "moe_ep": shape.moe_expert} if shape.moe_tensor * shape.moe_expert > 1 else {}
    )
    return resolve(
        root,
        engine.model,
        engine.hardware,
        engine.backend,
        version=engine.backend_version,
        tp=shape.tensor,
        pp=1,
        dp=shape.attention_data,
        gemm=given.gemm,
        moe=given.moe,
        kv_cache=given.kv_cache,
        fmha=given.fmha,
        comm=given.comm or "half",
        nextn=drafts_of(config)[0],
        **experts,
    )


def drafts_of(config: RunConfig) -> tuple[int, int]:
    """(draft layers of the model, tokens a decoding request verifies beside its own).

    Drafts that are looked up in the text (ngram) are verified as well, but no layers made them.
    """
    found = getattr(config, "speculation", None)
    if found is None:
        nextn = int(config.engine.nextn or 0)
        return nextn, nextn
    return (0 if found.kind == "ngram" else found.drafts), found.drafts


def _insist_on_no_drafts(config: RunConfig, mode: str) -> None:
    if drafts_of(config)[1]:
        raise ConfigError(
            f"engine.speculation: {mode} prices whole passes, of which none with drafts were measured; remove the "
            "drafts, or use estimation_mode: op_level"
        )


def _op_level(config: RunConfig, timing: DefaultTiming, base: Path, needs: tuple[Phase, ...] = BOTH) -> _Made:
    root = perf_root(timing, base)
    _pinned(timing, root)
    deployment = deployment_of(config, root)
    from perf_db.gpu.compile import Limits, compile_deployment
    from sim.jit import PRICES, cache_root

    host = config.engine.host
    layers, factors = None, dict(timing.factors)
    if host is not None and (host.factors or host.in_passes):
        from perf_db.gpu.models import load_model

        layers = int(load_model(root, deployment.model).symbols["L"])
    if host is not None and host.factors:
        from perf_db.gpu.oplevel import OpLevel

        factors = host_factors(config, timing, deployment, OpLevel(deployment, root, clean=timing.clean))
    scheduler = config.worker.scheduler
    limits = Limits(
        max_batched_tokens=scheduler.max_batched_tokens,
        max_sequences=scheduler.max_sequences,
        max_length=config.max_model_len or 1 << 20,
        drafts=drafts_of(config)[1],
    )
    compiled = compile_deployment(
        deployment, root, limits, clean=timing.clean, factors=factors, folder=cache_root() / PRICES,
        needs=needs,
    )  # fmt: skip
    header = {**compiled.header, **host_extras(config, timing, layers)}
    about, key = header.pop("provenance", {}), header.pop("key")
    made = ArrayTiming("op_level", header, compiled.arrays)

    def model() -> OpLevel:
        from perf_db.gpu.oplevel import OpLevel

        return OpLevel(deployment, root, clean=timing.clean, factors=factors)

    provenance = {
        "estimation_mode": "op_level",
        **about,
        "arrays_digest": compiled.digest(),
        "deviation": header.get("deviation", {}),
        "limits": header.get("limits", {}),
        **({"refused": refused} if (refused := header.get("refused")) else {}),
        **host_told(config),
    }
    cells = cache_root() / PRICES / f"{key}.cells.json"
    return _Made(made, "op_level", deployment.as_dict(), provenance, model=model, cells=cells)


def _pinned(timing: DefaultTiming, root: PerfRoot) -> None:
    """A pinned version of the data is the distribution's, or of a folder the digest `perf list` shows."""
    if timing.data_version is not None and timing.data_version != root.version:
        raise ConfigError(
            f"engine.workers.aggregated.timing.data_version={timing.data_version!r}: the data at hand are "
            f"{'version ' + root.version if root.version else 'a folder without a version'}; install that version, or "
            "remove the pin"
        )


def _embedded(config: RunConfig, timing: DefaultTiming, absent: PerfDataError) -> _Made:
    try:
        from perf_db.gpu.embedded import embedded_timing  # type: ignore[attr-defined]
    except ImportError:
        raise absent from None
    _insist_on_no_drafts(config, "the embedded table")
    engine = config.engine
    shape = config.worker.parallelism
    header, arrays, about = embedded_timing(
        model=engine.model, system=engine.hardware, backend=engine.backend, tp=shape.tensor, dp=shape.attention_data
    )
    if asked := list(_beside_embedded(config, timing, about)):
        raise ConfigError(
            f"{'; '.join(asked)}. The embedded table is of one deployment, as it is: install the measured operators "
            "with pip install 'tracemill[perfdata]', or remove these fields"
        )
    # A sample has few batches; what lies between two of them is no new ground.
    header = {**header, "between_batches": True, **host_extras(config, timing, None)}
    made = ArrayTiming("forward", header, arrays)
    return _Made(
        made,
        "embedded",
        dict(about["deployment"]),
        {"estimation_mode": "embedded", "prefill_method": header["prefill_method"], **about},
        (EMBEDDED_SAID,),
    )


def _beside_embedded(config: RunConfig, timing: DefaultTiming, about: Mapping[str, Any]) -> Iterator[str]:
    """What a configuration asks for and the embedded table is not; to leave it unsaid would be another price."""
    engine, shape, own = config.engine, config.worker.parallelism, about["deployment"]
    where = "engine.workers.*"
    wanted: dict[str, tuple[Any, Any]] = {
        f"engine.precision.{name}": (getattr(engine.precision, name), own[name])
        for name in ("gemm", "moe", "kv_cache", "fmha", "comm")
    }
    wanted["engine.backend_version"] = (engine.backend_version, own["version"])
    wanted[f"{where}.timing.data_version"] = (timing.data_version, about["source"]["version"])
    if shape.moe_tensor * shape.moe_expert > 1:
        wanted[f"{where}.parallelism.moe_tensor"] = (shape.moe_tensor, own["moe_tp"])
        wanted[f"{where}.parallelism.moe_expert"] = (shape.moe_expert, own["moe_ep"])
    for asked, (given, held) in wanted.items():
        if given is not None and given != held:
            yield f"{asked}={given!r}: the embedded table holds {held!r}"
    if not timing.clean:
        yield f"{where}.timing.clean=false: the embedded table was made from repaired data"
    if timing.factors:
        yield f"{where}.timing.factors: the embedded table has no operators to change"


def _forward(config: RunConfig, timing: DefaultTiming, base: Path) -> _Made:
    from perf_db.gpu.forward import compile_forward, match, read_forward_table

    _insist_on_no_drafts(config, "fpm_interpolation")
    if timing.fpm_parquet_path is not None:
        table = read_forward_table(base / timing.fpm_parquet_path)
    else:
        assert timing.fpm_jsonl_path is not None, "checked with the configuration"
        table = _table_of_metrics(config, timing.fpm_jsonl_path, base)
    cell = match(table, forward_identity(config), cell=timing.fpm_cell)
    roofline, told = _whole_roofline(table.cells[cell], timing, base)
    header, arrays = compile_forward(table, cell, roofline)
    header |= host_extras(config, timing, None)
    provenance = {
        "estimation_mode": "fpm_interpolation",
        "file": timing.fpm_parquet_path or timing.fpm_jsonl_path,
        "sha256": table.digest,
        "cell": cell,
        "identity": table.cells[cell],
        "measurement_policy": table.sidecar["measurement_policy"],
        "prefill_method": header["prefill_method"],
        **told,
    }
    return _Made(ArrayTiming("forward", header, arrays), "fpm_interpolation", table.cells[cell], provenance)


# Why a deployment has no roofline here; anything else is a fault of the data, and said.
_NO_ROOFLINE = (
    "no_source", "unknown_model", "unknown_system", "unsupported_architecture", "unknown_quantisation",
    "bad_parallelism",
)  # fmt: skip


def _whole_roofline(
    cell: Mapping[str, Any], timing: DefaultTiming, base: Path
) -> tuple[WholeRoofline | None, dict[str, Any]]:
    """Roofline of a measured deployment, None where its model or system is not known here; and what to record."""
    from perf_db.gpu.whole_roofline import WholeRoofline, deployment_of_cell

    try:
        root = perf_root(timing, base)
        found = WholeRoofline(deployment_of_cell(cell, root), root)
    except PerfDataError as error:
        # A folder that is named and is none is a mistake, whatever it was for.
        if error.reason not in _NO_ROOFLINE or (error.reason == "no_source" and timing.perf_root is not None):
            raise
        return None, {"no_roofline": {"reason": error.reason, "why": str(error)}}
    return found, {"roofline": root.provenance(found.files)}


def _table_of_metrics(config: RunConfig, file: str, base: Path) -> ForwardTable:
    """The pure passes that a running engine reported, as a table of the deployment that is configured."""
    from perf_db.gpu.forward import EXECUTION_FLAGS, EXECUTION_TEXT, EXECUTION_WHOLE, FILE_IDENTITY, table_of_rows
    from perf_db.gpu.forward_jsonl import read_forward_jsonl, table_rows

    # What a configuration does not say about itself is empty: the file is taken for this deployment's own.
    own: dict[str, Any] = dict.fromkeys((*FILE_IDENTITY, *EXECUTION_TEXT), "")
    own |= dict.fromkeys(EXECUTION_WHOLE, 1) | dict.fromkeys(EXECUTION_FLAGS, False) | forward_identity(config)
    rows = table_rows(read_forward_jsonl(base / file), own, cell="metrics")
    digest = hashlib.sha256((base / file).read_bytes()).hexdigest()
    return table_of_rows(rows, path=file, digest=digest, measurement_policy="metrics of a running engine")


def forward_identity(config: RunConfig) -> dict[str, Any]:
    """What a configuration says about a deployment, in the names of whole-forward tables."""
    engine = config.engine
    shape, given = config.worker.parallelism, engine.precision
    found: dict[str, Any] = {
        "model_path": engine.model,
        "system": engine.hardware,
        "backend": engine.backend,
        "backend_version": engine.backend_version,
        "gemm_quant_mode": given.gemm,
        "moe_quant_mode": given.moe,
        "fmha_quant_mode": given.fmha,
        "comm_quant_mode": given.comm,
        "kv_cache_dtype": given.kv_cache,
        "tp": shape.tensor,
        "pp": 1,
        "dp": shape.attention_data,
        "moe_tp": shape.moe_tensor,
        "moe_ep": shape.moe_expert,
        "cp": 1,
    }
    return {name: value for name, value in found.items() if value is not None}


def _regression(config: RunConfig, timing: DefaultTiming, base: Path) -> _Made:
    from perf_db.gpu.forward_jsonl import read_forward_jsonl
    from perf_db.gpu.regression import Regression

    assert timing.fpm_jsonl_path is not None, "checked with the configuration"
    _insist_on_no_drafts(config, "fpm_regression")
    path = base / timing.fpm_jsonl_path
    fitted = Regression("aggregated")
    observed = read_forward_jsonl(path)
    for each in observed:
        fitted.observe(each)
    header: dict[str, Any] = {**host_extras(config, timing, None)}
    made = ArrayTiming("regression", header, fitted.arrays())
    provenance = {
        "estimation_mode": "fpm_regression",
        "file": timing.fpm_jsonl_path,
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "iterations": len(observed),
        "stores": fitted.summary(),
    }
    return _Made(made, "fpm_regression", {"observations": timing.fpm_jsonl_path}, provenance)


# ---------------------------------------------------------------- corrections
def native_identity(made_identity: Mapping[str, Any], timing: Timing) -> dict[str, Any]:
    """Whom a snapshot corrects: the deployment, and the prices its ratios refer to."""
    from assets.identity import timing_digest

    return {**made_identity, "native": timing_digest(timing)}


def _correct(made: _Made, path: Path) -> None:
    from perf_db.gpu.snapshot import load_snapshot

    if not isinstance(made.timing, ArrayTiming) or made.timing.kind == "regression":
        raise ConfigError("timing.snapshot: a regression is fitted already and takes no corrections; remove it")
    snapshot = load_snapshot(path, native_identity(made.identity, made.timing))
    made.timing = made.timing.with_factors(snapshot.corrections.arrays())
    made.provenance["snapshot"] = {
        "path": path.name,
        "observations": {kind: len(store.entries) for kind, store in snapshot.corrections.stores.items()},
        "host_constants": snapshot.host_constants,
        "provenance": snapshot.provenance,
    }


# ---------------------------------------------------------------- memory
def _blocks(config: RunConfig, base: Path) -> tuple[int | None, int | None, dict[str, Any]]:
    """(blocks to use where they are not given, blocks by the memory model, its breakdown)."""
    worker = config.worker
    capacity, timing = worker.kv_cache.capacity, worker.timing
    derived = isinstance(capacity, DerivedCapacity)
    try:
        from dataclasses import asdict

        from perf_db.gpu.memory import capacity as memory_capacity

        root = perf_root(timing if isinstance(timing, DefaultTiming) else DefaultTiming(type="default"), base)
        found = memory_capacity(
            deployment_of(config, root),
            root,
            max_batched_tokens=worker.scheduler.max_batched_tokens,
            fraction=capacity.memory_fraction if isinstance(capacity, DerivedCapacity) else None,
            block_tokens=worker.kv_cache.block_size,
        )
    except PerfDataError:
        # Beside a given number of blocks the estimate is only shown.
        if derived and capacity.blocks is None:
            raise
        return None, None, {}
    breakdown, estimated = asdict(found), int(found.blocks)
    if isinstance(capacity, DerivedCapacity):
        reserved = capacity.cuda_graph_reserved_bytes or 0
        if reserved:
            per_block = found.kv_bytes_per_token * found.block_tokens
            estimated = max((int(found.kv_bytes) - reserved) // per_block, 0)
            breakdown |= {"cuda_graph_reserved_bytes": reserved, "blocks": estimated}
        if capacity.blocks is None:
            _insist_on_room(config, estimated)
            return estimated, estimated, breakdown
    return None, estimated, breakdown


def _insist_on_room(config: RunConfig, blocks: int) -> None:
    size, longest = config.worker.kv_cache.block_size, config.max_model_len
    need = 1 if longest is None or config.profile != "vllm" else -(-longest // size)
    if blocks < need:
        raise ConfigError(
            f"engine.workers.aggregated.kv_cache.capacity: memory leaves {blocks} block(s) of {size} tokens per rank, "
            f"one sequence of context_length={longest} takes {need}; lower context_length or max_batched_tokens, raise "
            "parallelism.tensor or memory_fraction"
        )
