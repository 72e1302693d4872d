"""Prices of array timings in ordinary Python: the definition the kernels of `sim.timing.tabulated` are tested against.

Every function says where its rule is from by the rule's name: the replay form of a pass (totals, floored means), grids
that blend linearly or in the square root, whole-forward curves, decode rows that run one padded graph, and the
composed mixed pass.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from typing import Any, NamedTuple

from sim.errors import TimingError
from sim.timing.plain_roofline import near_sites, roofline_ms
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

NAN = float("nan")


class Answer(NamedTuple):
    """Milliseconds of both parts, the cells and sources of their lookups, and the correction bin, -1 for none.

    A part that the model cannot answer is NaN.
    """

    prefill_ms: float
    decode_ms: float
    prefill_cell: int
    decode_cell: int
    prefill_source: int
    decode_source: int
    prefill_octaves: float
    decode_octaves: float
    correction_bin: int


def segment(knots: Any, x: float) -> int:
    """Index of the interval of `knots` that x is read from; the outer intervals extend for ever."""
    return min(max(bisect_right(knots, x) - 1, 0), len(knots) - 2)


class Look(NamedTuple):
    """One lookup of one phase."""

    ms: float
    cell: int
    source: int
    octaves: float


NOTHING = Look(0.0, -1, NO_SOURCE, 0.0)
REFUSED = Look(NAN, -1, NO_SOURCE, 0.0)


def nodes_of(timing: ArrayTiming) -> dict[str, Any]:
    """The arrays as lists, made once: item by item numpy would be slow."""
    return {name: array.tolist() for name, array in timing.arrays.items()}


class OpLevelPlain:
    """A pass by its operators."""

    def __init__(self, timing: ArrayTiming, mixed: MixedPass) -> None:
        self.a = nodes_of(timing)
        self.per_request = int(timing.header.get("nextn", 0)) + 1
        self.root = bool(timing.header.get("square_root", False))
        self.extra = float(timing.header.get("extra_ms", 0.0))
        self.by_prompt = bool(timing.header.get("outside_by_prompt", True))
        self.lookups = int(timing.header.get("lookups", 1))
        self.one_forward = mixed == "one_forward"

    def prefill(self, np_: int, tp: int, kvp: int, decoding: int) -> Look:
        """Everything but decode attention. `decoding` requests share the forward, if passes are priced as one."""
        a = self.a
        if self.one_forward:
            # Replay form. Means are floored; beside decodes the attention-free part sees all tokens of the pass, and
            # attention as many requests of the mean length as hold them.
            s, p = tp // np_, kvp // np_
            x, batch, rows = np_ * s, np_, np_
            if decoding:
                x, batch, rows = tp + decoding * self.per_request, -(-tp // s), 1
        else:
            # The two-mean interface of the reference.
            p = kvp // np_
            s = (kvp + tp) // np_ - p
            x, batch, rows = np_ * s, np_, np_
            if s == 0:
                return NOTHING
        if x >= len(a["context_shared"]) or batch >= len(a["context_nodes"]) or rows >= len(a["context_logits"]):
            return REFUSED
        attention, i, j, inside, octaves = self._context(batch, s, p)
        ms = a["context_shared"][x] + a["context_logits"][rows] + attention
        cell = a["token_cells"][x] * (len(a["context_lengths"]) - 1) + i
        cell = (cell * (max(a["batch_cells"]) + 1) + a["batch_cells"][batch]) * max(
            len(a["context_prefixes"]) - 1, 1
        ) + j
        return Look(ms, cell, inside, octaves)

    def _context(self, batch: int, s: int, p: int) -> tuple[float, int, int, int, float]:
        a = self.a
        axis, prefixes, rows = a["context_lengths"], a["context_prefixes"], a["context_nodes"][batch]
        ratio_form = len(prefixes) == 1
        length = s + p if ratio_form else s
        i = segment(axis, length)
        f = (length - axis[i]) / (axis[i + 1] - axis[i])
        outside = octaves(a["context_outside"][batch], axis, s + p if self.by_prompt else s)
        exact = bool(a["context_batches"][batch]) and f in (0.0, 1.0)
        if ratio_form:
            whole, square = self._blend(rows[0], i, f), float(length) * float(length)
            ms = whole * ((square - float(p) * float(p)) / square)
            return ms + self.extra, i, 0, source_of(outside, exact and p == 0), outside
        j = segment(prefixes, p)
        g = (p - prefixes[j]) / (prefixes[j + 1] - prefixes[j])
        low, high = self._blend(rows[j], i, f), self._blend(rows[j + 1], i, f)
        outside = max(outside, octaves(a["prefix_outside"], prefixes, p))
        return low + (high - low) * g + self.extra, i, j, source_of(outside, exact and g in (0.0, 1.0)), outside

    def _blend(self, row: list[float], i: int, f: float) -> float:
        y = row[i] + (row[i + 1] - row[i]) * f
        return y * y if self.root else y

    def decode(self, b: int, kv: int, *, alone: bool) -> Look:
        """`alone`: with all operators; else attention only, for the others are in the shared forward already."""
        a, mean = self.a, kv // b
        if b >= len(a["generation_shared"]):
            return REFUSED
        axis, row, outside = a["generation_lengths"], a["generation_nodes"][b], a["generation_outside"][b]
        total, far = 0.0, 0.0
        for k in range(self.lookups):
            length = spread(mean, k) if self.lookups > 1 else mean
            i = segment(axis, length)
            slope = (row[i + 1] - row[i]) / (axis[i + 1] - axis[i])
            total += row[i] + slope * float(length - axis[i])
            if k in (0, self.lookups - 1):
                far = max(far, octaves(outside, axis, length))
        i = segment(axis, mean)
        exact = self.lookups == 1 and bool(a["generation_batches"][b]) and mean in (axis[i], axis[i + 1])
        ms = total / self.lookups
        if alone:
            ms += a["generation_shared"][b]
        return Look(ms, a["request_cells"][b] * (len(axis) - 1) + i, source_of(far, exact), far)

    def price(self, np_: int, tp: int, kvp: int, b: int, kv: int) -> tuple[Look, Look]:
        prefill = self.prefill(np_, tp, kvp, b) if np_ else NOTHING
        joined = self.one_forward and np_ > 0
        return prefill, self.decode(b, kv, alone=not joined) if b else NOTHING


def octaves(outside: list[float], axis: list[int], x: int) -> float:
    """Distance from the measured data, blended between knots and never negative."""
    i = segment(axis, x)
    f = (x - axis[i]) / (axis[i + 1] - axis[i]) if len(axis) > 1 else 0.0
    return max(outside[i] + (outside[i + 1] - outside[i]) * f, 0.0)


def source_of(outside: float, exact: bool) -> int:
    """Measured at knots of every axis, interpolated between them, extrapolated outside the data."""
    if outside > 0.0:
        return EXTRAPOLATED
    return MEASURED if exact else INTERPOLATED


def spread(mean: int, k: int) -> int:
    """The k-th of five KV lengths spread evenly from 0.9 to 1.1 of the mean: whole tokens, rounded down, at least 1."""
    low, high = mean * 9 // 10, mean * 11 // 10
    return max(low + (high - low) * k // 4, 1)


class ForwardPlain:
    """A pass by measured whole passes. Nothing is extrapolated: what the table does not cover is refused."""

    def __init__(self, timing: ArrayTiming) -> None:
        self.a = nodes_of(timing)
        self.flat_batch = bool(timing.header.get("flat_batch", False))
        self.between = bool(timing.header.get("between_batches", False))
        self.roofline = timing.has_roofline

    def prefill(self, np_: int, tp: int, kvp: int) -> Look:
        """Batches above the largest count as it where the data show that the batch does not matter; with a long past,
        where attention is most of a pass, scaled by the rooflines of both, never up."""
        a = self.a
        box = a["prefill_box"]
        batch, scaled = np_, False
        if np_ > box[1]:
            scaled = kvp >= 2 * tp
            if not self.flat_batch or (scaled and not self.roofline):
                return REFUSED
            batch = int(box[1])
        if batch < box[0] or not (box[2] <= tp <= box[3] and box[4] <= kvp <= box[5]):
            return REFUSED
        found = self._near(batch, tp, kvp) if self.roofline else REFUSED
        if math.isnan(found.ms):
            found = self._direct(batch, tp, kvp)
        if scaled:
            ratio = roofline_ms(a, float(np_), tp, float(kvp)) / roofline_ms(a, float(batch), tp, float(kvp))
            found = found._replace(ms=found.ms * min(ratio, 1.0))
        return found if batch == np_ or found.source != MEASURED else found._replace(source=INTERPOLATED)

    def _near(self, batch: int, tp: int, kvp: int) -> Look:
        """The site's own curve, or the four nearest sites at the share of the roofline that they reach."""
        a = self.a
        at = math.log2(float(batch)), math.log2(max(float(kvp), NO_PAST))
        sites = near_sites(a, at, tp)
        if not sites:
            return REFUSED
        curve = ("prefill_points", "prefill_tokens", "prefill_ms")
        ms, cell, exact = self._curve(*curve, sites[0][1], tp)
        if sites[0][0] == 0.0:
            return Look(ms, cell, MEASURED if exact else INTERPOLATED, 0.0)
        reached, total = 0.0, 0.0
        for far, site in sites:
            took, _, _ = self._curve(*curve, site, tp)
            limit = roofline_ms(a, a["prefill_place"][site][2], tp, a["prefill_past"][site])
            reached, total = reached + 1.0 / far * (limit / took), total + 1.0 / far
        return Look(roofline_ms(a, float(batch), tp, float(kvp)) / (reached / total), cell, INTERPOLATED, 0.0)

    def _direct(self, batch: int, tp: int, kvp: int) -> Look:
        """The curves of the batch; of the two collected batches around it, where the table says that it allows this."""
        sites = self.a["prefill_sites"]
        if sites[batch + 1] > sites[batch] or not self.between:
            return self._of_batch(batch, tp, kvp)
        low, high = batch, batch
        while sites[low + 1] == sites[low]:
            low -= 1
        while sites[high + 1] == sites[high]:
            high += 1
        one, other = self._of_batch(low, tp, kvp), self._of_batch(high, tp, kvp)
        if math.isnan(one.ms):
            return other._replace(source=INTERPOLATED if other.cell >= 0 else NO_SOURCE)
        if not math.isnan(other.ms):
            one = one._replace(ms=one.ms + (other.ms - one.ms) * ((batch - low) / (high - low)))
        return one._replace(source=INTERPOLATED)

    def _of_batch(self, batch: int, tp: int, kvp: int) -> Look:
        """The own site's curve, or the two curves of the same batch around the past KV that both cover the tokens."""
        a = self.a
        sites = a["prefill_sites"]
        below = above = -1
        for site in range(sites[batch], sites[batch + 1]):
            first, last = a["prefill_points"][site], a["prefill_points"][site + 1] - 1
            if a["prefill_tokens"][first] <= tp <= a["prefill_tokens"][last]:
                if a["prefill_past"][site] <= kvp:
                    below = site
                elif above < 0:
                    above = site
        if below < 0:
            return REFUSED
        ms, cell, exact = self._curve("prefill_points", "prefill_tokens", "prefill_ms", below, tp)
        x0 = a["prefill_past"][below]
        if x0 == kvp:
            return Look(ms, cell, MEASURED if exact else INTERPOLATED, 0.0)
        if above < 0:
            return REFUSED
        other, _, _ = self._curve("prefill_points", "prefill_tokens", "prefill_ms", above, tp)
        f = (kvp - x0) / (a["prefill_past"][above] - x0)
        return Look(ms + (other - ms) * f, cell, INTERPOLATED, 0.0)

    def _curve(self, points: str, axis: str, values: str, curve: int, x: float) -> tuple[float, int, bool]:
        """Linear between measured points. Returns (ms, index of the lower point, whether x was measured)."""
        a = self.a
        first, end = a[points][curve], a[points][curve + 1]
        knots = a[axis]
        if end - first == 1:
            return a[values][first], first, True
        i = min(max(bisect_right(knots, x, first, end) - 1, first), end - 2)
        f = (x - knots[i]) / (knots[i + 1] - knots[i])
        return a[values][i] + (a[values][i + 1] - a[values][i]) * f, i, f in (0.0, 1.0)

    def decode(self, b: int, kv: int) -> Look:
        """The batch's own curve, or the blend of the two rows between which every batch runs one padded graph."""
        a, box = self.a, self.a["decode_box"]
        if not (box[0] <= b <= box[1] and box[2] <= kv <= box[3]):
            return REFUSED
        low, high = a["decode_rows"][b]
        covered = [row for row in dict.fromkeys((low, high)) if row >= 0 and self._covers(row, kv)]
        if not covered:
            return REFUSED
        ms, cell, exact = self._curve("decode_points", "decode_kv", "decode_ms", covered[0], kv)
        if len(covered) == 2:
            other, _, _ = self._curve("decode_points", "decode_kv", "decode_ms", high, kv)
            ms, exact = ms + (other - ms) * a["decode_weight"][b], False
        return Look(ms, cell, MEASURED if exact and low == high else INTERPOLATED, 0.0)

    def _covers(self, row: int, kv: int) -> bool:
        a = self.a
        return a["decode_kv"][a["decode_points"][row]] <= kv <= a["decode_kv"][a["decode_points"][row + 1] - 1]

    def price(self, np_: int, tp: int, kvp: int, b: int, kv: int) -> tuple[Look, Look]:
        """7.4, the composed mixed pass: prefill + max(0, decode - baseline)."""
        prefill = self.prefill(np_, tp, kvp) if np_ else NOTHING
        decode = self.decode(b, kv) if b else NOTHING
        if np_ and b and not math.isnan(decode.ms):
            share = decode.ms - self.a["decode_baseline"][b]
            decode = decode._replace(ms=0.0 if share < 0.0 else share)
        return prefill, decode


class RegressionPlain:
    """A pass by a plane over (critical attention, tokens), fitted to observed passes of its kind."""

    def __init__(self, timing: ArrayTiming) -> None:
        self.a = nodes_of(timing)

    def price(self, np_: int, tp: int, kvp: int, b: int, kv: int) -> tuple[Look, Look]:
        if not (np_ or b):
            return NOTHING, NOTHING
        wa, wb, wc = self.a["weights"]
        kind = 2 if np_ and b else 0 if np_ else 1
        t = float(tp)
        attention = wa * float(kv)
        if np_:
            attention += wa * float(kvp) + wb * (float(kvp) * t / np_ + t * t / (2.0 * np_) + t / 2.0)
        at_zero, slope, per_token = self.a["planes"][kind]
        ms = at_zero + slope * attention + per_token * (wc * float(tp + b))
        look = Look(max(ms, 1e-6) if not math.isnan(ms) else NAN, kind, INTERPOLATED, 0.0)
        empty = Look(0.0, kind, INTERPOLATED, 0.0)
        # The whole iteration was observed: it has one price, which starts the pass.
        return (look, empty if b else NOTHING) if np_ else (NOTHING, look)


class Corrections:
    """Factors of a tuned snapshot (7.5): by the kind of pass and the bin of its coordinates."""

    def __init__(self, timing: ArrayTiming) -> None:
        self.a = nodes_of(timing)

    def factor(self, np_: int, tp: int, b: int, kv: int) -> tuple[float, int]:
        """(factor, bin); (1, -1) where nothing is corrected. A mixed pass takes one factor for both parts."""
        tokens, requests, context = self.a["factor_ranges"]
        if np_ and b:
            grid, places = self.a["factor_mixed"], ((tp, tokens), (kv, context))
        elif np_:
            row = self.a["factor_prefill"]
            i = bin_index(tp, tokens, len(row))
            return (1.0, -1) if i < 0 or math.isnan(row[i]) else (row[i], i)
        else:
            grid, places = self.a["factor_decode"], ((b, requests), (kv, context))
        i, j = (bin_index(value, bounds, len(grid)) for value, bounds in places)
        if i < 0 or j < 0 or math.isnan(grid[i][j]):
            return 1.0, -1
        return grid[i][j], i * len(grid) + j


def bin_index(value: float, bounds: list[float], n: int) -> int:
    """Bin of equal widths; the upper end belongs to the last one; -1 outside."""
    low, high = bounds
    if value < low or value > high:
        return -1
    return min(int((value - low) / (high - low) * n), n - 1)


class TablePricer:
    """Prices of one array timing under one way to price mixed passes."""

    def __init__(self, timing: ArrayTiming, mixed: MixedPass) -> None:
        makers = {"op_level": lambda: OpLevelPlain(timing, mixed), "forward": lambda: ForwardPlain(timing)}
        self.model: Any = makers.get(timing.kind, lambda: RegressionPlain(timing))()
        self.kind = timing.kind
        self.refused = timing.header.get("refused", {})
        self.mixed_extra, self.prefill_extra, self.decode_extra, self.token_extra, self.request_extra = (
            float(timing.header.get(name, 0.0)) for name in EXTRAS
        )
        self.corrections = Corrections(timing) if timing.is_corrected else None

    def answer(self, np_: int, tp: int, kvp: int, b: int, kv: int) -> Answer:
        """Both parts of a pass."""
        prefill, decode = self.model.price(np_, tp, kvp, b, kv)
        prefill_ms, decode_ms, bin_ = prefill.ms, decode.ms, -1
        if np_ and b:
            prefill_ms += self.mixed_extra
        if np_ and tp:
            prefill_ms += self.prefill_extra + self.token_extra * tp + self.request_extra * (np_ + b)
        elif b:
            decode_ms += self.decode_extra + self.request_extra * b
        if self.corrections is not None:
            factor, bin_ = self.corrections.factor(np_, tp, b, kv)
            prefill_ms, decode_ms = prefill_ms * factor, decode_ms * factor
        return Answer(
            *(prefill_ms, decode_ms, prefill.cell, decode.cell, prefill.source, decode.source),
            *(prefill.octaves, decode.octaves, bin_),
        )

    def refusal(self, np_: int, tp: int, kvp: int, b: int, kv: int) -> TimingError:
        """What to tell about a pass that has no price."""
        work = (
            f"{np_} prefill request(s) with {tp} new and {kvp} past tokens, {b} decode request(s) with {kv} KV tokens"
        )
        if self.kind == "forward":
            a = self.model.a
            least_b, most_b, least_t, most_t, least_k, most_k = (int(x) for x in a["prefill_box"])
            low_b, high_b, low_kv, high_kv = (int(x) for x in a["decode_box"])
            between = "between measured curves"
            if self.model.roofline:
                between += f", or at most {SITE_GATE:g} octaves of batch and past KV from one,"
            return TimingError(
                f"the whole-forward table does not cover a pass of {work}. It holds prefill batches {least_b} to "
                f"{most_b}, new tokens {least_t} to {most_t}, past KV {least_k} to {most_k}, and decode batches "
                f"{low_b} to {high_b}, KV tokens {low_kv} to {high_kv}, and answers {between} only: "
                "collect the missing passes, keep the traffic inside, or use estimation_mode: op_level"
            )
        if self.kind == "regression":
            return TimingError(
                f"the regression has seen too few passes of the kind asked for: {work}. Give it at least five observed "
                "passes of prefill only, decode only and both together"
            )
        for phase, count, name in (("context", np_, "prefill"), ("generation", b, "decode")):
            if count and phase in self.refused:
                return TimingError(
                    f"this deployment has no prices for {name}: {self.refused[phase]['why']}. A pass of {work} came "
                    "up; give the pool more KV blocks, so that nothing is preempted and computed again, or ask for a "
                    "precision that was measured in both phases"
                )
        return TimingError(
            f"the compiled arrays do not reach a pass of {work}; compile them for this token budget and batch"
        )
