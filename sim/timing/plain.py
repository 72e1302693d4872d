"""Pass prices in ordinary Python: the definition the compiled prices are tested against.

Sources: semantics of the reference simulator (prefill and decode calls, floors of the means, the built-in polynomial)
as measured on its compiled engine 0.13.0.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from fractions import Fraction
from typing import NamedTuple

from sim.errors import TimingError
from sim.spec import EngineSpec, PassCostTiming, TableTiming
from sim.timing.plain_tables import TablePricer
from sim.timing.tables import ArrayTiming, mixed_pass

NS_PER_S = 1_000_000_000
LONGEST_MS = 9e9  # a hundred days
CLOCK_END_NS = 1 << 62  # 146 years; far enough from the end of an int64 for a pass or a think time to be added
CLOCK_END_S = CLOCK_END_NS / NS_PER_S
PAST_CLOCK_NS = CLOCK_END_NS + 1  # when whatever ends later is said to end


class Work(NamedTuple):
    """What one pass computes: `n_prefill` requests compute `prefill_tokens` prompt tokens over `prefill_kv` present
    ones; `n_decode` requests decode over `decode_kv` tokens of context, the newest included."""

    n_prefill: int
    prefill_tokens: int
    prefill_kv: int
    n_decode: int
    decode_kv: int


class Price(NamedTuple):
    """Two parts, ns, and the grid cells they were read from (-1: no grid or no lookup)."""

    prefill_ns: int
    decode_ns: int
    prefill_cell: int
    decode_cell: int


def new_tokens_seen(work: Work) -> int:
    """New prompt tokens as the two-mean interface of the reference passes them on.

    Means are floored before they are multiplied back, so one token may be lost or gained: prefix 0 with 5 new and
    prefix 4 with 4 new give means 6 and 2, that is 8 tokens, not 9.
    """
    n = work.n_prefill
    return n * ((work.prefill_kv + work.prefill_tokens) // n - work.prefill_kv // n)


def nearest_ns(seconds: float) -> int:
    """Whole nanoseconds next to the exact value of a double of seconds; a tie goes to the even one.

    Exact, because the recorded engine rounds so: 22.3740625 ms is a tie in decimals, and no tie as the double that is
    nearest to 0.0223740625 s.
    """
    return round(Fraction(seconds) * NS_PER_S)


def scaled_ns(milliseconds: float, ratio: float, *, phase: str, where: Work) -> int:
    """Whole nanoseconds of one phase: rounded, divided by the speed-up as a double of seconds, rounded again.

    Raises:
        TimingError: the duration is negative, infinite, not a number or beyond all reason.
    """
    if not math.isfinite(milliseconds) or milliseconds < 0:
        raise TimingError(
            f"the timing model priced the {phase} part of a pass at {milliseconds} ms for {where._asdict()}; "
            "durations must be finite and not negative: correct the model's tables or coefficients"
        )
    if milliseconds < LONGEST_MS:
        whole, rest = divmod(nearest_ns(milliseconds / 1000.0), NS_PER_S)
        seconds = (whole + rest / NS_PER_S) / ratio
        if seconds < LONGEST_MS / 1000.0:
            return nearest_ns(seconds)
    raise TimingError(
        f"the timing model priced the {phase} part of a pass at {milliseconds} ms for {where._asdict()}, divided by "
        f"{ratio}; no pass takes {LONGEST_MS:g} ms or more: correct the model's tables, coefficients or speed-ups"
    )


def segment(knots: list[float], x: float) -> int:
    """Index of the interval of `knots` that x is read from; the outer intervals extend for ever."""
    return min(max(bisect_right(knots, x) - 1, 0), len(knots) - 2)


def pass_cost(timing: PassCostTiming, work: Work) -> tuple[float, float]:
    """Milliseconds of a pass: (with the prefill, with the decode).

    What both phases share (base, weights, arithmetic) is the prefill's where there is one.
    """
    if work.n_prefill == 0 and work.n_decode == 0:
        return 0.0, 0.0
    w = timing.weights_ms
    x = timing.token_us * 1e-3 * float(work.prefill_tokens + work.n_decode)
    shared = timing.base_ms + math.sqrt(math.sqrt(w * w * (w * w) + x * x * (x * x)))
    decode = timing.decode_request_us * 1e-3 * float(work.n_decode) + timing.kv_token_ns * 1e-6 * float(work.decode_kv)
    if work.n_prefill == 0:
        return 0.0, shared + decode
    t = float(work.prefill_tokens)
    pairs = t * (float(work.prefill_kv) + 0.5 * t) / float(work.n_prefill)
    return shared + timing.prefill_pass_ms + timing.attention_pair_ns * 1e-6 * pairs, decode


class PlainPricer:
    """Prices passes of one deployment, one lookup at a time."""

    def __init__(self, spec: EngineSpec) -> None:
        self.timing = spec.timing
        self.pool_tokens = spec.blocks * spec.block_tokens
        self.prefill_ratio = spec.speedup_ratio or 1.0
        # Decode is divided by the product of both ratios; where that is 0, it is left unscaled.
        self.decode_ratio = spec.speedup_ratio * spec.decode_speedup_ratio or 1.0
        if isinstance(self.timing, TableTiming):
            self.prefill_axis = [float(x) for x in self.timing.prefill_tokens]
            self.kv_axis = [float(x) for x in self.timing.decode_kv_tokens]
            self.context_axis = [float(x) for x in self.timing.decode_context]
        self.tables = None
        if isinstance(self.timing, ArrayTiming):
            self.tables = TablePricer(self.timing, mixed_pass(self.timing, spec.profile))

    def price(self, work: Work) -> Price:
        """Price one pass. A pass without work costs nothing."""
        prefill_ms, decode_ms, prefill_cell, decode_cell = 0.0, 0.0, -1, -1
        if self.timing.kind == "flat":
            return Price(scaled_ns(self.timing.pass_ms, self.prefill_ratio, phase="whole", where=work), 0, -1, -1)
        if self.tables is not None:
            return self._from_arrays(self.tables, work)
        if isinstance(self.timing, PassCostTiming):
            prefill_ms, decode_ms = pass_cost(self.timing, work)
            return Price(
                scaled_ns(prefill_ms, self.prefill_ratio, phase="prefill", where=work),
                scaled_ns(decode_ms, self.decode_ratio, phase="decode", where=work),
                -1,
                -1,
            )
        if work.n_prefill > 0:
            prefill_ms, prefill_cell = self._prefill(work)
            # A finite negative estimate of a prefill is floored (rule 1.2); of a decode it is an error.
            prefill_ms = max(prefill_ms, 0.0) if math.isfinite(prefill_ms) else prefill_ms
        if work.n_decode > 0:
            decode_ms, decode_cell = self._decode(work)
        return Price(
            scaled_ns(prefill_ms, self.prefill_ratio, phase="prefill", where=work),
            scaled_ns(decode_ms, self.decode_ratio, phase="decode", where=work),
            prefill_cell,
            decode_cell,
        )

    def _from_arrays(self, tables: TablePricer, work: Work) -> Price:
        got = tables.answer(*work)
        if math.isnan(got.prefill_ms) or math.isnan(got.decode_ms):
            raise tables.refusal(*work)
        return Price(
            scaled_ns(got.prefill_ms, self.prefill_ratio, phase="prefill", where=work),
            scaled_ns(got.decode_ms, self.decode_ratio, phase="decode", where=work),
            got.prefill_cell,
            got.decode_cell,
        )

    def _prefill(self, work: Work) -> tuple[float, int]:
        if self.timing.kind == "fixed":
            return self.timing.prefill_ms, -1
        t = float(new_tokens_seen(work))
        if t == 0.0:
            return 0.0, -1
        if self.timing.kind == "polynomial":
            return 4.209989e-7 * t * t + 1.518344e-2 * t + 16.50142, -1
        assert isinstance(self.timing, TableTiming)
        i = segment(self.prefill_axis, t)
        x0, x1 = self.prefill_axis[i], self.prefill_axis[i + 1]
        y0, y1 = float(self.timing.prefill_ms[i]), float(self.timing.prefill_ms[i + 1])
        return y0 + (y1 - y0) * ((t - x0) / (x1 - x0)), i

    def _decode(self, work: Work) -> tuple[float, int]:
        if self.timing.kind == "fixed":
            return self.timing.decode_ms, -1
        if self.timing.kind == "polynomial":
            u = min(1.0, work.decode_kv / self.pool_tokens)
            return max(1.0, -25.74 * u * u + 54.01 * u + 5.74), -1
        assert isinstance(self.timing, TableTiming)
        kv, context = float(work.decode_kv), float(work.decode_kv // work.n_decode)
        i, j = segment(self.kv_axis, kv), segment(self.context_axis, context)
        a = (kv - self.kv_axis[i]) / (self.kv_axis[i + 1] - self.kv_axis[i])
        b = (context - self.context_axis[j]) / (self.context_axis[j + 1] - self.context_axis[j])
        grid = self.timing.decode_ms
        low = float(grid[i, j]) * (1.0 - a) + float(grid[i + 1, j]) * a
        high = float(grid[i, j + 1]) * (1.0 - a) + float(grid[i + 1, j + 1]) * a
        return low * (1.0 - b) + high * b, i * (len(self.context_axis) - 1) + j
