"""What may be fitted: constants with a unit, a meaning, a value before the data, and how far it may move.

Constants are positive and fitted as logarithms: what is known of them beforehand is a factor, not a difference.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from assets.accuracy.truth import TruthError


@dataclass(frozen=True, slots=True)
class Constant:
    """A constant before the data.

    Attributes:
        prior: its value.
        spread: standard deviation of its logarithm: 0.1 is "within 10 %", 1 "within a factor e".
        low, high: bounds.
        free: whether the fit may move it.
    """

    name: str
    unit: str
    meaning: str
    prior: float
    spread: float = 1.0
    low: float = 1e-6
    high: float = 1e6
    free: bool = True

    def __post_init__(self) -> None:
        if not (0 < self.low <= self.prior <= self.high and self.spread > 0 and math.isfinite(self.high)):
            raise TruthError(
                f"constant {self.name}: prior={self.prior:g} must lie within its bounds [{self.low:g}, {self.high:g}], "
                f"all above 0, and spread={self.spread:g} be above 0"
            )


BASE, WEIGHTS, TOKEN, PAIR, DECODE, KV, PREFILL = range(7)
_MEANING = {
    "base_ms": ("ms", "of every pass, whatever it holds: launches, sampling, scheduling"),
    "weights_ms": ("ms", "reading the weights once"),
    "token_us": ("us", "arithmetic per token of a pass"),
    "attention_pair_ns": ("ns", "prefill attention per pair of a new token and one before it"),
    "decode_request_us": ("us", "per decoding request of a pass"),
    "kv_token_ns": ("ns", "decode attention per KV token read"),
    "prefill_pass_ms": ("ms", "once for every pass that computes prompt tokens: it runs in pieces, not as one graph"),
}
NAMES = tuple(_MEANING)


@dataclass(frozen=True, slots=True)
class DataSheet:
    """What is printed about a model and a GPU; enough for priors with a physical scale.

    Attributes:
        weight_bytes: of one GPU's share of the model.
        kv_bytes_per_token: of one GPU's share of the KV cache.
        flops_per_token: of one GPU's share: two per parameter.
        bandwidth: peak memory bandwidth of one GPU, bytes/s.
        flops: peak arithmetic of one GPU at the model's precision, 1/s.
    """

    weight_bytes: float
    kv_bytes_per_token: float
    flops_per_token: float
    bandwidth: float
    flops: float


# Shares of the peaks that good kernels reach.
REACHED_BANDWIDTH, REACHED_FLOPS = 0.9, 0.6


def from_data_sheet(sheet: DataSheet) -> tuple[Constant, ...]:
    """Priors of a pass cost from bytes, bandwidth and arithmetic. Weights are read at a known speed; attention kernels
    differ more; of the host's and the sampler's share only the order of magnitude is known."""
    weights_ms = sheet.weight_bytes / (REACHED_BANDWIDTH * sheet.bandwidth) * 1e3
    token_us = sheet.flops_per_token / (REACHED_FLOPS * sheet.flops) * 1e6
    kv_ns = sheet.kv_bytes_per_token / (REACHED_BANDWIDTH * sheet.bandwidth) * 1e9
    return _constants(
        {
            "base_ms": (2.0, 1.0),
            "weights_ms": (weights_ms, 0.12),
            "token_us": (token_us, 0.5),
            "attention_pair_ns": (token_us * 1e3 / 5_000, 1.0),
            "decode_request_us": (10.0, 1.0),
            "kv_token_ns": (kv_ns, 0.5),
            "prefill_pass_ms": (2.0, 1.5),
        }
    )


def from_log(tpot_ms: float, tokens_per_ms: float, decoding: float, kv_tokens: float) -> tuple[Constant, ...]:
    """Priors with the scale of the log and nothing else.

    Args:
        tpot_ms: median time per output token: about the time of a usual pass.
        tokens_per_ms: tokens computed over the time in which requests were there.
        decoding, kv_tokens: of a usual pass, on average.
    """
    token_us = 0.5e3 / max(tokens_per_ms, 1e-6)
    return _constants(
        {
            "base_ms": (0.05 * tpot_ms, 1.0),
            "weights_ms": (0.45 * tpot_ms, 0.5),
            "token_us": (token_us, 1.0),
            "attention_pair_ns": (token_us * 1e3 / 5_000, 1.5),
            "decode_request_us": (0.05 * tpot_ms * 1e3 / max(decoding, 1.0), 1.5),
            "kv_token_ns": (0.3 * tpot_ms * 1e6 / max(kv_tokens, 1.0), 1.0),
            "prefill_pass_ms": (0.05 * tpot_ms, 1.5),
        }
    )


def with_choices(
    constants: Sequence[Constant],
    *,
    priors: Mapping[str, tuple[float, float | None]] | None = None,
    bounds: Mapping[str, tuple[float, float]] | None = None,
    fixed: Mapping[str, float] | None = None,
) -> tuple[Constant, ...]:
    """The constants with a person's own priors (value, spread or None), bounds and fixed values.

    Raises:
        TruthError: a name that is no constant, or a value out of bounds.
    """
    known = {c.name: c for c in constants}
    for given in (priors or {}, bounds or {}, fixed or {}):
        if unknown := [name for name in given if name not in known]:
            raise TruthError(f"no constant is called {unknown[0]!r}; there are: {', '.join(known)}")
    for name, (value, spread) in (priors or {}).items():
        known[name] = replace(known[name], prior=value, spread=spread or known[name].spread)
    for name, (low, high) in (bounds or {}).items():
        known[name] = replace(known[name], low=low, high=high, prior=min(max(known[name].prior, low), high))
    for name, value in (fixed or {}).items():
        low, high = min(known[name].low, value), max(known[name].high, value)
        known[name] = replace(known[name], prior=value, low=low, high=high, free=False)
    return tuple(known.values())


def _constants(values: Mapping[str, tuple[float, float]]) -> tuple[Constant, ...]:
    return tuple(
        Constant(name, *_MEANING[name], prior=value, spread=spread, low=value * 1e-3, high=value * 1e3)
        for name, (value, spread) in values.items()
    )
