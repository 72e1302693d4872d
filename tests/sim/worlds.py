"""Random small worlds: a deployment and its requests, made to collide.

A family takes any source of random choices: `random.Random(seed)` for a sweep, hypothesis' own for a world that
shrinks. Times are multiples of a quarter of a millisecond, so that arrivals, pass ends and time caps often coincide.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from sim.inputs import Workload
from sim.spec import (
    Deployment,
    EngineSpec,
    FixedTiming,
    FlatTiming,
    FrontEnd,
    PolynomialTiming,
    Routing,
    Speculation,
    TableTiming,
    Timing,
    Transfer,
)

QUARTER_MS = 250_000  # ns


@dataclass(frozen=True)
class World:
    """One question to both engines."""

    spec: Deployment
    load: Workload

    def __repr__(self) -> str:
        """As Python: what it takes to ask again."""
        return f"World(\n    {_call(self.spec)},\n    {_call(self.load)},\n)"


def _call(value: Any) -> str:
    given = []
    for field in fields(value):
        x = getattr(value, field.name)
        if isinstance(x, np.ndarray):
            given.append(f"{field.name}=np.array({x.tolist()}, np.{x.dtype})")
        elif isinstance(x, (Timing, EngineSpec, FrontEnd, Transfer)):
            given.append(f"{field.name}={_call(x)}")
        elif x is not None and field.name != "kind" and not (field.name == "warmup" and x == 0):
            given.append(f"{field.name}={x!r}")
    return f"{type(value).__name__}({', '.join(given)})"


def small(rng: random.Random) -> World:
    """Up to 16 requests: every option of the engine, alone and together."""
    n = rng.choice([rng.randint(1, 6), rng.randint(4, 16)])
    most_prompt, most_output = rng.choice([4, 12, 24, 40]), rng.choice([1, 6, 14, 30, 30])
    block_tokens, seqs = rng.choice([1, 2, 3, 4, 8]), rng.randint(1, 7)
    sharing = _groups if rng.random() < 0.6 else _tree
    return _woven(rng, _world(rng, n, most_prompt, most_output, block_tokens, seqs, sharing=sharing))


def squeezed(rng: random.Random) -> World:
    """Short prompts with long answers on one rank or two: budget, slots and pool all fall short, pass after pass."""
    n, seqs, block_tokens = rng.randint(4, 16), rng.randint(3, 8), rng.choice([1, 1, 2, 3, 4])
    ranks = rng.choice([(1, 1), (1, 1), (1, 2)])
    lengths = rng.choice([4, 12]), rng.choice([6, 14, 30])
    made = _world(rng, n, *lengths, block_tokens, seqs, sharing=_groups, ranks=ranks)
    spec = replace(
        made.spec,
        profile=rng.choice(["vllm", "vllm", "parity", "parity", "parity", "trtllm"]),
        blocks=_longest(made.load.prompt_tokens + made.load.output_tokens, block_tokens) + rng.randint(0, 5),
        max_batched_tokens=rng.choice([1, 2, 3, 5, 8, 16]),
        max_model_len=None,
        preemption=rng.choice(["fifo", "lifo"]),
        prefill_schedule_interval=rng.choice([2, 3, 4]),
        boundary_arrivals=rng.choice(["before", "after"]),
    )
    return _woven(rng, World(_allowed(spec), made.load))


def throttled(rng: random.Random) -> World:
    """A group that computes prompts in every n-th pass only, so that decoders gather behind unfinished prompts."""
    n, seqs, block_tokens = rng.randint(4, 16), rng.randint(3, 8), rng.choice([1, 1, 2])
    made = _world(rng, n, rng.choice([8, 16]), rng.choice([6, 14]), block_tokens, seqs, sharing=_tree, ranks=(1, 2))
    spec = replace(
        made.spec,
        timing=FlatTiming(rng.choice([0.5, 1.0])),
        blocks=_longest(made.load.prompt_tokens + made.load.output_tokens, block_tokens) + rng.randint(0, 12),
        max_batched_tokens=rng.choice([2, 3, 4, 6]),
        max_model_len=None,
        prefill_schedule_interval=rng.choice([2, 3, 4, 6]),
    )
    return _woven(rng, World(_allowed(spec), made.load))


def chorus(rng: random.Random) -> World:
    """Everybody asks the same, most of them at once: what one gives up is still held by the others."""
    n, seqs, block_tokens = rng.randint(4, 9), rng.randint(3, 8), rng.choice([1, 1, 2])
    prompt, output = rng.randint(2, 12), rng.choice([3, 3, 4, 8])
    made = _world(rng, n, prompt, output, block_tokens, seqs, sharing=_groups, ranks=(1, 1))
    known = prompt + rng.choice([0, 0, 2, output])
    # Enough for all of them to begin together, and hardly for their first answers.
    together = -(-prompt // block_tokens) + min(n, seqs) - 1 + rng.randint(0, 3)
    spec = replace(
        made.spec,
        profile=rng.choice(["vllm", "parity", "parity", "trtllm"]),
        blocks=max(_longest([prompt + output], block_tokens), together),
        prefix_caching=True,
        max_batched_tokens=rng.choice([3, 64, 64]),
        preemption=rng.choice(["fifo", "fifo", "lifo"]),
    )
    load = replace(
        made.load,
        arrival_ns=np.sort([rng.choice([0, 0, 0, 4, 9]) * QUARTER_MS for _ in range(n)]),
        prompt_tokens=np.full(n, prompt),
        output_tokens=np.maximum(made.load.output_tokens, rng.choice([0, output])),
        hash_offsets=np.arange(n + 1) * known,
        hash_ids=np.tile(np.arange(known), n),
        hash_block_tokens=1,
        hashed_tokens=np.full(n, known),
    )
    return _woven(rng, World(_allowed(spec), load))


def deep(rng: random.Random) -> World:
    """30 to 80 requests in a tight pool, with prefixes that branch and are prompted again with their answers."""
    n = rng.randint(30, 80)
    most_prompt, most_output = rng.choice([12, 60, 120]), rng.choice([8, 40, 70])
    block_tokens, seqs = rng.choice([1, 2, 4, 5, 8, 16]), rng.randint(2, 24)
    sharing = _tree if rng.random() < 0.8 else _groups
    return _woven(rng, _world(rng, n, most_prompt, most_output, block_tokens, seqs, sharing=sharing))


def routed(rng: random.Random) -> World:
    """Up to 16 requests behind a KV-aware router: several workers and ranks, prompts that share much."""
    n, block_tokens = rng.randint(4, 16), rng.choice([1, 2, 3, 4])
    lengths = rng.choice([12, 24, 40]), rng.choice([6, 14])
    ranks = rng.choice([(2, 1), (3, 1), (2, 2), (1, 3), (4, 1)])
    sharing = _groups if rng.random() < 0.5 else _tree
    made = _woven(rng, _world(rng, n, *lengths, block_tokens, rng.randint(2, 7), sharing=sharing, ranks=ranks))
    return World(replace(made.spec, routing=routing(rng)), made.load)


def routing(rng: random.Random) -> Routing:
    return Routing(rng.choice([1.0, 1.0, 0.5, 0.0, 0.3]), rng.choice([1.0, 1.0, 2.0, 0.0, 0.7]))


FAMILIES: dict[str, Callable[[random.Random], World]] = {
    "small": small,
    "squeezed": squeezed,
    "throttled": throttled,
    "chorus": chorus,
    "deep": deep,
    "routed": routed,
}


# A deep world takes ten times as long as the others.
MIX = ("small", "squeezed", "small", "squeezed", "small", "throttled", "small", "squeezed", "chorus", "deep")


def world(seed: int, family: str = "mixed") -> World:
    """The world of a seed, the same for ever as long as this file is."""
    family = MIX[seed % len(MIX)] if family == "mixed" else family
    return FAMILIES[family](random.Random(f"{family} {seed}"))


def behind_front_end(seed: int) -> World:
    """The world of a seed, its clients at a distance from the engine."""
    rng, made = random.Random(f"front {seed}"), world(seed)
    front = FrontEnd(
        request_ns=rng.choice([0, 0, 4, 12]) * QUARTER_MS,
        # Longer prompts arrive later, now and then than those that were sent after them.
        tokenization_ns=rng.choice([0, 0, 1024 * QUARTER_MS, 1000 * QUARTER_MS]),
        client_ns=rng.choice([0, 0, 1, 3]) * QUARTER_MS,
        reply_ns=rng.choice([0, 1, 4, 20]) * QUARTER_MS,
    )
    return World(replace(made.spec, front=front), made.load)


def _world(rng, n, most_prompt, most_output, block_tokens, seqs, *, sharing, ranks=None) -> World:
    prompts = [rng.randint(1, most_prompt) for _ in range(n)]
    fewest = 0 if rng.random() < 0.3 else 1
    outputs = [rng.choice([fewest, rng.randint(fewest, most_output), rng.randint(1, most_output)]) for _ in range(n)]
    profile = rng.choice(["vllm", "vllm", "vllm", "parity", "parity", "trtllm"])
    chunked = rng.random() < 0.8
    budget = rng.choice([1, 2, 3, 5, 8, 16, 32, 64])
    if not chunked and rng.random() < 0.6:
        budget = max(budget, most_prompt + most_output)
    identity = sharing(rng, prompts, outputs, block_tokens) if rng.random() < 0.75 else {}
    need = _longest([p + o for p, o in zip(prompts, outputs)], block_tokens)
    blocks = rng.choice([need, need, need + rng.randint(0, need // 2), need + rng.randint(0, 2 * need), 10 * need + 50])
    if rng.random() < 0.1:
        blocks = max(1, need - rng.choice([1, need // 2]))  # somebody outgrows the pool
    timing = _timing(rng)
    # Long passes get arrivals that are as far apart.
    unit = QUARTER_MS * (rng.choice([8, 40]) if isinstance(timing, PolynomialTiming) else 1)
    workers, dp = ranks or (rng.choice([1, 1, 1, 1, 2, 3]), rng.choice([1, 1, 1, 2, 3]))
    load = {
        "arrival_ns": _arrivals(rng, n, unit),
        "prompt_tokens": np.array(prompts, np.int64),
        "output_tokens": np.array(outputs, np.int64),
        "concurrency": rng.randint(1, seqs + 2) if rng.random() < 0.3 else None,
    } | identity
    if rng.random() < 0.2:
        load["session"] = np.array([rng.choice([-1, 0, 1, 2, 7]) for _ in range(n)], np.int64)
        if rng.random() < 0.8:
            load["delay_ns"] = np.array([rng.choice([0, 4, 14]) * unit for _ in range(n)], np.int64)
    if rng.random() < 0.1:
        load["pinned_rank"] = np.array([rng.choice([-1, rng.randrange(dp)]) for _ in range(n)], np.int64)
    spec = EngineSpec(
        profile=profile,
        timing=timing,
        workers=workers,
        dp=dp,
        block_tokens=block_tokens,
        blocks=blocks,
        max_num_seqs=seqs,
        max_batched_tokens=budget,
        max_model_len=rng.randint(4, most_prompt + most_output) if rng.random() < 0.3 else None,
        prefix_caching=rng.random() < 0.8,
        chunked_prefill=chunked,
        async_scheduling=rng.random() < 0.5,
        preemption=rng.choice(["lifo", "lifo", "fifo"]),
        prefill_schedule_interval=rng.choice([1, 1, 2, 3, 4]),
        watermark=rng.choice([0.0, 0.0, 0.0, 0.1, 0.3]),
        reserve_full_isl=rng.random() < 0.8,
        boundary_arrivals=rng.choice([None, None, "before", "after"]),
        speedup_ratio=rng.choice([1.0, 1.0, 1.0, 2.0, 1.7, 0.0]),
        decode_speedup_ratio=rng.choice([1.0, 1.0, 1.0, 2.5, 0.0]),
        stop_ns=rng.randint(0, 160) * unit if rng.random() < 0.25 else None,
    )
    return World(_allowed(spec), Workload(**load))


def _woven(rng: random.Random, made: World) -> World:
    """Now and then requests that wait for one another, earliest starts, a limit on what is sent, a warm-up.

    The last choices of a world: whatever else it is, it is without them, too.
    """
    n, columns = len(made.load), dict[str, Any]()
    if rng.random() < 0.15:
        columns |= _plays(rng, n)
    if (columns or made.load.session is not None) and rng.random() < 0.4:
        columns["not_before_ns"] = np.array([rng.choice([0, 4, 20, 60]) * QUARTER_MS for _ in range(n)], np.int64)
    if rng.random() < 0.05:
        columns["send_limit"] = rng.randint(1, n + 1)
    if rng.random() < 0.1:
        columns["warmup"] = rng.randint(1, n)
    return _drafting(rng, World(made.spec, replace(made.load, **columns)))


def _drafting(rng: random.Random, made: World) -> World:
    """In every third world speculative decoding, certain and uncertain, scripted, switched off above a batch. And the
    other capacity policy of TensorRT-LLM."""
    if made.spec.profile == "trtllm" and rng.random() < 0.4:
        made = World(replace(made.spec, capacity_policy="max_utilization"), made.load)
    if rng.random() >= 0.33:
        return made
    speculation = any_speculation(rng, len(made.load))
    spec = replace(made.spec, speculation=speculation, decode_speedup_ratio=1.0)
    if speculation.kind == "ngram":
        spec = replace(spec, async_scheduling=False)
    if rng.random() < 0.2:
        spec = replace(spec, max_model_len=int(made.load.prompt_tokens.max()) + rng.randint(2, 9))
    if rng.random() < 0.4:
        spec = replace(spec, blocks=spec.blocks + rng.randint(0, 8))
    return World(spec, made.load)


def any_speculation(rng: random.Random, requests: int) -> Speculation:
    """Certain and uncertain, scripted, switched off above a batch."""
    drafts, kind = rng.randint(1, 5), rng.choice(["ngram", "mtp", "mtp", "eagle"])
    certain, likely = rng.choice([0.0, 1.0]), [0.0, 0.3, 0.7, 0.9, 1.0]
    rates = rng.choice([[certain] * drafts, [rng.choice(likely) for _ in range(drafts)]])
    scripts = [tuple(rng.randint(0, drafts) for _ in range(rng.randint(1, 3))) for _ in range(requests)]
    return Speculation(
        kind,
        drafts,
        tuple(rates),
        seed=rng.choice([42, 0, 2**64 - 1, rng.randrange(2**64)]),
        trigger_rate=rng.choice([1.0, 1.0, 0.5, 0.0]) if kind == "ngram" else 1.0,
        max_batch=rng.choice([None, None, None, 0, 1, 2, 4]),
        scripted=tuple(scripts) if rng.random() < 0.15 else None,
    )


def _plays(rng: random.Random, n: int) -> dict[str, Any]:
    session = [rng.choice([-1, 0, 0, 1, 1, 5]) for _ in range(n)]
    on, offsets = list[int](), [0]
    for i in range(n):
        earlier = [j for j in range(i) if session[j] == session[i] >= 0]
        on += rng.sample(earlier, min(len(earlier), rng.choice([0, 1, 1, 1, 2, 3])))
        offsets.append(len(on))
    return {
        "session": np.array(session, np.int64),
        "wait_offsets": np.array(offsets, np.int64),
        "wait_on": np.array(on, np.int64),
        "wait_delay_ns": np.array([rng.choice([0, 0, 4, 14]) * QUARTER_MS for _ in on], np.int64),
        "wait_on_dispatch": np.array([rng.random() < 0.35 for _ in on], np.int8),
    }


def _longest(tokens: Iterable[int], block_tokens: int) -> int:
    """Blocks of the longest request."""
    return -(-int(max(tokens)) // block_tokens)


def _allowed(spec: EngineSpec) -> EngineSpec:
    """What a profile does not know is left out; vLLM refuses a budget below the batch."""
    if spec.profile == "vllm":
        return replace(spec, max_batched_tokens=max(spec.max_batched_tokens, spec.max_num_seqs), preemption="lifo")
    if spec.profile == "trtllm":
        spec = replace(spec, preemption="lifo", prefill_schedule_interval=1, async_scheduling=False)
    return replace(spec, watermark=0.0)


def _timing(rng: random.Random) -> Timing:
    kind = rng.choice(["flat", "flat", "flat", "fixed", "fixed", "polynomial", "table", "table"])
    if kind == "flat":
        return FlatTiming(rng.choice([1.0, 1.0, 0.5, 0.0]))
    if kind == "fixed":
        return FixedTiming(rng.choice([0.0, 1.0, 2.5]), rng.choice([0.0, 1.0, 0.5, 0.3]))
    if kind == "polynomial":
        return PolynomialTiming()
    # Steep enough that some lookups beyond the ends come out negative: floored in prefill, refused in decode.
    first = rng.choice([1.0, 1.0, 1.0, 1.0, -0.5])
    return TableTiming(
        np.array([2.0, 5.0, 20.0]),
        np.array([0.25, 3.0, 9.0]),
        np.array([4.0, 10.0, 60.0]),
        np.array([3.0, 8.0, 30.0]),
        np.array([[first, 2.0, 3.0], [2.0, 3.0, 5.0], [4.0, 5.0, 9.0]]),
    )


def _arrivals(rng: random.Random, n: int, unit: int) -> np.ndarray:
    pace, now, times = rng.choice([0, 0, 1, 2, 4, 4]), 0, []
    for _ in range(n):
        now += rng.choice([0, 0, 1, 1, 2, 5, 20]) * pace * unit + rng.choice([0, 0, 0, unit, 1])
        times.append(now)
    return np.array(times, np.int64)


def _groups(rng, prompts, outputs, block_tokens) -> dict[str, Any]:
    """Requests follow one of a few endless texts for a while; ids repeat inside a text."""
    size = rng.choice([1, 2, 4, block_tokens, 3 * block_tokens, 6])
    texts = [[rng.randint(1, 3) for _ in range(8)] for _ in range(rng.randint(1, 3))]
    ids, described = [], []
    for i, (prompt, output) in enumerate(zip(prompts, outputs)):
        known = prompt + (rng.randint(0, output) if rng.random() < 0.4 else 0)
        count = -(-known // size) if rng.random() < 0.8 else known // size
        text = rng.choice(texts)
        common = rng.randint(0, count) if rng.random() < 0.7 else count
        ids.append([text[j % 8] if j < common else 1000 * (i + 1) + j for j in range(count)])
        described.append(known)
    return _columns(rng, ids, described, size)


def _tree(rng, prompts, outputs, block_tokens) -> dict[str, Any]:
    """Every request goes on from somewhere inside an earlier one, often from its answer."""
    size = rng.choice([1, 1, 2, 4, block_tokens, 2 * block_tokens, 7])
    ids: list[list[int]] = []
    described = []
    for i, output in enumerate(outputs):
        parent = rng.randrange(i) if i and rng.random() < 0.85 else None
        if parent is not None and rng.random() < 0.3:
            prompts[i] = prompts[parent]  # often the very same prompt
        known = prompts[i] + (rng.randint(0, output) if rng.random() < 0.7 else 0)
        count = -(-known // size)
        text = [] if parent is None else ids[parent]
        common = text[: min(count, len(text) if rng.random() < 0.6 else rng.randint(0, len(text)))]
        ids.append(common + [-1000 * (i + 1) - j for j in range(count - len(common))])
        described.append(known)
    return _columns(rng, ids, described, size)


def _columns(rng, ids: list[list[int]], described: list[int], size: int) -> dict[str, Any]:
    columns = {
        "hash_offsets": np.cumsum([0] + [len(row) for row in ids]),
        "hash_ids": np.array([x for row in ids for x in row], np.int64),
        "hash_block_tokens": size,
    }
    if rng.random() < 0.7:
        # Otherwise the ids describe prompts only, and what they say beyond is surplus.
        columns["hashed_tokens"] = np.array(described, np.int64)
    return columns


def _same_prompts(n: int, prompt: int, output: int, **spec: Any) -> World:
    load = Workload(
        np.zeros(n, np.int64),
        np.full(n, prompt),
        np.full(n, output),
        hash_offsets=np.arange(n + 1) * prompt,
        hash_ids=np.tile(np.arange(prompt), n),
        hash_block_tokens=1,
    )
    return World(EngineSpec(timing=FlatTiming(1.0), block_tokens=1, **spec), load)


def _one(prompt: int, output: int) -> Workload:
    return Workload(np.zeros(1, np.int64), np.array([prompt]), np.array([output]))


def _counted_too_well() -> World:
    """A head that passed the gate because what the drafter's cut took from its hit is in use, and what is left is not;
    the request admitted just before makes room for it. Found among fresh cases of the simulator."""
    ids = [
        [1, 7, 8, 9, 10, 11, 12, 13, 14, 15],
        [1, 2, 4, 5, 6, 16, 17, 18, 19, 20, 21],
        [1, 2, 4, 5, 6, 16],
        [22, 23, 24, 25, 26, 27, 28],
        [1, 29, 30, 31, 32, 33, 34, 35, 36],
        [1, 29, 30, 31, 37, 38, 39, 40, 41, 42, 43, 44],
    ]
    spec = EngineSpec(
        profile="parity", timing=FlatTiming(1.0), block_tokens=2, blocks=27, max_num_seqs=3, max_batched_tokens=35,
        async_scheduling=False, speculation=Speculation("mtp", 4, (1.0, 1.0, 1.0, 0.0)),
    )  # fmt: skip
    load = Workload(
        arrival_ns=np.array([11_000_000, 13_999_954, *[17_000_000] * 4]),
        prompt_tokens=np.array([16, 20, 1, 13, 17, 23]),
        output_tokens=np.array([21, 1, 0, 5, 1, 1]),
        hash_offsets=np.cumsum([0] + [len(row) for row in ids]),
        hash_ids=np.array([x for row in ids for x in row], np.int64),
        hash_block_tokens=2,
    )
    return World(spec, load)


# Worlds that chance rarely makes; tests/sim/test_repeat.py tells when a line of the kernels needs another one.
RARE = (
    # A first-in victim that this very choice had brought back to decoding.
    _same_prompts(5, 8, 3, profile="parity", preemption="fifo", async_scheduling=False, blocks=13, max_num_seqs=5),
    # An unfinished prompt throttled in a full batch; blocks promised in a full batch [trtllm]; requests that end in
    # another order than they began to decode; one that ends in the queue, behind others; a victim left out before.
    *(world(seed) for seed in (253, 461, 1218, 1688, 2545)),
    # Drafting: a request that no burst of fits; victims that this choice had served; a copy that is not the oldest.
    *(world(seed) for seed in (322, 327, 342, 353, 397, 497)),
    # Drafting: many that end together; a first-in victim in front of somebody who still waits for his turn.
    World(
        EngineSpec(
            profile="parity", timing=FlatTiming(1.0), max_num_seqs=8, speculation=Speculation("ngram", 1, (1.0,))
        ),
        Workload(np.zeros(80, np.int64), np.ones(80, np.int64), np.ones(80, np.int64)),
    ),
    World(
        EngineSpec(
            profile="parity",
            timing=FlatTiming(0.5),
            dp=2,
            block_tokens=1,
            blocks=24,
            max_num_seqs=3,
            max_batched_tokens=5,
            async_scheduling=False,
            preemption="fifo",
            prefill_schedule_interval=4,
            speculation=Speculation("ngram", 1, (0.5,)),
        ),
        Workload(
            np.array([500_000, 1_749_942, 1_750_000, 1_750_000, 1_750_000, 2_250_000, 3_250_000, 3_500_000]),
            np.array([11, 11, 1, 1, 1, 5, 1, 1]),
            np.array([0, 5, 0, 0, 0, 0, 0, 5]),
        ),
    ),
    _counted_too_well(),
    # Too long for the clock: a thousand passes, and one.
    World(EngineSpec(timing=FlatTiming(8e9), block_tokens=4, blocks=512), _one(4, 1_000)),
    World(EngineSpec(timing=FlatTiming(6e9), speedup_ratio=0.5), _one(4, 1)),
)
