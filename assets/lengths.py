"""Lengths drawn from a distribution, the i-th independent of how many follow."""

from __future__ import annotations

import numpy as np

from sim.config.lengths import Distribution, Empirical, LogNormal, Normal, Uniform, UniformRange


def draw(lengths: int | Distribution, n: int, seed: int, purpose: str) -> np.ndarray:
    """n lengths in tokens; a plain number is n times itself."""
    from assets.synthetic import uniforms

    if isinstance(lengths, int):
        return np.full(n, lengths, np.int64)
    u = uniforms(seed, f"length-{purpose}", n)
    if isinstance(lengths, Uniform):
        return lengths.min + (u * (lengths.max - lengths.min + 1)).astype(np.int64)
    if isinstance(lengths, UniformRange):
        low = max(1, int(lengths.tokens * lengths.at_least))
        return low + (u * (lengths.tokens - low + 1)).astype(np.int64)
    if isinstance(lengths, Empirical):
        return np.array(lengths.tokens, np.int64)[(u * len(lengths.tokens)).astype(np.int64)]
    # Two uniform numbers make a normal one; 1 - u is never 0.
    angle = uniforms(seed, f"length-{purpose}-angle", n)
    normal = np.sqrt(-2 * np.log1p(-u)) * np.cos(2 * np.pi * angle)
    drawn = _scaled(lengths, normal)
    return np.clip(np.rint(drawn), lengths.min, lengths.max).astype(np.int64)


def _scaled(lengths: Normal | LogNormal, normal: np.ndarray) -> np.ndarray:
    if isinstance(lengths, Normal):
        return lengths.mean + lengths.std * normal
    with np.errstate(over="ignore"):  # past every bound there is
        return lengths.median * np.exp(lengths.sigma * normal)
