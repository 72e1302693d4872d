"""How much of every cost lies inside a request's waiting and decoding time, on average.

A closed loop's passes do not depend on their prices, so mean TTFT and TPOT are sums of amounts times constants: one
replay gives the amounts, and constants are fitted without another.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from assets.accuracy.closed_loop import Passes
from perf_db.gpu.oplevel import OpLevel

# Where an operator's time is counted, by its kind.
CLASS = {
    "gemm": "gemm",
    "moe": "moe",
    "overlap": "moe",
    "dispatch": "comm",
    "all_reduce": "comm",
    "p2p": "comm",
}
OTHER = "other"
CLASSES = ("gemm", "moe", "comm", OTHER)
COMPONENTS = (
    *(f"{name}_{kind}" for name in CLASSES for kind in ("prefill", "decode")),
    "logits_prefill",
    "logits_decode",
    "context_attention",
    "decode_attention_prefill",  # in passes that compute prompt tokens as well
    "decode_attention_decode",
    "prefill_passes",
    "decode_passes",
    "prefill_tokens",
    "running",
)
N_PRICED = len(COMPONENTS) - 4  # the others are counts


@dataclass(frozen=True, slots=True, eq=False)
class Amounts:
    """Means over all requests of one loop.

    Attributes:
        ttft, tpot: shape (components,): ms of priced components, and numbers of the others (passes, tokens, requests).
        e2e, itl, whole: the same of a request from first to last, of a gap between two tokens, of the loop.
        n_tokens: that the loop made.
        queue_passes: passes in the TTFT, mean.
        n_passes, n_preempted: of the loop.
        extrapolated_share: of the priced time, at constants of 1; None if not asked for.
    """

    ttft: np.ndarray
    tpot: np.ndarray
    n_passes: int
    n_preempted: int
    extrapolated_share: float | None = None
    e2e: np.ndarray | None = None
    itl: np.ndarray | None = None
    whole: np.ndarray | None = None
    n_tokens: int = 0


class Pricer:
    """Prices the passes of one deployment, component by component.

    What is shared by a pass's tokens depends on a whole number of tokens, so it is tabulated once.
    """

    def __init__(self, oplevel: OpLevel, most_tokens: int) -> None:
        self.oplevel = oplevel
        tokens = np.arange(most_tokens + 1, dtype=float)
        tokens[0] = 1.0
        self._curves = {phase: self._tabulated(phase, tokens) for phase in ("context", "generation")}

    def _tabulated(self, phase: str, tokens: np.ndarray) -> dict[str, np.ndarray]:
        curves = {name: np.zeros(len(tokens)) for name in (*CLASSES, "logits")}
        for op in self.oplevel.operators(phase):  # type: ignore[arg-type]
            if op.part == "logits":
                curves["logits"] += op.total(tokens)
            elif op.part == "shared" and op.scale:
                curves[CLASS.get(op.kind, OTHER)] += op.total(tokens)
        return curves

    def components(self, passes: Passes) -> np.ndarray:
        """Shape (components, passes): the parts of `OpLevel.mixed`, and the counts."""
        n, tokens, cached, decoding, kv = (
            passes.n_prefill,
            passes.prefill_tokens,
            passes.prefill_kv,
            passes.n_decode,
            passes.decode_kv,
        )
        found = dict.fromkeys(COMPONENTS, np.zeros(len(passes)))
        prefill = (n > 0) & (tokens > 0)
        decode = (decoding > 0) & ~prefill
        both = prefill & (decoding > 0)

        def placed(where: np.ndarray, values: np.ndarray) -> np.ndarray:
            out = np.zeros(len(passes))
            out[where] = values
            return out

        context, generation = self._curves["context"], self._curves["generation"]
        new = tokens[prefill] // n[prefill]
        x = np.where(both, tokens + decoding, n * (tokens // np.maximum(n, 1)))[prefill]
        for name in CLASSES:
            found[f"{name}_prefill"] = placed(prefill, context[name][x])
            found[f"{name}_decode"] = placed(decode, generation[name][decoding[decode]])
        rows = np.where(both, 1, n)[prefill]
        found["logits_prefill"] = placed(prefill, context["logits"][rows])
        found["logits_decode"] = placed(decode, generation["logits"][decoding[decode]])
        requests = np.where(both[prefill], -(-tokens[prefill] // new), n[prefill])
        attention = _distinct(self.oplevel.context_attention, requests, new, cached[prefill] // n[prefill])
        found["context_attention"] = placed(prefill, attention)
        for name, where in (("prefill", both), ("decode", decode)):
            length = _on_lattice(kv[where] // decoding[where])
            attention = _distinct(self.oplevel.generation_attention, decoding[where], length)
            found[f"decode_attention_{name}"] = placed(where, attention)
        found["prefill_passes"] = prefill.astype(float)
        found["decode_passes"] = decode.astype(float)
        found["prefill_tokens"] = np.where(prefill, tokens, 0).astype(float)
        found["running"] = passes.n_running.astype(float)
        return np.array([found[name] for name in COMPONENTS])

    def extrapolated_share(self, passes: Passes, components: np.ndarray) -> float:
        """Share of the priced time in passes whose attention lies outside the data."""
        time = components[:N_PRICED].sum(0)
        outside = np.zeros(len(passes), bool)
        for phase, n, total in (
            ("generation", passes.n_decode, passes.decode_kv),
            ("context", passes.n_prefill, passes.prefill_tokens + passes.prefill_kv),
        ):
            axes = self.oplevel.axes(phase)  # type: ignore[arg-type]
            asked = np.flatnonzero(n > 0)
            length = total[asked] // n[asked]
            above = np.searchsorted(axes.batch, n[asked])
            reach = np.append(axes.frontier, 0)[np.minimum(above, len(axes.batch))]
            outside[asked] |= length > reach
        return float(time[outside].sum() / max(time.sum(), 1e-12))


def amounts(pricer: Pricer, passes: Passes, *, with_share: bool = False) -> Amounts:
    """Mean amounts of a loop on a deployment."""
    components = pricer.components(passes)
    before = np.zeros((len(COMPONENTS), len(passes) + 1))
    np.cumsum(components, axis=1, out=before[:, 1:])
    waited = before[:, passes.first + 1] - before[:, passes.asked]
    later = passes.output_tokens > 1
    decoded = before[:, passes.last[later] + 1] - before[:, passes.first[later] + 1]
    nothing = np.full(len(COMPONENTS), np.nan)
    per_token = decoded / (passes.output_tokens[later] - 1)
    return Amounts(
        ttft=waited.mean(1),
        tpot=per_token.mean(1) if later.any() else nothing,
        n_passes=len(passes),
        n_preempted=passes.n_preempted,
        extrapolated_share=pricer.extrapolated_share(passes, components) if with_share else None,
        e2e=(before[:, passes.last + 1] - before[:, passes.asked]).mean(1),
        itl=decoded.sum(1) / np.sum(passes.output_tokens[later] - 1) if later.any() else nothing,
        whole=before[:, -1].copy(),
        n_tokens=int(passes.output_tokens.sum()),
    )


def _on_lattice(lengths: np.ndarray) -> np.ndarray:
    """Whole numbers within half a percent of the lengths, exact below 200: nearly equal lengths are priced once."""
    step = np.maximum(lengths // 100, 1)
    # A step that is a power of two keeps the lattice the same for neighbours.
    step = 1 << (np.log2(step)).astype(np.int64)
    return np.maximum((lengths + step // 2) // step * step, 1)


def _distinct(price: Callable[..., np.ndarray], *coordinates: np.ndarray) -> np.ndarray:
    """Prices of coordinates that repeat a lot: each distinct one is asked for once."""
    if not len(coordinates[0]):
        return np.zeros(0)
    key = np.zeros(len(coordinates[0]), np.int64)
    for values in coordinates:
        key = key * (int(values.max()) + 1) + values
    _, first, inverse = np.unique(key, return_index=True, return_inverse=True)
    return price(*(values[first] for values in coordinates))[inverse]
