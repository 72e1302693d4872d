"""Array timings of every kind, small and random: the shapes are right, the figures are anything."""

from __future__ import annotations

import random

import numpy as np

from sim.timing.tables import ArrayTiming


def _knots(rng: random.Random, count: int, top: int) -> np.ndarray:
    return np.array(sorted(rng.sample(range(1, top), count)), np.int64)


def _values(rng: random.Random, *shape: int) -> np.ndarray:
    return np.array([rng.choice([rng.uniform(0.1, 9), 2.5]) for _ in range(int(np.prod(shape)))]).reshape(shape)


def _outside(rng: random.Random, *shape: int) -> np.ndarray:
    return np.array([rng.choice([0.0, 0.0, rng.uniform(0, 3)]) for _ in range(int(np.prod(shape)))]).reshape(shape)


def _cells(rng: random.Random, count: int) -> np.ndarray:
    return np.cumsum([rng.random() < 0.3 for _ in range(count)]).astype(np.int64)


def op_level(rng: random.Random, *, tokens: int = 400, batch: int = 40, requests: int = 20) -> ArrayTiming:
    k, q, g = rng.randint(2, 6), rng.choice([1, 1, 3]), rng.randint(2, 6)
    arrays = {
        "context_shared": np.cumsum(_values(rng, tokens)) * 0.01,
        "context_logits": _values(rng, batch) * 0.1,
        "generation_shared": _values(rng, requests),
        "context_lengths": _knots(rng, k, 60),
        "context_prefixes": np.array([0, 9, 30][:q], np.int64),
        "context_nodes": _values(rng, batch, q, k),
        "context_outside": _outside(rng, batch, k),
        "prefix_outside": _outside(rng, q),
        "context_batches": np.array([rng.randint(0, 1) for _ in range(batch)], np.int64),
        "generation_lengths": _knots(rng, g, 60),
        "generation_nodes": _values(rng, requests, g),
        "generation_outside": _outside(rng, requests, g),
        "generation_batches": np.array([rng.randint(0, 1) for _ in range(requests)], np.int64),
        "token_cells": _cells(rng, tokens),
        "batch_cells": _cells(rng, batch),
        "request_cells": _cells(rng, requests),
    }
    header = {
        "nextn": rng.choice([0, 0, 2]),
        "square_root": rng.random() < 0.5,
        "extra_ms": rng.choice([0.0, 0.3]),
        "lookups": rng.choice([1, 5]),
        "outside_by_prompt": rng.random() < 0.5,
        "mixed_pass_extra_ms": rng.choice([0.0, 0.0, 1.25]),
        "prefill_pass_extra_ms": rng.choice([0.0, 0.0, 2.5]),
        "decode_pass_extra_ms": rng.choice([0.0, 0.0, 0.75]),
        "prefill_token_extra_ms": rng.choice([0.0, 0.0, 0.05]),
        "running_request_extra_ms": rng.choice([0.0, 0.0, 0.125]),
    }
    return ArrayTiming("op_level", header, arrays)


def forward(rng: random.Random, *, batches: int = 4, wide: bool = False) -> ArrayTiming:
    """Curves over new tokens per (batch, past KV), curves over KV per batch; `wide`: they cover everything asked."""
    sites, past, points, tokens = [0, 0], [], [0], []
    between = rng.random() < 0.5
    for b in range(1, batches + 1):
        if between and 1 < b < batches and rng.random() < 0.6:
            sites.append(len(past))  # not collected
            continue
        here = [0, 10_000] if wide else sorted({0, *rng.sample(range(1, 90), rng.randint(0, 2))})
        past += here
        for _ in here:
            tokens += [1, *sorted(rng.sample(range(2, 50), rng.randint(0, 3))), 10_000 if wide else 60]
            points.append(len(tokens))
        sites.append(len(past))
    kv, decode_points, rows, weight = [], [0], [(-1, -1)], [0.0]
    lattice = sorted({1, batches, *rng.sample(range(1, batches + 1), rng.randint(1, batches))})
    for batch in lattice:
        kv += [batch, *sorted(rng.sample(range(batch + 1, 200), rng.randint(0, 3))), 100_000 if wide else 250]
        decode_points.append(len(kv))
    for b in range(1, batches + 1):
        low = max(i for i, each in enumerate(lattice) if each <= b)
        high = low if lattice[low] == b else low + 1
        rows.append((low, high))
        weight.append(0.0 if low == high else (b - lattice[low]) / (lattice[high] - lattice[low]))
    most = 10_000.0 if wide else 60.0
    arrays = {
        "prefill_sites": np.array(sites, np.int64),
        "prefill_past": np.array(past, float),
        "prefill_points": np.array(points, np.int64),
        "prefill_tokens": np.array(tokens, float),
        "prefill_ms": _values(rng, len(tokens)),
        "prefill_box": np.array([1, batches, 1, most, 0, max(past)], float),
        "decode_rows": np.array(rows, np.int64),
        "decode_weight": np.array(weight),
        "decode_points": np.array(decode_points, np.int64),
        "decode_kv": np.array(kv, float),
        "decode_ms": _values(rng, len(kv)),
        "decode_box": np.array([1, batches, 1, max(kv)], float),
        "decode_baseline": np.array([np.nan, *_values(rng, batches) * 0.4]),
    }
    if rng.random() < 0.5:
        arrays |= _roofline(rng, sites, past, int(most))
    return ArrayTiming("forward", {"flat_batch": wide or rng.random() < 0.5, "between_batches": between}, arrays)


def _roofline(rng: random.Random, sites: list[int], past: list[int], most: int) -> dict[str, np.ndarray]:
    """Of a table with these sites: any figures, windows and kept keys among the lengths that are asked."""
    batch_of = [b for b in range(len(sites) - 1) for _ in range(sites[b], sites[b + 1])]
    place = [[np.log2(b), np.log2(max(kv, 1e-9)), b] for b, kv in zip(batch_of, past, strict=True)]
    rows = [
        [rng.choice([0, 0, 20]), rng.choice([2.0**62, 40.0]), rng.choice([0, 1]), *_values(rng, 7) * 0.01]
        for _ in range(rng.randint(1, 2))
    ]
    return {
        "roofline_tokens": np.cumsum(_values(rng, most + 1)) * 0.01,
        "roofline_attention": np.array(rows, float),
        "roofline_logits": _values(rng, rng.randint(0, 1), 3),
        "prefill_place": np.array(place, float),
    }


def regression(rng: random.Random) -> ArrayTiming:
    planes = np.array([[rng.uniform(-2, 5), rng.uniform(0, 0.1), rng.uniform(0, 0.1)] for _ in range(3)])
    if rng.random() < 0.2:
        planes[rng.randint(0, 2)] = np.nan
    return ArrayTiming("regression", {}, {"planes": planes, "weights": np.array([1.0, rng.choice([1.0, 0.5]), 1.0])})


def corrected(rng: random.Random, timing: ArrayTiming) -> ArrayTiming:
    def factors(*shape: int) -> np.ndarray:
        return np.array([rng.choice([np.nan, rng.uniform(0.5, 2)]) for _ in range(int(np.prod(shape)))]).reshape(shape)

    ranges = np.array([[0, rng.choice([40, 300])], [0, rng.choice([4, 16])], [0, rng.choice([100, 900])]], float)
    return timing.with_factors(
        {
            "factor_prefill": factors(16),
            "factor_decode": factors(4, 4),
            "factor_mixed": factors(3, 3),
            "factor_ranges": ranges,
        }
    )


def any_kind(rng: random.Random) -> ArrayTiming:
    made = rng.choice([op_level, op_level, forward, regression])(rng)
    return corrected(rng, made) if rng.random() < 0.4 else made
