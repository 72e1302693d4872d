"""Token times from the clock of passes, held to a walk over every token."""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest

from sim.clock import PassClock

Span = tuple[int, int, int, int]  # rank, first pass, tokens, ordinal of the first token


def clock_of(ends: list[list[int]], spans: dict[int, list[Span]], rng: random.Random, **keywords: bool) -> PassClock:
    """A clock that was told of passes in chunks, and of spans as their passes became known. Two ranks a worker."""
    keywords = {"keep_spans": True} | keywords
    clock, dp = PassClock(len(ends), len(spans), **keywords), 2 if len(ends) % 2 == 0 else 1
    weights = [Counter() for _ in ends]
    for request in spans.values():
        for rank, first, n, _ in request:
            weights[rank].update(range(first + 1, first + n))
    known, told = [0] * len(ends), set()
    while any(k < len(e) for k, e in zip(known, ends)):
        rows = []
        for rank, rank_ends in enumerate(ends):
            fresh = range(known[rank], min(known[rank] + rng.choice([0, 1, 40, 700]), len(rank_ends)))
            rows += [(rank // dp, rank % dp, k, rank_ends[k], weights[rank][k]) for k in fresh]
            known[rank] = max(known[rank], fresh.stop)
        given = columns(rows, "worker", "dp_rank", "pass_no", "end_ns", "n_continuing")
        clock.passes(given, given["worker"] * dp + given["dp_rank"])
        ripe = []
        for request, own in spans.items():
            for i, (rank, first, n, token) in enumerate(own):
                if (request, i) not in told and first + n <= known[rank]:
                    told.add((request, i))
                    previous = own[i - 1][1] + own[i - 1][2] - 1 if i else -1
                    ripe.append((request, rank, first, n, token, previous))
        told_now = columns(ripe, "request", "rank", "first_pass", "n_tokens", "first_token_no", "previous")
        clock.spans(told_now, told_now.pop("previous"))
    return clock


def columns(rows: list[tuple[int, ...]], *names: str) -> dict[str, np.ndarray]:
    table = np.array(rows, np.int64).reshape(-1, len(names))
    return {name: table[:, i].copy() for i, name in enumerate(names)}


def tokens(ends: list[list[int]], own: list[Span]) -> list[int]:
    return [ends[rank][k] for rank, first, n, _ in own for k in range(first, first + n)]


@pytest.mark.parametrize("seed", range(12))
def test_every_token_time_follows_from_spans(seed: int) -> None:
    """Up to 5,000 passes a rank, so that whatever the clock keeps has to grow several times."""
    rng = random.Random(seed)
    ends = []
    for _ in range(rng.choice([1, 2, 3, 6])):
        steps = [rng.choice([0, 1, 3, 500]) for _ in range(rng.choice([1, 700, 5_000]))]
        ends.append(np.cumsum(steps).tolist())
    spans: dict[int, list[Span]] = {}
    for request in range(60):
        rank, at, token, own = rng.randrange(len(ends)), 0, 0, []
        for _ in range(rng.choice([0, 1, 1, 3])):
            at += rng.choice([0, 1, 50, 900]) + (1 if own else 0)
            n = rng.choice([1, 2, 30, 1_500])
            if at + n > len(ends[rank]):
                break
            own.append((rank, at, n, token))
            at, token = at + n, token + n
        spans[request] = own
    made = {request: tokens(ends, own) for request, own in spans.items()}

    clock = clock_of(ends, spans, rng)

    assert clock.second_token_ns.tolist() == [made[r][1] if len(made[r]) > 1 else -1 for r in spans]
    some = np.array([r for r in spans if made[r]], np.int64)
    assert clock.last_token_ns(some).tolist() == [made[int(r)][-1] for r in some]
    unfinished = np.array([rng.random() < 0.3 for _ in spans])
    wanted = Counter((b - a, b) for r in spans if not unfinished[r] for a, b in zip(made[r], made[r][1:]))
    assert weighted(clock.gaps(unfinished)) == wanted


def test_without_a_stop_every_gap_counts_and_no_span_is_kept() -> None:
    ends, rng = [[10, 20, 35, 60, 61]], random.Random(1)
    spans = {0: [(0, 0, 2, 0), (0, 3, 2, 2)], 1: [(0, 1, 3, 0)]}
    clock = clock_of(ends, spans, rng, keep_spans=False)
    assert weighted(clock.gaps(None)) == Counter({(10, 20): 1, (40, 60): 1, (1, 61): 1, (15, 35): 1, (25, 60): 1})
    assert clock.second_token_ns.tolist() == [20, 35]


def weighted(gaps: tuple[np.ndarray, np.ndarray, np.ndarray]) -> Counter[tuple[int, int]]:
    found: Counter[tuple[int, int]] = Counter()
    for gap, weight, end in zip(*(column.tolist() for column in gaps)):
        found[gap, end] += weight
    return found
