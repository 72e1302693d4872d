"""Host, front end and leftover factors: few named constants between a closed loop's amounts and its mean latencies.

    TTFT = amounts in the waiting time x factors + passes x per-pass constants + per prompt, per client, per request
    TPOT = amounts in the decoding time x factors + passes x per-pass constants

Every constant has a default that says "nothing": 0 for a time, 1 for a factor. Fits pull weakly towards it, so that a
constant which the rows do not determine stays where it is. A factor may have a value per class of deployments
(`decode_factor_of_model`): each value is pulled towards 1 as strongly as a deployment group of average size would pull
whose whole latency said so, and a class that the fitted rows do not hold keeps 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from assets.accuracy.amounts import COMPONENTS, N_PRICED

_PLACE = {name: i for i, name in enumerate(COMPONENTS)}
PULL = 0.3  # of a constant at the far end of its bounds, in the units of the residuals
START = 1e-3  # of the width of the bounds: how far from a bound a search sets out
MOST_STEPS, ENOUGH = 60, 1e-7  # share of the misfit that a step must gain for another to be taken
LOSS_SCALE = 0.1  # residuals above it, as log ratios, count less and less
PRICED = COMPONENTS[:N_PRICED]
PREFILL = tuple(n for n in PRICED if n.endswith("_prefill") or n == "context_attention")
DECODE = tuple(n for n in PRICED if n.endswith("_decode"))
GEMM_DECODE = ("gemm_decode", "logits_decode")
GEMM = ("gemm_prefill", "logits_prefill", *GEMM_DECODE)
MOE_DECODE = ("moe_decode",)
COMM = ("comm_prefill", "comm_decode")
ATTENTION = ("decode_attention_prefill", "decode_attention_decode")


@dataclass(frozen=True, slots=True)
class HostConstant:
    """One constant of the model.

    Attributes:
        where: what it acts on: `factor`, `pass`, or `request` (the last in TTFT only).
        client_side: seen by a client only; left out against an engine's own timestamps.
        on: of a factor: the priced components that it multiplies.
        only: of a factor: field of `LoopRows` that says which rows it acts on, or how many times; "": all, once.
        by: of a factor: field of `LoopRows` whose every value has a factor of its own; "": there is one.
    """

    name: str
    unit: str
    meaning: str
    default: float
    low: float
    high: float
    where: str
    client_side: bool = False
    on: tuple[str, ...] = ()
    only: str = ""
    by: str = ""


def _factor(
    name: str,
    on: Sequence[str],
    meaning: str,
    *,
    only: str = "",
    by: str = "",
    low: float = 0.3,
    high: float = 3.0,
) -> HostConstant:
    return HostConstant(name, "factor", meaning, 1.0, low, high, "factor", on=tuple(on), only=only, by=by)


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
        _factor("gemm_factor", GEMM, "dense layers, in all passes"),
        _factor("moe_factor", ("moe_prefill", "moe_decode"), "experts, in all passes"),
        _factor("comm_factor", COMM, "collectives and dispatch, in all passes"),
        _factor("context_attention_factor", ("context_attention",), "prefill attention"),
        _factor("decode_attention_factor", ATTENTION, "decode attention"),
        _factor("moe_prefill_factor", ("moe_prefill",), "experts in passes with prompt tokens"),
        _factor("moe_decode_factor", MOE_DECODE, "experts in decode-only passes: imbalance and routing at few tokens"),
        _factor("gemm_decode_factor", GEMM_DECODE, "dense layers in decode-only passes"),
        _factor("comm_decode_factor", ("comm_decode",), "collectives and dispatch in decode-only passes"),
        _factor("prefill_factor", PREFILL, "all operators in passes with prompt tokens"),
        _factor("decode_factor", DECODE, "all operators in decode-only passes"),
        _factor("mla_decode_factor", DECODE, "decode-only passes of models with latent attention", only="mla"),
        _factor("mla_comm_factor", COMM, "collectives of models with latent attention", only="mla", low=0.1, high=2.0),
        _factor("blackwell_prefill_factor", PREFILL, "passes with prompt tokens on Blackwell", only="blackwell"),
        _factor("blackwell_decode_factor", DECODE, "decode-only passes on Blackwell", only="blackwell"),
        _factor("blackwell_comm_decode_factor", ("comm_decode",), "decode-only passes on Blackwell: collectives, "
                "which engines fuse there with the norm that follows", only="blackwell", low=0.1),
        _factor("ranks_comm_factor", COMM, "dispatch between attention-data-parallel ranks", only="ranks", low=0.1),
        _factor("release_decode_factor", DECODE, "decode-only passes, once per release that an engine is older than "
                "the tables", only="releases", low=0.9, high=1.1),
        _factor("decode_factor_of_model", DECODE, "decode-only passes, per model", by="model"),
        _factor("decode_factor_of_system", DECODE, "decode-only passes, per GPU", by="system"),
        _factor("decode_factor_of_precision", DECODE, "decode-only passes, per precision of most weights",
                by="precision"),
        _factor("moe_decode_factor_of_precision", MOE_DECODE, "experts in decode-only passes, per precision",
                by="precision"),
        _factor("gemm_decode_factor_of_precision", GEMM_DECODE, "dense layers in decode-only passes, per precision",
                by="dense_precision"),
        _factor("prefill_factor_of_model", PREFILL, "passes with prompt tokens, per model", by="model"),
        _factor("prefill_factor_of_system", PREFILL, "passes with prompt tokens, per GPU", by="system"),
    )
}  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class LoopRows:
    """Measured closed loops and their amounts; every array has a row per loop.

    Attributes:
        ttft, tpot: amounts, shape (n, components).
        truth_ttft_ms, truth_tpot_ms: measured; NaN where only the other was.
        layers, clients, prompt_tokens: of the model, of the whole engine, mean.
        mla, blackwell, laboratory, ranks: shape (n,), bool: latent attention; a GPU of that kind; driven by another
            client than the dashboard's; several attention-data-parallel ranks.
        releases: how many releases the engine is older than the tables; 0 where that is not known.
        group, model, system: shape (n,), text.
        precision, dense_precision: of the weights that are read most (experts where there are any), of dense layers.
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
    ranks: np.ndarray
    releases: np.ndarray
    group: np.ndarray
    model: np.ndarray
    system: np.ndarray
    precision: np.ndarray
    dense_precision: np.ndarray

    def __len__(self) -> int:
        return len(self.row_id)

    def take(self, rows: np.ndarray) -> LoopRows:
        """These rows, by mask or index."""
        return LoopRows(*(getattr(self, name)[rows] for name in self.__dataclass_fields__))


def of_class(name: str, value: str) -> str:
    """Key of the factor that one class of deployments has: `decode_factor_of_model[qwen3-32b]`."""
    return f"{name}[{value}]"


def constant_of(key: str) -> HostConstant:
    """What a key of fitted constants is a value of.

    Raises:
        KeyError: no constant is called so.
    """
    return HOST_CONSTANTS[key.partition("[")[0]]


def keys_of(rows: LoopRows, names: Sequence[str]) -> tuple[str, ...]:
    """Keys of the values that these constants have for the rows: one each, or one per class that the rows hold."""
    keys: list[str] = []
    for name in names:
        by = HOST_CONSTANTS[name].by
        keys += [of_class(name, value) for value in sorted(set(getattr(rows, by).tolist()))] if by else [name]
    return tuple(keys)


class _Model:
    """The latencies of some rows as a function of the values of some keys, with slopes."""

    def __init__(self, rows: LoopRows, keys: Sequence[str], *, client: bool = True) -> None:
        self.amounts = rows.ttft[:, :N_PRICED].T.copy(), rows.tpot[:, :N_PRICED].T.copy()
        self.factors: list[tuple[int, np.ndarray, np.ndarray]] = []  # place of the key, columns, exponents
        self.times: list[tuple[int, np.ndarray | float, np.ndarray | float]] = []  # place, per unit in TTFT, in TPOT
        self.lookahead: int | None = None
        for k, key in enumerate(keys):
            constant = constant_of(key)
            if constant.where == "factor":
                times = getattr(rows, constant.only).astype(float) if constant.only else np.ones(len(rows))
                if constant.by:
                    times = times * (getattr(rows, constant.by) == key.partition("[")[2][:-1])
                self.factors.append((k, np.array([_PLACE[name] for name in constant.on]), times))
            elif key == "lookahead_passes":
                self.lookahead = k
            elif client or not constant.client_side:
                self.times.append((k, *_per_unit(rows, key)))

    def __call__(self, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        (ttft, tpot), _ = self._told(z)
        return ttft, tpot

    def with_slopes(self, z: np.ndarray) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
        """((TTFT, TPOT), their slopes in the values, shape (keys, n) each)."""
        told, weighted = self._told(z)
        found = np.zeros((len(z), len(told[0]))), np.zeros((len(z), len(told[1])))
        for latency in (0, 1):
            for k, columns, times in self.factors:
                found[latency][k] = weighted[latency][columns].sum(0) * times / z[k]
            for k, *per_unit in self.times:
                found[latency][k] = per_unit[latency]
        if self.lookahead is not None:
            found[0][:] += z[self.lookahead] * found[1]
            found[0][self.lookahead] += told[1]
        return told, found

    def _told(self, z: np.ndarray) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
        """((TTFT, TPOT), the amounts behind them times their factors, shape (components, n) each)."""
        weights = np.ones_like(self.amounts[0])
        for k, columns, times in self.factors:
            weights[columns] *= z[k] ** times
        weighted = self.amounts[0] * weights, self.amounts[1] * weights
        ttft, tpot = weighted[0].sum(0), weighted[1].sum(0)
        for k, in_ttft, in_tpot in self.times:
            ttft, tpot = ttft + z[k] * in_ttft, tpot + z[k] * in_tpot
        if self.lookahead is not None:
            ttft = ttft + z[self.lookahead] * tpot
        return (ttft, tpot), weighted


def _per_unit(rows: LoopRows, name: str) -> tuple[np.ndarray | float, np.ndarray | float]:
    """What a unit of a constant time adds to (TTFT, TPOT), ms."""

    def amount(component: str, each: np.ndarray | float = 1.0) -> tuple[np.ndarray, np.ndarray]:
        return rows.ttft[:, _PLACE[component]] * each, rows.tpot[:, _PLACE[component]] * each

    match name:
        case "prefill_pass_ms_per_layer":
            return amount("prefill_passes", rows.layers)
        case "prefill_pass_ms":
            return amount("prefill_passes")
        case "decode_pass_us_per_layer":
            return amount("decode_passes", 1e-3 * rows.layers)
        case "decode_pass_ms":
            return amount("decode_passes")
        case "running_request_us":
            return amount("running", 1e-3)
        case "prefill_token_us":
            return amount("prefill_tokens", 1e-3)
        case "request_ms":
            return 1.0, 0.0
        case "laboratory_request_ms":
            return rows.laboratory.astype(float), 0.0
        case "tokenization_ms_per_1024":
            return rows.prompt_tokens / 1024, 0.0
        case "client_ms":
            return rows.clients, 0.0
    raise KeyError(name)


def predict(rows: LoopRows, constants: Mapping[str, float], *, client: bool = True) -> tuple[np.ndarray, np.ndarray]:
    """Mean TTFT and TPOT of every loop, ms, shape (n,).

    Args:
        constants: by key; those left out keep their defaults.
        client: False leaves out what only a client sees.
    """
    return _Model(rows, tuple(constants), client=client)(np.array(list(constants.values()), float))


def fit(
    rows: LoopRows,
    names: Sequence[str],
    *,
    fixed: Mapping[str, float] | None = None,
    start: Mapping[str, float] | None = None,
) -> dict[str, float]:
    """Constants `names` fitted to the rows, by key; the others are `fixed` or at their defaults.

    Least squares on logarithms of predicted / measured, both latencies at once, with a loss that outliers do not rule.

    Args:
        start: values to set out from; the default of a constant is its start otherwise.
    """
    found = dict(fixed or {})
    if not names:
        return found
    keys = keys_of(rows, names)
    best = _descend(_Misfit(rows, keys, found), start or {})
    return found | dict(zip(keys, best.tolist()))


class _Misfit:
    """How far latencies of some rows are off, as a function of the values of some keys.

    A class is believed as far as it differs in more rows than a deployment group has on average.
    """

    def __init__(self, rows: LoopRows, keys: Sequence[str], fixed: Mapping[str, float]) -> None:
        self.keys = keys
        free = [constant_of(key) for key in keys]
        self.low, self.high = np.array([c.low for c in free]), np.array([c.high for c in free])
        self.default = np.array([c.default for c in free])
        self._model, self._fixed = _Model(rows, (*keys, *fixed)), np.array(list(fixed.values()), float)
        self._known = np.isfinite(rows.truth_ttft_ms), np.isfinite(rows.truth_tpot_ms)
        self._truth = np.log(rows.truth_ttft_ms[self._known[0]]), np.log(rows.truth_tpot_ms[self._known[1]])
        self._shared = np.array([not c.by for c in free])
        self._doubt = len(rows) / max(len(set(rows.group.tolist())), 1)
        self._pull = PULL / (self.high - self.low)

    def __call__(self, z: np.ndarray) -> float:
        told = self._model(np.concatenate([z, self._fixed]))
        apart = [np.log(t[known]) - truth for t, known, truth in zip(told, self._known, self._truth)]
        soft = sum(_soft(r) for r in (*apart, self._pulls(z)))
        return float(soft + self._doubt * np.sum(np.log(z[~self._shared]) ** 2))

    def _pulls(self, z: np.ndarray) -> np.ndarray:
        return np.where(self._shared, self._pull * (z - self.default), 0.0)

    def normal(self, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(half the gradient, shape (keys,); the matrix of the normal equations with the weights of the loss)."""
        whole = np.concatenate([z, self._fixed])
        told, slopes = self._model.with_slopes(whole)
        pulls = self._pulls(z)
        weights = 1 / np.sqrt(1 + (pulls / LOSS_SCALE) ** 2)
        own = np.where(self._shared, self._pull, 0.0)
        gradient, matrix = weights * pulls * own, weights * own**2
        doubts = np.where(self._shared, 0.0, self._doubt)
        gradient = gradient + doubts * np.log(np.where(self._shared, 1.0, z)) / np.where(self._shared, 1.0, z)
        matrix = np.diag(matrix + doubts / np.where(self._shared, 1.0, z) ** 2)
        for t, slope, known, truth in zip(told, slopes, self._known, self._truth):
            r = np.log(t[known]) - truth
            j = slope[: len(z), known] / t[known]
            w = 1 / np.sqrt(1 + (r / LOSS_SCALE) ** 2)
            gradient = gradient + j @ (w * r)
            matrix = matrix + (w * j) @ j.T
        return gradient, matrix


def _soft(r: np.ndarray) -> float:
    """Sum of squares of small residuals, of absolute values of large ones."""
    return float(2 * LOSS_SCALE**2 * np.sum(np.sqrt(1 + (r / LOSS_SCALE) ** 2) - 1))


def _descend(misfit: _Misfit, start: Mapping[str, float]) -> np.ndarray:
    """Gauss-Newton steps, damped until they help, that stay within the bounds."""
    width = misfit.high - misfit.low
    z = np.array([start.get(key, default) for key, default in zip(misfit.keys, misfit.default)])
    z = np.clip(z, misfit.low + START * width, misfit.high - START * width)
    least, damping = misfit(z), 1e-3
    for _ in range(MOST_STEPS):
        gradient, matrix = misfit.normal(z)
        stuck = ((z <= misfit.low) & (gradient > 0)) | ((z >= misfit.high) & (gradient < 0))
        free = np.flatnonzero(~stuck)
        if not len(free):
            break
        before = least
        inner, scale = matrix[np.ix_(free, free)], np.diag(np.maximum(np.diag(matrix)[free], 1e-12))
        while damping < 1e8:
            there = z.copy()
            there[free] = there[free] - np.linalg.solve(inner + damping * scale, gradient[free])
            there = np.clip(there, misfit.low, misfit.high)
            found = misfit(there)
            if found < least:
                z, least, damping = there, found, max(damping / 10, 1e-9)
                break
            damping *= 10
        if before - least < ENOUGH * least:
            break
        damping = min(damping, 1.0)
    return z


def resampled(
    rows: LoopRows, names: Sequence[str], *, times: int = 60, seed: int = 1, level: float = 0.95
) -> dict[str, tuple[float, float]]:
    """Intervals of fitted constants from fits to deployment groups drawn with replacement."""
    rng = np.random.default_rng(seed)
    groups, codes = np.unique(rows.group.astype(str), return_inverse=True)
    members = [np.flatnonzero(codes == g) for g in range(len(groups))]
    keys = keys_of(rows, names)
    found = []
    for _ in range(times):
        drawn = rng.integers(0, len(groups), len(groups))
        fitted = fit(rows.take(np.concatenate([members[g] for g in drawn])), names)
        # A class that was not drawn keeps its default.
        found.append([fitted.get(key, constant_of(key).default) for key in keys])
    ends = np.quantile(np.array(found).reshape(times, len(keys)), [(1 - level) / 2, (1 + level) / 2], axis=0)
    return {key: (float(ends[0, i]), float(ends[1, i])) for i, key in enumerate(keys)}
