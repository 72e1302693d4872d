"""A malformed workload stops before it reaches compiled code; a replay that cannot go on says why and what helps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import sim.engine
import sim.reference
from sim.engine import replay
from sim.errors import Deadlock
from sim.inputs import Workload
from sim.result import TABLES, MemorySink
from sim.spec import EngineSpec, FlatTiming
from tests.sim.answers import ask, difference
from tests.sim.worlds import World

SPEC = EngineSpec(timing=FlatTiming(1.0), block_tokens=4, blocks=16, max_num_seqs=4, async_scheduling=False)


def load(**columns: Any) -> Workload:
    """Three requests of 8 + 2 tokens with ids."""
    usual = {
        "arrival_ns": [0, 1, 2],
        "prompt_tokens": [8, 8, 8],
        "output_tokens": [2, 2, 2],
        "hash_offsets": [0, 2, 4, 6],
        "hash_ids": [1, 2, 1, 2, 1, 3],
        "hash_block_tokens": 4,
    }
    arrays = {k: np.array(v) if isinstance(v, list) else v for k, v in (usual | columns).items()}
    return Workload(**arrays)


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"arrival_ns": [0, 5, 4]}, "arrivals go back in time after request 1: sort the workload"),
        ({"arrival_ns": [-1, 0, 0]}, "request 0: arrival_ns must not be negative"),
        ({"arrival_ns": [0, 0, 2**63 - 1]}, "request 2: arrival_ns must be at most"),
        ({"prompt_tokens": [8, 0, 8]}, "request 1: prompt_tokens must be at least 1"),
        ({"output_tokens": [2, 2, -1]}, "request 2: output_tokens must not be negative"),
        ({"prompt_tokens": [8, 2**31 - 2**20, 8]}, "request 1: prompt and output together exceed 2146435071 tokens"),
        ({"output_tokens": [2, 2, 2**40]}, "request 2: prompt and output together exceed"),
        ({"pinned_rank": [0, -1, 1]}, "request 2: pinned_rank must be below the 1 attention-DP ranks of a worker"),
        ({"session": [1, 1, 1], "delay_ns": [0, -5, 0]}, "request 1: delay_ns must not be negative"),
        ({"session": [1, 1, 1], "delay_ns": [0, 0, 2**63 - 1]}, "request 2: delay_ns must be at most"),
        ({"hashed_tokens": [8, 8, -8]}, "request 2: hashed_tokens must not be negative"),
        ({"prompt_tokens": [8, 8]}, "workload column prompt_tokens has 2 rows, arrival_ns has 3"),
        ({"output_tokens": [8]}, "workload column output_tokens has 1 rows, arrival_ns has 3"),
        ({"session": [8]}, "workload column session has 1 rows, arrival_ns has 3"),
        ({"pinned_prefill_rank": [0, -1, 0]}, "request 0: pinned_prefill_rank names a rank of a prefill pool"),
        ({"pinned_rank": [0] * 4}, "workload column pinned_rank has 4 rows, arrival_ns has 3"),
        ({"concurrency": 0}, "concurrency=0 must be at least 1"),
        ({"hash_offsets": [0, 2, 4]}, "hash_offsets must have one entry more than there are requests"),
        ({"hash_offsets": [0, 2, 4, 7]}, "end at len"),
        ({"hash_ids": None}, "end at len"),
        ({"hash_offsets": [0, 4, 2, 6]}, "hash_offsets must not be negative, nor decrease"),
        ({"hash_offsets": [-2, 2, 4, 6]}, "hash_offsets must not be negative, nor decrease"),
        ({"hash_block_tokens": 0}, "hash_block_tokens=0 must be at least 1"),
    ],
)
def test_a_malformed_workload_is_refused_by_column_and_request(columns: dict[str, Any], said: str) -> None:
    sink = MemorySink()
    with pytest.raises(ValueError) as error:
        replay(SPEC, load(**columns), sink)
    assert said in str(error.value)
    assert not any(len(sink.table(name)[TABLES[name][0]]) for name in TABLES)


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"max_batched_tokens": 3}, "max_batched_tokens=3 is below max_num_seqs=4: vLLM refuses this; raise"),
        ({"preemption": "fifo"}, "preemption 'fifo' does not exist in vLLM; use 'lifo', or profile parity"),
        ({"workers": 40_000, "blocks": 1_000_000}, "exceed 2^31 blocks; lower kv_cache.capacity.blocks"),
    ],
)
def test_a_deployment_that_cannot_be_is_refused(spec: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError) as error:
        replay(replace(SPEC, **spec), load(), MemorySink())
    assert said in str(error.value)


def test_later_turns_and_closed_loops_need_no_sorted_arrivals() -> None:
    later_turns = load(arrival_ns=[5, 0, 7], session=[1, 1, 2])
    closed = load(arrival_ns=[5, 4, 0], concurrency=1)
    for workload in (later_turns, closed):
        assert not difference(
            ask(sim.reference.replay, World(SPEC, workload)), ask(sim.engine.replay, World(SPEC, workload))
        )


def test_no_requests_give_empty_tables() -> None:
    nobody = Workload(*(np.zeros(0, np.int64),) * 3)
    for workload in (nobody, replace(nobody, concurrency=3), replace(nobody, session=np.zeros(0, np.int64))):
        got = ask(sim.engine.replay, World(SPEC, workload))
        assert not difference(ask(sim.reference.replay, World(SPEC, workload)), got)
        assert got.facts == {"end_ns": 0, "n_passes": 0, "n_requests": 0, "peak_active_blocks": 0}


def test_slots_and_budget_without_limit_cost_no_memory() -> None:
    """`max_num_seqs` is often set to something that no run can reach."""
    spec = replace(SPEC, max_num_seqs=2**40, max_batched_tokens=2**40, profile="parity")
    assert not difference(ask(sim.reference.replay, World(spec, load())), ask(replay, World(spec, load())))


@pytest.mark.parametrize(
    ("why", "spec", "columns"),
    [
        # The pool holds the prompt but not the answer; the vllm profile refuses such a request on arrival.
        (
            "request 1 (prompt 16 tokens) is blocked because its 21 tokens need 6 KV blocks of 4 tokens and a rank has "
            "5; raise kv_cache.capacity.blocks, or set context_length so that it is refused on arrival",
            {"profile": "parity", "blocks": 5},
            {"prompt_tokens": [4, 16, 4], "output_tokens": [1, 9, 1]},
        ),
        (
            "request 0 (prompt 8 tokens) is blocked because chunked prefill is off and its 8 tokens exceed the budget "
            "of 6 tokens per pass; raise scheduler.max_batched_tokens or switch scheduler.chunked_prefill on",
            {"chunked_prefill": False, "max_batched_tokens": 6},
            {},
        ),
    ],
    ids=["pool", "budget"],
)
def test_1_4_a_deadlock_names_request_and_remedy(why: str, spec: dict[str, Any], columns: dict[str, Any]) -> None:
    asked = World(replace(SPEC, **spec), load(**columns))
    wanted, got = ask(sim.reference.replay, asked), ask(sim.engine.replay, asked)
    assert not difference(wanted, got)
    assert got.error.startswith("Deadlock: nothing can run any more at ")
    assert why in got.error


def test_1_4_what_was_handed_over_before_a_deadlock_is_not_a_result() -> None:
    """The error comes after the rows of the passes before it; the sink has to throw them away."""
    sink = MemorySink()
    with pytest.raises(Deadlock, match="request 1"):
        replay(replace(SPEC, profile="parity", blocks=5), load(prompt_tokens=[4, 16, 4], output_tokens=[1, 9, 1]), sink)
    assert len(sink.table("passes")["pass_no"]) > 0
    assert len(sink.table("requests")["request"]) == 0
