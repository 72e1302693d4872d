"""Section 2.5: requests that wait for one another, earliest starts, lanes, a limit on what is sent, a warm-up."""

import numpy as np
import pytest

from sim.engine import check
from sim.errors import WorkloadError
from sim.inputs import Workload
from sim.metrics import compute
from sim.sessions import of_sessions
from sim.spec import EngineSpec
from tests.rules.world import Ask, fixed, in_both_profiles, replay

DISPATCH = "dispatch"


def arrivals(got, asks):
    return [got.row(name)["arrival_ns"] / 1e6 for name in asks]


@in_both_profiles
@pytest.mark.parametrize(("prefill", "want"), [(10, 50), (70, 90)])
def test_2_5_an_earliest_start_holds_a_turn_back_that_would_come_before_it(engine, profile, prefill, want):
    """
    ms      0    10   30   50   70   90
    A       |pre |         |                     ends at 10: B is due at 30, and not before 50
            |pre               |                 ends at 70: B is due at 90
    """
    asks = {"A": Ask(8, 1, session=0), "B": Ask(8, 1, session=0, delay=20, not_before=50)}
    got = replay(engine, asks, profile=profile, timing=fixed(prefill, 1))
    assert arrivals(got, asks) == [0, want]


@in_both_profiles
def test_2_5_an_earliest_start_counts_from_the_arrival_of_the_first(engine, profile):
    """One slot: B's session begins at 10, when A has ended, and its second turn not before 10 + 40."""
    asks = {
        "A": Ask(8, 1),
        "B": Ask(8, 1, session=1),
        "B2": Ask(8, 1, session=1, delay=5, not_before=40),
    }
    got = replay(engine, asks, profile=profile, timing=fixed(10, 1), concurrency=1)
    assert arrivals(got, asks) == [0, 10, 50]


@in_both_profiles
def test_2_5_a_request_waits_for_the_last_of_several(engine, profile):
    """
    ms      0         10   15   20        30
    A       |pre      |dec      |                  D waits for A's end and for 15 ms after B's
    B       |pre      |
    D                           |    D: max(20 + 0, 10 + 15) = 25
    """
    asks = {
        "A": Ask(8, 2, session=0, after=()),
        "B": Ask(8, 1, session=0, after=()),
        "D": Ask(8, 1, session=0, after=[("A", 0), ("B", 15)]),
    }
    got = replay(engine, asks, profile=profile, timing=fixed(10, 10))
    assert arrivals(got, asks) == [0, 0, 25]


@in_both_profiles
def test_2_5_a_wait_for_an_arrival_does_not_wait_for_the_end(engine, profile):
    asks = {"A": Ask(8, 9, session=0), "B": Ask(8, 1, session=0, after=[("A", 4, DISPATCH)])}
    got = replay(engine, asks, profile=profile, timing=fixed(10, 10))
    assert arrivals(got, asks) == [0, 4]


@in_both_profiles
def test_2_5_an_arrival_can_bring_another_at_the_same_instant(engine, profile):
    """A's arrival brings B and B's brings C, all at 0; they are admitted in this order in the first pass."""
    asks = {
        "A": Ask(8, 1, session=0),
        "B": Ask(8, 1, session=0, after=[("A", 0, DISPATCH)]),
        "C": Ask(8, 1, session=0, after=[("B", 0, DISPATCH)]),
    }
    got = replay(engine, asks, profile=profile)
    assert arrivals(got, asks) == [0, 0, 0]
    assert [list(p) for p in got.scheduled()] == [["A", "B", "C"]]


@in_both_profiles
def test_2_5_several_wait_for_one(engine, profile):
    asks = {
        "A": Ask(8, 1, session=0),
        "B": Ask(8, 1, session=0, after=[("A", 0)]),
        "C": Ask(8, 1, session=0, after=[("A", 3)]),
    }
    got = replay(engine, asks, profile=profile, timing=fixed(10, 10))
    assert arrivals(got, asks) == [0, 10, 13]


@in_both_profiles
def test_2_5_roots_of_a_play_come_when_it_starts_or_at_their_own_time(engine, profile):
    """One lane: the second play starts when the first has ended, at 10; its second root comes 7 ms later."""
    asks = {
        "A": Ask(8, 1, session=0),
        "X": Ask(8, 1, session=1, after=()),
        "Y": Ask(8, 1, session=1, after=(), not_before=7),
        "Z": Ask(8, 1, session=1, after=()),
    }
    got = replay(engine, asks, profile=profile, timing=fixed(10, 10), concurrency=1)
    assert arrivals(got, asks) == [0, 10, 17, 10]


@in_both_profiles
def test_2_2_a_play_holds_its_lane_until_its_last_request_has_ended(engine, profile):
    """
    ms      0         10        20        30
    A       |pre      |
    B       |pre      |dec      |                  B is the last of the play, A's end frees nothing
    C                           |pre     |         the next play
    """
    asks = {
        "A": Ask(8, 1, session=0, after=()),
        "B": Ask(8, 2, session=0, after=()),
        "C": Ask(8, 1, session=1, after=()),
    }
    got = replay(engine, asks, profile=profile, timing=fixed(10, 10), concurrency=1)
    assert arrivals(got, asks) == [0, 0, 20]


@in_both_profiles
def test_2_5_a_rejected_request_is_an_end_as_well(engine, profile):
    asks = {"A": Ask(20, 1, session=0), "B": Ask(8, 1, session=0, delay=2, not_before=1)}
    got = replay(engine, asks, profile=profile, max_model_len=16)
    assert got.status("A").startswith("rejected")
    assert got.status("B") == "completed"


@in_both_profiles
def test_2_6_no_more_are_sent_than_the_limit_and_what_is_sent_ends(engine, profile):
    """Two slots, three turns in all: A, B, and A's second; B's second and C are never sent."""
    asks = {
        "A": Ask(8, 1, session=0),
        "A2": Ask(8, 5, session=0),
        "B": Ask(8, 2, session=1),
        "B2": Ask(8, 1, session=1),
        "C": Ask(8, 1, session=2),
    }
    got = replay(engine, asks, profile=profile, concurrency=2, send_limit=3)
    assert [got.status(name) for name in asks] == ["completed"] * 3 + ["unfinished"] * 2
    assert arrivals(got, ("B2", "C")) == [-1e-6] * 2
    assert got.row("A2")["output_tokens"] == 5


@in_both_profiles
def test_2_7_a_warm_up_runs_and_does_not_count(engine, profile):
    """A warms up: B is measured beside it, from its own arrival on. C is rejected."""
    asks = {"A": Ask(8, 6), "B": Ask(8, 3, at=2), "C": Ask(40, 1, at=3)}
    got = replay(engine, asks, profile=profile, warmup=1, max_model_len=40)
    tables, outcome = got.replayed.tables, got.replayed.outcome
    found = compute(tables["requests"], outcome, None, got.replayed.spec, warmup=1)
    rows = {(metric, stat): value for scope, metric, stat, value, _, _ in found.rows() if scope == "run"}
    assert rows["requests", "warmup"] == 1
    assert rows["requests", "submitted"] == 2
    assert (rows["requests", "completed"], rows["requests", "rejected"]) == (1, 1)
    assert rows["output_tokens", "total"] == 3
    assert rows["duration", "total"] == 3, "from B's arrival at 2 to its end at 5"
    assert found.run.latencies["ttft"].n == 1
    assert int(outcome.latencies["gap_weight"].sum()) == 2, "gaps of B only"
    plain = replay(engine, asks, profile=profile, max_model_len=40)
    assert all((tables["requests"][c] == plain.replayed.tables["requests"][c]).all() for c in tables["requests"])


def test_sessions_are_counted_and_timed_from_first_arrival_to_last_end():
    requests = {
        "arrival_ns": np.array([0, 5, 7, 9, -1, 20, 30]) * 10**6,
        "end_ns": np.array([4, 11, 8, 19, -1, 25, -1]) * 10**6,
        "status": np.array([0, 0, 0, 1, 2, 0, 2]),
    }
    session = np.array([0, 0, -1, 1, 1, 2, 3])
    found = of_sessions(requests, session)
    assert (found.n_started, found.n_ended) == (4, 2)
    assert (found.latency.min, found.latency.max) == (5, 11)
    assert of_sessions(requests, session, warmup=1).n_started == 3


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"wait_on": [1, 0]}, "request 1: wait_on must name an earlier request"),
        ({"session": np.array([0, 0, 1])}, "request 2: may wait for requests of its own play only"),
        ({"session": None}, "need session"),
        ({"wait_delay_ns": [0, -1]}, "request 2: wait_delay_ns must not be negative"),
        ({"wait_delay_ns": [0]}, "must be equally long"),
        ({"wait_offsets": [0, 0, 1, 3]}, "wait_offsets must begin at 0"),
        ({"not_before_ns": np.array([0, -5, 0])}, "request 1: not_before_ns must not be negative"),
        ({"send_limit": 0}, "send_limit=0 must be at least 1"),
        ({"warmup": -1}, "warmup=-1 must not be negative"),
    ],
)
def test_what_no_play_can_be_is_refused(columns, said):
    given = {
        "session": np.zeros(3, np.int64),
        "wait_offsets": [0, 0, 1, 2],
        "wait_on": [0, 1],
        "wait_delay_ns": [0, 0],
        "wait_on_dispatch": [0, 1],
        **columns,
    }
    arrays = {k: np.array(v, np.int64) if isinstance(v, list) else v for k, v in given.items()}
    one = np.ones(3, np.int64)
    with pytest.raises(WorkloadError, match=said):
        check(EngineSpec(), Workload(np.zeros(3, np.int64), one, one, **arrays))
