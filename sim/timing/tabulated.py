"""Array timings packed into two arrays, and the kernels that read prices from them.

`sim.timing.plain_tables` holds the definition; the same operations stand here in the same order, so both give the same
bits. Two arrays, not twenty: every kernel that hands a timing model on passes the description of each of its arrays.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from sim.jit import kernel
from sim.timing.tables import (
    EXTRAPOLATED,
    EXTRAS,
    INTERPOLATED,
    MEASURED,
    NO_PAST,
    NO_SOURCE,
    SITE_GATE,
    ArrayTiming,
    MixedPass,
)

OP_LEVEL, FORWARD, REGRESSION = range(3)

# ---------------------------------------------------------------- places of the whole numbers
(
    MODEL,
    ONE_FORWARD,
    CORRECTED,
    PER_REQUEST,  # tokens a decoding request verifies: drafts and one
    ROOT,
    LOOKUPS,
    FLAT_BATCH,
    N_TOKENS,  # entries of the tables per token count
    N_BATCH,
    N_REQUESTS,
    N_LENGTH,
    N_PREFIX,
    N_KV,
    N_BATCH_CELLS,
    N_DECODE,  # batches of a whole-forward table
    N_FACTORS,  # bins in one dimension
    N_FACTORS_DECODE,
    N_FACTORS_MIXED,
    # Where arrays begin: of numbers in the second array, of whole numbers in this one.
    AT_SHARED,
    AT_LOGITS,
    AT_ALONE,
    AT_CONTEXT,
    AT_CONTEXT_OUT,
    AT_DECODE,
    AT_DECODE_OUT,
    AT_EXTRA,
    AT_PAST,
    AT_MS,
    AT_BOX,
    AT_WEIGHT,
    AT_KV_MS,
    AT_KV_BOX,
    AT_BASELINE,
    AT_TOKENS,
    AT_KV,
    AT_PLANES,
    AT_FEATURES,
    AT_RANGES,
    AT_BY_TOKENS,
    AT_BY_DECODE,
    AT_BY_MIXED,
    AT_LENGTHS,
    AT_PREFIXES,
    AT_KV_LENGTHS,
    AT_TOKEN_CELL,
    AT_BATCH_CELL,
    AT_REQUEST_CELL,
    AT_BATCH_KNOT,
    AT_REQUEST_KNOT,
    AT_SITES,
    AT_POINTS,
    AT_ROWS,
    AT_KV_POINTS,
    AT_PREFIX_OUT,
    BY_PROMPT,
    BETWEEN,
    N_SITES,
    N_ROOF_ATTENTION,
    N_ROOF_LOGITS,
    AT_ROOF,
    AT_ROOF_ATTENTION,
    AT_ROOF_LOGITS,
    AT_PLACE,  # 0: no roofline
) = range(63)
HEAD = 64

_NUMBERS = {
    "context_shared": AT_SHARED,
    "context_logits": AT_LOGITS,
    "generation_shared": AT_ALONE,
    "context_nodes": AT_CONTEXT,
    "context_outside": AT_CONTEXT_OUT,
    "prefix_outside": AT_PREFIX_OUT,
    "generation_outside": AT_DECODE_OUT,
    "prefill_past": AT_PAST,
    "prefill_tokens": AT_TOKENS,
    "prefill_ms": AT_MS,
    "prefill_box": AT_BOX,
    "decode_weight": AT_WEIGHT,
    "decode_kv": AT_KV,
    "decode_ms": AT_KV_MS,
    "decode_box": AT_KV_BOX,
    "decode_baseline": AT_BASELINE,
    "roofline_tokens": AT_ROOF,
    "roofline_attention": AT_ROOF_ATTENTION,
    "roofline_logits": AT_ROOF_LOGITS,
    "prefill_place": AT_PLACE,
    "planes": AT_PLANES,
    "weights": AT_FEATURES,
    "factor_ranges": AT_RANGES,
    "factor_prefill": AT_BY_TOKENS,
    "factor_decode": AT_BY_DECODE,
    "factor_mixed": AT_BY_MIXED,
}
_WHOLE = {
    "context_lengths": AT_LENGTHS,
    "context_prefixes": AT_PREFIXES,
    "generation_lengths": AT_KV_LENGTHS,
    "token_cells": AT_TOKEN_CELL,
    "batch_cells": AT_BATCH_CELL,
    "request_cells": AT_REQUEST_CELL,
    "context_batches": AT_BATCH_KNOT,
    "generation_batches": AT_REQUEST_KNOT,
    "prefill_sites": AT_SITES,
    "prefill_points": AT_POINTS,
    "decode_rows": AT_ROWS,
    "decode_points": AT_KV_POINTS,
}
_SIZES = {
    "context_shared": N_TOKENS,
    "context_logits": N_BATCH,
    "generation_shared": N_REQUESTS,
    "context_lengths": N_LENGTH,
    "context_prefixes": N_PREFIX,
    "generation_lengths": N_KV,
    "decode_weight": N_DECODE,
    "prefill_past": N_SITES,
    "roofline_attention": N_ROOF_ATTENTION,
    "roofline_logits": N_ROOF_LOGITS,
    "factor_prefill": N_FACTORS,
    "factor_decode": N_FACTORS_DECODE,
    "factor_mixed": N_FACTORS_MIXED,
}


@lru_cache(maxsize=8)
def pack(timing: ArrayTiming, mixed: MixedPass) -> tuple[np.ndarray, np.ndarray]:
    """The whole numbers, int64, and the others, float64, of a timing model. Made once per model; not to be changed."""
    header, head = timing.header, np.zeros(HEAD, np.int64)
    head[MODEL] = {"op_level": OP_LEVEL, "forward": FORWARD, "regression": REGRESSION}[timing.kind]
    head[ONE_FORWARD] = mixed == "one_forward"
    head[CORRECTED] = timing.is_corrected
    head[PER_REQUEST] = int(header.get("nextn", 0)) + 1
    head[ROOT] = bool(header.get("square_root", False))
    head[LOOKUPS] = int(header.get("lookups", 1))
    head[BETWEEN] = bool(header.get("between_batches", False))
    head[BY_PROMPT] = bool(header.get("outside_by_prompt", True))
    head[FLAT_BATCH] = bool(header.get("flat_batch", False))
    extras = [float(header.get(name, 0.0)) for name in ("extra_ms", *EXTRAS)]
    whole, numbers, at, place = [], [np.array(extras)], HEAD, len(extras)
    for name, array in timing.arrays.items():
        if name in _SIZES:
            head[_SIZES[name]] = len(array)
        flat = np.ascontiguousarray(array).ravel()
        if name == "generation_nodes":
            # Value, slope to the next knot, distance from the data: what a lookup needs lies together.
            flat = _with_slopes(array, timing.arrays["generation_lengths"], timing.arrays["generation_outside"]).ravel()
            head[AT_DECODE], place = place, place + len(flat)
            numbers.append(flat)
        elif name in _WHOLE:
            head[_WHOLE[name]], at = at, at + len(flat)
            whole.append(flat.astype(np.int64))
        else:
            head[_NUMBERS[name]], place = place, place + len(flat)
            numbers.append(flat.astype(np.float64))
    if "batch_cells" in timing.arrays:
        head[N_BATCH_CELLS] = int(timing.arrays["batch_cells"].max(initial=0)) + 1
    head[AT_EXTRA] = 0
    return np.concatenate([head, *whole]), np.concatenate(numbers)


def _with_slopes(nodes: np.ndarray, lengths: np.ndarray, outside: np.ndarray) -> np.ndarray:
    rise, run = np.diff(nodes, axis=1), np.diff(lengths).astype(np.float64)
    slopes = np.concatenate([rise / run, rise[:, -1:] / run[-1:]], axis=1)
    return np.stack([nodes, slopes, outside], axis=2)


@kernel
def _interval(z, at, n, x):
    """Interval of n increasing whole numbers from z[at]; the outer intervals extend for ever."""
    low, high = 0, n
    while low < high:
        middle = (low + high) // 2
        if x < z[at + middle]:
            high = middle
        else:
            low = middle + 1
    return min(max(low - 1, 0), n - 2)


@kernel
def _octaves(z, f, out, axis, n, x):
    """Distance from the measured data, octaves: f[out] over n knots z[axis], never negative."""
    i = _interval(z, axis, n, x)
    part = float(x - z[axis + i]) / float(z[axis + i + 1] - z[axis + i])
    return max(f[out + i] + (f[out + i + 1] - f[out + i]) * part, 0.0)


@kernel
def _context(z, f, batch, s, p):
    """Context attention: (ms, interval of length, interval of prefix, source, octaves outside)."""
    n, q = z[N_LENGTH], z[N_PREFIX]
    length = s + p if q == 1 else s
    i = _interval(z, z[AT_LENGTHS], n, length)
    x0, x1 = z[z[AT_LENGTHS] + i], z[z[AT_LENGTHS] + i + 1]
    part = float(length - x0) / float(x1 - x0)
    outside = _octaves(z, f, z[AT_CONTEXT_OUT] + batch * n, z[AT_LENGTHS], n, s + p if z[BY_PROMPT] != 0 else s)
    exact = z[z[AT_BATCH_KNOT] + batch] != 0 and (part == 0.0 or part == 1.0)
    at = z[AT_CONTEXT] + batch * q * n + i
    if q == 1:
        y = f[at] + (f[at + 1] - f[at]) * part
        whole, square = y * y if z[ROOT] != 0 else y, float(length) * float(length)
        ms = whole * ((square - float(p) * float(p)) / square)
        source = EXTRAPOLATED if outside > 0.0 else MEASURED if exact and p == 0 else INTERPOLATED
        return ms + f[0], i, 0, source, outside
    j = _interval(z, z[AT_PREFIXES], q, p)
    p0, p1 = z[z[AT_PREFIXES] + j], z[z[AT_PREFIXES] + j + 1]
    g = float(p - p0) / float(p1 - p0)
    at += j * n
    low = f[at] + (f[at + 1] - f[at]) * part
    high = f[at + n] + (f[at + n + 1] - f[at + n]) * part
    if z[ROOT] != 0:
        low, high = low * low, high * high
    outside = max(outside, _octaves(z, f, z[AT_PREFIX_OUT], z[AT_PREFIXES], q, p))
    exact = exact and (g == 0.0 or g == 1.0)
    source = EXTRAPOLATED if outside > 0.0 else MEASURED if exact else INTERPOLATED
    return low + (high - low) * g + f[0], i, j, source, outside


@kernel
def _op_prefill(z, f, np_, tp, kvp, decoding):
    if z[ONE_FORWARD] != 0:
        s, p = tp // np_, kvp // np_
        x, batch, rows = np_ * s, np_, np_
        if decoding > 0:
            x, batch, rows = tp + decoding * z[PER_REQUEST], (tp + s - 1) // s, 1
    else:
        p = kvp // np_
        s = (kvp + tp) // np_ - p
        x, batch, rows = np_ * s, np_, np_
        if s == 0:
            return 0.0, -1, NO_SOURCE, 0.0
    if x >= z[N_TOKENS] or batch >= z[N_BATCH] or rows >= z[N_BATCH]:
        return math.nan, -1, NO_SOURCE, 0.0
    attention, i, j, source, octaves = _context(z, f, batch, s, p)
    ms = f[z[AT_SHARED] + x] + f[z[AT_LOGITS] + rows] + attention
    cell = z[z[AT_TOKEN_CELL] + x] * (z[N_LENGTH] - 1) + i
    cell = (cell * z[N_BATCH_CELLS] + z[z[AT_BATCH_CELL] + batch]) * max(z[N_PREFIX] - 1, 1) + j
    return ms, cell, source, octaves


@kernel
def _op_decode(z, f, b, kv, alone):
    if b >= z[N_REQUESTS]:
        return math.nan, -1, NO_SOURCE, 0.0
    mean, n, axis = kv // b, z[N_KV], z[AT_KV_LENGTHS]
    row, total, far, exact = z[AT_DECODE] + 3 * b * n, 0.0, 0.0, False
    if z[LOOKUPS] > 1:
        low, high = mean * 9 // 10, mean * 11 // 10
        i, cell = _interval(z, axis, n, max(low, 1)), 0
        for k in range(5):
            length = max(low + (high - low) * k // 4, 1)
            # Lengths only grow, so the search goes on from where it was.
            while i < n - 2 and length >= z[axis + i + 1]:
                i += 1
            at = row + 3 * i
            total += f[at] + f[at + 1] * float(length - z[axis + i])
            if k == 0:
                cell = i
            if (k == 0 or k == 4) and (f[at + 2] > 0.0 or f[at + 5] > 0.0):
                far = max(far, _octaves(z, f, z[AT_DECODE_OUT] + b * n, axis, n, length))
        while cell < n - 2 and mean >= z[axis + cell + 1]:
            cell += 1
        total /= 5.0
    else:
        cell = _interval(z, axis, n, mean)
        total = f[row + 3 * cell] + f[row + 3 * cell + 1] * float(mean - z[axis + cell])
        far = _octaves(z, f, z[AT_DECODE_OUT] + b * n, axis, n, mean)
        exact = z[z[AT_REQUEST_KNOT] + b] != 0 and (mean == z[axis + cell] or mean == z[axis + cell + 1])
    source = EXTRAPOLATED if far > 0.0 else MEASURED if exact else INTERPOLATED
    if alone:
        total += f[z[AT_ALONE] + b]
    return total, z[z[AT_REQUEST_CELL] + b] * (n - 1) + cell, source, far


@kernel
def _curve(z, f, points, axis, values, curve, x):
    """Linear along a measured curve: (ms, lower point, whether x was measured)."""
    first, end = z[points + curve], z[points + curve + 1]
    if end - first == 1:
        return f[values + first], first, True
    low, high = first, end
    while low < high:
        middle = (low + high) // 2
        if x < f[axis + middle]:
            high = middle
        else:
            low = middle + 1
    i = min(max(low - 1, first), end - 2)
    part = (x - f[axis + i]) / (f[axis + i + 1] - f[axis + i])
    y0, y1 = f[values + i], f[values + i + 1]
    return y0 + (y1 - y0) * part, i, part == 0.0 or part == 1.0


@kernel
def _of_batch(z, f, batch, tp, kvp):
    x, below, above = float(tp), -1, -1
    for site in range(z[z[AT_SITES] + batch], z[z[AT_SITES] + batch + 1]):
        first, last = z[z[AT_POINTS] + site], z[z[AT_POINTS] + site + 1] - 1
        if f[z[AT_TOKENS] + first] <= x and x <= f[z[AT_TOKENS] + last]:
            if f[z[AT_PAST] + site] <= kvp:
                below = site
            elif above < 0:
                above = site
    if below < 0:
        return math.nan, -1, NO_SOURCE
    ms, cell, exact = _curve(z, f, z[AT_POINTS], z[AT_TOKENS], z[AT_MS], below, x)
    x0 = f[z[AT_PAST] + below]
    if x0 == kvp:
        return ms, cell, MEASURED if exact else INTERPOLATED
    if above < 0:
        return math.nan, -1, NO_SOURCE
    other, _, _ = _curve(z, f, z[AT_POINTS], z[AT_TOKENS], z[AT_MS], above, x)
    part = (kvp - x0) / (f[z[AT_PAST] + above] - x0)
    return ms + (other - ms) * part, cell, INTERPOLATED


@kernel
def _roofline(z, f, n, tokens, past):
    """`plain_roofline.roofline_ms`."""
    t = float(tokens)
    total, s, p = f[z[AT_ROOF] + tokens], t / n, past / n
    full = s + p
    for i in range(z[N_ROOF_ATTENTION]):
        at = z[AT_ROOF_ATTENTION] + 10 * i
        window, kept, diagonal = f[at], f[at + 1], f[at + 2]
        low, high = min(p, kept), min(full, kept)
        beyond = max(full - kept, 0.0) - max(p - kept, 0.0)
        pairs = n * ((high * (high + diagonal) - low * (low + diagonal)) / 2.0 + kept * beyond)
        if window > 0.0 and window < full:
            pairs = t * window
        scored = t * full if full > kept else 0.0
        compute = f[at + 3] * t + f[at + 4] * pairs + f[at + 5] * scored
        total += max(compute, f[at + 6] + f[at + 7] * t + f[at + 8] * n * high + f[at + 9] * n * full)
    for i in range(z[N_ROOF_LOGITS]):
        at = z[AT_ROOF_LOGITS] + 3 * i
        total += max(f[at] * n, f[at + 1] + f[at + 2] * n)
    return total


@kernel
def _reached(z, f, far, site, tp):
    """A site's share in the blend: (weight times the share of the roofline that it reaches, weight)."""
    if site < 0:
        return 0.0, 0.0
    took, _, _ = _curve(z, f, z[AT_POINTS], z[AT_TOKENS], z[AT_MS], site, float(tp))
    limit = _roofline(z, f, f[z[AT_PLACE] + 3 * site + 2], tp, f[z[AT_PAST] + site])
    return 1.0 / far * (limit / took), 1.0 / far


@kernel
def _near(z, f, batch, tp, kvp):
    """The site's own curve, or the four nearest sites; NaN where none is near."""
    at_batch, at_past, x = math.log2(float(batch)), math.log2(max(float(kvp), NO_PAST)), float(tp)
    d0 = d1 = d2 = d3 = math.inf
    s0 = s1 = s2 = s3 = -1
    for site in range(z[N_SITES]):
        place = z[AT_PLACE] + 3 * site
        dx, dy = f[place] - at_batch, f[place + 1] - at_past
        far = dx * dx + dy * dy
        if far > SITE_GATE * SITE_GATE or far >= d3:
            continue
        first, last = z[z[AT_POINTS] + site], z[z[AT_POINTS] + site + 1] - 1
        if x < f[z[AT_TOKENS] + first] or x > f[z[AT_TOKENS] + last]:
            continue
        d3, s3 = far, site
        if d3 < d2:
            d2, s2, d3, s3 = d3, s3, d2, s2
        if d2 < d1:
            d1, s1, d2, s2 = d2, s2, d1, s1
        if d1 < d0:
            d0, s0, d1, s1 = d1, s1, d0, s0
    if s0 < 0:
        return math.nan, -1, NO_SOURCE
    ms, cell, exact = _curve(z, f, z[AT_POINTS], z[AT_TOKENS], z[AT_MS], s0, x)
    if d0 == 0.0:
        return ms, cell, MEASURED if exact else INTERPOLATED
    r0, w0 = _reached(z, f, d0, s0, tp)
    r1, w1 = _reached(z, f, d1, s1, tp)
    r2, w2 = _reached(z, f, d2, s2, tp)
    r3, w3 = _reached(z, f, d3, s3, tp)
    share = (r0 + r1 + r2 + r3) / (w0 + w1 + w2 + w3)
    return _roofline(z, f, float(batch), tp, float(kvp)) / share, cell, INTERPOLATED


@kernel
def _direct(z, f, batch, tp, kvp):
    sites = z[AT_SITES]
    if z[sites + batch + 1] > z[sites + batch] or z[BETWEEN] == 0:
        return _of_batch(z, f, batch, tp, kvp)
    low, high = batch, batch
    while z[sites + low + 1] == z[sites + low]:
        low -= 1
    while z[sites + high + 1] == z[sites + high]:
        high += 1
    ms, cell, _ = _of_batch(z, f, low, tp, kvp)
    other, other_cell, _ = _of_batch(z, f, high, tp, kvp)
    if math.isnan(ms):
        return other, other_cell, INTERPOLATED if other_cell >= 0 else NO_SOURCE
    if not math.isnan(other):
        ms = ms + (other - ms) * (float(batch - low) / float(high - low))
    return ms, cell, INTERPOLATED


@kernel
def _forward_prefill(z, f, np_, tp, kvp):
    box, batch, scaled = z[AT_BOX], np_, False
    if np_ > f[box + 1]:
        scaled = kvp >= 2 * tp
        if z[FLAT_BATCH] == 0 or (scaled and z[AT_PLACE] == 0):
            return math.nan, -1, NO_SOURCE
        batch = int(f[box + 1])
    if batch < f[box] or tp < f[box + 2] or tp > f[box + 3] or kvp < f[box + 4] or kvp > f[box + 5]:
        return math.nan, -1, NO_SOURCE
    ms, cell, source = math.nan, -1, NO_SOURCE
    if z[AT_PLACE] != 0:
        ms, cell, source = _near(z, f, batch, tp, kvp)
    if math.isnan(ms):
        ms, cell, source = _direct(z, f, batch, tp, kvp)
    if scaled:
        ratio = _roofline(z, f, float(np_), tp, float(kvp)) / _roofline(z, f, float(batch), tp, float(kvp))
        ms *= min(ratio, 1.0)
    return ms, cell, source if batch == np_ or source != MEASURED else INTERPOLATED


@kernel
def _covers(z, f, row, x):
    if row < 0:
        return False
    first, last = z[z[AT_KV_POINTS] + row], z[z[AT_KV_POINTS] + row + 1] - 1
    return f[z[AT_KV] + first] <= x and x <= f[z[AT_KV] + last]


@kernel
def _forward_decode(z, f, b, kv):
    box = z[AT_KV_BOX]
    if b < f[box] or b > f[box + 1] or kv < f[box + 2] or kv > f[box + 3]:
        return math.nan, -1, NO_SOURCE
    low, high, x = z[z[AT_ROWS] + 2 * b], z[z[AT_ROWS] + 2 * b + 1], float(kv)
    has_low, has_high = _covers(z, f, low, x), _covers(z, f, high, x)
    if not has_low and not has_high:
        return math.nan, -1, NO_SOURCE
    ms, cell, exact = _curve(z, f, z[AT_KV_POINTS], z[AT_KV], z[AT_KV_MS], low if has_low else high, x)
    if has_low and has_high and low != high:
        other, _, _ = _curve(z, f, z[AT_KV_POINTS], z[AT_KV], z[AT_KV_MS], high, x)
        return ms + (other - ms) * f[z[AT_WEIGHT] + b], cell, INTERPOLATED
    return ms, cell, MEASURED if exact and low == high else INTERPOLATED


@kernel
def _plane(z, f, np_, tp, kvp, b, kv):
    w, plane = z[AT_FEATURES], z[AT_PLANES]
    kind = 1
    if np_ > 0:
        kind = 2 if b > 0 else 0
    t, attention = float(tp), f[w] * float(kv)
    if np_ > 0:
        attention += f[w] * float(kvp) + f[w + 1] * (float(kvp) * t / np_ + t * t / (2.0 * np_) + t / 2.0)
    plane += 3 * kind
    ms = f[plane] + f[plane + 1] * attention + f[plane + 2] * (f[w + 2] * float(tp + b))
    return (ms if math.isnan(ms) else max(ms, 1e-6)), kind


@kernel
def _bin(f, at, n, value):
    low, high = f[at], f[at + 1]
    if value < low or value > high:
        return -1
    return min(int((value - low) / (high - low) * n), n - 1)


@kernel
def _factor(z, f, np_, tp, b, kv):
    """(factor, bin); (1, -1) where nothing is corrected."""
    r = z[AT_RANGES]
    if np_ > 0 and b == 0:
        i = _bin(f, r, z[N_FACTORS], float(tp))
        if i < 0 or math.isnan(f[z[AT_BY_TOKENS] + i]):
            return 1.0, -1
        return f[z[AT_BY_TOKENS] + i], i
    if np_ > 0:
        n, at, i = z[N_FACTORS_MIXED], z[AT_BY_MIXED], _bin(f, r, z[N_FACTORS_MIXED], float(tp))
    else:
        n, at, i = z[N_FACTORS_DECODE], z[AT_BY_DECODE], _bin(f, r + 2, z[N_FACTORS_DECODE], float(b))
    j = _bin(f, r + 4, n, float(kv))
    if i < 0 or j < 0 or math.isnan(f[at + i * n + j]):
        return 1.0, -1
    return f[at + i * n + j], i * n + j


@kernel
def answer(z, f, np_, tp, kvp, b, kv):
    """Prefill ms, decode ms; cells; sources; octaves outside the data; correction bin. NaN: no answer."""
    a, d, i, j, source_a, source_d, out_a, out_d, bin_ = 0.0, 0.0, -1, -1, NO_SOURCE, NO_SOURCE, 0.0, 0.0, -1
    if z[MODEL] == OP_LEVEL:
        if np_ > 0:
            a, i, source_a, out_a = _op_prefill(z, f, np_, tp, kvp, b)
        if b > 0:
            d, j, source_d, out_d = _op_decode(z, f, b, kv, z[ONE_FORWARD] == 0 or np_ == 0)
    elif z[MODEL] == FORWARD:
        if np_ > 0:
            a, i, source_a = _forward_prefill(z, f, np_, tp, kvp)
        if b > 0:
            d, j, source_d = _forward_decode(z, f, b, kv)
            if np_ > 0 and not math.isnan(d):
                d = d - f[z[AT_BASELINE] + b]
                if d < 0.0:
                    d = 0.0
    elif np_ > 0 or b > 0:
        ms, kind = _plane(z, f, np_, tp, kvp, b, kv)
        if np_ > 0:
            a, i, source_a = ms, kind, INTERPOLATED
        else:
            d = ms
        if b > 0:
            j, source_d = kind, INTERPOLATED
    if np_ > 0 and b > 0:
        a += f[1]
    if np_ > 0 and tp > 0:
        a += f[2] + f[4] * tp + f[5] * (np_ + b)
    elif b > 0:
        d += f[3] + f[5] * b
    if z[CORRECTED] != 0:
        factor, bin_ = _factor(z, f, np_, tp, b, kv)
        a, d = a * factor, d * factor
    return a, d, i, j, source_a, source_d, out_a, out_d, bin_
