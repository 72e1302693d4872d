"""Small worlds that once went wrong, in one engine or in both; then the reference simulator has settled the answer."""

from __future__ import annotations

import numpy as np
import pytest

import sim.engine
import sim.reference
from sim.inputs import Workload
from sim.result import REASON_NAMES
from sim.setup import config_of
from sim.spec import EngineSpec, FixedTiming, FlatTiming
from tests.sim.answers import Answer, ask, difference
from tests.sim.worlds import World

MS = 1_000_000  # ns


def both(spec: EngineSpec, **columns: list[int] | int | None) -> Answer:
    load = Workload(**{k: np.array(v) if isinstance(v, list) else v for k, v in columns.items()})  # type: ignore[arg-type]
    wanted, got = (ask(replay, World(spec, load)) for replay in (sim.reference.replay, sim.engine.replay))
    assert not difference(wanted, got)
    return got


def ms(answer: Answer, column: str) -> list[float]:
    return (answer.tables["requests"][column] / MS).tolist()


def test_4_5_a_prompt_that_is_computed_again_does_not_throttle_itself():
    """
    parity, 2 ranks, prompts in every third pass, budget 2. D (8 / 3) is thrown out at 39 after two tokens, and comes
    back alone on its rank at 40 with 10 tokens to compute: five passes, none of them throttled, since nobody decodes
    there. The other rank decodes on.
    """
    spec = EngineSpec(
        profile="parity",
        timing=FixedTiming(1.0, 1.0),
        dp=2,
        block_tokens=3,
        blocks=14,
        max_num_seqs=2,
        max_batched_tokens=2,
        prefix_caching=False,
        async_scheduling=False,
        prefill_schedule_interval=3,
    )
    got = both(
        spec,
        arrival_ns=[0, 0, 0, 0, 0, 20 * MS],
        prompt_tokens=[7, 1, 3, 1, 8, 1],
        output_tokens=[27, 1, 1, 1, 3, 40],
    )
    assert got.tables["pressure"]["request"].tolist() == [4]
    assert ms(got, "last_token_ns") == [40, 1, 8, 1, 45, 65]


@pytest.mark.parametrize("order", ["abac", "baca", "abca"])
@pytest.mark.parametrize("concurrency", [None, 2])
def test_2_1_of_two_turns_due_at_one_instant_the_session_that_began_first_goes_first(concurrency, order):
    """
    ms      0         1         2
    a, b    |pre      |decode   |a2 |b2       both sessions go on at 2; whose second row stands first does not matter

    One prompt a pass, so who is first can be seen.
    """
    sessions = {"abac": [0, 1, 0, 1], "baca": [1, 0, 1, 0], "abca": [0, 1, 1, 0]}[order]
    got = both(
        EngineSpec(timing=FlatTiming(1.0), block_tokens=4, blocks=64, max_num_seqs=4, max_batched_tokens=4),
        arrival_ns=[0, 0, 0, 0],
        prompt_tokens=[1, 1, 4, 4],
        output_tokens=[2, 2, 1, 1],
        session=sessions,
        concurrency=concurrency,
    )
    first = sessions[0]
    second_turns = dict(zip(sessions[2:], ms(got, "admitted_ns")[2:]))
    assert second_turns[first] == min(second_turns.values()) < max(second_turns.values())


def test_2_1_a_turn_goes_before_a_later_session_that_arrives_with_it():
    """
    ms      0         1         2
    a       |pre      |decode   |a2       c arrives at 2, as a goes on; a's session is older, c's row is not
    """
    got = both(
        EngineSpec(profile="parity", timing=FlatTiming(1.0), block_tokens=4, max_num_seqs=4, max_batched_tokens=4),
        arrival_ns=[0, 2 * MS, 0],
        prompt_tokens=[1, 3, 4],
        output_tokens=[2, 1, 1],
        session=[0, -1, 0],
    )
    assert ms(got, "arrival_ns") == [0, 2, 2]
    assert got.tables["requests"]["admitted_ns"][2] < got.tables["requests"]["admitted_ns"][1]


def test_1_3_of_two_replicas_that_fail_at_one_instant_the_first_is_named():
    """Both price a decode the model has no answer for: 3 tokens of context on one, 2 on the other."""
    got = both(
        EngineSpec(timing=FixedTiming(1.0, -1.0), workers=2, block_tokens=2, blocks=2, max_num_seqs=1),
        arrival_ns=[0, 0],
        prompt_tokens=[2, 1],
        output_tokens=[2, 2],
    )
    assert "'decode_kv': 3" in got.error


def test_4_5_a_group_that_drains_while_it_chooses_counts_from_zero_again():
    """Passes of no length on two replicas: whether the other one does something at this instant changes nothing."""
    both(
        EngineSpec(
            timing=FlatTiming(0.0),
            workers=2,
            dp=2,
            block_tokens=1,
            blocks=4,
            max_num_seqs=2,
            max_batched_tokens=2,
            prefill_schedule_interval=2,
            boundary_arrivals="before",
        ),
        arrival_ns=[0] * 20,
        prompt_tokens=[1] * 19 + [2],
        output_tokens=[0, 0, 3, 4, 3, 0, 0, 0, 3, 0, 2, 0, 0, 0, 0, 2, 0, 0, 0, 0],
        concurrency=3,
    )


def test_a_request_refused_on_arrival_takes_no_room_in_the_calendar():
    spec = EngineSpec(timing=FlatTiming(1.0), block_tokens=4, blocks=8)
    load = Workload(np.zeros(2, np.int64), np.array([8, 8]), np.array([4, 1_500_000_000]))
    assert config_of(spec, load).mask < 64
    got = both(spec, arrival_ns=[0, 0], prompt_tokens=[8, 8], output_tokens=[4, 1_500_000_000])
    assert [REASON_NAMES[r] for r in got.tables["requests"]["reason"]] == ["", "exceeds_kv_pool"]
