"""Performance lookups counted per grid cell, from the finished passes.

Evidence keeps cells, not exact coordinates: a long replay has hundreds of cells but as many coordinates as passes, and
`passes` already carries the cell of every lookup.
"""

from __future__ import annotations

import numpy as np

from sim.result import EVIDENCE, Columns
from sim.spec import TableTiming, Timing

PREFILL, DECODE = 0, 1


class EvidenceCounter:
    """Adds up lookups of passes handed over in order."""

    def __init__(self, timing: Timing) -> None:
        self._table = timing if isinstance(timing, TableTiming) else None
        self._flat = timing.kind == "flat"
        self._rows: dict[tuple[int, int, int], list[int]] = {}

    def add(self, passes: Columns) -> None:
        """Count the lookups of these passes (columns of `sim.result.PASSES`)."""
        asked = (passes["n_prefill"] > 0) if not self._flat else np.ones(len(passes["n_prefill"]), bool)
        n, kv, new = (passes[name][asked] for name in ("n_prefill", "prefill_kv_tokens", "prefill_tokens"))
        safe = np.maximum(n, 1)
        seen = n * ((kv + new) // safe - kv // safe)
        self._phase(PREFILL, passes, asked, passes["prefill_cell"], passes["prefill_ns"], seen, kv)
        asked = (passes["n_decode"] > 0) & (not self._flat)
        b, ctx = passes["n_decode"][asked], passes["decode_kv_tokens"][asked]
        y = ctx // b if self._table is not None else b
        self._phase(DECODE, passes, asked, passes["decode_cell"], passes["decode_ns"], ctx, y)

    def _phase(self, phase, passes, asked, cell, price, x, y) -> None:
        """`x` and `y` are the coordinates of the passes that `asked`."""
        if not asked.any():
            return
        cell, price, number = cell[asked], price[asked], passes["pass_no"][asked]
        outside = self._outside(phase, x, y)
        key = cell * 2 + outside
        if (key == key[0]).all():
            # One cell is the rule for models without a grid; skip the sort.
            groups, starts = key[:1], np.array([0])
            order: slice | np.ndarray = slice(None)
        else:
            order = np.argsort(key, kind="stable")
            groups, starts = np.unique(key[order], return_index=True)
        price, x, y, number = price[order], x[order], y[order], number[order]
        counts = np.diff(np.append(starts, len(price)))
        sums = np.add.reduceat(price, starts)
        bounds = [f.reduceat(v, starts) for v in (x, y) for f in (np.minimum, np.maximum)]
        for k, group in enumerate(groups.tolist()):
            row = self._rows.get((phase, group >> 1, group & 1))
            fresh = [int(b[k]) for b in bounds]
            if row is None:
                self._rows[phase, group >> 1, group & 1] = [
                    int(counts[k]),
                    int(sums[k]),
                    int(number[starts[k]]),
                    *fresh,
                ]
                continue
            row[0] += int(counts[k])
            row[1] += int(sums[k])
            for place, (value, best) in enumerate(zip(fresh, (min, max, min, max), strict=True), start=3):
                row[place] = best(row[place], value)

    def _outside(self, phase: int, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        if self._table is None:
            return np.zeros(len(x), np.int64)
        t = self._table
        if phase == PREFILL:
            out = (x < t.prefill_tokens[0]) | (x > t.prefill_tokens[-1])
        else:
            out = (x < t.decode_kv_tokens[0]) | (x > t.decode_kv_tokens[-1])
            out |= (y < t.decode_context[0]) | (y > t.decode_context[-1])
        return out.astype(np.int64)

    def columns(self) -> Columns:
        """The evidence table, ordered by (phase, cell, extrapolated)."""
        rows = [(*key, *values) for key, values in sorted(self._rows.items())]
        data = np.array(rows, np.int64).reshape(-1, len(EVIDENCE))
        return {name: np.ascontiguousarray(data[:, i]) for i, name in enumerate(EVIDENCE)}
