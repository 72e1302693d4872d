"""The whole-model roofline of a prefill pass, and the sites of a whole-forward table that lie near it, in ordinary
Python: the definition the kernels of `sim.timing.tabulated` are tested against."""

from __future__ import annotations

from typing import Any

from sim.timing.tables import SITE_GATE, SITES_USED


def roofline_ms(a: dict[str, Any], n: float, tokens: int, past: float) -> float:
    """Least time of a pass of n requests with `tokens` new and `past` cached tokens in all; `a`: arrays as lists."""
    t = float(tokens)
    total, s, p = a["roofline_tokens"][tokens], t / n, past / n
    full = s + p
    for window, kept, diagonal, token, pair, score, fixed, new, read, cached in a["roofline_attention"]:
        low, high = min(p, kept), min(full, kept)
        beyond = max(full - kept, 0.0) - max(p - kept, 0.0)
        pairs = n * ((high * (high + diagonal) - low * (low + diagonal)) / 2.0 + kept * beyond)
        if 0.0 < window < full:
            pairs = t * window
        scored = t * full if full > kept else 0.0
        compute = token * t + pair * pairs + score * scored
        total += max(compute, fixed + new * t + read * n * high + cached * n * full)
    for row, fixed, moved in a["roofline_logits"]:
        total += max(row * n, fixed + moved * n)
    return total


def near_sites(a: dict[str, Any], at: tuple[float, float], tokens: int) -> list[tuple[float, int]]:
    """Up to four sites within the gate whose curve covers the tokens: (squared distance in octaves, site), nearest
    first; of sites equally far the one that comes first.

    Args:
        at: log2 of batch and past KV.
    """
    found = []
    for site, (batch, past, _) in enumerate(a["prefill_place"]):
        x, y = batch - at[0], past - at[1]
        far = x * x + y * y
        first, last = a["prefill_points"][site], a["prefill_points"][site + 1] - 1
        if far <= SITE_GATE * SITE_GATE and a["prefill_tokens"][first] <= tokens <= a["prefill_tokens"][last]:
            found.append((far, site))
    return sorted(found)[:SITES_USED]
