"""What the engine needs to know about one deployment. Already validated: `sim.config` makes these from a user's
file."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from sim.speculation.draws import BITS
from sim.timing.tables import ArrayTiming


@dataclass(frozen=True, slots=True)
class FixedTiming:
    """A constant per non-empty phase of a pass, ms."""

    prefill_ms: float
    decode_ms: float
    kind: Literal["fixed"] = "fixed"


@dataclass(frozen=True, slots=True)
class PolynomialTiming:
    """The built-in polynomial: prefill by new tokens, decode by the share of the KV pool in use."""

    kind: Literal["polynomial"] = "polynomial"


@dataclass(frozen=True, slots=True)
class FlatTiming:
    """One price per non-empty pass whatever it holds, ms. Used by recorded scheduler cases."""

    pass_ms: float
    kind: Literal["flat"] = "flat"


@dataclass(frozen=True, slots=True, eq=False)
class TableTiming:
    """Measured tables. Linear in new tokens for prefill, bilinear in (sum of contexts, mean context) for decode.

    Both extrapolate linearly past their ends.

    Attributes:
        prefill_tokens: shape (p,), tokens, strictly increasing, p >= 2.
        prefill_ms: shape (p,).
        decode_kv_tokens: shape (k,), summed context of the decoding requests, strictly increasing, k >= 2.
        decode_context: shape (c,), mean context in tokens, strictly increasing, c >= 2.
        decode_ms: shape (k, c).
    """

    prefill_tokens: np.ndarray
    prefill_ms: np.ndarray
    decode_kv_tokens: np.ndarray
    decode_context: np.ndarray
    decode_ms: np.ndarray
    kind: Literal["table"] = "table"


@dataclass(frozen=True, slots=True)
class PassCostTiming:
    """What a pass costs by what is in it: few constants with a physical meaning each, fitted to a deployment's log.

    A pass over x tokens (new prompt tokens and decoding requests together) takes

        base + (weights^4 + (token * x)^4)^(1/4) + pairs * attention_pair + decoding requests * decode_request
        + their KV tokens * kv_token + prefill_pass where prompt tokens are computed

    `weights` is the time to read the weights once and `token * x` that of the arithmetic; the larger one decides. Pairs
    of a new token and one before it come from the totals of the pass: Tp * (KVp + Tp / 2) / np.

    Attributes:
        base_ms: of every pass, whatever it holds.
        weights_ms: reading the weights once.
        token_us: arithmetic per token of the pass.
        attention_pair_ns: prefill attention per pair.
        decode_request_us: per decoding request.
        kv_token_ns: decode attention per KV token read.
        prefill_pass_ms: once for every pass that computes prompt tokens.
    """

    base_ms: float = 0.0
    weights_ms: float = 0.0
    token_us: float = 0.0
    attention_pair_ns: float = 0.0
    decode_request_us: float = 0.0
    kv_token_ns: float = 0.0
    prefill_pass_ms: float = 0.0
    kind: Literal["pass_cost"] = "pass_cost"


Timing = FixedTiming | PolynomialTiming | FlatTiming | TableTiming | PassCostTiming | ArrayTiming


@dataclass(frozen=True, slots=True)
class Speculation:
    """Speculative decoding: a drafter proposes tokens, one pass verifies them (section 8).

    Attributes:
        kind: "ngram" (lookup in the known text), "mtp" (the model's own extra heads) or "eagle" (a draft model that
            reads ahead, which takes KV slots as MTP does).
        drafts: tokens proposed per round, 1 to 5.
        rates: one per draft, each the probability that it is accepted when all before it were.
        seed: of the acceptance and trigger streams, 0 to 2^64 - 1; see `sim.speculation.draws`.
        trigger_rate: share of rounds in which the drafter finds something to propose (ngram); otherwise there are no
            drafts in that round.
        max_batch: a choice that begins with more running requests than this schedules no drafts; None: always on.
        scripted: recorded cases only: per request of the workload, drafts accepted in its rounds, repeated in a cycle.
    """

    kind: Literal["ngram", "mtp", "eagle"]
    drafts: int
    rates: tuple[float, ...]
    seed: int = 42
    trigger_rate: float = 1.0
    max_batch: int | None = None
    scripted: tuple[tuple[int, ...], ...] | None = None

    @property
    def thresholds(self) -> tuple[int, ...]:
        """Per draft: it and all before it are accepted when the round's draw is below this."""
        found, together = [], 1.0
        for rate in self.rates:
            together *= rate
            found.append(math.ceil(together * 2**BITS))
        return tuple(found)

    @property
    def trigger_threshold(self) -> int:
        """The drafter proposes when its draw is below this."""
        return math.ceil(self.trigger_rate * 2**BITS)


@dataclass(frozen=True, slots=True)
class FrontEnd:
    """What lies between a client and the engine: the way of a request to the queue, and that of tokens back (2.8).

    A way takes its time beside the engine, and however many others are on it: it delays, and keeps nobody else waiting.

    Attributes:
        request_ns: of every request: connection, validation, hand-over.
        tokenization_ns: of 1,024 prompt tokens.
        client_ns: for each request that is open when one is sent, itself included; in a closed loop, for each of its
            slots: streams share the event loops they are served by.
        reply_ns: from the engine to the client, of every token and every refusal.
    """

    request_ns: int = 0
    tokenization_ns: int = 0
    client_ns: int = 0
    reply_ns: int = 0

    def inbound(self, prompt_tokens: np.ndarray, concurrency: int | None) -> np.ndarray:
        """From the client to the queue, ns, int64, shape (n,); without what open requests add in an open load."""
        tokenized = np.rint(np.asarray(prompt_tokens, float) * self.tokenization_ns / 1024).astype(np.int64)
        return tokenized + self.request_ns + self.client_ns * (concurrency or 0)


@dataclass(frozen=True, slots=True)
class Routing:
    """KV-aware placement (RT-4): a request goes where it costs least.

    Attributes:
        overlap_credit: share of a block's prefill that a cached block saves, in the router's eyes.
        prefill_load_scale: weight of prompt blocks to compute against blocks in use.
    """

    overlap_credit: float = 1.0
    prefill_load_scale: float = 1.0


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """One pool of serving workers. Lengths in tokens, durations in ns unless the name says otherwise.

    Attributes:
        profile: whose behaviour is reproduced: "vllm" (vLLM's own scheduler), "parity" (the reference simulator's vLLM)
            or "trtllm" (the reference simulator's TensorRT-LLM).
        workers: replicas behind a router.
        dp: attention-DP ranks per worker; they start passes together and wait for the slowest.
        blocks: usable KV blocks of one rank.
        max_num_seqs: most running requests on a rank.
        max_batched_tokens: token budget of one pass.
        max_model_len: longest sequence, or None for no limit.
        async_scheduling: choose the next pass while the current one runs.
        prefill_schedule_interval: with dp > 1, admit prefill only on every n-th group pass.
        watermark: share of the pool kept free when admitting beside running requests (vLLM's option).
        reserve_full_isl: admission needs room for the whole known sequence, not just its first chunk (vLLM's option).
        boundary_arrivals: who is first when an arrival falls exactly on a pass end: it is read "before" the next choice
            or "after" it. None: "before" when synchronous, "after" with asynchronous scheduling. Profile "vllm" only.
        speculation: how tokens are drafted and accepted; None: one token per request and pass.
        capacity_policy: TensorRT-LLM's: admit only what can run to its end, or admit what fits now and throw requests
            out when blocks run short. Profile "trtllm" only.
        speedup_ratio: divides every pass; 0 leaves passes unscaled.
        decode_speedup_ratio: divides the decode part again; 0 leaves it unscaled.
        stop_ns: soft cap on virtual time; events at the cap still happen.
        front: the way between clients and the engine; None: there is none. Arrivals and token times of `requests` are
            the client's then; everything else happens in the engine.
        routing: how the router places requests; None: in turn. Of pools in a `PoolsSpec` that one says it.
    """

    profile: Literal["vllm", "parity", "trtllm"] = "vllm"
    timing: Timing = field(default_factory=PolynomialTiming)
    workers: int = 1
    dp: int = 1
    block_tokens: int = 64
    blocks: int = 16384
    max_num_seqs: int = 256
    max_batched_tokens: int = 8192
    max_model_len: int | None = None
    prefix_caching: bool = True
    chunked_prefill: bool = True
    async_scheduling: bool = True
    preemption: Literal["lifo", "fifo"] = "lifo"
    prefill_schedule_interval: int = 1
    watermark: float = 0.0
    reserve_full_isl: bool = True
    boundary_arrivals: Literal["before", "after"] | None = None
    speculation: Speculation | None = None
    capacity_policy: Literal["guaranteed_no_evict", "max_utilization"] = "guaranteed_no_evict"
    speedup_ratio: float = 1.0
    decode_speedup_ratio: float = 1.0
    stop_ns: int | None = None
    front: FrontEnd | None = None
    routing: Routing | None = None

    def outputs(self, prompt_tokens: np.ndarray, output_tokens: np.ndarray) -> np.ndarray:
        """Tokens that requests may make: their budgets, cut where max_model_len ends a sequence (3.1).

        TensorRT-LLM also cuts at submission what a rank's whole pool could not hold, but not the first token: a request
        without room for it is rejected (section 9).
        """
        ends = [output_tokens]
        if self.max_model_len is not None:
            ends.append(self.max_model_len - prompt_tokens)
        if self.profile == "trtllm":
            ends.append(np.maximum(self.blocks * self.block_tokens - prompt_tokens, 1))
        return np.clip(np.minimum.reduce(ends), 0, None)

    @property
    def native_drafts(self) -> bool:
        """Drafts are scheduled as tokens, as in vLLM. Otherwise ("policy mode") a decoding request takes one token of a
        pass's budget and the drafts are the pricing's business (8.3)."""
        return self.speculation is not None and self.profile == "vllm"

    @property
    def lookahead(self) -> int:
        """Slots that a drafter with a model of its own needs beyond the scheduled tokens (8.3)."""
        if self.speculation is None or not self.native_drafts or self.speculation.kind == "ngram":
            return 0
        return self.speculation.drafts

    @property
    def gives_up_a_block(self) -> bool:
        """A prefix hit is computed one block further back, for a drafter that reads hidden states (5.5)."""
        return self.speculation is not None and self.speculation.kind != "ngram" and self.profile != "trtllm"

    @property
    def sides(self) -> tuple[EngineSpec, ...]:
        """The pools: this one."""
        return (self,)

    @property
    def reserves_to_end(self) -> bool:
        """Only what can run to its end is admitted, so nothing is ever thrown out (section 9)."""
        return self.profile == "trtllm" and self.capacity_policy == "guaranteed_no_evict"

    @property
    def ranks(self) -> int:
        """Schedulers in the pool; rank index = worker * dp + dp_rank."""
        return self.workers * self.dp


@dataclass(frozen=True, slots=True)
class Transfer:
    """How KV moves from a prefill to a decode worker (PD-7 to PD-10, PD-15, PD-17 to PD-19).

    Attributes:
        bytes_per_token: KV bytes of one token on the prefill side; None: transfers take `fallback_ns`.
        bytes_per_second: of a link. None: as above.
        missing_only: send only the blocks the destination lacks, whole blocks; else the whole prompt, to the token.
        fixed_bytes: sent with every transfer, whatever its length (state of recurrent layers).
        fallback_ns: duration of a transfer whose size or rate is unknown.
        links: which transfers share a link: "none", those from one source worker, those to one destination worker, or
            all of them.
        sharing: a link serves one transfer after the other ("fifo"), or all of them with equal shares ("fair").
        first_byte_ns: before the first byte of every attempt; the link is free meanwhile.
        failure_rate: share of attempts that turn out to have failed when they end.
        retries: attempts after the first one.
        timeout_ns: a handoff is canceled when it is not activated so long after its prompt was held; None: never.
        seed: of the failures, 0 to 2^64 - 1.
        layers: the destination is asked when the pass begins that computes a prompt to its end, and the KV of each of
            so many layers is sent as soon as that pass has computed it; 0: both when the prompt is computed.
    """

    bytes_per_token: float | None = None
    bytes_per_second: float | None = None
    missing_only: bool = False
    fixed_bytes: float = 0.0
    fallback_ns: int = 0
    links: Literal["none", "per_source", "per_destination", "shared"] = "none"
    sharing: Literal["fifo", "fair"] = "fifo"
    first_byte_ns: int = 0
    failure_rate: float = 0.0
    retries: int = 0
    timeout_ns: int | None = None
    seed: int = 42
    layers: int = 0

    @property
    def plain(self) -> bool:
        """Whether the end of every transfer is known when it is asked for."""
        return self.links == "none" and not self.failure_rate and self.timeout_ns is None and not self.layers

    @property
    def failure_threshold(self) -> int:
        """An attempt fails when its draw is below this."""
        return math.ceil(self.failure_rate * 2**BITS)

    def sent_bytes(self, tokens: int) -> int:
        """What one attempt sends, -1 unknown."""
        return round(tokens * self.bytes_per_token + self.fixed_bytes) if self.bytes_per_token else -1

    def seconds(self, tokens: int) -> float | None:
        """Duration of a transfer of `tokens` tokens of KV, s; None where size or rate is unknown."""
        if not self.bytes_per_token or not self.bytes_per_second:
            return None
        return (tokens * self.bytes_per_token + self.fixed_bytes) / self.bytes_per_second


@dataclass(frozen=True, slots=True)
class PoolsSpec:
    """Prefill and decode in pools of their own. Both sides share profile, block size and limits of virtual time.

    Workers are numbered through: the prefill pool's first, then the decode pool's. `routing` is of the routers in front
    of both; None: in turn. `local_prefill_tokens`: a prompt of which the decode rank lacks at most so many tokens is
    prefilled there and handed over by nobody; None: all go through the prefill pool.
    """

    prefill: EngineSpec
    decode: EngineSpec
    transfer: Transfer = field(default_factory=Transfer)
    routing: Routing | None = None
    local_prefill_tokens: int | None = None

    @property
    def sides(self) -> tuple[EngineSpec, ...]:
        """Prefill, decode."""
        return self.prefill, self.decode

    @property
    def profile(self) -> str:
        return self.decode.profile

    @property
    def looks_at_ranks(self) -> bool:
        """Placement depends on what ranks hold or do."""
        return self.routing is not None or self.local_prefill_tokens is not None

    @property
    def block_tokens(self) -> int:
        return self.decode.block_tokens

    @property
    def ranks(self) -> int:
        """Schedulers of both pools."""
        return self.prefill.ranks + self.decode.ranks

    @property
    def workers(self) -> int:
        """Of both pools."""
        return self.prefill.workers + self.decode.workers

    @property
    def speculation(self) -> Speculation | None:
        """Of the pool that decodes."""
        return self.decode.speculation

    @property
    def gpus_per_worker(self) -> tuple[int, int]:
        """At least one per attention-DP rank: of a prefill, of a decode worker."""
        return self.prefill.dp, self.decode.dp


Deployment = EngineSpec | PoolsSpec


def as_pools(spec: Deployment) -> tuple[EngineSpec | None, EngineSpec]:
    """The prefill pool, if there is one of its own, and the pool that makes the tokens."""
    return (spec.prefill, spec.decode) if isinstance(spec, PoolsSpec) else (None, spec)
