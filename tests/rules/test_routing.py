"""KV-aware routing (RT-4): who goes where, by worked timelines. Times in ms, blocks of 4 tokens."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from sim.inputs import Workload
from sim.reference import Rank, Request, Tables
from sim.reference_routing import Books, Router
from sim.spec import EngineSpec, Routing
from tests.rules.test_pools import pools
from tests.rules.world import Ask, Story, fixed, in_both_profiles, prompt, replay

ONE, OTHER = prompt(group=1, tokens=16), prompt(group=2, tokens=16)


def routed(engine: str, asks: Mapping[str, Ask], *, credit: float = 1, scale: float = 1, **spec: object) -> Story:
    """Two workers, 10 ms a prefill and 1 ms a decode."""
    given = {"workers": 2, "timing": fixed(10, 1), "routing": Routing(credit, scale), **spec}
    return replay(engine, asks, **given)


def workers(got: Story) -> dict[str, int]:
    return {name: got.row(name)["worker"] for name in got.names}


@in_both_profiles
def test_rt_4_a_prompt_goes_where_it_is_cached(engine: str, profile: str) -> None:
    """A and B divide the idle workers; later both texts come back, in the other order."""
    asks = {
        "A": Ask(16, 1, text=ONE),
        "B": Ask(16, 1, at=1, text=OTHER),
        "C": Ask(16, 1, at=100, text=OTHER),
        "D": Ask(16, 1, at=200, text=ONE),
    }
    got = routed(engine, asks, profile=profile)
    assert workers(got) == {"A": 0, "B": 1, "C": 1, "D": 0}
    assert got.reused("C") == got.reused("D") == [12]
    assert workers(routed(engine, asks, profile=profile, credit=0)) == {"A": 0, "B": 1, "C": 0, "D": 0}


@in_both_profiles
def test_rt_4_blocks_are_heard_of_when_the_pass_ends(engine: str, profile: str) -> None:
    """At 5 nothing of A is known to be cached, and its 16 tokens are still to be computed: worker 0 would cost
    (16 + 16) / 4 + 4 shared blocks, worker 1 costs 16 / 4 + 4. At 10 the pass has ended: 0 + 4 against 8 and more."""
    asks = {name: Ask(16, 5, at=at, text=ONE) for name, at in (("A", 0), ("B", 5), ("C", 10))}
    got = routed(engine, asks, profile=profile)
    assert workers(got) == {"A": 0, "B": 1, "C": 0}


def test_rt_4_blocks_thrown_out_are_missed_when_the_pass_ends(engine: str) -> None:
    """Eight blocks a worker; L keeps worker 1 busy. B's pass, 100 to 110, throws A's last block out of worker 0. At 105
    four blocks are still believed there: (18 + 17) / 4 - 4 + 8 held = 12.75 against 17 / 4 + 9 = 13.25 at worker 1.
    One less, and C would go there."""
    asks = {
        "A": Ask(16, 1, text=ONE),
        "L": Ask(20, 11, at=1, text=OTHER),
        "B": Ask(18, 1, at=100),
        "C": Ask(17, 1, at=105, text=ONE),
    }
    got = routed(engine, asks, blocks=8, profile="parity", timing=fixed(10, 10))
    assert workers(got) == {"A": 0, "L": 1, "B": 0, "C": 0}
    assert got.reused("C") == [12]


def test_rt_4_prompts_under_way_weigh_until_their_first_token(engine: str) -> None:
    """Chunks of 8: at 15 A has computed 8 of 16 and counts 16. From 20 on only its blocks count, which B shares."""
    asks = {"A": Ask(16, 9, text=ONE), "B": Ask(16, 1, at=15, text=ONE), "C": Ask(16, 1, at=20, text=ONE)}
    got = routed(engine, asks, max_batched_tokens=8, max_num_seqs=8)
    assert workers(got) == {"A": 0, "B": 1, "C": 0}


def test_rt_4_scale_weighs_prompts_against_blocks_in_use(engine: str) -> None:
    """A decodes at worker 0, four blocks; B's text is cached there. Prompts count: worker 0. They do not: worker 1."""
    asks = {"A": Ask(16, 50, text=ONE), "B": Ask(12, 1, at=20, text=OTHER), "C": Ask(16, 1, at=40, text=ONE)}
    assert workers(routed(engine, asks))["C"] == 0
    asks["C"] = Ask(24, 1, at=40, text=ONE)
    # Worker 0: 24 / 4 - 4 + 6 held = 8. Worker 1: 24 / 4 + 6 = 12. With prompts at 0: 6 each, and worker 1 is idle.
    assert workers(routed(engine, asks))["C"] == 0
    assert workers(routed(engine, asks, scale=0))["C"] == 1


def test_rt_4_equal_costs_go_to_the_fewest_requests_and_then_to_the_first(engine: str) -> None:
    """Prompts without a full block weigh nothing once they are computed."""
    asks = {name: Ask(3, 90, at=20 * i) for i, name in enumerate("ABCD")}
    assert workers(routed(engine, asks)) == {"A": 0, "B": 1, "C": 0, "D": 1}


def test_rt_4_a_pin_leaves_the_rank_of_each_worker(engine: str) -> None:
    asks = {name: Ask(16, 90, at=20 * i, rank=rank) for i, (name, rank) in enumerate(zip("ABCD", (1, 1, -1, -1)))}
    got = routed(engine, asks, dp=2)
    assert [(got.row(n)["worker"], got.row(n)["dp_rank"]) for n in asks] == [(0, 1), (1, 1), (0, 0), (1, 0)]


def test_rt_4_separate_pools_prefill_by_overlap_and_decode_by_load(engine: str) -> None:
    """C's prompt is cached at prefill worker 1. Decode worker 0 still serves A, so C is decoded beside nobody."""
    asks = {
        "A": Ask(16, 200, text=ONE),
        "B": Ask(16, 1, at=1, text=OTHER),
        "C": Ask(16, 1, at=100, text=OTHER),
        "D": Ask(16, 1, at=150, text=ONE),
    }
    got = pools(engine, asks, workers=2, routing=Routing())
    rows = {name: got.handoff(name) for name in asks}
    assert {name: row["source_worker"] for name, row in rows.items()} == {"A": 0, "B": 1, "C": 1, "D": 0}
    assert {name: row["worker"] for name, row in rows.items()} == {"A": 2, "B": 3, "C": 3, "D": 3}
    assert got.story.reused("C")[0] == 12


@pytest.mark.parametrize(("credit", "second"), [(1.0, [28, 20, 21]), (0.0, [30, 25, 29])])
def test_rt_ex3_costs(credit: float, second: list[float]) -> None:
    """Ten blocks to place; 2, 5 and 8 of them cached; 10, 5 and 9 others in use: the second worker.

    The request's own ten blocks count in all three.
    """
    spec = EngineSpec(block_tokens=4, workers=3)
    load = Workload(np.zeros(1, np.int64), np.array([40]), np.array([1]))
    out = Tables(load, spec)
    request = Request(0, load, 1)
    chain = [out.identity(request, i) for i in range(10)]
    router, ranks = Router(Routing(credit), spec, out), [Rank(spec, w, 0, out) for w in range(3)]
    for rank, hit, used in zip(ranks, (2, 5, 8), (10, 5, 9), strict=True):
        rank.books = Books(published=set(chain[:hit]), blocks={7: [(7, i) for i in range(used)]})
    assert [router.cost(request, rank) for rank in ranks] == second
    assert router.choose(request, ranks) == 1
