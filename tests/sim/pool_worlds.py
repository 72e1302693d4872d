"""Random small worlds of separate prefill and decode pools, made to collide."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np

from sim.inputs import Workload
from sim.spec import EngineSpec, FixedTiming, PolynomialTiming, PoolsSpec, Transfer
from tests.sim import arrays
from tests.sim.worlds import QUARTER_MS, World, any_speculation, routing

POLICIES: tuple[Any, ...] = ("guaranteed_no_evict", "max_utilization", "max_utilization")


def pool_world(seed: int) -> World:
    """Up to 24 requests over up to three workers on each side."""
    rng = random.Random(seed)
    profile = rng.choice(["parity", "parity", "trtllm", "vllm"])
    block_tokens = rng.choice([1, 2, 4, 4, 8])
    caching = rng.random() < 0.85
    prefill = _side(rng, profile, block_tokens, caching)
    decode = _side(rng, profile, block_tokens, caching if rng.random() < 0.9 else not caching)
    stop = rng.choice([None, None, None, rng.randint(1, 400) * QUARTER_MS])
    spec = PoolsSpec(replace(prefill, stop_ns=stop), replace(decode, stop_ns=stop), _transfer(rng))
    return World(spec, _load(rng, block_tokens))


def pool_variant(seed: int) -> World:
    """A pool world whose senders stop early, at prices from arrays in every second one."""
    rng, asked = random.Random(seed), pool_world(seed)
    load, spec = replace(asked.load, send_limit=rng.randint(1, len(asked.load) + 1)), asked.spec
    assert isinstance(spec, PoolsSpec)
    if rng.random() < 0.5:
        prefill, decode = (replace(side, timing=arrays.any_kind(rng)) for side in (spec.prefill, spec.decode))
        spec = replace(spec, prefill=prefill, decode=decode)
    return World(spec, load)


def pinned_pool(seed: int) -> World:
    """A pool world with requests pinned on either side, or both."""
    rng, asked = random.Random(seed), pool_world(seed)
    spec, n = asked.spec, len(asked.load)
    assert isinstance(spec, PoolsSpec)

    def pins(ranks: int) -> np.ndarray | None:
        return np.array([rng.choice([-1, rng.randrange(ranks)]) for _ in range(n)]) if rng.random() < 0.7 else None

    load = replace(asked.load, pinned_rank=pins(spec.decode.ranks), pinned_prefill_rank=pins(spec.prefill.ranks))
    return World(spec, load)


def pool_drafts(seed: int) -> World:
    """A pool world that drafts, or one of TensorRT-LLM's other capacity policy, or both; its pools are often tight."""
    rng = random.Random(seed)
    asked = transfer_world(seed) if rng.random() < 0.25 else pool_world(seed)
    spec = asked.spec
    assert isinstance(spec, PoolsSpec)
    prefill, decode = spec.sides
    if spec.profile == "trtllm":
        prefill, decode = (replace(side, capacity_policy=rng.choice(POLICIES)) for side in (prefill, decode))
    if rng.random() < 0.8 or spec.profile != "trtllm":
        speculation = any_speculation(rng, len(asked.load))
        decode = replace(decode, speculation=speculation)
        prefill = replace(prefill, speculation=rng.choice([speculation, speculation, speculation, None]))
    if rng.random() < 0.4:
        decode = replace(
            decode, blocks=-(-int(asked.load.prompt_tokens.max()) // decode.block_tokens) + rng.randint(1, 12)
        )
    return World(replace(spec, prefill=prefill, decode=decode), asked.load)


def routed_pool(seed: int) -> World:
    """A pool world behind KV-aware routers, some of its requests pinned."""
    rng = random.Random(f"routed {seed}")
    if rng.random() < 0.2:
        asked = pinned_pool(seed)
        return World(replace(asked.spec, routing=routing(rng)), asked.load)
    asked, workers = rng.choice([pool_world, transfer_world, pool_drafts])(seed), rng.choice([2, 2, 3])
    prefill, decode = (replace(side, workers=workers) for side in asked.spec.sides)
    return World(replace(asked.spec, prefill=prefill, decode=decode, routing=routing(rng)), asked.load)


def local_pool(seed: int) -> World:
    """A pool world whose decode workers prefill what they lack little of, some of it behind routers or pinned."""
    rng = random.Random(f"local {seed}")
    asked = rng.choice([pool_world, pool_variant, transfer_world, pool_drafts, pinned_pool, routed_pool])(seed)
    prefill, decode = (replace(side, speculation=None) for side in asked.spec.sides)
    return World(
        replace(asked.spec, prefill=prefill, decode=decode, local_prefill_tokens=rng.choice([0, 4, 12, 30, 1000])),
        asked.load,
    )


def pool_ahead(seed: int) -> World:
    """A vLLM pool world in which one role or both choose one pass ahead; every third drafts."""
    rng = random.Random(seed)
    base = random.Random(f"ahead {seed}").randrange(1 << 30)
    asked = transfer_world(base) if rng.random() < 0.25 else pool_world(base)
    while asked.spec.profile != "vllm":
        base += 1
        asked = transfer_world(base) if rng.random() < 0.25 else pool_world(base)
    spec = asked.spec
    assert isinstance(spec, PoolsSpec)
    ahead = rng.choice([(True, True), (True, False), (False, True)])
    prefill, decode = (replace(side, async_scheduling=on) for side, on in zip(spec.sides, ahead, strict=True))
    if rng.random() < 0.33:
        speculation = replace(
            any_speculation(rng, len(asked.load)), kind=rng.choice(["mtp", "eagle"]), trigger_rate=1.0
        )
        prefill, decode = (replace(side, speculation=speculation) for side in (prefill, decode))
    longest = -(-int((asked.load.prompt_tokens + asked.load.output_tokens).max()) // decode.block_tokens)
    if rng.random() < 0.4:
        prefill = replace(prefill, blocks=longest + rng.randint(1, 12))
    if rng.random() < 0.4:
        decode = replace(decode, blocks=longest + rng.randint(1, 12))
    transfer = replace(spec.transfer, layers=0) if ahead[0] else spec.transfer
    return World(replace(spec, prefill=prefill, decode=decode, transfer=transfer), asked.load)


def thrown_out_in_flight() -> World:
    """A prompt loses its blocks while its last chunk is in flight: throttled waves let one that needs a single token
    past another that needs more, and the latter asks for a block."""
    asked = pool_ahead(642)
    spec, longest = asked.spec, int(asked.load.prompt_tokens.max())
    assert isinstance(spec, PoolsSpec)
    side = spec.prefill
    budget = max(4, min(side.max_batched_tokens, 16))
    prefill = replace(
        side,
        dp=2,
        prefill_schedule_interval=2,
        blocks=-(-longest // side.block_tokens) + 1,
        max_num_seqs=min(max(side.max_num_seqs, 4), budget),
        max_batched_tokens=budget,
        prefix_caching=True,
    )
    return World(replace(spec, prefill=prefill), asked.load)


def _side(rng: random.Random, profile: Any, block_tokens: int, caching: bool) -> EngineSpec:
    seqs = rng.choice([64, 64, 1, 2, 3, 5])
    budget = rng.choice([256, 64, 33, 16, 7])
    return EngineSpec(
        profile=profile,
        timing=PolynomialTiming()
        if rng.random() < 0.1
        else FixedTiming(rng.choice([10.0, 12.5, 7.0, 33.25, 0.0]), rng.choice([1.0, 2.0, 3.0, 4.5])),
        workers=rng.choice([1, 1, 2, 3]),
        dp=rng.choice([1, 1, 1, 2, 3]),
        block_tokens=block_tokens,
        blocks=rng.choice([4096, 4096, rng.randint(10, 40), rng.randint(10, 40)]),
        max_num_seqs=min(seqs, budget) if profile == "vllm" else seqs,
        max_batched_tokens=budget,
        max_model_len=rng.randint(20, 90) if rng.random() < 0.2 else None,
        prefix_caching=caching,
        chunked_prefill=profile == "trtllm" or rng.random() < 0.9,
        async_scheduling=False,
        preemption="fifo" if profile == "parity" and rng.random() < 0.1 else "lifo",
        prefill_schedule_interval=rng.choice([1, 1, 1, 2]) if profile != "trtllm" else 1,
        watermark=rng.choice([0.0, 0.0, 0.1]) if profile == "vllm" else 0.0,
        reserve_full_isl=profile != "vllm" or rng.random() < 0.5,
        speedup_ratio=rng.choice([1.0, 1.0, 1.0, 2.0]),
    )


def _transfer(rng: random.Random) -> Transfer:
    if rng.random() < 0.3:
        return Transfer(fallback_ns=rng.choice([0, 0, 7 * QUARTER_MS]))
    return Transfer(
        bytes_per_token=rng.choice([50_000.0, 100_000.0, 131_072.0]),
        bytes_per_second=rng.choice([0.5e9, 1e9, 8e9]),
        missing_only=rng.random() < 0.4,
        fixed_bytes=rng.choice([0.0, 0.0, 250_000.0]),
    )


def transfer_world(seed: int) -> World:
    """A pool world whose transfers share links, wait for their first byte, fail, come too late or begin early."""
    rng, asked = random.Random(seed), pool_world(seed)
    spec = asked.spec
    assert isinstance(spec, PoolsSpec)
    transfer = replace(
        spec.transfer,
        bytes_per_second=rng.choice([0.03e9, 0.1e9, 0.1e9, 0.7e9, 3e9]),
        links=rng.choice(["none", "per_source", "per_destination", "shared", "shared"]),
        sharing=rng.choice(["fifo", "fair", "fair"]),
        first_byte_ns=rng.choice([0, 0, 1, QUARTER_MS, 9 * QUARTER_MS]),
        failure_rate=rng.choice([0.0, 0.0, 0.2, 0.6, 1.0]),
        retries=rng.choice([0, 1, 3]),
        timeout_ns=rng.choice([None, None, 2 * QUARTER_MS, rng.randint(1, 200) * QUARTER_MS]),
        seed=rng.choice([42, rng.getrandbits(64)]),
        layers=rng.choice([0, 0, 1, 3, 32]),
    )
    return World(replace(spec, transfer=transfer), asked.load)


def late_pool(seed: int) -> World:
    """A transfer world whose patience runs out while handoffs queue for little room, some behind others that are held
    later; and while bytes that set out together are under way, or need not set out at all."""
    rng = random.Random(f"late {seed}")
    asked = transfer_world(seed)
    prefill, decode = asked.spec.sides
    longest = -(-int((asked.load.prompt_tokens + asked.load.output_tokens).max()) // decode.block_tokens)
    prefill = replace(prefill, workers=rng.choice([2, 3]), timing=arrays.any_kind(rng))
    decode = replace(
        decode, dp=rng.choice([1, 2, 3]), blocks=longest + rng.randint(0, 6), max_num_seqs=min(4, decode.max_num_seqs)
    )
    transfer = replace(
        asked.spec.transfer,
        timeout_ns=rng.randint(1, 160) * QUARTER_MS,
        first_byte_ns=rng.choice([0, 0, 40, 200]) * QUARTER_MS,
        failure_rate=rng.choice([0.0, 0.0, 0.3]),
        layers=rng.choice([0, 1, 3]),
        missing_only=rng.random() < 0.7,
        fixed_bytes=0.0,
    )
    load = replace(asked.load, arrival_ns=asked.load.arrival_ns // 4, concurrency=None)
    return World(replace(asked.spec, prefill=prefill, decode=decode, transfer=transfer), load)


def tight_drafts(seed: int) -> World:
    """Drafting pools of the parity profile whose hits give up a block, and whose decode worker has little room beside
    what is on its way to it."""
    rng = random.Random(f"tight {seed}")
    base = rng.randrange(1 << 30)
    asked = pool_drafts(base)
    while asked.spec.profile != "parity" or asked.spec.sides[1].speculation is None:
        base += 1
        asked = pool_drafts(base)
    prefill, decode = asked.spec.sides
    assert decode.speculation is not None
    cutting = replace(decode.speculation, kind=rng.choice(["mtp", "eagle"]), trigger_rate=1.0)
    prefill = replace(prefill, speculation=cutting if prefill.speculation is not None else None)
    load = replace(asked.load, output_tokens=asked.load.output_tokens * rng.choice([1, 2]))
    longest = -(-int((load.prompt_tokens + load.output_tokens).max()) // decode.block_tokens)
    decode = replace(
        decode,
        workers=1,
        dp=1,
        blocks=longest + rng.randint(0, 6),
        max_num_seqs=max(decode.max_num_seqs, 3),
        max_batched_tokens=rng.randint(2, 40),
        prefix_caching=True,
        speculation=cutting,
    )
    transfer = replace(asked.spec.transfer, missing_only=True, bytes_per_second=rng.choice([0.02e9, 0.1e9, 0.5e9]))
    return World(replace(asked.spec, prefill=prefill, decode=decode, transfer=transfer), load)


def _load(rng: random.Random, block_tokens: int) -> Workload:
    n = rng.randint(2, 24)
    share, longest, grid = rng.choice([0, 0.3, 0.8]), rng.choice([20, 60, 90]), rng.choice([1, 4, 20, 100])
    texts: list[list[int]] = []
    prompt, arrival, now, fresh = [], [], 0, 1
    for _ in range(n):
        tokens = rng.randint(1, longest)
        blocks = -(-tokens // block_tokens)
        ids: list[int] = []
        if texts and rng.random() < share:
            other = rng.choice(texts)
            ids = other[: min(rng.randint(1, len(other)), blocks)]
        while len(ids) < blocks:
            ids.append(fresh)
            fresh += 1
        texts.append(ids)
        prompt.append(tokens)
        arrival.append(now * QUARTER_MS)
        now += rng.choice([0, grid, grid * rng.randint(0, 5)])
    output = [0 if rng.random() < 0.05 else rng.randint(1, 15) for _ in range(n)]
    session = np.full(n, -1, np.int64)
    if rng.random() < 0.2:
        session = np.array([rng.choice([-1, 0, 1, 2]) for _ in range(n)], np.int64)
    return Workload(
        arrival_ns=np.array(arrival, np.int64),
        prompt_tokens=np.array(prompt, np.int64),
        output_tokens=np.array(output, np.int64),
        hash_offsets=np.concatenate([[0], np.cumsum([len(ids) for ids in texts])]).astype(np.int64),
        hash_ids=np.array([i for ids in texts for i in ids], np.int64),
        hash_block_tokens=block_tokens,
        session=session if (session >= 0).any() else None,
        delay_ns=np.array([rng.choice([0, 2, 9]) * QUARTER_MS for _ in range(n)], np.int64),
        concurrency=rng.randint(1, 6) if rng.random() < 0.3 else None,
    )
