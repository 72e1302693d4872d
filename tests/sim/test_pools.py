"""Separate pools: the compiled engine answers every small world exactly as the plain one does."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import pytest

import sim.engine
import sim.reference
import sim.reference_pools
import sim.reference_transfers
from sim.errors import WorkloadError
from sim.inputs import Workload
from sim.result import FAILED, OUTCOME_NAMES, REJECTED, UNFINISHED, MemorySink
from sim.spec import EngineSpec, FixedTiming, PoolsSpec, Transfer
from tests.sim.answers import Answer, ask, difference
from tests.sim.pool_worlds import (
    late_pool,
    local_pool,
    pinned_pool,
    pool_ahead,
    pool_drafts,
    pool_variant,
    pool_world,
    routed_pool,
    thrown_out_in_flight,
    tight_drafts,
    transfer_world,
)
from tests.sim.reached import Lines, lines_that_say
from tests.sim.worlds import World

WORLDS, SWEEP = 1_000, 100
TRANSFER_WORLDS = 300
REFUSED_WHERE_IT_DECODES = 112
# Rooms that few worlds enter: patience that runs out in the middle of a queue (34), when room comes free for another
# whose bytes are all here (157), or while others' bytes set out at the same instant (160); a budget that those who are
# taken over use up (27), and blocks that nobody can be thrown out of (551).
LATE, TIGHT_DRAFTS = (34, 157, 160), (27, 551)
RARE = (1000, 1066, 1376, 1650)  # a prompt thrown out of the prefill pool before it is computed
# What the rules say but these worlds do not lead to: a replay of 146 years.
OUT_OF_REACH = ("raise TimingError(CLOCK_MESSAGE)",)


@pytest.mark.parametrize(
    ("of", "seeds"),
    [
        *((pool_world, range(first, first + SWEEP)) for first in range(0, WORLDS, SWEEP)),
        (pool_variant, range(200)),  # senders that stop, prices from arrays
        (pinned_pool, range(100)),
        (routed_pool, range(200)),
        (local_pool, range(200)),
        (pool_drafts, range(300)),
        (tight_drafts, (*range(100), *TIGHT_DRAFTS)),
        (pool_ahead, range(250)),
        (late_pool, (*range(100), *LATE)),
    ],
)
def test_both_engines_give_the_same_tables(of: Callable[[int], World], seeds: Sequence[int]) -> None:
    for seed in seeds:
        asked = of(seed)
        said = difference(ask(sim.reference.replay, asked), ask(sim.engine.replay, asked))
        assert not said, f"{of.__name__}({seed}): {said}"


@pytest.mark.parametrize(("name", "role"), [("pinned_rank", "decode"), ("pinned_prefill_rank", "prefill")])
def test_a_pin_names_a_rank_of_its_pool(name: str, role: str) -> None:
    one = np.ones(2, np.int64)
    load = Workload(one, one, one, **{name: np.array([-1, 4])})
    with pytest.raises(WorkloadError, match=f"^request 1: {name} must be below the 4 ranks of the {role} pool$"):
        sim.engine.replay(PoolsSpec(*[EngineSpec(workers=2, dp=2, async_scheduling=False)] * 2), load, MemorySink())


@pytest.mark.parametrize("first", range(0, TRANSFER_WORLDS, SWEEP))
def test_transfers_that_share_links_fail_or_come_too_late_give_the_same_tables(first: int) -> None:
    for seed in range(first, first + SWEEP):
        asked = transfer_world(seed)
        answer = ask(sim.engine.replay, asked)
        said = difference(ask(sim.reference.replay, asked), answer)
        assert not said, f"transfer_world({seed}): {said}"
        assert answer.digest() == ask(sim.engine.replay, asked).digest(), "twice the same"


def test_those_worlds_reach_every_outcome_and_every_line() -> None:
    file = sim.reference_transfers.__file__
    reached: Counter[str] = Counter()
    lines = Lines([file])
    for seed in range(TRANSFER_WORLDS):
        with Lines([file]) as found:
            handoffs = ask(sim.reference.replay, transfer_world(seed)).tables.get("handoffs")
        lines.hit |= found.hit
        if handoffs is not None:
            reached.update(OUTCOME_NAMES[code] for code in handoffs["outcome"])
            reached["waited for the link"] += int((handoffs["began_ns"] > handoffs["queued_ns"]).sum())
            reached["tried again"] += int((handoffs["attempts"] > 1).sum())
            reached["withdrawn"] += int((handoffs["withdrawn_ns"] >= 0).sum())
    wanted = {*OUTCOME_NAMES, "waited for the link", "tried again", "withdrawn"}
    assert not {event for event in wanted if not reached[event]}
    assert not lines.missed(lines_that_say("raise NotImplementedError", file))


def test_a_prompt_thrown_out_with_its_last_chunk_in_flight_is_computed_again() -> None:
    asked = thrown_out_in_flight()
    answer = ask(sim.engine.replay, asked)
    assert not difference(ask(sim.reference.replay, asked), answer)
    pressure, first_decode_worker = answer.tables["pressure"], asked.spec.sides[0].workers
    whole = pressure["tokens_lost"] == asked.load.prompt_tokens[pressure["request"]]
    assert (whole & (pressure["worker"] < first_decode_worker)).any()


def _seen(answer: Answer) -> set[str]:
    if answer.error:
        return {answer.error.split(":")[0]}
    tables = answer.tables
    requests, handoffs = tables["requests"], tables["handoffs"]
    first_decode_worker = handoffs["worker"].min(initial=1_000, where=handoffs["worker"] >= 0)
    on_decode = tables["chunks"]["worker"] >= first_decode_worker
    shown = {
        "failed": (requests["status"] == FAILED).any(),
        "rejected": (requests["status"] == REJECTED).any(),
        "stopped": (requests["status"] == UNFINISHED).any(),
        "preempted on a prefill worker": (tables["pressure"]["worker"] < first_decode_worker).any(),
        "preempted on a decode worker": (tables["pressure"]["worker"] >= first_decode_worker).any(),
        "computed again on a decode worker": (tables["chunks"]["kind"][on_decode] == 1).any(),
        "chunked": (tables["chunks"]["kind"][~on_decode] == 2).any(),
        "reused": (tables["admissions"]["cached_tokens"] > 0).any(),
        "sent in part": (handoffs["sent_tokens"] < requests["prompt_tokens"][handoffs["request"]] - 8).any(),
        "waited for room": (handoffs["reserved_ns"] > handoffs["held_ns"]).any(),
        "activated late": (handoffs["activated_ns"] > handoffs["transferred_ns"]).any(),
        "waited for a place": (handoffs["decode_admitted_ns"] > handoffs["activated_ns"]).any(),
        "released late": (handoffs["released_ns"] > handoffs["activated_ns"]).any(),
    }
    return {event for event, happened in shown.items() if happened}


def test_the_worlds_reach_every_event_and_every_line() -> None:
    file = sim.reference_pools.__file__
    reached: Counter[str] = Counter()
    lines = Lines([file])
    for seed in (*range(WORLDS // 2), *RARE):
        with Lines([file]) as found:
            answer = ask(sim.reference.replay, pool_world(seed))
        lines.hit |= found.hit
        reached.update(_seen(answer))
    for seed in range(SWEEP, 2 * SWEEP):
        with Lines([file]) as found:
            ask(sim.reference.replay, transfer_world(seed))
        lines.hit |= found.hit
    with lines:
        for seed in range(20):
            ask(sim.reference.replay, routed_pool(seed))
            ask(sim.reference.replay, local_pool(seed))
        ask(sim.reference.replay, local_pool(REFUSED_WHERE_IT_DECODES))
    wanted = {"Deadlock", "failed", "rejected", "stopped", "chunked", "reused", "sent in part", "waited for room"}
    wanted |= {"activated late", "waited for a place", "released late", "computed again on a decode worker"}
    wanted |= {f"preempted on a {role} worker" for role in ("prefill", "decode")}
    assert not {event for event in wanted if not reached[event]}
    assert not lines.missed({place for said in OUT_OF_REACH for place in lines_that_say(said, file)})


def test_every_handoff_ends_once_and_nothing_leaks() -> None:
    """K-6 and conservation: twice the same, in time order, all blocks given back, all tokens sent."""
    n = 400
    rng = np.random.default_rng(7)
    load = Workload(
        arrival_ns=np.sort(rng.integers(0, 3_000_000_000, n)),
        prompt_tokens=rng.integers(1, 600, n),
        output_tokens=rng.integers(1, 60, n),
    )
    side = {"profile": "parity", "async_scheduling": False, "block_tokens": 16, "timing": FixedTiming(8.0, 2.0)}
    spec = PoolsSpec(
        EngineSpec(workers=2, blocks=120, **side), EngineSpec(workers=3, blocks=90, **side), Transfer(131_072.0, 5e9)
    )
    answers = []
    for _ in range(2):
        sink = MemorySink()
        sim.engine.replay(spec, load, sink)
        answers.append({name: sink.table(name) for name in ("handoffs", "requests", "passes")})
    for name, table in answers[0].items():
        for column, values in table.items():
            assert np.array_equal(values, answers[1][name][column]), (name, column)
    handoffs, requests, passes = (answers[0][name] for name in ("handoffs", "requests", "passes"))
    assert np.array_equal(np.sort(handoffs["request"]), np.arange(n))
    order = ["prefill_admitted_ns", "held_ns", "reserved_ns", "transferred_ns", "activated_ns"]
    for earlier, later in zip(order, [*order[1:], "decode_admitted_ns"]):
        assert (handoffs[earlier] <= handoffs[later]).all(), (earlier, later)
    # The source holds its blocks until the transfer has ended.
    assert (handoffs["released_ns"] >= handoffs["transferred_ns"]).all()
    assert handoffs["sent_tokens"].sum() == load.prompt_tokens.sum()
    assert (requests["output_tokens"] == load.output_tokens).all()
    assert (passes["n_tokens"][passes["worker"] < 2] == 0).all()
    assert passes["n_tokens"].sum() == load.output_tokens.sum()
    prefill = passes["worker"] < 2
    assert passes["active_blocks"][prefill].max() <= 120 and passes["active_blocks"][~prefill].max() <= 90
