"""The deployment: `engine`. Nesting and names are those of the prediction files people already have."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, StrictBool, ValidationInfo, model_validator

from sim.config.base import Count, Milliseconds, Ratio, Section, count_or, only
from sim.config.host import Host, Tokenization, with_snapshot
from sim.config.speculation import Speculation
from sim.config.timing import EstimationMode, Timing
from sim.result import MOST_DRAFTS

DEFAULT_BLOCKS = 16384
DEFAULT_BLOCK_SIZE = 64
TRTLLM_BLOCK_SIZE = 32
DEFAULT_MAX_BATCHED_TOKENS = 8192
DEFAULT_MAX_SEQUENCES = 256
PREFILL_MAX_SEQUENCES = 1  # of workers that only prefill

NO_MODE = "use aggregated, or disaggregated for prefill and decode in pools of their own"
NO_BACKEND = "this backend is not available yet; use backend: vllm or trtllm"
NO_POLICY = "only guaranteed_no_evict and max_utilization are modelled"
NO_DECODER = "drafting decoders are not replayed; give speculation or nextn"
NO_TIERS = "KV tiers below the GPU pool are not available yet; remove it"
NO_FALLBACK = "an estimator that cannot answer says so, and no other one answers in its place; use deny, or remove it"
SILICON_ONLY = "prices come from measured operators alone; use SILICON, or remove it"


class Parallelism(Section):
    """Shape of the pool. `replicas` and `attention_data` make ranks; the others only count GPUs."""

    replicas: Count = 1
    tensor: Count = 1
    attention_data: Count = 1
    moe_tensor: Count = 1
    moe_expert: Count = 1
    pipeline: Annotated[Any, only(1, because="pipeline stages are not modelled; use 1")] = 1
    context: Annotated[Any, only(1, because="context parallelism is not modelled; use 1")] = 1
    preset: Annotated[Any, only(None, because="presets belong to a search; write the numbers out")] = None


class Scheduler(Section):
    """What one rank may put into a pass."""

    max_batched_tokens: Count = DEFAULT_MAX_BATCHED_TOKENS
    max_sequences: Count = DEFAULT_MAX_SEQUENCES
    async_scheduling: StrictBool | None = None  # None: the backend's default, which is on for vLLM
    prefill_schedule_interval: Count = 1
    chunked_prefill: StrictBool = True
    preemption_mode: Literal["lifo", "fifo"] = "lifo"
    watermark: Annotated[float, Field(ge=0, lt=1)] = 0.0
    reserve_full_isl: StrictBool | None = None  # None: on, as in vLLM
    boundary_arrivals: Literal["before", "after"] | None = None
    capacity_policy: Annotated[  # TensorRT-LLM's
        Any, only(None, "guaranteed_no_evict", "max_utilization", because=NO_POLICY)
    ] = None
    prefill_decode_interval: Annotated[
        Any, only(None, 0, because="this is SGLang's field; for vLLM use prefill_schedule_interval")
    ] = None


class FixedCapacity(Section):
    """Usable blocks of one rank's pool; vLLM's null block comes on top."""

    type: Literal["fixed"]
    blocks: Count
    bytes: Annotated[Any, only(None, because="give the pool in blocks")] = None
    memory_fraction: Annotated[Any, only(None, because="type: fixed takes blocks; remove it")] = None
    cuda_graph_reserved_bytes: Annotated[Any, only(None, 0, because="type: fixed takes blocks; remove it")] = None


class DerivedCapacity(Section):
    """A pool computed from GPU memory, weights and activations. A number of blocks always wins over the estimate."""

    type: Literal["default"]
    memory_fraction: Annotated[float, Field(gt=0, le=1)] | None = None  # None: the backend's own
    cuda_graph_reserved_bytes: Annotated[int, Field(ge=0)] | None = None
    blocks: Count | None = None
    bytes: Annotated[Any, only(None, because="give the pool in blocks")] = None


class Precision(Section):
    """Precisions of the deployment, by the names of the performance tables; unset: the checkpoint's own."""

    gemm: Annotated[str, Field(min_length=1)] | None = None
    moe: Annotated[str, Field(min_length=1)] | None = None
    kv_cache: Annotated[str, Field(min_length=1)] | None = None
    fmha: Annotated[str, Field(min_length=1)] | None = None
    comm: Annotated[str, Field(min_length=1)] | None = None


class KvCache(Section):
    """Paged KV memory of one rank."""

    block_size: Annotated[int, Field(ge=2)] = DEFAULT_BLOCK_SIZE
    prefix_caching: StrictBool = True
    # A default object, not None: an explicit null must be an error rather than the default.
    capacity: Annotated[FixedCapacity | DerivedCapacity, Field(discriminator="type")] = FixedCapacity(
        type="fixed", blocks=DEFAULT_BLOCKS
    )
    bytes_per_token: Annotated[Any, count_or("auto")] = None  # of all ranks of a replica; matters to transfers
    host_offload: Annotated[Any, only(None, because=NO_TIERS)] = None
    g3_offload: Annotated[Any, only(None, because=NO_TIERS)] = None
    state_cache: Annotated[Any, only(None, because="recurrent state is not modelled; remove it")] = None


class Speedups(Section):
    """What-if divisors of pass time; 0 leaves it unscaled."""

    speedup_ratio: Ratio = 1.0
    decode_speedup_ratio: Ratio = 1.0


class Worker(Section):
    """One role's pool of replicas."""

    parallelism: Parallelism = Parallelism()
    scheduler: Scheduler = Scheduler()
    kv_cache: KvCache = KvCache()
    timing: Timing
    speedups: Speedups = Speedups()
    hardware: Annotated[Any, only(None, because="name the hardware once, in engine.hardware")] = None
    startup_seconds: Annotated[
        Any, only(None, 0, 0.0, because="workers are there from the start and none are added later; use 0")
    ] = None


class Workers(Section):
    """Roles: `aggregated` alone, or `prefill` and `decode`, as `engine.mode` says."""

    aggregated: Worker | None = None
    prefill: Worker | None = None
    decode: Worker | None = None
    encoder: Annotated[Any, only(None, because="vision encoders are not modelled; remove it")] = None


class LayerWise(Section):
    """KV that is sent layer by layer, while the pass computes that completes the prompt."""

    layers: Annotated[int, Field(gt=0, le=10_000)]


class KvTransfer(Section):
    """How KV gets from a prefill to a decode worker. Unless they share links, transfers do not slow each other."""

    bandwidth_gb_per_second: Annotated[float, Field(gt=0, le=1e9)] | None = None  # decimal GB; None: takes fallback_ms
    timing_mode: Literal["destination_missing", "full_prompt"] = "destination_missing"
    fixed_state_bytes: Annotated[int, Field(ge=0, lt=2**53)] = 0  # sent with every prompt, whatever its length
    fallback_ms: Milliseconds = 0.0  # of a transfer whose size or rate is unknown
    links: Literal["none", "per_source", "per_destination", "shared"] = "none"  # what transfers share
    sharing: Literal["fifo", "fair"] = "fifo"  # of a link, between its transfers
    first_byte_ms: Milliseconds = 0.0  # before every transfer; the link is free meanwhile
    failure_rate: Annotated[float, Field(ge=0, le=1)] = 0.0  # of attempts, by the run's seed
    retries: Annotated[int, Field(ge=0, le=1000)] = 0  # after a failed attempt
    timeout_ms: Annotated[float, Field(gt=0, le=1e9)] | None = None  # from held to activated; None: no limit
    overlap: LayerWise | None = None  # None: KV is sent when the prompt is computed


class ConditionalDisaggregation(Section):
    """Which prompts are prefilled where they decode: those of which the decode rank lacks at most so many tokens."""

    local_prefill_tokens: Count


class Engine(Section):
    """Model, hardware and pool. Model and hardware are recorded with every run, whatever the timing."""

    mode: Annotated[Any, only("aggregated", "disaggregated", because=NO_MODE)] = "aggregated"
    model: Annotated[str, Field(min_length=1)] | None = None
    hardware: Annotated[str, Field(min_length=1)] | None = None
    backend: Annotated[Any, only("vllm", "trtllm", because=NO_BACKEND)] = "vllm"
    backend_version: str | None = None
    context_length: Annotated[Any, count_or("max")] = None  # unset: no limit
    workers: Workers
    precision: Precision = Precision()
    # The estimator's own settings: without effect beside a given timing.
    estimation_mode: EstimationMode | None = None
    fallback_policy: Annotated[Any, only(None, "deny", because=NO_FALLBACK)] = None
    database_mode: Annotated[Any, only(None, "SILICON", because=SILICON_ONLY)] = None
    enable_shared_layer: StrictBool | None = None
    strict_provenance: StrictBool | None = None
    nextn: Annotated[int, Field(ge=0, le=MOST_DRAFTS)] | None = None  # MTP heads
    nextn_accepted: Annotated[float, Field(ge=0)] | None = None  # of their drafts, on average
    speculation: Speculation | None = None
    decoder_replay: Annotated[Any, only(None, False, because=NO_DECODER)] = None
    kv_transfer: KvTransfer | None = None
    conditional_disaggregation: ConditionalDisaggregation | None = None
    afd: Annotated[Any, only(None, because="attention/FFN separation is not modelled; remove it")] = None
    tokenization: Tokenization | None = None
    host: Host | None = None

    @model_validator(mode="before")
    @classmethod
    def _read_snapshot(cls, values: Any, info: ValidationInfo) -> Any:
        return with_snapshot(values, info)
