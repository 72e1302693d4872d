"""Timing models made of arrays: a deployment's prices as `perf_db` compiles them, without knowledge of where they
come from.

Kinds, all in milliseconds and for the work of one rank:

- `op_level`: everything but attention is a function of an integer token count, hence a table per integer; attention is
  a grid with one row per integer batch and the knots of the measured tables.
- `forward`: measured whole forward passes: curves over new tokens per (batch, past KV), curves over KV per batch.
- `regression`: a plane per kind of pass over two features, fitted to observed passes.

Any of them may carry the factors of a tuned snapshot (`factor_*`), which multiply a price.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

Kind = Literal["op_level", "forward", "regression"]
MixedPass = Literal["one_forward", "composed", "two_prices"]

# Where a price comes from; the codes of evidence.source.
NO_SOURCE, MEASURED, INTERPOLATED, EXTRAPOLATED = range(4)

# Dimensions: x tokens of a pass, b decoding requests, n prefilling requests, k lengths, q prefixes; all from 0.
OP_LEVEL = {
    "context_shared": "x",  # ms of all operators but attention and logits of the context list, at so many tokens
    "context_logits": "n",  # ms of the logits at so many rows
    "generation_shared": "b",  # ms of all operators but attention of the generation list, drafts counted in
    "context_lengths": "k",  # tokens, increasing: prompt with its prefix, or new tokens where the prefix is an axis
    "context_prefixes": "q",  # tokens, increasing; one entry: the prefix is no axis
    "context_nodes": "n q k",  # ms of all layers, or its square root where the header says so
    "context_outside": "n k",  # octaves to the nearest measured point, by prompt or new tokens (header); 0 inside
    "prefix_outside": "q",  # the same along the prefix
    "context_batches": "n",  # 1 where the batch was measured itself
    "generation_lengths": "g",
    "generation_nodes": "b g",
    "generation_outside": "b g",
    "generation_batches": "b",
    "token_cells": "x",  # interval of the token tables that a count lies in
    "batch_cells": "n",  # interval of measured batches (context)
    "request_cells": "b",  # interval of measured batches and token counts (generation)
}
FORWARD = {
    "prefill_sites": "m",  # first site of each batch 0..; one entry more than the largest batch has
    "prefill_past": "s",  # past KV tokens of a site, increasing within a batch
    "prefill_points": "s+1",  # first point of each site's curve
    "prefill_tokens": "t",  # new tokens, increasing within a curve
    "prefill_ms": "t",
    "prefill_box": "6",  # least and most of batch, tokens, past KV
    "decode_rows": "d 2",  # per batch 0..: the two curves that answer it, -1 for none
    "decode_weight": "d",  # share of the second curve
    "decode_points": "r+1",  # first point of each curve
    "decode_kv": "u",  # KV tokens, increasing within a curve
    "decode_ms": "u",
    "decode_box": "4",  # least and most of batch, KV tokens
    "decode_baseline": "d",  # ms of a pass of this batch with almost no KV; NaN where there is none
}
ROOFLINE = {  # of a whole-forward table: what compares its sites with each other
    "roofline_tokens": "w",  # ms of all operators but attention and logits at so many new tokens
    "roofline_attention": "v 10",  # per operator, see `sim.timing.plain_roofline`
    "roofline_logits": "c 3",  # per operator: ms per row; ms of any pass, and per row
    "prefill_place": "s 3",  # log2 of batch and of past KV of a site, and its batch
}
REGRESSION = {
    "planes": "3 3",  # prefill, decode, mixed: intercept, per critical attention, per token; NaN: not enough passes
    "weights": "3",  # of the features: KV tokens (a), attention pairs (b), tokens (c)
}
FACTORS = {
    "factor_prefill": "i",  # by new tokens; NaN: no correction
    "factor_decode": "j j",  # by requests and KV tokens
    "factor_mixed": "l l",  # by new tokens and KV tokens of the decoding requests
    "factor_ranges": "3 2",  # least and most of new tokens, decoding requests, KV tokens
}
SITES_USED, SITE_GATE = 4, 2.0  # octaves; a site further away says nothing
NO_PAST = 1e-9  # stands for 0 past tokens in log2: far from every other number
ARRAYS: Mapping[str, Mapping[str, str]] = {"op_level": OP_LEVEL, "forward": FORWARD, "regression": REGRESSION}
WHOLE = {
    "context_batches", "generation_batches", "token_cells", "batch_cells", "request_cells",
    "prefill_sites", "prefill_points", "decode_rows", "decode_points",
    "context_lengths", "context_prefixes", "generation_lengths",
}  # fmt: skip


# What the host adds to a pass, whatever the tables say: beside prefill and decode work, to every pass that computes
# prompt tokens, to every pass that only decodes; per prompt token, and per request of a pass.
EXTRAS = (
    "mixed_pass_extra_ms", "prefill_pass_extra_ms", "decode_pass_extra_ms", "prefill_token_extra_ms",
    "running_request_extra_ms",
)  # fmt: skip
CORRECTION_BINS = 1 << 12  # more than any snapshot has in one store


def lookup_code(cell: Any, source: Any, correction_bin: Any) -> Any:
    """One number for what a lookup was: what a pass carries until it is written. Undone by `split_codes`."""
    return (cell * 4 + source) * CORRECTION_BINS + correction_bin + 1


def split_codes(codes: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Cells, sources and correction bins; -1, 0, -1 where there was no lookup (code -1)."""
    rest, bins = np.divmod(codes, CORRECTION_BINS)
    cells, sources = np.divmod(rest, 4)
    none = codes < 0
    return np.where(none, -1, cells), np.where(none, 0, sources), np.where(none, -1, bins - 1)


class TimingArraysError(ValueError):
    """Arrays that are no timing model of their kind."""


@dataclass(frozen=True, slots=True, eq=False)
class ArrayTiming:
    """A timing model as named arrays and a header.

    Attributes:
        kind: which arrays there are; see the module.
        header: ready for JSON. `op_level`: `nextn` (drafts verified per decoding request), `square_root` (context nodes
            are roots, blended as such), `extra_ms` (added to context attention), `outside_by_prompt` (context_outside
            is looked up at prompt and prefix together), `lookups` (how many KV lengths around the mean a decode
            attention averages, 5 or 1), `refused` (phases without prices: `why` of each). `forward`: `flat_batch`
            (prefill batches above the largest cost as it does), `between_batches` (prefill batches between collected
            ones are blended from both, else refused).
            All kinds: `EXTRAS`. Anything else is for provenance.
        arrays: by the names of `ARRAYS`, and all or none of `FACTORS`, of `ROOFLINE`.

    Raises:
        TimingArraysError: an array is missing, has another shape, or holds what it must not.
    """

    kind: Kind
    header: Mapping[str, Any] = field(default_factory=dict)
    arrays: Mapping[str, np.ndarray] = field(default_factory=dict)

    def __post_init__(self) -> None:
        wanted = dict(ARRAYS[self.kind])
        if any(name in self.arrays for name in FACTORS):
            wanted |= FACTORS
        if self.kind == "forward" and self.has_roofline:
            wanted |= ROOFLINE
        sizes: dict[str, int] = {}
        faults = [f"{name} is missing" for name in wanted if name not in self.arrays]
        faults += [f"{name} is not an array of {self.kind} timing" for name in self.arrays if name not in wanted]
        for name, shape in wanted.items():
            if name in self.arrays:
                faults += _shape_faults(name, self.arrays[name], shape.split(), sizes)
        if not faults and self.kind == "op_level":
            faults += _axis_faults(self.arrays)
        if faults:
            raise TimingArraysError(f"{self.kind} timing: " + "; ".join(faults))

    @property
    def has_roofline(self) -> bool:
        return any(name in self.arrays for name in ROOFLINE)

    @property
    def is_corrected(self) -> bool:
        return "factor_prefill" in self.arrays

    def with_factors(self, factors: Mapping[str, np.ndarray]) -> ArrayTiming:
        """The same prices under the corrections of a tuned snapshot."""
        return ArrayTiming(self.kind, self.header, {**self.arrays, **factors})


def _shape_faults(name: str, array: np.ndarray, dims: list[str], sizes: dict[str, int]) -> list[str]:
    if array.ndim != len(dims):
        return [f"{name} has {array.ndim} dimensions, not {len(dims)}"]
    found = []
    for dim, size in zip(dims, array.shape, strict=True):
        letter, more = dim.removesuffix("+1"), dim.endswith("+1")
        want = int(letter) if letter.isdigit() else sizes.setdefault(letter, size - more) + more
        if size != want:
            found.append(f"{name} has {size} entries where {want} are due ({dim})")
    if name in WHOLE and not np.issubdtype(array.dtype, np.integer):
        found.append(f"{name} must hold integers")
    return found


def _axis_faults(arrays: Mapping[str, np.ndarray]) -> list[str]:
    found = []
    for name, least in (("context_lengths", 2), ("context_prefixes", 1), ("generation_lengths", 2)):
        axis = arrays[name]
        if len(axis) < least or (np.diff(axis) <= 0).any():
            found.append(f"{name} must hold at least {least} increasing lengths")
    return found


def mixed_pass(timing: Any, profile: str) -> MixedPass:
    """How a pass with prefill and decode work is priced, by the kind of timing and the profile.

    Whole-forward tables compose it wherever they are used. Operator-level timing prices one forward where vLLM's own
    engine is reproduced, and two prices where the reference simulator is. A regression was fitted to whole iterations.
    Every other model answers "no": a prefill pass and a full decode pass.
    """
    if not isinstance(timing, ArrayTiming):
        return "one_forward" if timing.kind == "pass_cost" else "two_prices"
    if timing.kind == "forward":
        return "composed"
    if timing.kind == "regression":
        return "one_forward"
    return "one_forward" if profile == "vllm" else "two_prices"
