"""Evidence is the passes table, counted: by phase, grid cell and whether the lookup lay beyond the grid."""

from __future__ import annotations

import random

import numpy as np
import pytest

from sim.result import EVIDENCE, PASSES
from sim.spec import FixedTiming, FlatTiming, PolynomialTiming, TableTiming, Timing
from sim.timing.evidence import EvidenceCounter

TABLE = TableTiming(
    np.array([2.0, 5.0, 20.0]),
    np.array([1.0, 2.0, 3.0]),
    np.array([4.0, 10.0, 60.0]),
    np.array([3.0, 8.0, 30.0]),
    np.ones((3, 3)),
)


def counted(timing: Timing, passes: list[dict[str, int]]) -> list[tuple[int, ...]]:
    """One pass at a time."""
    rows: dict[tuple[int, int, int], list[int]] = {}

    def look(phase: int, cell: int, beyond: bool, price: int, x: int, y: int, number: int) -> None:
        row = rows.setdefault((phase, cell, int(beyond)), [0, 0, number, x, x, y, y])
        row[0], row[1] = row[0] + 1, row[1] + price
        row[3:] = [min(row[3], x), max(row[4], x), min(row[5], y), max(row[6], y)]

    is_table = isinstance(timing, TableTiming)
    for p in passes:
        n, kv, new, number = p["n_prefill"], p["prefill_kv_tokens"], p["prefill_tokens"], p["pass_no"]
        if n > 0 or timing.kind == "flat":
            seen = n * ((kv + new) // n - kv // n) if n else 0
            beyond = is_table and not 2 <= seen <= 20
            look(0, p["prefill_cell"], beyond, p["prefill_ns"], seen, kv, number)
        b, context = p["n_decode"], p["decode_kv_tokens"]
        if b > 0 and timing.kind != "flat":
            y = context // b if is_table else b
            beyond = is_table and not (4 <= context <= 60 and 3 <= y <= 30)
            look(1, p["decode_cell"], beyond, p["decode_ns"], context, y, number)
    # One role, no source and no correction: that is for prices read from measured deployments.
    return [(0, *key, 0, -1, *values, 0) for key, values in sorted(rows.items())]


@pytest.mark.parametrize("timing", [TABLE, FixedTiming(1, 1), FlatTiming(1), PolynomialTiming()], ids=lambda t: t.kind)
@pytest.mark.parametrize("seed", range(8))
def test_lookups_are_counted_per_cell_whatever_the_chunks(timing: Timing, seed: int) -> None:
    rng, passes = random.Random(seed), []
    for number in range(rng.choice([0, 1, 30, 300])):
        n, b = rng.choice([0, 0, 1, 3]), rng.choice([0, 1, 4])
        row = dict.fromkeys(PASSES, 0) | {"pass_no": number, "n_prefill": n, "n_decode": b}
        if n:
            row |= {"prefill_tokens": n + rng.randint(0, 30), "prefill_kv_tokens": rng.randint(0, 9)}
        row |= {"decode_kv_tokens": b * rng.randint(1, 40), "prefill_ns": rng.randint(0, 99), "decode_ns": b * 7}
        cells = timing.kind == "table"
        row |= {"prefill_cell": rng.randint(0, 1) if cells and n else -1}
        row |= {"decode_cell": rng.randint(0, 3) if cells and b else -1}
        passes.append(row)
    counter, at = EvidenceCounter(timing), 0
    while at < len(passes):
        chunk = passes[at : at + rng.choice([1, 7, 100])]
        at += len(chunk)
        counter.add({name: np.array([p[name] for p in chunk], np.int64) for name in PASSES})
    found = counter.columns()
    assert list(zip(*(found[name].tolist() for name in EVIDENCE))) == counted(timing, passes)
