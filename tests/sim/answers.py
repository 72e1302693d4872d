"""What an engine answers to a world, and where two answers differ."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from sim.errors import ReplayError
from sim.result import TABLES, Columns, MemorySink, Outcome
from tests.sim.worlds import World

# Rows of one rank have an order of their own; how ranks take turns is no part of the answer.
KEYS = {
    "requests": ("request",),
    "spans": ("request", "span_no"),
    "bursts": ("request", "span_no", "first_pass"),
    "passes": ("worker", "dp_rank", "pass_no"),
    "admissions": ("request", "admission_no"),
    "chunks": ("request", "worker", "pass_no"),
    "pressure": ("worker", "dp_rank"),
    "acceptance": ("request",),
    "evidence": ("role", "phase", "cell", "extrapolated", "source", "correction_bin"),
    "handoffs": ("request",),
}
# The first difference is the most telling one when tables are compared in this order.
ORDER = (
    "passes",
    "pressure",
    "admissions",
    "chunks",
    "spans",
    "bursts",
    "handoffs",
    "requests",
    "acceptance",
    "evidence",
)
Replay = Callable[..., Outcome]


@dataclass(frozen=True)
class Answer:
    """Tables in key order and the facts beside them; or the error."""

    tables: dict[str, Columns]
    facts: dict[str, int]
    gaps: dict[tuple[int, int], int]  # (gap, end of the gap): how often
    error: str = ""

    def digest(self) -> str:
        """Of everything in it, equal for equal answers."""
        text = hashlib.blake2b(f"{self.error} {self.facts} {sorted(self.gaps.items())}".encode(), digest_size=16)
        for name, columns in self.tables.items():
            for column, values in columns.items():
                text.update(f"{name}.{column}".encode() + np.ascontiguousarray(values, np.int64).tobytes())
        return text.hexdigest()


def ask(replay: Replay, world: World) -> Answer:
    """Replay a world. An error of the replay is an answer as well; any other is a fault of ours and goes through."""
    sink = MemorySink()
    try:
        outcome = replay(world.spec, world.load, sink)
    except ReplayError as error:
        return Answer({}, {}, {}, f"{type(error).__name__}: {error}")
    tables = {}
    for name, key in KEYS.items():
        columns = sink.table(name)
        order = np.lexsort([columns[column] for column in reversed(key)])
        tables[name] = {column: values[order] for column, values in columns.items()}
    facts = {
        "end_ns": outcome.end_ns,
        "n_passes": outcome.n_passes,
        "n_requests": outcome.n_requests,
        "peak_active_blocks": outcome.peak_active_blocks,
    }
    gaps: dict[tuple[int, int], int] = {}
    columns = [outcome.latencies[name].tolist() for name in ("gap_ns", "gap_end_ns", "gap_weight")]
    for gap, end, weight in zip(*columns):
        gaps[gap, end] = gaps.get((gap, end), 0) + weight
    return Answer(tables, facts, gaps)


def difference(wanted: Answer, got: Answer) -> str:
    """The first difference in words; empty when there is none."""
    if wanted.error or got.error:
        if wanted.error == got.error:
            return ""
        return f"error: wanted {wanted.error or 'none'}\n         got {got.error or 'none'}"
    for name in ORDER:
        a, b = wanted.tables[name], got.tables[name]
        rows = len(a[TABLES[name][0]]), len(b[TABLES[name][0]])
        common = min(rows)
        unequal = [column for column in TABLES[name] if not np.array_equal(a[column][:common], b[column][:common])]
        if unequal:
            row = min(int(np.flatnonzero(a[column][:common] != b[column][:common])[0]) for column in unequal)
            both = [{column: int(x[column][row]) for column in TABLES[name]} for x in (a, b)]
            apart = [column for column in TABLES[name] if both[0][column] != both[1][column]]
            return f"{name} row {row}: {', '.join(apart)}\n  wanted {both[0]}\n  got    {both[1]}"
        if rows[0] != rows[1]:
            longer, which = (a, "misses") if rows[0] > rows[1] else (b, "adds")
            return f"{name}: {which} { ({column: int(longer[column][common]) for column in TABLES[name]}) }"
    if wanted.facts != got.facts:
        return f"outcome: wanted {wanted.facts}, got {got.facts}"
    if wanted.gaps != got.gaps:
        apart = sorted(set(wanted.gaps.items()) ^ set(got.gaps.items()))[:6]
        return f"inter-token gaps: ((gap, end), weight) in one answer only: {apart}"
    return ""
