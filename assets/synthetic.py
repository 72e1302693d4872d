"""Made-up traffic: requests or conversations, their lengths, shared prefixes, and arrival processes.

Every random number is the i-th output of a counter-based stream named after its purpose, where i is the request or
session it is for. Hence a request does not change when more follow it, when another process draws too, or when a
sampler rejects a draw for its neighbour.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np

from assets.lengths import draw
from sim.config.lengths import Distribution

SECOND_NS = 1_000_000_000
# Past this the sum of two times could leave 64 bits.
LAST_NS = 2**62


def uniforms(seed: int, purpose: str, n: int) -> np.ndarray:
    """n numbers in [0, 1) with 53 random bits; the i-th depends on the seed, the purpose and i alone."""
    key = np.frombuffer(hashlib.blake2b(f"{seed}/{purpose}".encode(), digest_size=16).digest(), np.uint64)
    raw = np.random.Philox(key=key).random_raw(n)
    # In place, and not through Generator: its algorithms may change with numpy, raw Philox output may not.
    raw >>= np.uint64(11)
    return raw * 2.0**-53


def round_half_away(value: float) -> int:
    """The nearest whole number, halves upward (values here are never negative). Rule WL-EX1."""
    whole = int(value)
    return whole + (value - whole >= 0.5)


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """Requests of a made-up workload, as `sim.inputs.Workload` wants them."""

    prompt_tokens: np.ndarray
    output_tokens: np.ndarray
    hash_offsets: np.ndarray | None = None
    hash_ids: np.ndarray | None = None
    hash_block_tokens: int = 512
    hashed_tokens: np.ndarray | None = None
    session: np.ndarray | None = None
    turn: np.ndarray | None = None
    delay_ns: np.ndarray | None = None


def shared_tokens(prompt_tokens: int, ratio: float, block_tokens: int) -> int:
    """Tokens of the shared prefix, whole blocks: round(blocks x ratio). Rule WL-6.

    1,024 tokens in blocks of 16 at 0.3: round(19.2) = 19 blocks, 304 tokens. The last block may reach past the prompt.
    """
    blocks = -(-prompt_tokens // block_tokens)
    return min(blocks, round_half_away(blocks * ratio)) * block_tokens


def groups(seed: int, n: int, n_groups: int) -> np.ndarray:
    """The prefix group of each of n requests or sessions, uniform."""
    return (uniforms(seed, "prefix-group", n) * n_groups).astype(np.int64)


def requests(
    n: int,
    *,
    input_tokens: int | Distribution,
    output_tokens: int | Distribution,
    shared_prefix_ratio: float,
    prefix_groups: int,
    block_tokens: int,
    seed: int,
) -> Columns:
    """n independent requests. Rule WL-6.

    One id stands for the whole shared prefix: ids are about equality, and what follows the prefix is equal to nothing.
    """
    prompt, output = draw(input_tokens, n, seed, "input"), draw(output_tokens, n, seed, "output")
    if not isinstance(input_tokens, int):
        return _of_many_lengths(prompt, output, shared_prefix_ratio, prefix_groups, block_tokens, seed)
    shared = shared_tokens(input_tokens, shared_prefix_ratio, block_tokens)
    if shared == 0:
        # Known to share nothing, as opposed to a trace that does not say: an offset column without ids.
        return Columns(prompt, output, np.zeros(n + 1, np.int64), np.zeros(0, np.int64), block_tokens)
    return Columns(prompt, output, np.arange(n + 1), groups(seed, n, prefix_groups), hash_block_tokens=shared)


def _of_many_lengths(
    prompt: np.ndarray, output: np.ndarray, ratio: float, n_groups: int, block_tokens: int, seed: int
) -> Columns:
    """Prefixes as long as their prompts allow: two requests of a group share the shorter one. Rule WL-6."""
    n = len(prompt)
    blocks = -(-prompt // block_tokens)
    shared = np.minimum(blocks, np.floor(blocks * ratio + 0.5).astype(np.int64))
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(shared)])
    within = np.arange(offsets[-1]) - np.repeat(offsets[:-1], shared)
    first = groups(seed, n, n_groups) * int(shared.max(initial=0)) if n_groups else np.zeros(n, np.int64)
    return Columns(prompt, output, offsets, np.repeat(first, shared) + within, block_tokens)


def sessions(
    n: int,
    *,
    turns: int,
    new_tokens: int | Distribution,
    output_tokens: int | Distribution,
    inter_turn_delay_ms: float,
    shared_prefix_ratio: float,
    prefix_groups: int,
    block_tokens: int,
    seed: int,
) -> Columns:
    """n conversations of `turns` requests each, session by session. Rule WL-7.

    Turn k's prompt is everything before it (prompts and generated output) plus new tokens: 8 new, 2 out, 3 turns give
    prompts of 8, 18 and 28. The shared prefix belongs to the first turn. Generated tokens are identified too, since
    the next turn repeats them.
    """
    turn = np.arange(turns)
    delay_ns = np.where(turn > 0, round(inter_turn_delay_ms * 1e6), 0)
    if not isinstance(new_tokens, int) or not isinstance(output_tokens, int):
        return _of_many_turns(
            n,
            new_tokens=draw(new_tokens, n * turns, seed, "input").reshape(n, turns),
            output=draw(output_tokens, n * turns, seed, "output").reshape(n, turns),
            ratio=shared_prefix_ratio,
            n_groups=prefix_groups,
            block_tokens=block_tokens,
            seed=seed,
            delay_ns=delay_ns,
        )
    prompts = (turn + 1) * new_tokens + turn * output_tokens
    ends = prompts + output_tokens
    # Whole blocks of the prompt only: what follows the first prompt is this conversation's own.
    shared = min(
        shared_tokens(new_tokens, shared_prefix_ratio, block_tokens), new_tokens // block_tokens * block_tokens
    )
    # A conversation is one chain, so one id may stand for all of it; behind a shared prefix, blocks of its size.
    width = shared or -(-int(ends[-1]) // block_tokens) * block_tokens
    lengths = -(-ends // width)
    longest = int(lengths[-1])
    table = np.arange(n * longest, dtype=np.int64).reshape(n, longest) + prefix_groups
    if shared:
        table[:, 0] = groups(seed, n, prefix_groups)
    # Row s, then for each turn the first lengths[turn] ids of its conversation.
    picked = np.concatenate([np.arange(length) for length in lengths])
    offsets = np.zeros(n * turns + 1, np.int64)
    np.cumsum(np.tile(lengths, n), out=offsets[1:])
    return Columns(
        prompt_tokens=np.tile(prompts, n),
        output_tokens=np.full(n * turns, output_tokens, np.int64),
        hash_offsets=offsets,
        hash_ids=table[:, picked].reshape(-1),
        hash_block_tokens=width,
        hashed_tokens=np.tile(ends, n),
        session=np.repeat(np.arange(n), turns),
        turn=np.tile(turn, n),
        delay_ns=np.tile(delay_ns, n),
    )


def _of_many_turns(
    n: int,
    *,
    new_tokens: np.ndarray,
    output: np.ndarray,
    ratio: float,
    n_groups: int,
    block_tokens: int,
    seed: int,
    delay_ns: np.ndarray,
) -> Columns:
    """Conversations whose turns differ in length, in blocks of the engine's size."""
    turns = len(delay_ns)
    ends = np.cumsum(new_tokens + output, axis=1)
    blocks = -(-new_tokens[:, 0] // block_tokens)
    # Whole blocks of the first prompt only: what follows it is this conversation's own.
    shared = np.minimum(np.floor(blocks * ratio + 0.5).astype(np.int64), new_tokens[:, 0] // block_tokens)
    lengths = -(-ends // block_tokens)
    longest, widest = int(lengths.max(initial=0)), int(shared.max(initial=0))
    flat = lengths.reshape(-1)
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(flat)])
    within = np.arange(offsets[-1]) - np.repeat(offsets[:-1], flat)
    per_session = np.repeat(np.arange(n), lengths.sum(axis=1))
    ids = n_groups * widest + per_session * longest + within
    if widest:
        prefix = groups(seed, n, n_groups)[per_session] * widest + within
        ids = np.where(within < shared[per_session], prefix, ids)
    return Columns(
        prompt_tokens=(ends - output).reshape(-1),
        output_tokens=output.reshape(-1),
        hash_offsets=offsets,
        hash_ids=ids,
        hash_block_tokens=block_tokens,
        hashed_tokens=ends.reshape(-1),
        session=np.repeat(np.arange(n), turns),
        turn=np.tile(np.arange(turns), n),
        delay_ns=np.tile(delay_ns, n),
    )


def constant_arrivals(n: int, rate: float) -> np.ndarray:
    """Arrivals at i / rate. Rule WL-1."""
    return _whole(np.arange(n) * float(SECOND_NS) / rate, n, rate)


def poisson_arrivals(n: int, rate: float, seed: int) -> np.ndarray:
    """Exponential gaps of mean 1 / rate, the first arrival at 0. Rule WL-2."""
    return _from_gaps(-np.log1p(-uniforms(seed, "arrival", n)), rate)


def gamma_arrivals(n: int, rate: float, shape: float, seed: int) -> np.ndarray:
    """Gamma gaps of mean 1 / rate and coefficient of variation 1 / sqrt(shape), the first arrival at 0. Rule WL-2."""
    return _from_gaps(_gamma(n, shape, seed) / shape, rate)


def diurnal_arrivals(n: int, rate: float, amplitude: float, period_s: float, seed: int) -> np.ndarray:
    """Poisson arrivals at rate(t) = rate x (1 - amplitude x cos(2 pi t / period)), the first one at 0.

    Arrivals of a steady process, in expected requests since the start, are carried to the times at which that many are
    expected; so the i-th depends on the gaps before it only.
    """
    gaps = -np.log1p(-uniforms(seed, "arrival", n))
    gaps[:1] = 0
    expected = np.cumsum(gaps) / (rate * period_s)  # in periods
    low, high = expected - 1 / (2 * np.pi), expected + 1 / (2 * np.pi)
    for _ in range(60):  # halving: safe where the rate touches zero, and exact to the last bits
        middle = (low + high) / 2
        below = middle - amplitude * np.sin(2 * np.pi * middle) / (2 * np.pi) < expected
        low, high = np.where(below, middle, low), np.where(below, high, middle)
    times = np.maximum(low, 0) * period_s * SECOND_NS
    times[:1] = 0
    return np.maximum.accumulate(_whole(times, n, rate))


def _from_gaps(gaps: np.ndarray, rate: float) -> np.ndarray:
    """Arrivals from gaps in units of the mean. Gaps are rounded first: sums of whole numbers are exact."""
    gaps[:1] = 0
    with np.errstate(invalid="ignore"):  # a rate near zero makes an infinite factor; the check below answers
        gaps *= SECOND_NS / rate
    if not gaps.sum() < LAST_NS:
        raise OverflowError(f"{len(gaps):,} arrivals at {rate:g} per second do not end within {LAST_NS} ns")
    return np.cumsum(np.rint(gaps).astype(np.int64))


def _whole(times: np.ndarray, n: int, rate: float) -> np.ndarray:
    if n and not times[-1] < LAST_NS:
        raise OverflowError(f"{n:,} arrivals at {rate:g} per second do not end within {LAST_NS} ns")
    return np.rint(times).astype(np.int64)


def _gamma(n: int, shape: float, seed: int) -> np.ndarray:
    """Standard gamma variates after Marsaglia and Tsang; a shape below 1 is boosted from shape + 1."""
    d = (shape if shape >= 1 else shape + 1) - 1 / 3
    c = 1 / np.sqrt(9 * d)
    out, open_ = np.empty(n), np.arange(n)
    attempt = 0
    while len(open_):
        # A stream per attempt, as long as the last request still open: positions stay those of the requests.
        u, v, w = (uniforms(seed, f"gamma-{part}-{attempt}", int(open_[-1]) + 1)[open_] for part in "uvw")
        normal = np.sqrt(-2 * np.log1p(-u)) * np.cos(2 * np.pi * v)
        cube = (1 + c * normal) ** 3
        with np.errstate(invalid="ignore", divide="ignore"):
            accepted = (cube > 0) & (np.log1p(-w) < 0.5 * normal**2 + d * (1 - cube + np.log(cube)))
        out[open_[accepted]] = d * cube[accepted]
        open_ = open_[~accepted]
        attempt += 1
    if shape < 1:
        out *= (1 - uniforms(seed, "gamma-boost", n)) ** (1 / shape)
    return out
