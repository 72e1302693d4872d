"""How far a table, read between its points, strays from the evaluation it was made from."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from perf_db.gpu.forward import answering_rows, read_forward_table
from perf_db.gpu.oplevel import OpLevel

BUDGET = 16_384  # new tokens of one pass
Curve = tuple[NDArray[np.int64], NDArray[np.float64]]


def stray(parquet: Path, model: OpLevel, *, n: int = 4000, seed: int = 0) -> str:
    """One line: median, 95th percentile and largest relative distance, prefill and decode, on random passes."""
    found = deviations(parquet, model, n=n, seed=seed)
    parts = []
    for kind, gap in found.items():
        middle, high = np.percentile(gap, [50, 95])
        parts.append(f"{kind}: median {middle:.2%}, p95 {high:.2%}, at most {gap.max():.2%}")
    return "; ".join(parts)


def deviations(parquet: Path, model: OpLevel, *, n: int, seed: int) -> dict[str, NDArray[np.float64]]:
    """Relative distances on `n` random passes of each phase, log-uniform in requests, tokens and cached tokens."""
    rng = np.random.default_rng(seed)
    prefill, decode = _curves(parquet)
    b = _log_uniform(rng, 1, 64, n)
    tokens = np.maximum(_log_uniform(rng, 1, BUDGET, n), b)
    past = b * np.where(rng.random(n) < 0.4, 0, _log_uniform(rng, 1, 32_768, n))
    nothing = np.zeros_like(b)
    direct = model.mixed(b, tokens, past, nothing, nothing)
    read = np.array([_prefill(prefill, *at) for at in zip(b.tolist(), tokens.tolist(), past.tolist())])
    out = {"prefill": np.abs(read / direct - 1)}
    b = _log_uniform(rng, 1, 512, n)
    kv = b * _log_uniform(rng, 2, 32_768, n)
    direct = model.mixed(nothing, nothing, nothing, b, kv)
    rows = answering_rows(sorted(decode))
    read = np.array([_decode(decode, rows[b_], kv_) for b_, kv_ in zip(b.tolist(), kv.tolist())])
    return out | {"decode": np.abs(read / direct - 1)}


def _log_uniform(rng: np.random.Generator, low: int, high: int, n: int) -> NDArray[np.int64]:
    return np.exp(rng.uniform(np.log(low), np.log(high + 1), n)).astype(np.int64)


def _curves(parquet: Path) -> tuple[dict[int, dict[int, Curve]], dict[int, Curve]]:
    """batch -> past KV -> (tokens, ms), and batch -> (KV, ms)."""
    columns = read_forward_table(parquet).columns
    names = ("workload_kind", "batch_size", "total_prefill_tokens", "total_kv_read_tokens", "latency_ms")
    prefill: dict[int, dict[int, dict[int, float]]] = {}
    decode: dict[int, dict[int, float]] = {}
    for kind, batch, tokens, kv, ms in zip(*(columns[name] for name in names), strict=True):
        if kind == "prefill":
            prefill.setdefault(batch, {}).setdefault(kv, {})[tokens] = ms
        else:
            decode.setdefault(batch, {})[kv] = ms
    sites = {b: {kv: _curve(points) for kv, points in sorted(past.items())} for b, past in prefill.items()}
    return sites, {b: _curve(points) for b, points in decode.items()}


def _curve(points: Mapping[int, float]) -> Curve:
    knots = sorted(points)
    return np.array(knots, np.int64), np.array([points[k] for k in knots])


def _prefill(sites: Mapping[int, Mapping[int, Curve]], b: int, tokens: int, past: int) -> float:
    known = [kv for kv, (knots, _) in sites[b].items() if knots[0] <= tokens <= knots[-1]]
    at = [float(np.interp(tokens, *sites[b][kv])) for kv in known]
    return float(np.interp(past, known, at))


def _decode(rows: Mapping[int, Curve], answering: tuple[int, int, float], kv: int) -> float:
    low, high, share = answering
    found = [np.interp(kv, *rows[row]) for row in (low, high) if rows[row][0][0] <= kv <= rows[row][0][-1]]
    return float(found[0] + (found[-1] - found[0]) * share)
