"""Section 2.8: what lies between a client and the engine shifts arrivals and tokens, and takes nobody's turn."""

from __future__ import annotations

import numpy as np
import pytest

from sim.errors import WorkloadError
from sim.inputs import Workload
from sim.spec import EngineSpec, FrontEnd, PoolsSpec
from tests.rules.world import MS, Ask, fixed, in_both_profiles, replay


def front(request: float = 0, tokenization: float = 0, client: float = 0, reply: float = 0) -> FrontEnd:
    """All in ms; tokenisation per 1,024 tokens."""
    return FrontEnd(*(round(value * MS) for value in (request, tokenization, client, reply)))


def client(got, name):
    row = got.row(name)
    return [row[column] / MS for column in ("arrival_ns", "admitted_ns", "first_token_ns", "last_token_ns", "end_ns")]


@in_both_profiles
def test_2_8_a_request_travels_there_and_its_tokens_travel_back(engine, profile):
    """
    ms      0    5    8         38     53     68   70
    A       |path|tok|pre       |dec   |dec   |          sent at 0, 5 ms on the path, 3 ms for its 1,024 tokens
                                |->40  |->55  |->70      each token is seen 2 ms later
    """
    got = replay(
        engine, {"A": Ask(1024, 3)}, profile=profile, timing=fixed(30, 15), blocks=512, max_batched_tokens=2048,
        front=front(5, 3, 0, 2),
    )  # fmt: skip
    assert client(got, "A") == [0, 8, 40, 70, 70]
    assert got.ends() == [38, 53, 68]


@in_both_profiles
def test_2_8_a_long_prompt_can_be_overtaken_on_the_way(engine, profile):
    """A is sent first and needs 8 ms for its 8 tokens, B needs 1 ms: B is there at 2, A at 8. One runs at a time."""
    asks = {"A": Ask(8, 1), "B": Ask(1, 1, at=1)}
    got = replay(engine, asks, profile=profile, timing=fixed(10, 1), max_num_seqs=1, front=front(0, 1024))
    assert client(got, "B")[:3] == [1, 2, 12]
    assert client(got, "A")[:3] == [0, 12, 22]


@in_both_profiles
def test_2_8_who_is_there_at_one_instant_goes_in_order_of_the_source(engine, profile):
    """A sets out at 0 and takes 4 ms, B at 2 and takes 2: both are there at 4."""
    asks = {"A": Ask(4, 1), "B": Ask(2, 1, at=2)}
    got = replay(engine, asks, profile=profile, timing=fixed(10, 1), max_num_seqs=1, front=front(0, 1024))
    assert [list(p) for p in got.scheduled()] == [["A"], ["B"]] and got.starts()[0] == 4


@in_both_profiles
def test_2_8_a_slot_is_free_when_the_client_has_its_last_token(engine, profile):
    """One client. A is there at 5, done at 15, seen at 18; then B is sent, there at 23, done at 33, seen at 36."""
    asks = {"A": Ask(4, 1), "B": Ask(4, 1)}
    got = replay(engine, asks, profile=profile, timing=fixed(10, 1), concurrency=1, front=front(5, 0, 0, 3))
    assert client(got, "A") == [0, 5, 18, 18, 18]
    assert client(got, "B") == [18, 23, 36, 36, 36]


@in_both_profiles
def test_2_8_think_time_begins_when_the_answer_is_seen(engine, profile):
    """A is done at 15 and seen at 18; 20 ms later, at 38, the next turn is sent. It is there at 43."""
    asks = {"A": Ask(4, 1, session=0), "B": Ask(4, 1, session=0, delay=20)}
    got = replay(engine, asks, profile=profile, timing=fixed(10, 1), front=front(5, 0, 0, 3))
    assert client(got, "B")[:2] == [38, 43]


@in_both_profiles
def test_2_8_an_event_of_a_play_is_that_a_request_is_sent(engine, profile):
    """B waits for A to be sent, not for it to be there; `not_before` counts from there as well."""
    asks = {
        "A": Ask(8, 1, session=0),
        "B": Ask(1, 1, session=0, after=[("A", 2, "dispatch")]),
        "C": Ask(1, 1, session=0, not_before=4, after=[("A", 0, "dispatch")]),
    }
    got = replay(engine, asks, profile=profile, timing=fixed(10, 1), front=front(0, 1024))
    assert [client(got, name)[0] for name in asks] == [0, 2, 4]
    assert got.starts()[0] == 3  # B, one token long, is there before A


@in_both_profiles
def test_2_8_open_requests_make_the_way_longer(engine, profile):
    """2 ms for each open request, itself included: A takes 2, B 4. A is done at 12, so C, sent at 12, finds B: 4."""
    asks = {"A": Ask(4, 1), "B": Ask(4, 1), "C": Ask(4, 1, at=12)}
    got = replay(engine, asks, profile=profile, timing=fixed(10, 1), max_num_seqs=1, front=front(0, 0, 2))
    assert got.starts() == [2, 12, 22]
    assert client(got, "C")[:2] == [12, 22]


@in_both_profiles
def test_2_8_in_a_closed_loop_every_slot_is_open(engine, profile):
    """Two slots at 2 ms each: every way takes 4 ms, the first one's too."""
    asks = {"A": Ask(4, 1), "B": Ask(4, 1), "C": Ask(4, 1)}
    got = replay(engine, asks, profile=profile, timing=fixed(10, 1), concurrency=2, front=front(0, 0, 2))
    assert client(got, "A")[1] == client(got, "B")[1] == 4
    assert client(got, "C")[:2] == [14, 18]


def test_2_8_a_refusal_travels_back_as_well(engine):
    """The engine refuses what its pool cannot hold when it gets it, at 5; the client knows at 8."""
    got = replay(engine, {"A": Ask(400, 1)}, profile="vllm", front=front(5, 0, 0, 3))
    assert client(got, "A") == [0, -1 / MS, -1 / MS, -1 / MS, 8]


@in_both_profiles
def test_2_8_what_is_on_the_way_when_time_is_up_was_sent(engine, profile):
    got = replay(engine, {"A": Ask(4, 1)}, profile=profile, stop_ns=3 * MS, front=front(5))
    row = got.row("A")
    assert (row["arrival_ns"], row["worker"], row["end_ns"]) == (0, -1, -1) and got.status("A") == "unfinished"


def test_2_8_without_one_nothing_is_different(engine):
    asks = {name: Ask(4 * i + 1, 3, at=i) for i, name in enumerate("ABC")}
    bare, given = (replay(engine, asks, timing=fixed(10, 3), front=each) for each in (None, FrontEnd()))
    for name, columns in bare.replayed.tables.items():
        for column, values in columns.items():
            assert np.array_equal(values, given.replayed.tables[name][column])


def test_2_8_separate_pools_refuse_it():
    from sim.engine import replay as run
    from sim.result import MemorySink

    side = EngineSpec(profile="vllm", async_scheduling=False, front=front(1))
    one = np.ones(1, np.int64)
    with pytest.raises(WorkloadError, match="front end"):
        run(PoolsSpec(side, side), Workload(one, one, one), MemorySink())
