"""Performance lookups counted per grid cell, from the finished passes.

Evidence keeps cells, not exact coordinates: a long replay has hundreds of cells but as many coordinates as passes, and
`passes` already carries the cell of every lookup.
"""

from __future__ import annotations

import numpy as np

from sim.result import EVIDENCE, FIRST_LOOKUP, LOOKED_UP, Columns
from sim.spec import PoolsSpec, TableTiming, Timing
from sim.timing.plain_tables import TablePricer
from sim.timing.tables import EXTRAPOLATED, ArrayTiming, mixed_pass, split_codes

PREFILL, DECODE, MIXED_PREFILL, MIXED_DECODE = range(4)
FIRST_ROOM = 1024  # rows; grows by doubling


class EvidenceCounter:
    """Adds up lookups of passes handed over in order.

    Args:
        compiled: count array timings in compiled code; else one lookup at a time, as the definition says.
    """

    def __init__(self, timing: Timing, profile: str = "vllm", *, compiled: bool = True) -> None:
        self._arrays: CompiledCounter | PlainCounter | None = None
        if isinstance(timing, ArrayTiming):
            self._arrays = CompiledCounter(timing, profile) if compiled else PlainCounter(timing, profile)
        self._table = timing if isinstance(timing, TableTiming) else None
        self._flat = timing.kind == "flat"
        self._rows: dict[tuple[int, int, int], list[int]] = {}

    def add(self, passes: Columns) -> None:
        """Count the lookups of these passes (columns of `sim.result.PASSES`).

        Where compiled code priced them from arrays, codes stand for their cells, which take their place.
        """
        if self._arrays is not None:
            self._arrays.add(passes)
            return
        asked = slice(None) if self._flat else _rows_of(passes["n_prefill"] > 0)
        n, kv, new = (passes[name][asked] for name in ("n_prefill", "prefill_kv_tokens", "prefill_tokens"))
        safe = np.maximum(n, 1)
        seen = n * ((kv + new) // safe - kv // safe)
        self._phase(PREFILL, passes, asked, passes["prefill_cell"], passes["prefill_ns"], seen, kv)
        if self._flat:
            return
        asked = _rows_of(passes["n_decode"] > 0)
        b, ctx = passes["n_decode"][asked], passes["decode_kv_tokens"][asked]
        y = ctx // b if self._table is not None else b
        self._phase(DECODE, passes, asked, passes["decode_cell"], passes["decode_ns"], ctx, y)

    def _phase(self, phase, passes, asked, cell, price, x, y) -> None:
        """`x` and `y` are the coordinates of the passes that `asked`."""
        if not len(x):
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
        """The evidence table, ordered by (phase, cell, extrapolated, source, correction bin)."""
        found = self.lookups()
        return {name: found[name] for name in EVIDENCE}

    def lookups(self) -> Columns:
        """The evidence table; for array timings also the work of the first lookup of each row."""
        if self._arrays is not None:
            return _columns(self._arrays.rows(), (*EVIDENCE, *FIRST_LOOKUP))
        rows = [(0, *key, 0, -1, *values, 0) for key, values in sorted(self._rows.items())]
        return _columns(rows, EVIDENCE)


def _rows_of(mask: np.ndarray) -> slice | np.ndarray:
    """Where `mask` holds: without copying anything if that is everywhere, as it is in most batches of passes."""
    rows = np.flatnonzero(mask)
    return slice(None) if len(rows) == len(mask) else rows


class PoolsEvidence:
    """Lookups of two pools, by role."""

    def __init__(self, spec: PoolsSpec, *, compiled: bool = True) -> None:
        self._sides = [EvidenceCounter(side.timing, side.profile, compiled=compiled) for side in spec.sides]
        self._first_of_decode = spec.prefill.workers

    def add(self, passes: Columns) -> None:
        """As `EvidenceCounter.add`."""
        of_decode = passes["worker"] >= self._first_of_decode
        for counter, mask in zip(self._sides, (~of_decode, of_decode), strict=True):
            mine = np.flatnonzero(mask)
            # Splitting the other columns as well would be most of the work.
            part = {name: passes[name][mine] for name in LOOKED_UP}
            cells = part["prefill_cell"], part["decode_cell"]
            counter.add(part)
            for name, before in zip(("prefill_cell", "decode_cell"), cells, strict=True):
                if part[name] is not before:
                    passes[name][mine] = part[name]

    def columns(self) -> Columns:
        """The evidence table, the prefill pool's rows first."""
        return _with_roles([counter.columns() for counter in self._sides])

    def lookups(self) -> Columns:
        """As `EvidenceCounter.lookups`; work that one of the pools does not tell is 0."""
        found = [counter.lookups() for counter in self._sides]
        names = max((list(each) for each in found), key=len)
        rows = [len(each["role"]) for each in found]
        return _with_roles(
            [
                {name: each.get(name, np.zeros(n, np.int64)) for name in names}
                for each, n in zip(found, rows, strict=True)
            ]
        )


def _with_roles(sides: list[Columns]) -> Columns:
    for role, columns in enumerate(sides, start=1):
        columns["role"] = np.full(len(columns["role"]), role, np.int64)
    return {name: np.concatenate([side[name] for side in sides]) for name in sides[0]}


def _columns(rows: list[tuple[int, ...]], names: tuple[str, ...]) -> Columns:
    data = np.array(rows, np.int64).reshape(-1, len(names))
    return {name: np.ascontiguousarray(data[:, i]) for i, name in enumerate(names)}


class CompiledCounter:
    """Counts in a kernel."""

    def __init__(self, timing: ArrayTiming, profile: str) -> None:
        from sim.timing import count
        from sim.timing.tabulated import pack

        self._count = count
        self._whole, self._numbers = pack(timing, mixed_pass(timing, profile))
        self._room(FIRST_ROOM)

    def _room(self, size: int) -> None:
        self._keys = np.full(size, self._count.EMPTY, np.int64)
        self._rows = np.zeros((size, self._count.WIDTH), np.int64)

    def add(self, passes: Columns) -> None:
        if not len(passes["pass_no"]):
            return
        work = np.stack([passes[name] for name in LOOKED_UP])
        at, n = 0, 2 * work.shape[1]
        while at < n:
            at = self._count.count(self._whole, self._numbers, work, at, self._keys, self._rows)
            if at < n:
                self._grow()
        for name in ("prefill_cell", "decode_cell"):
            passes[name] = split_codes(passes[name])[0]

    def _grow(self) -> None:
        keys, rows = self._keys, self._rows
        self._room(2 * len(keys))
        self._count.move(keys, rows, self._keys, self._rows)

    def rows(self) -> list[tuple[int, ...]]:
        used = np.flatnonzero(self._keys != self._count.EMPTY)
        found = zip(*(part.tolist() for part in self._count.key_parts(self._keys[used])), self._rows[used].tolist())
        return sorted(
            (0, phase, cell, int(source == EXTRAPOLATED), source, bin_, *row)
            for phase, cell, source, bin_, row in found
        )


class PlainCounter:
    """Counts one lookup at a time."""

    def __init__(self, timing: ArrayTiming, profile: str) -> None:
        self._pricer = TablePricer(timing, mixed_pass(timing, profile))
        self._found: dict[tuple[int, int, int, int], list[int]] = {}

    def add(self, passes: Columns) -> None:
        work = zip(*(passes[name].tolist() for name in (*FIRST_LOOKUP, "prefill_ns", "decode_ns", "pass_no")))
        for np_, tp, kvp, b, kv, prefill_ns, decode_ns, number in work:
            got, mixed = self._pricer.answer(np_, tp, kvp, b, kv), np_ > 0 and b > 0
            sample = (np_, tp, kvp, b, kv)
            if np_:
                key = (MIXED_PREFILL if mixed else PREFILL, got.prefill_cell, got.prefill_source, got.correction_bin)
                self._add(key, prefill_ns, number, tp, kvp, got.prefill_octaves, sample)
            if b:
                key = (MIXED_DECODE if mixed else DECODE, got.decode_cell, got.decode_source, got.correction_bin)
                self._add(key, decode_ns, number, kv, kv // b, got.decode_octaves, sample)

    def _add(self, key, ns, number, x, y, octaves, sample) -> None:
        row = self._found.setdefault(key, [0, 0, number, x, x, y, y, 0, *sample])
        row[0], row[1] = row[0] + 1, row[1] + ns
        row[3:8] = [
            *(min(row[3], x), max(row[4], x), min(row[5], y), max(row[6], y)),
            max(row[7], int(octaves * 1000.0)),
        ]

    def rows(self) -> list[tuple[int, ...]]:
        return sorted(
            (0, phase, cell, int(source == EXTRAPOLATED), source, bin_, *row)
            for (phase, cell, source, bin_), row in self._found.items()
        )
