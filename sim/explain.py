"""Why a replay cannot go on, in words the person who started it can act on."""

from __future__ import annotations

from sim.spec import EngineSpec

CLOCK_MESSAGE = (
    "the replay runs past the end of its clock, 146 years: the durations of the timing model or of KV transfers, or "
    "the think times, are far too long"
)


def blocked_message(spec: EngineSpec, index: int, prompt: int, known: int, now: int, *, pool: str = "") -> str:
    """Why the request at the head can never run. `known`: its prompt and the tokens made so far.

    Args:
        pool: which of two pools it is in, and whose settings these are.
    """
    bs = spec.block_tokens
    need = -(-known // bs)
    if need > spec.blocks:
        why = f"its {known} tokens need {need} KV blocks of {bs} tokens and a rank has {spec.blocks}"
        remedy = "raise kv_cache.capacity.blocks, or set context_length so that it is refused on arrival"
    elif not spec.chunked_prefill and known > spec.max_batched_tokens:
        budget = spec.max_batched_tokens
        why = f"chunked prefill is off and its {known} tokens exceed the budget of {budget} tokens per pass"
        remedy = "raise scheduler.max_batched_tokens or switch scheduler.chunked_prefill on"
    else:
        why = f"the KV pool of {spec.blocks} blocks has no room that will ever fall free"
        remedy = "raise kv_cache.capacity.blocks or lower scheduler.max_sequences"
    who, place = f"request {index} (prompt {prompt} tokens)", f" in the {pool} pool" if pool else ""
    return f"nothing can run any more at {now / 1e6} ms: {who} is blocked{place} because {why}; {remedy}{place}"


def livelock_message(spec: EngineSpec, index: int, worker: int, dp_rank: int, choices: int, now: int) -> str:
    """Running requests keep throwing each other out; `index` was thrown out last."""
    return (
        f"request {index} and others on worker {worker} rank {dp_rank} keep preempting each other: more than {choices} "
        f"choices in a row without a token (now {now / 1e6} ms); the KV pool of {spec.blocks} blocks is too small for "
        "those that run: raise kv_cache.capacity.blocks or lower scheduler.max_sequences"
    )
