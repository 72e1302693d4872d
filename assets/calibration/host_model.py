"""Host, front end and leftover factors: few named constants between a closed loop's amounts and its mean latencies.

    TTFT = amounts in the waiting time x factors + passes x per-pass constants + per prompt, per client, per request
    TPOT = amounts in the decoding time x factors + passes x per-pass constants

Every constant has a default that says "nothing": 0 for a time, 1 for a factor. Fits pull weakly towards it, so that a
constant which the rows do not determine stays where it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from assets.accuracy.amounts import COMPONENTS, N_PRICED

_PLACE = {name: i for i, name in enumerate(COMPONENTS)}
PULL = 0.3  # of a constant at the far end of its bounds, in the units of the residuals
LOSS_SCALE = 0.1  # residuals above it, as log ratios, count less and less


@dataclass(frozen=True, slots=True)
class HostConstant:
    """One constant of the model.

    Attributes:
        where: what it acts on: `factor`, `pass`, or `request` (the last in TTFT only).
        client_side: seen by a client only; left out against an engine's own timestamps.
    """

    name: str
    unit: str
    meaning: str
    default: float
    low: float
    high: float
    where: str
    client_side: bool = False


def _factor(name: str, meaning: str, low: float = 0.3, high: float = 3.0) -> HostConstant:
    return HostConstant(name, "factor", meaning, 1.0, low, high, "factor")


def _time(name: str, unit: str, meaning: str, high: float, where: str, client_side: bool = False) -> HostConstant:
    return HostConstant(name, unit, meaning, 0.0, 0.0, high, where, client_side)


HOST_CONSTANTS: dict[str, HostConstant] = {
    c.name: c
    for c in (
        _time("prefill_pass_ms_per_layer", "ms", "a pass with prompt tokens runs in pieces", 0.8, "pass"),
        _time("decode_pass_us_per_layer", "us", "launches and synchronisation of a decode-only pass", 200.0, "pass"),
        _time("prefill_pass_ms", "ms", "as above, whatever the number of layers", 30.0, "pass"),
        _time("decode_pass_ms", "ms", "as above, whatever the number of layers", 10.0, "pass"),
        _time("running_request_us", "us", "per running request and pass: sampling, stop checks", 300.0, "pass"),
        _time("prefill_token_us", "us", "per prompt token computed in a pass", 20.0, "pass"),
        _time("lookahead_passes", "decode passes", "decode passes a first token waits beyond its own", 60.0, "request"),
        _time("request_ms", "ms", "request path: HTTP, validation, hand-over", 200.0, "request", True),
        _time("tokenization_ms_per_1024", "ms", "tokenising, and handing over, of 1,024 tokens", 60.0, "request", True),
        _time("laboratory_request_ms", "ms", "what a laboratory client adds", 200.0, "request", True),
        _time("client_ms", "ms", "per concurrent client: event loops shared by all streams", 5.0, "request", True),
        _factor("gemm_factor", "dense layers, in all passes"),
        _factor("moe_factor", "experts, in all passes"),
        _factor("comm_factor", "collectives and dispatch, in all passes"),
        _factor("context_attention_factor", "prefill attention"),
        _factor("decode_attention_factor", "decode attention"),
        _factor("moe_prefill_factor", "experts in passes with prompt tokens"),
        _factor("moe_decode_factor", "experts in decode-only passes: imbalance and routing at few tokens"),
        _factor("prefill_factor", "all operators in passes with prompt tokens"),
        _factor("decode_factor", "all operators in decode-only passes"),
        _factor("mla_decode_factor", "all operators of decode-only passes, models with latent attention"),
        _factor("mla_comm_factor", "collectives of models with latent attention", 0.1, 2.0),
        _factor("blackwell_prefill_factor", "all operators in passes with prompt tokens, on Blackwell"),
        _factor("blackwell_decode_factor", "all operators in decode-only passes, on Blackwell"),
    )
}  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class LoopRows:
    """Measured closed loops and their amounts; every array has a row per loop.

    Attributes:
        ttft, tpot: amounts, shape (n, components).
        truth_ttft_ms, truth_tpot_ms: measured; NaN where only the other was.
        layers, clients, prompt_tokens: of the model, of the whole engine, mean.
        mla, blackwell, laboratory: shape (n,), bool; the last: driven by another client than the dashboard's.
        group, model: shape (n,), text.
    """

    row_id: np.ndarray
    ttft: np.ndarray
    tpot: np.ndarray
    truth_ttft_ms: np.ndarray
    truth_tpot_ms: np.ndarray
    layers: np.ndarray
    clients: np.ndarray
    prompt_tokens: np.ndarray
    mla: np.ndarray
    blackwell: np.ndarray
    laboratory: np.ndarray
    group: np.ndarray
    model: np.ndarray

    def __len__(self) -> int:
        return len(self.row_id)

    def take(self, rows: np.ndarray) -> LoopRows:
        """These rows, by mask or index."""
        return LoopRows(*(getattr(self, name)[rows] for name in self.__dataclass_fields__))


def predict(rows: LoopRows, constants: Mapping[str, float], *, client: bool = True) -> tuple[np.ndarray, np.ndarray]:
    """Mean TTFT and TPOT of every loop, ms, shape (n,).

    Args:
        constants: by name; those left out keep their defaults.
        client: False leaves out what only a client sees.
    """
    c = {name: constant.default for name, constant in HOST_CONSTANTS.items()} | dict(constants)
    weights = _weights(rows, c)
    tpot = (rows.tpot * weights).sum(1)
    ttft = (rows.ttft * weights).sum(1) + c["lookahead_passes"] * tpot
    if client:
        ttft = (
            ttft
            + c["request_ms"]
            + c["laboratory_request_ms"] * rows.laboratory
            + c["tokenization_ms_per_1024"] * rows.prompt_tokens / 1024
            + c["client_ms"] * rows.clients
        )
    return ttft, tpot


def _weights(rows: LoopRows, c: Mapping[str, float]) -> np.ndarray:
    """What every amount counts: shape (n, components)."""
    w = np.ones((len(rows), len(COMPONENTS)))
    w[:, N_PRICED:] = 0.0

    def times(names: Sequence[str], factor: np.ndarray | float) -> None:
        for name in names:
            w[:, _PLACE[name]] *= factor

    prefill = [n for n in COMPONENTS[:N_PRICED] if n.endswith("_prefill") or n == "context_attention"]
    decode = [n for n in COMPONENTS[:N_PRICED] if n.endswith("_decode")]
    times(["gemm_prefill", "gemm_decode", "logits_prefill", "logits_decode"], c["gemm_factor"])
    times(["moe_prefill"], c["moe_factor"] * c["moe_prefill_factor"])
    times(["moe_decode"], c["moe_factor"] * c["moe_decode_factor"])
    times(["comm_prefill", "comm_decode"], c["comm_factor"] * np.where(rows.mla, c["mla_comm_factor"], 1.0))
    times(["context_attention"], c["context_attention_factor"])
    times(["decode_attention_prefill", "decode_attention_decode"], c["decode_attention_factor"])
    times(prefill, c["prefill_factor"] * np.where(rows.blackwell, c["blackwell_prefill_factor"], 1.0))
    times(decode, c["decode_factor"] * np.where(rows.blackwell, c["blackwell_decode_factor"], 1.0))
    times(decode, np.where(rows.mla, c["mla_decode_factor"], 1.0))
    w[:, _PLACE["prefill_passes"]] = c["prefill_pass_ms_per_layer"] * rows.layers + c["prefill_pass_ms"]
    w[:, _PLACE["decode_passes"]] = c["decode_pass_us_per_layer"] * 1e-3 * rows.layers + c["decode_pass_ms"]
    w[:, _PLACE["running"]] = c["running_request_us"] * 1e-3
    w[:, _PLACE["prefill_tokens"]] = c["prefill_token_us"] * 1e-3
    return w


def fit(rows: LoopRows, names: Sequence[str], *, fixed: Mapping[str, float] | None = None) -> dict[str, float]:
    """Constants `names` fitted to the rows; the others are `fixed` or at their defaults.

    Least squares on logarithms of predicted / measured, both latencies at once, with a loss that outliers do not rule.
    """
    from scipy.optimize import least_squares

    found = dict(fixed or {})
    if not names:
        return found
    free = [HOST_CONSTANTS[name] for name in names]
    low, high = np.array([c.low for c in free]), np.array([c.high for c in free])
    default = np.array([c.default for c in free])
    start = np.clip(default, low + 1e-3 * (high - low), high)
    have_ttft, have_tpot = np.isfinite(rows.truth_ttft_ms), np.isfinite(rows.truth_tpot_ms)

    def residuals(z: np.ndarray) -> np.ndarray:
        ttft, tpot = predict(rows, found | dict(zip(names, z.tolist())))
        return np.concatenate(
            [
                np.log(ttft / rows.truth_ttft_ms)[have_ttft],
                np.log(tpot / rows.truth_tpot_ms)[have_tpot],
                PULL * (z - default) / (high - low),
            ]
        )

    scale = np.maximum(np.abs(start), 0.05 * (high - low))
    best = least_squares(residuals, start, bounds=(low, high), loss="soft_l1", f_scale=LOSS_SCALE, x_scale=scale)
    return found | dict(zip(names, best.x.tolist()))


def resampled(
    rows: LoopRows, names: Sequence[str], *, times: int = 60, seed: int = 1, level: float = 0.95
) -> dict[str, tuple[float, float]]:
    """Intervals of fitted constants from fits to deployment groups drawn with replacement."""
    rng = np.random.default_rng(seed)
    groups, codes = np.unique(rows.group.astype(str), return_inverse=True)
    members = [np.flatnonzero(codes == g) for g in range(len(groups))]
    found = []
    for _ in range(times):
        drawn = rng.integers(0, len(groups), len(groups))
        fitted = fit(rows.take(np.concatenate([members[g] for g in drawn])), names)
        found.append([fitted[name] for name in names])
    ends = np.quantile(np.array(found).reshape(times, len(names)), [(1 - level) / 2, (1 + level) / 2], axis=0)
    return {name: (float(ends[0, i]), float(ends[1, i])) for i, name in enumerate(names)}
