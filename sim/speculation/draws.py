"""Random numbers of a replay: a pure function of (seed, stream, request, round).

Nothing is drawn in sequence, so the answer depends neither on the order in which requests are visited nor on the
process that asks, and a change elsewhere in the schedule leaves a request's rounds as they were. The hash is the
finaliser of splitmix64, applied once per coordinate, each coordinate spread by the golden-ratio constant of that
generator. Integer arithmetic modulo 2^64 only: the compiled twin gives the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence

BITS = 53
ACCEPTANCE, TRIGGER, TRANSFER = 0, 1, 2  # streams
GOLDEN = 0x9E3779B97F4A7C15
MASK = (1 << 64) - 1


def mix(z: int) -> int:
    """Finaliser of splitmix64 (Steele, Lea, Flood 2014; constants of Stafford's variant 13)."""
    z &= MASK
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & MASK
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB & MASK
    return z ^ (z >> 31)


def draw(seed: int, stream: int, request: int, round_no: int) -> int:
    """A uniform whole number below 2^53.

    Args:
        seed: 0 to 2^64 - 1.
        stream: ACCEPTANCE or TRIGGER of speculative decoding, TRANSFER of KV between pools.
        request: index in the workload.
        round_no: the request's round, or attempt, from 0; never reset.
    """
    key = mix(seed + GOLDEN * (stream + 1))
    key = mix(key + GOLDEN * (request + 1))
    return mix(key + GOLDEN * (round_no + 1)) >> (64 - BITS)


def accepted(seed: int, request: int, round_no: int, drafts: int, thresholds: Sequence[int]) -> int:
    """Drafts accepted in one round, 0 to `drafts`.

    One draw decides: draft j and all before it are accepted if the draw is below `thresholds[j]`, which is the product
    of the conditional rates so far. Rates of 0 and 1 are exact, since a draw is never below 0 and always below 2^53.
    """
    u = draw(seed, ACCEPTANCE, request, round_no)
    return sum(u < threshold for threshold in thresholds[:drafts])


def triggered(seed: int, request: int, round_no: int, threshold: int) -> bool:
    """Whether the drafter proposes anything in this round; `threshold` = ceil(trigger rate * 2^53)."""
    return draw(seed, TRIGGER, request, round_no) < threshold
