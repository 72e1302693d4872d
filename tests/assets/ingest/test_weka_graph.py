"""Overlapping calls and subagents of agent sessions arrive when the reference simulator has them arrive.

The wanted arrivals were recorded from the simulator of docs/correctness.md: one document each, 1 ms a decode pass.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from assets.golden.run import run
from assets.inputs import workload_of
from sim.spec import EngineSpec, FixedTiming
from tests.assets.ingest.samples import read
from tests.assets.ingest.test_agentic import document

SPEC: dict[str, Any] = {"profile": "parity", "async_scheduling": False, "block_tokens": 4, "blocks": 4096}


def call(at: float, prompt: int, hashes: list[int], took: float | None = 0.02) -> dict[str, Any]:
    made = {"t": at, "type": "n", "model": "m", "in": prompt, "out": 2, "hash_ids": hashes}
    return made if took is None else {**made, "api_time": took}


def launched(at: float, *calls: dict[str, Any], ms: float | None = 300, status: str = "completed") -> dict[str, Any]:
    made = {"t": at, "type": "subagent", "agent_id": "x", "status": status, "requests": list(calls)}
    return made if ms is None else {**made, "duration_ms": ms}


FIRST = call(0, 8, [1, 2], 0.1)
INNER = [call(0, 21, [11, 12, 13, 14, 15], 0.1), call(0.2, 25, [11, 12, 13, 14, 15, 16], 0.1)]
LATER = call(0.8, 12, [1, 2, 3], 0.1)
OVERLAPPING = call(0.05, 13, [5, 2, 3], 0.1)

CASES: dict[str, tuple[float, list[dict[str, Any]], list[float]]] = {
    "a pause is kept": (100, [call(0, 8, [1, 2]), call(0.05, 12, [1, 2, 3])], [0, 131]),
    "nothing shared, one conversation": (100, [call(0, 8, [1, 2]), call(0.05, 13, [7, 9, 3])], [0, 131]),
    "no end known": (100, [call(0, 8, [1, 2], None), call(0.05, 12, [1, 2, 3])], [0, 151]),
    "no end known, fast": (1, [call(0, 8, [1, 2], None), call(0.05, 12, [1, 2, 3])], [0, 52]),
    "two at once, then one that goes on": (
        *(100, [FIRST, call(0.05, 12, [1, 2, 3]), call(0.2, 16, [1, 2, 3, 4])]),
        [0, 50, 332],
    ),
    "two conversations at once": (
        *(300, [FIRST, OVERLAPPING, call(0.2, 16, [1, 2, 3, 4]), call(0.25, 17, [5, 2, 3, 7])]),
        [0, 50, 701, 1002],
    ),
    "begun while another runs, own text": (
        *(300, [FIRST, call(0.2, 12, [1, 2, 3], 0.2), call(0.3, 13, [7, 8, 9])]),
        [0, 301, 401],
    ),
    "begun while another runs, same beginning": (
        *(300, [FIRST, call(0.2, 12, [1, 2, 3], 0.2), call(0.3, 13, [1, 2, 9])]),
        [0, 401, 501],
    ),
    "goes on with the one that shares a block": (
        *(300, [FIRST, call(0.05, 9, [5, 6], 0.2), call(0.4, 16, [1, 11, 12, 13])]),
        [0, 50, 901],
    ),
    "a subagent after its launcher's call": (300, [FIRST, launched(0.2, *INNER), LATER], [0, 401, 802, 1403]),
    "a subagent during its launcher's call": (300, [FIRST, launched(0.05, *INNER), LATER], [0, 50, 702, 1453]),
    "nobody waits for it": (
        *(300, [FIRST, launched(0.2, *INNER, status="async_launched"), LATER]),
        [0, 401, 802, 1001],
    ),
    "waited for by the first call after its end": (
        *(300, [FIRST, launched(0.2, *INNER), call(0.3, 12, [1, 2, 3], 0.1), call(0.9, 16, [1, 2, 3, 4], 0.1)]),
        [0, 401, 501, 1102, 1803],
    ),
    "two subagents": (
        *(300, [FIRST, launched(0.2, *INNER), launched(0.25, call(0, 33, [31], 0.3)), LATER]),
        [0, 401, 451, 1102, 1703],
    ),
    "no duration": (300, [FIRST, launched(0.2, *INNER, ms=None), LATER], [0, 401, 802, 1403]),
    "longer than its calls": (300, [FIRST, launched(0.2, *INNER, ms=550), LATER], [0, 401, 802, 1403]),
    "ended after the next call": (
        *(300, [FIRST, launched(0.2, *INNER, ms=700), LATER, call(1.2, 16, [1, 2, 3, 4])]),
        [0, 401, 802, 1001, 2103],
    ),
    "absolute times": (
        *(300, [FIRST, launched(0.2, *({**each, "t": each["t"] + 0.2} for each in INNER)), LATER]),
        [0, 401, 802, 1403],
    ),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("engine", ["reference", "fast"])
def test_calls_arrive_as_recorded(tmp_path: Path, engine: Any, name: str) -> None:
    prefill_ms, calls, want = CASES[name]
    trace = read(tmp_path, document(*calls))
    load = workload_of(trace, len(trace), arrival_ns=trace.arrival_ns, faster=lambda ns: ns, concurrency=None)
    replayed = run(EngineSpec(timing=FixedTiming(prefill_ms, 1.0), **SPEC), load, engine)
    assert sorted(replayed.tables["requests"]["arrival_ns"] / 1e6) == want


def test_a_subagent_before_every_call_waits_for_nobody(tmp_path: Path) -> None:
    trace = read(tmp_path, document(launched(0.1, *INNER), LATER))
    assert trace.waits is not None
    assert trace.arrival_ns.tolist() == [0, 200_000_000, 700_000_000]
    assert np.diff(trace.waits.offsets).tolist() == [0, 1, 1]


def test_subagents_of_subagents(tmp_path: Path) -> None:
    nest = launched(0.05, call(0.1, 4, [9], 0.05), launched(0.2, call(0.1, 4, [8], 0.05), ms=None), ms=None)
    trace = read(tmp_path, document(FIRST, nest, LATER), nested_basis="relative")
    assert trace.arrival_ns.tolist() == [0, 150_000_000, 350_000_000, 800_000_000]
    assert trace.waits is not None
    on = [trace.waits.on[a:b].tolist() for a, b in zip(trace.waits.offsets, trace.waits.offsets[1:])]
    assert on == [[], [0], [1], [0, 1, 2]]
    deep = LATER
    for _ in range(60):
        deep = launched(0, deep)
    with pytest.raises(Exception, match="out_of_range"):
        read(tmp_path, document(FIRST, deep))
