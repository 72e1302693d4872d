"""Timing models as arrays, and the kernel that prices a pass from them in O(1).

`sim.timing.plain` holds the definition; the same operations stand here in the same order, so both give the same bits.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from sim.jit import inlined, kernel
from sim.spec import EngineSpec, FixedTiming, FlatTiming, PassCostTiming, TableTiming
from sim.timing.plain import LONGEST_MS
from sim.timing.tables import CORRECTION_BINS, ArrayTiming, mixed_pass
from sim.timing.tabulated import answer, pack

FIXED, POLYNOMIAL, FLAT, TABLE, PASS_COST, ARRAYS = range(6)

COST = (
    "base_ms",
    "weights_ms",
    "token_us",
    "attention_pair_ns",
    "decode_request_us",
    "kv_token_ns",
    "prefill_pass_ms",
)


class Prices(NamedTuple):
    """A compiled timing model."""

    kind: int
    prefill_ms: float
    decode_ms: float
    prefill_ratio: float
    decode_ratio: float
    pool_tokens: int
    prefill_axis: np.ndarray  # float64 (p,)
    prefill_table: np.ndarray  # float64 (p,)
    kv_axis: np.ndarray  # float64 (k,)
    context_axis: np.ndarray  # float64 (c,)
    decode_table: np.ndarray  # float64 (k, c)
    cost: np.ndarray  # float64 (7,): constants of a pass cost, in the order of `COST`
    whole: np.ndarray  # int64: an array timing as `sim.timing.tabulated` packs it
    numbers: np.ndarray  # float64


def compile_timing(spec: EngineSpec) -> Prices:
    """Arrays of the deployment's timing model."""
    timing = spec.timing
    prefill_ratio = spec.speedup_ratio or 1.0
    decode_ratio = spec.speedup_ratio * spec.decode_speedup_ratio or 1.0
    none, prefill_ms, decode_ms, kind = np.zeros(2), 0.0, 0.0, POLYNOMIAL
    axes: tuple[np.ndarray, ...] = (none, none, none, none, np.zeros((2, 2)))
    cost, whole, numbers = np.zeros(len(COST)), np.zeros(1, np.int64), np.zeros(1)
    if isinstance(timing, FixedTiming):
        kind, prefill_ms, decode_ms = FIXED, timing.prefill_ms, timing.decode_ms
    elif isinstance(timing, FlatTiming):
        kind, prefill_ms = FLAT, timing.pass_ms
    elif isinstance(timing, ArrayTiming):
        kind, (whole, numbers) = ARRAYS, pack(timing, mixed_pass(timing, spec.profile))
    elif isinstance(timing, PassCostTiming):
        kind, cost = PASS_COST, np.array([getattr(timing, name) for name in COST], np.float64)
    elif isinstance(timing, TableTiming):
        kind = TABLE
        tables = (
            timing.prefill_tokens,
            timing.prefill_ms,
            timing.decode_kv_tokens,
            timing.decode_context,
            timing.decode_ms,
        )
        # A fresh copy: read-only arrays are another type to the compiler.
        axes = tuple(np.array(a, np.float64, order="C") for a in tables)
    return Prices(
        kind,
        float(prefill_ms),
        float(decode_ms),
        float(prefill_ratio),
        float(decode_ratio),
        spec.blocks * spec.block_tokens,
        prefill_axis=axes[0],
        prefill_table=axes[1],
        kv_axis=axes[2],
        context_axis=axes[3],
        decode_table=axes[4],
        cost=cost,
        whole=whole,
        numbers=numbers,
    )


@kernel
def _segment(axis, x):
    low, high = 0, len(axis)
    while low < high:
        middle = (low + high) // 2
        if x < axis[middle]:
            high = middle
        else:
            low = middle + 1
    return min(max(low - 1, 0), len(axis) - 2)


@kernel
def nearest_ns(seconds):
    """Whole nanoseconds next to the exact value of `seconds`, ties to even: `plain.nearest_ns` without big numbers."""
    ns = seconds * 1e9
    # What the product lost, exactly: both halves have so few bits that their products with 1e9 = 2**9 * 5**9 fit.
    split = seconds * 134217729.0
    high = split - (split - seconds)
    lost = (high * 1e9 - ns) + (seconds - high) * 1e9
    if ns >= 9007199254740992.0:  # 2**53, whence all doubles are even whole numbers: what was lost decides, to its half
        return np.int64(ns) + np.int64(np.rint(lost))
    whole = math.floor(ns)
    below_half = 0.5 - (ns - whole)
    if lost > below_half or (lost == below_half and whole % 2 == 1):
        whole += 1
    return whole


@inlined
def _scaled_ns(ms, ratio):
    if not (ms >= 0.0 and ms < LONGEST_MS):
        return -1
    ns = nearest_ns(ms / 1000.0)
    if ratio == 1.0:
        return ns
    seconds = (ns // 1_000_000_000 + (ns % 1_000_000_000) / 1e9) / ratio
    if not seconds < LONGEST_MS / 1000.0:
        return -1
    return nearest_ns(seconds)


@inlined
def _pass_cost(c, n_prefill, prefill_tokens, prefill_kv, n_decode, decode_kv):
    if n_prefill == 0 and n_decode == 0:
        return 0.0, 0.0
    w, x = c[1], c[2] * 1e-3 * float(prefill_tokens + n_decode)
    shared = c[0] + math.sqrt(math.sqrt(w * w * (w * w) + x * x * (x * x)))
    decode = c[4] * 1e-3 * float(n_decode) + c[5] * 1e-6 * float(decode_kv)
    if n_prefill == 0:
        return 0.0, shared + decode
    t = float(prefill_tokens)
    pairs = t * (float(prefill_kv) + 0.5 * t) / float(n_prefill)
    return shared + c[6] + c[3] * 1e-6 * pairs, decode


@inlined
def price(m, n_prefill, prefill_tokens, prefill_kv, n_decode, decode_kv):
    """Returns (prefill ns, decode ns, prefill cell, decode cell); a refused duration is -1.

    Of an array timing, lookup codes stand for the cells.
    """
    a, b, i, j = 0.0, 0.0, -1, -1
    if m.kind == FLAT:
        return _scaled_ns(m.prefill_ms, m.prefill_ratio), 0, -1, -1
    if m.kind == ARRAYS:
        a, b, i, j, source_a, source_b, _, _, bin_ = answer(
            m.whole, m.numbers, n_prefill, prefill_tokens, prefill_kv, n_decode, decode_kv
        )
        # Passes carry the whole lookup until evidence is counted; see `sim.timing.tables.lookup_code`.
        if n_prefill > 0:
            i = (i * 4 + source_a) * CORRECTION_BINS + bin_ + 1
        if n_decode > 0:
            j = (j * 4 + source_b) * CORRECTION_BINS + bin_ + 1
        return _scaled_ns(a, m.prefill_ratio), _scaled_ns(b, m.decode_ratio), i, j
    if m.kind == PASS_COST:
        a, b = _pass_cost(m.cost, n_prefill, prefill_tokens, prefill_kv, n_decode, decode_kv)
        return _scaled_ns(a, m.prefill_ratio), _scaled_ns(b, m.decode_ratio), -1, -1
    if n_prefill > 0:
        if m.kind == FIXED:
            a = m.prefill_ms
        else:
            t = float(n_prefill * ((prefill_kv + prefill_tokens) // n_prefill - prefill_kv // n_prefill))
            if t != 0.0:
                if m.kind == POLYNOMIAL:
                    a = 4.209989e-7 * t * t + 1.518344e-2 * t + 16.50142
                else:
                    i = _segment(m.prefill_axis, t)
                    x0, x1 = m.prefill_axis[i], m.prefill_axis[i + 1]
                    y0, y1 = m.prefill_table[i], m.prefill_table[i + 1]
                    a = y0 + (y1 - y0) * ((t - x0) / (x1 - x0))
        if a < 0.0 and a > -math.inf:
            a = 0.0
    if n_decode > 0:
        if m.kind == FIXED:
            b = m.decode_ms
        elif m.kind == POLYNOMIAL:
            u = min(1.0, decode_kv / m.pool_tokens)
            b = max(1.0, -25.74 * u * u + 54.01 * u + 5.74)
        else:
            kv, context = float(decode_kv), float(decode_kv // n_decode)
            p, c = _segment(m.kv_axis, kv), _segment(m.context_axis, context)
            fa = (kv - m.kv_axis[p]) / (m.kv_axis[p + 1] - m.kv_axis[p])
            fb = (context - m.context_axis[c]) / (m.context_axis[c + 1] - m.context_axis[c])
            low = m.decode_table[p, c] * (1.0 - fa) + m.decode_table[p + 1, c] * fa
            high = m.decode_table[p, c + 1] * (1.0 - fa) + m.decode_table[p + 1, c + 1] * fa
            b = low * (1.0 - fb) + high * fb
            j = p * (len(m.context_axis) - 1) + c
    return _scaled_ns(a, m.prefill_ratio), _scaled_ns(b, m.decode_ratio), i, j
