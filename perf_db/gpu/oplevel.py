"""The operator-level price of a forward pass.

A pass is a list of operators per phase; each stands for `scale` layers and is priced from measured tables. With B
requests, s new tokens and p cached ones per request:

* prefill: everything but attention at B s tokens, logits at B rows, attention at (B, s, p);
* decode: everything at B (nextn + 1) tokens, attention at that batch and KV length kv; every scale times
  (L + nextn) / L for the draft layers;
* mixed: everything but attention once, with the prefill list, at all tokens of the pass; prefill attention and decode
  attention on top.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from perf_db.gpu import ops
from perf_db.gpu.architecture import architecture_of, operators_of, precisions_of, symbols_of
from perf_db.gpu.deployment import Deployment, check
from perf_db.gpu.errors import PerfDataError
from perf_db.gpu.hardware import load_hardware
from perf_db.gpu.interpolate.grid import EXTRAPOLATED, INTERPOLATED, MEASURED
from perf_db.gpu.models import load_model
from perf_db.gpu.names import unknown
from perf_db.gpu.ops.base import AttentionOperator, Floats, Operator, Tables
from perf_db.gpu.source import PerfRoot

__all__ = ["EXTRAPOLATED", "INTERPOLATED", "MEASURED", "Axes", "Coverage", "LineageRow", "OpCost", "OpLevel"]

Phase = Literal["context", "generation"]
Milliseconds = NDArray[np.float64]
PHASES: tuple[Phase, Phase] = ("context", "generation")


class OpCost(NamedTuple):
    """One line of a breakdown."""

    op: str
    ms: float  # all layers
    source: str  # silicon, empirical, mixed


class LineageRow(NamedTuple):
    """One raw row that takes part in an answer."""

    op: str
    file: str  # relative to the root
    row: int  # 0-based, in file order
    share: float  # of the operator's time; the shares of an operator sum to 1


class Axes(NamedTuple):
    """The knots of the attention grid of one phase, at this deployment's head count."""

    batch: NDArray[np.int64]  # ascending
    length: NDArray[np.int64]  # ascending; new tokens in context (prompt), KV length in generation
    prefix: NDArray[np.int64]  # ascending; [0] where the prefix is no axis of the table
    frontier: NDArray[np.int64]  # per batch: the longest length that was measured at prefix 0


class Coverage(NamedTuple):
    """How an attention lookup is answered; arrays of the broadcast shape of the query."""

    kind: NDArray[np.uint8]  # MEASURED, INTERPOLATED or EXTRAPOLATED
    octaves: NDArray[np.float64]  # distance to the nearest measured point in log2 space; 0 unless EXTRAPOLATED


class OpLevel:
    """Prices passes of one deployment. Arguments are int64 arrays that broadcast together, answers are float64 ms.

    Args:
        deployment: what is priced.
        root: where the tables are.
        clean: apply the repairs of `perf_db.gpu.clean`; False reproduces the tables as they are.
        factors: what-if factors by operator name (with or without its phase), operator kind, or link (`intra_node`,
            `inter_node`). An operator that several of them name takes their product.

    Raises:
        PerfDataError: the deployment cannot be priced in any phase, or a factor names nothing; see `.reason`. A phase
            that alone cannot be priced raises when it is asked for (`phases` says which can).
    """

    def __init__(
        self, deployment: Deployment, root: PerfRoot, *, clean: bool, factors: Mapping[str, float] | None = None
    ) -> None:
        self.deployment = deployment
        self.root = root
        self.clean = clean
        self.factors = dict(factors or {})
        self.model = load_model(root, deployment.model)
        check(deployment, self.model)
        self.hardware = load_hardware(root, deployment.system)
        self.tables = Tables(deployment, root, self.hardware, clean=clean)
        self._operators: dict[Phase, list[Operator]] = {}
        self._refused: dict[Phase, PerfDataError] = {}
        for phase in PHASES:
            try:
                self._operators[phase] = self._build(phase)
            except PerfDataError as error:
                self._refused[phase] = error
        if not self._operators:
            raise self._refused["context"]
        self._apply_factors()

    @property
    def phases(self) -> tuple[Phase, ...]:
        """Phases that can be priced."""
        return tuple(self._operators)

    def refusal(self, phase: Phase) -> PerfDataError | None:
        """Why a phase cannot be priced, None when it can."""
        return self._refused.get(phase)

    def operators(self, phase: Phase) -> list[Operator]:
        """The operators of a phase, in the order of the list.

        Raises:
            PerfDataError: the phase cannot be priced.
        """
        if phase in self._refused:
            raise self._refused[phase]
        return self._operators[phase]

    def shared(self, phase: Phase, tokens: ArrayLike) -> Milliseconds:
        """All operators but attention and logits, at `tokens` tokens on this rank."""
        return self._sum(phase, "shared", tokens)

    def logits(self, phase: Phase, rows: ArrayLike) -> Milliseconds:
        """The logits GEMM at `rows` rows; 0 where the operator list has none in this phase."""
        return self._sum(phase, "logits", rows)

    def context_attention(self, requests: ArrayLike, new: ArrayLike, prefix: ArrayLike) -> Milliseconds:
        """Attention of `requests` requests with `new` new tokens each after `prefix` cached ones; all layers."""
        b, s, p = _floats(requests, new, prefix)
        total = np.zeros(b.shape)
        for op in self._attention("context"):
            total += (op.scale * op.factor * op.context_ms(b.ravel(), s.ravel(), p.ravel())).reshape(b.shape)
        return total

    def generation_attention(self, requests: ArrayLike, kv: ArrayLike) -> Milliseconds:
        """Decode attention at KV length `kv` per request (new token included); all layers."""
        b, length = _floats(requests, kv)
        total = np.zeros(b.shape)
        for op in self._attention("generation"):
            total += (op.scale * op.factor * op.generation_ms(b.ravel(), length.ravel())).reshape(b.shape)
        return total

    def lookup(self, phase: Phase, requests: ArrayLike, length: ArrayLike) -> Milliseconds:
        """One look into the attention grid, all layers, as the compiled arrays take their nodes from it.

        generation: at one KV length, before the five of them are averaged. context: at a full prompt without prefix,
        before extras: `context_attention(n, s, p) = lookup(n, s + p) * ((s+p)^2 - p^2) / (s+p)^2 + constant` where the
        prefix is no axis of the table (`axes(phase).prefix` is [0]); elsewhere this is the value at prefix 0.
        """
        b, s = _floats(requests, length)
        total = np.zeros(b.shape)
        for op in self._attention(phase):
            total += (op.scale * op.factor * op.lookup(b.ravel(), s.ravel())).reshape(b.shape)
        return total

    def prefill(self, requests: ArrayLike, new: ArrayLike, prefix: ArrayLike) -> Milliseconds:
        """A pass that only prefills."""
        b, s, p = _ints(requests, new, prefix)
        return self.shared("context", b * s) + self.logits("context", b) + self.context_attention(b, s, p)

    def decode(self, requests: ArrayLike, kv: ArrayLike) -> Milliseconds:
        """A pass that only decodes; every request verifies `nextn + 1` tokens."""
        b, length = _ints(requests, kv)
        b = b * (self.deployment.nextn + 1)
        return self.shared("generation", b) + self.logits("generation", b) + self.generation_attention(b, length)

    def mixed(
        self,
        np_: ArrayLike,
        prefill_tokens: ArrayLike,
        prefill_kv: ArrayLike,
        nd: ArrayLike,
        decode_kv: ArrayLike,
    ) -> Milliseconds:
        """A pass given by its totals (replay form, one forward).

        Means per request are floors. Every decode request verifies `nextn + 1` tokens. A prefill whose tokens are all
        cached computes nothing; a pass without work costs nothing.

        Args:
            np_, prefill_tokens, prefill_kv: requests that prefill, their new tokens, their cached tokens.
            nd, decode_kv: requests that decode, their KV lengths summed.

        Raises:
            ValueError: tokens without requests.
        """
        n, tokens, cached, d, kv = _ints(np_, prefill_tokens, prefill_kv, nd, decode_kv)
        for what, requests, sums in (("prefill", n, tokens), ("decode", d, kv)):
            if ((requests <= 0) & (sums > 0)).any():
                raise ValueError(f"{what} tokens without {what} requests: {sums[(requests <= 0) & (sums > 0)][0]}")
        out = np.zeros(n.shape)
        prefills, decodes = (n > 0) & (tokens > 0), d > 0
        both = prefills & decodes
        if (only := prefills & ~decodes).any():
            new = np.maximum(tokens[only] // n[only], 1)
            out[only] = self.prefill(n[only], new, cached[only] // n[only])
        if (only := decodes & ~prefills).any():
            out[only] = self.decode(d[only], kv[only] // d[only])
        if both.any():
            n, tokens, cached, d, kv = (a[both] for a in (n, tokens, cached, d, kv))
            new, verified = np.maximum(tokens // n, 1), d * (self.deployment.nextn + 1)
            out[both] = (
                self.shared("context", tokens + verified)
                + self.logits("context", np.ones_like(n))
                + self.context_attention(-(-tokens // new), new, cached // n)
                + self.generation_attention(verified, kv // d)
            )
        return out

    def planner_mixed(
        self, ctx_tokens: ArrayLike, gen_requests: ArrayLike, isl: ArrayLike, osl: ArrayLike, prefix: ArrayLike
    ) -> tuple[Milliseconds, Milliseconds, Milliseconds]:
        """A mixed pass in planner form: everything but attention, prefill attention, decode attention.

        The cached tokens of every prompt that fits whole into `ctx_tokens` are not computed; prefill attention is that
        of the started prompts, spread evenly over the chunks of a prompt that does not fit.

        Args:
            ctx_tokens: prompt tokens of the pass, cached ones included.
            gen_requests: requests that decode beside them.
            isl, osl, prefix: prompt, output and cached tokens of every request.
        """
        ctx, g, full, out, p = _ints(ctx_tokens, gen_requests, isl, osl, prefix)
        b = g * (self.deployment.nextn + 1)
        shared = self.shared("context", ctx - p * (ctx // full) + b) + self.logits("context", np.ones_like(ctx))
        prefill = self.context_attention(-(-ctx // full), full - p, p) / -(-full // ctx)
        return shared, prefill, self.generation_attention(b, full + out // 2 + 1)

    def breakdown(self, phase: Phase, requests: int, new_or_kv: int, prefix: int = 0) -> list[OpCost]:
        """One pass, operator by operator, in the order of the list."""
        b, tokens = self._tokens(phase, requests, new_or_kv)
        lines = []
        for op in self.operators(phase):
            if isinstance(op, AttentionOperator):
                ms = self._attention_ms(op, phase, b, new_or_kv, prefix)
            else:
                ms = float(op.total(np.array([float(b if op.part == "logits" else tokens)]))[0])
            lines.append(OpCost(op.name, ms, op.source))
        return lines

    def lineage(self, phase: Phase, requests: int, new_or_kv: int, prefix: int = 0) -> list[LineageRow]:
        """Which raw rows answer one pass; operators that are computed, not measured, have none."""
        b, tokens = self._tokens(phase, requests, new_or_kv)
        found = []
        for op in self.operators(phase):
            if isinstance(op, AttentionOperator):
                shares = op.explain_pass(phase, float(b), float(new_or_kv), float(prefix))
            else:
                shares = op.explain(float(b if op.part == "logits" else tokens))
            merged: dict[int, float] = {}
            for label, share in shares:
                merged[label] = merged.get(label, 0.0) + share
            found += [LineageRow(op.name, *self.tables.place(label), share) for label, share in merged.items()]
        return found

    def axes(self, phase: Phase) -> Axes:
        """The attention grid's knots at this deployment's head count, of the first attention operator."""
        return Axes(*self._attention(phase)[0].knots())

    def decode_looks(self) -> int:
        """KV lengths that `generation_attention` is the mean of (`perf_db.gpu.ops.attention.spread`): five, or one."""
        return max(op.looks for op in self._attention("generation"))

    def coverage(self, phase: Phase, requests: ArrayLike, new_or_kv: ArrayLike, prefix: ArrayLike = 0) -> Coverage:
        """Whether attention at these coordinates is measured, interpolated or extrapolated (the worst operator)."""
        b, length, p = _floats(requests, new_or_kv, prefix)
        kind, octaves = np.zeros(b.shape, np.uint8), np.zeros(b.shape)
        for op in self._attention(phase):
            k, o = op.reach(phase, b.ravel(), length.ravel(), p.ravel())
            kind, octaves = np.maximum(kind, k.reshape(b.shape)), np.maximum(octaves, o.reshape(b.shape))
        return Coverage(kind, octaves)

    def files(self) -> list[str]:
        """Files that rows were taken from, relative to the root."""
        return sorted(self.tables.files)

    def provenance(self) -> dict[str, Any]:
        """What the prices rest on, as JSON."""
        used = [self.root.path / name for name in self.files()]
        used += [self.root.systems / f"{self.deployment.system}.yaml", self.root.path / self.model.file]
        return {
            "deployment": self.deployment.as_dict(),
            "clean": self.clean,
            "factors": self.factors,
            "source": self.root.provenance(used),
        }

    def _build(self, phase: Phase) -> list[Operator]:
        d = self.deployment
        architecture = architecture_of(self.model)
        degrees = {"T": d.tp, "D": d.dp, "P": d.pp, "Et": d.moe_tp, "Ee": d.moe_ep}
        extra = {"backend": d.backend, "sm": self.hardware.sm, "architecture": self.model.classes[0]}
        symbols = symbols_of(architecture, self.model, degrees, extra)
        shapes = operators_of(architecture.operators, symbols, phase, precisions_of(d, self.model))
        layers = symbols["L"]
        stretch = (layers + d.nextn) / layers if phase == "generation" else 1.0
        return ops.build(shapes, self.tables, phase, stretch)

    def _apply_factors(self) -> None:
        taken: set[str] = set()
        for listed in self._operators.values():
            for op in listed:
                taken |= op.apply(self.factors)
        if left := sorted(set(self.factors) - taken):
            names = sorted({op.name for listed in self._operators.values() for op in listed})
            kinds = sorted({op.kind for listed in self._operators.values() for op in listed})
            raise PerfDataError(
                "unknown_operator",
                unknown("operator, kind or link", left[0], [*names, *kinds], f"kinds: {', '.join(kinds)}"),
            )

    def _sum(self, phase: Phase, part: str, at: ArrayLike) -> Milliseconds:
        (x,) = _floats(at)
        total = np.zeros(x.shape)
        for op in self.operators(phase):
            if op.part == part and op.scale:
                total += op.total(x.ravel()).reshape(x.shape)
        return total

    def _attention(self, phase: Phase) -> list[AttentionOperator]:
        return [op for op in self.operators(phase) if isinstance(op, AttentionOperator)]

    def _tokens(self, phase: Phase, requests: int, new: int) -> tuple[int, int]:
        """Requests as the operators see them, and tokens of the pass."""
        if phase == "context":
            return requests, requests * new
        b = requests * (self.deployment.nextn + 1)
        return b, b

    def _attention_ms(self, op: AttentionOperator, phase: Phase, requests: int, length: int, prefix: int) -> float:
        b, s, p = (np.array([float(v)]) for v in (requests, length, prefix))
        one = op.context_ms(b, s, p) if phase == "context" else op.generation_ms(b, s)
        return float(op.scale * op.factor * one[0])


def _ints(*values: ArrayLike) -> tuple[NDArray[np.int64], ...]:
    """Arguments as int64 arrays of one shape."""
    return tuple(np.broadcast_arrays(*(np.asarray(v, np.int64) for v in values)))


def _floats(*values: ArrayLike) -> tuple[Floats, ...]:
    """Arguments as float64 arrays of one shape."""
    return tuple(np.broadcast_arrays(*(np.asarray(v, np.float64) for v in values)))
