"""Closed-loop benchmarks as the engine's passes, without a price.

With all clients' requests there from the start and every next one sent when the one before ends, all that happens
happens at the end of a pass. So which requests share a pass does not depend on how long passes take, and one replay
stands for every model, GPU and price that runs under the same limits. It is replayed with passes of one length; the
passes are priced afterwards. (One scheduler only: ranks in lockstep, and delays between requests, would break it.)
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from sim.engine import replay
from sim.inputs import Workload
from sim.result import MemorySink
from sim.spec import EngineSpec, FlatTiming

PROMPTS_PER_CLIENT = 10
SHORTEST = 0.8  # of the nominal length
# Requests of equal length would stay in step for ever. Real clients drift apart by the time their answers take to
# reach them; outputs that differ by up to a tenth stand for that, with the mean as labelled.
DRIFT = 0.1
BLOCK_TOKENS = 16
UNLIMITED = 1 << 22  # blocks
SEED = 7


@dataclass(frozen=True, slots=True)
class Loop:
    """One closed loop on one scheduler.

    Attributes:
        profile: of the engine.
        clients: of this scheduler, also the most running requests.
        prompt_tokens, output_tokens: nominal lengths.
        exact: prompts are as long as labelled and outputs so on average; else both are drawn uniformly from
            [0.8 L, L].
        budget: tokens of a pass.
        blocks: KV blocks of 16 tokens; None: as many as are asked for.
    """

    profile: str
    clients: int
    prompt_tokens: int
    output_tokens: int
    exact: bool = False
    budget: int = 8192
    blocks: int | None = None
    asynchronous: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class Passes:
    """What the passes of a loop held, and which of them each request waited for.

    Attributes:
        n_prefill, prefill_tokens, prefill_kv, n_decode, decode_kv, n_running: shape (passes,).
        asked, first, last: shape (requests,): passes that had ended when it was sent; the pass of its first token; of
            its last.
        output_tokens, prompt_tokens: shape (requests,).
        n_preempted: preemptions in all.
    """

    n_prefill: np.ndarray
    prefill_tokens: np.ndarray
    prefill_kv: np.ndarray
    n_decode: np.ndarray
    decode_kv: np.ndarray
    n_running: np.ndarray
    asked: np.ndarray
    first: np.ndarray
    last: np.ndarray
    prompt_tokens: np.ndarray
    output_tokens: np.ndarray
    n_preempted: int

    def __len__(self) -> int:
        return len(self.n_prefill)


def lengths(loop: Loop, seed: int = SEED) -> tuple[np.ndarray, np.ndarray]:
    """Prompt and output lengths of every request, int64."""
    n = PROMPTS_PER_CLIENT * loop.clients
    rng = np.random.default_rng(seed)

    def drawn(nominal: int, shortest: float, longest: float) -> np.ndarray:
        return np.maximum(rng.integers(int(nominal * shortest), int(nominal * longest) + 1, n), 1)

    if loop.exact:
        return np.full(n, loop.prompt_tokens, np.int64), drawn(loop.output_tokens, 1 - DRIFT, 1 + DRIFT)
    return drawn(loop.prompt_tokens, SHORTEST, 1.0), drawn(loop.output_tokens, SHORTEST, 1.0)


@lru_cache(maxsize=4096)
def play(loop: Loop, seed: int = SEED) -> Passes:
    """Replay a loop.

    Raises:
        ReplayError: the loop cannot be served under its limits.
    """
    prompts, outputs = lengths(loop, seed)
    blocks = UNLIMITED if loop.blocks is None else loop.blocks
    longest = int((prompts + outputs).max())
    spec = EngineSpec(
        profile=loop.profile,  # type: ignore[arg-type]
        timing=FlatTiming(1.0),
        block_tokens=BLOCK_TOKENS,
        # A server that runs at all holds its longest request.
        blocks=max(min(blocks, loop.clients * -(-longest // BLOCK_TOKENS) + loop.clients), -(-longest // BLOCK_TOKENS)),
        max_num_seqs=loop.clients,
        max_batched_tokens=max(loop.budget, loop.clients),
        prefix_caching=False,
        async_scheduling=loop.asynchronous and loop.profile == "vllm",
    )
    sink = MemorySink()
    replay(spec, Workload(np.zeros(len(prompts), np.int64), prompts, outputs, concurrency=loop.clients), sink)
    passes, requests = sink.table("passes"), sink.table("requests")
    end = passes["end_ns"]
    return Passes(
        n_prefill=passes["n_prefill"],
        prefill_tokens=passes["prefill_tokens"],
        prefill_kv=passes["prefill_kv_tokens"],
        n_decode=passes["n_decode"],
        decode_kv=passes["decode_kv_tokens"],
        n_running=passes["n_running"],
        asked=np.searchsorted(end, requests["arrival_ns"], "right"),
        first=np.searchsorted(end, requests["first_token_ns"], "left"),
        last=np.searchsorted(end, requests["last_token_ns"], "left"),
        prompt_tokens=prompts,
        output_tokens=outputs,
        n_preempted=int(passes["n_preempted"].sum()),
    )
