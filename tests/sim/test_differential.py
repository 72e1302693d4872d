"""The compiled engine answers every small world exactly as the plain one does."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import sim.reference
from tests.sim.answers import ask
from tests.sim.fuzz import differ
from tests.sim.pool_worlds import pool_world
from tests.sim.reached import LINES, SHOWN, Lines, events, lines_that_say
from tests.sim.worlds import RARE, behind_front_end, small, world

WORLDS, BEHIND, ROUTED, SWEEP = 2_500, 600, 300, 100
# What the rules say but these worlds do not lead to.
OUT_OF_REACH = (
    # Chunking off: an admission computes the whole prompt, so no running request has any of it left.
    "spec.chunked_prefill and request.prompt - request.computed > budget:",
    # No world has been seen to livelock; test_repeat.py takes the patience away.
    "if self.barren > LIVELOCK_CHOICES:",
    # Separate pools with drafts, by a rule test of theirs.
    "return budget  # what is in use is held for a handoff",
    "raise Livelock(",
    # Takes a replay of 146 years, see test_timing.py.
    "raise TimingError(CLOCK_MESSAGE)",
)


@pytest.mark.parametrize("first", range(0, WORLDS, SWEEP))
def test_both_engines_give_the_same_tables(first: int) -> None:
    for seed in range(first, first + SWEEP):
        said = differ(world(seed))
        assert not said, f"world({seed}): {said}"


@pytest.mark.parametrize("first", range(0, BEHIND, SWEEP))
def test_both_engines_give_the_same_tables_behind_a_front_end(first: int) -> None:
    for seed in range(first, first + SWEEP):
        said = differ(behind_front_end(seed))
        assert not said, f"behind_front_end({seed}): {said}"


@pytest.mark.parametrize("which", range(len(RARE)))
def test_both_engines_give_the_same_tables_in_worlds_that_chance_rarely_makes(which: int) -> None:
    assert not differ(RARE[which])


@pytest.mark.parametrize("first", range(0, ROUTED, SWEEP))
def test_both_engines_place_by_cost_alike(first: int) -> None:
    """Drafts behind such a router are compiled apart; test_repeat.py has these, without compilation."""
    for seed in range(first, first + SWEEP):
        asked = world(seed, "routed")
        said = differ(replace(asked, spec=replace(asked.spec, speculation=None)))
        assert not said, f"world({seed}, 'routed'): {said}"


# Hypothesis draws every choice of the generator, so what fails here comes out small.
@settings(max_examples=400, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(st.randoms(use_true_random=False))
def test_no_choice_of_a_world_tells_the_engines_apart(rng: random.Random) -> None:
    tried = small(rng)
    said = differ(tried)
    assert not said, f"{said}\n{tried!r}"


def test_the_worlds_reach_every_event() -> None:
    """And every line of the reference, so no rule is left out because nobody thought of naming it."""
    file = sim.reference.__file__
    places, reached, all_lines = events(), Counter(), Lines([file])
    # Deep ones take long to watch and reach nothing else.
    drawn = [world(seed) for seed in range(WORLDS // 2) if seed % 10 != 9]
    others = [*(behind_front_end(seed) for seed in range(40)), *(world(seed, "routed") for seed in range(20))]
    for asked in (*drawn, *others, *RARE[:-2]):
        with Lines([file]) as lines:
            answer = ask(sim.reference.replay, asked)
        all_lines.hit |= lines.hit
        reached.update(event for event, place in places.items() if place in lines.hit)
        if not answer.error:
            reached.update(event for event, shows in SHOWN.items() if shows(asked, answer))
        reached[answer.error.split(":")[0]] += 1
    with all_lines:  # what handoffs between pools go through; test_pools.py compares these
        for seed in (*range(40), 178):
            ask(sim.reference.replay, pool_world(seed))
    assert not {event for event in (*LINES, *SHOWN, "TimingError") if not reached[event]}
    assert not all_lines.missed({place for said in OUT_OF_REACH for place in lines_that_say(said, file)})
