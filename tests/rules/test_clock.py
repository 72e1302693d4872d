"""Sections 1 and 2: the clock, ties, stop time, groups, arrivals and placement."""

import numpy as np
import pytest

from assets.golden.run import run
from sim.errors import Deadlock, ReplayError
from sim.inputs import Workload
from sim.spec import EngineSpec
from tests.rules.world import Ask, fixed, flat, in_both_profiles, replay


@in_both_profiles
def test_1_2_each_part_of_a_pass_is_rounded_to_whole_nanoseconds(engine, profile):
    """21 ms and 1 ms, sped up 3 times, decode 4 times more: 7 ms and 1/12 ms = 83,333 ns."""
    got = replay(
        engine, {"A": Ask(8, 3)}, profile=profile, timing=fixed(21, 1), speedup_ratio=3.0, decode_speedup_ratio=4.0
    )
    assert got.column("prefill_ns") == [7_000_000, 0, 0]
    assert got.column("decode_ns") == [0, 83_333, 83_333]
    assert got.ends() == [7.0, 7.083333, 7.166666]


@in_both_profiles
def test_1_2_a_speed_up_of_zero_leaves_passes_unscaled(engine, profile):
    got = replay(
        engine, {"A": Ask(8, 2)}, profile=profile, timing=fixed(10, 3), speedup_ratio=0.0, decode_speedup_ratio=0.0
    )
    assert got.ends() == [10, 13]


@pytest.mark.parametrize(("overall", "decode", "ends"), [(2.0, 0.0, [5, 8]), (0.0, 3.0, [10, 13])])
@in_both_profiles
def test_1_2_decode_is_divided_by_the_product_of_both_unless_that_is_zero(engine, profile, overall, decode, ends):
    """Prefill 10, decode 3. Recorded: with 2 and 0 the decode stays 3 ms, it is not halved."""
    got = replay(
        engine,
        {"A": Ask(8, 2)},
        profile=profile,
        timing=fixed(10, 3),
        speedup_ratio=overall,
        decode_speedup_ratio=decode,
    )
    assert got.ends() == ends


@in_both_profiles
def test_1_3_an_arrival_exactly_at_a_pass_end_joins_the_next_pass(engine, profile):
    """
    ms      0         10        20        30
    A       |-prefill-|-decode--|-decode--|
    B                 ^ arrives, admitted at 10
    """
    got = replay(engine, {"A": Ask(8, 3), "B": Ask(8, 1, at=10)}, profile=profile, timing=flat(10))
    assert got.admitted("B") == 10
    assert got.scheduled() == [{"A": 8}, {"A": 1, "B": 8}, {"A": 1}]


@in_both_profiles
def test_1_3_all_arrivals_of_one_instant_join_one_pass_of_an_idle_engine(engine, profile):
    for async_scheduling in (False, True):
        asks = {"A": Ask(4, 1, at=5), "B": Ask(4, 1, at=5), "C": Ask(4, 1, at=5)}
        got = replay(engine, asks, profile=profile, async_scheduling=async_scheduling)
        assert got.scheduled() == [{"A": 4, "B": 4, "C": 4}]


def test_1_4_a_prompt_above_the_budget_without_chunking_is_a_deadlock_that_names_it(engine):
    """vLLM refuses the configuration: without chunks its budget has to cover max_model_len."""
    with pytest.raises(Deadlock, match=r"request 0 .*budget of 8 tokens"):
        replay(engine, {"A": Ask(12, 2)}, profile="parity", chunked_prefill=False, max_batched_tokens=8)


def test_1_4_a_lone_request_that_outgrows_the_pool_is_an_error_that_names_it(engine):
    """4 blocks of 4 hold 16 tokens; 9 in / 30 out is admitted and then needs a fifth block."""
    with pytest.raises(ReplayError, match="request 0"):
        replay(engine, {"A": Ask(9, 30)}, profile="parity", blocks=4)


@in_both_profiles
def test_1_5_an_event_exactly_at_the_stop_time_still_happens(engine, profile):
    """
    ms      0         10        20        30
    A       |-prefill-|-decode--|-decode--|    stop at 20: two tokens, not three
    B                          ^ arrives at 19: submitted, never run
    """
    asks = {"A": Ask(8, 3), "B": Ask(8, 1, at=19)}
    got = replay(engine, asks, profile=profile, timing=flat(10), stop_ns=20_000_000)
    assert got.replayed.outcome.end_ns == 20_000_000
    assert got.status("A") == got.status("B") == "unfinished"
    assert got.row("A")["output_tokens"] == 2
    assert got.row("B")["arrival_ns"] == 19_000_000


@in_both_profiles
def test_1_5_one_nanosecond_less_and_it_does_not(engine, profile):
    got = replay(engine, {"A": Ask(8, 2)}, profile=profile, timing=flat(10), stop_ns=19_999_999)
    assert got.replayed.outcome.end_ns == 10_000_000
    assert got.status("A") == "unfinished"


@in_both_profiles
def test_1_6_all_tokens_of_a_pass_become_visible_at_its_end(engine, profile):
    """Fixed 10 + 3 ms: the mixed pass runs 10..23; A's decode is not early although it costs 3 ms alone."""
    got = replay(engine, {"A": Ask(8, 2), "B": Ask(8, 1, at=1)}, profile=profile, timing=fixed(10, 3))
    assert got.tokens_at("A") == [10, 23]
    assert got.tokens_at("B") == [23]


@in_both_profiles
def test_1_7_a_group_waits_for_its_slowest_rank(engine, profile):
    """
    ms      0      3         10       13            A on rank 0, B on rank 1: both start at 0
    rank 0  |prefill--------|decode   |             fixed 10 + 3 ms
    rank 1  |prefill--------|         |
    C                 ^ arrives at 11 at rank 1, which is idle but in a busy group: starts at 13
    """
    asks = {"A": Ask(8, 3), "B": Ask(8, 1), "skip": Ask(4, 1, at=11), "C": Ask(8, 1, at=11)}
    got = replay(engine, asks, profile=profile, dp=2, timing=fixed(10, 3))
    assert got.row("C")["dp_rank"] == 1
    assert got.admitted("C") == 13
    # Rank 0 runs a mixed pass of 13 ms, rank 1 a prefill of 10; both publish at 26.
    assert got.tokens_at("C") == got.tokens_at("skip") == [26]
    assert got.column("group_pass_no", rank=0) == [0, 1, 2]
    assert got.column("group_pass_no", rank=1) == [0, 2]


@pytest.mark.parametrize("async_scheduling", [False, True])
@in_both_profiles
def test_2_a_closed_loop_of_one(engine, profile, async_scheduling):
    """
    ms      0     1     2     3     4     5     6
    A       |pre  |dec  |dec  |                        tokens at 1 2 3
    B                         |pre  |dec  |dec  |      arrives at 3, tokens at 4 5 6
    """
    asks = {"A": Ask(8, 3), "B": Ask(8, 3)}
    got = replay(engine, asks, profile=profile, concurrency=1, timing=fixed(1, 1), async_scheduling=async_scheduling)
    assert got.tokens_at("A") == [1, 2, 3]
    assert got.row("B")["arrival_ns"] == 3_000_000
    assert got.tokens_at("B") == [4, 5, 6]
    assert got.duration == 6


@in_both_profiles
def test_2_2_a_session_holds_its_slot_while_it_thinks(engine, profile):
    """
    ms      0     1             6     7         8
    A1      |pre  |                              A's second turn comes 5 ms after the first ended
    A2                          |pre  |
    B                                 |pre  |    one slot: B waits for the whole session
    """
    asks = {"A1": Ask(8, 1, session=0), "A2": Ask(8, 1, session=0, delay=5), "B": Ask(8, 1, session=1)}
    got = replay(engine, asks, profile=profile, concurrency=1)
    assert [got.row(n)["arrival_ns"] / 1e6 for n in asks] == [0, 6, 7]


@in_both_profiles
def test_2_1_of_two_that_arrive_at_one_instant_the_earlier_in_the_source_goes_first(engine, profile):
    """
    ms      0         10        20        30
    A       |pre      |  thinks |pre      |       one slot; A's second turn is due when B arrives
    B                                     |pre    A's rows stand before B's, as recorded
    """
    asks = {"A": Ask(8, 1, session=0), "A2": Ask(8, 1, session=0, delay=10), "B": Ask(8, 1, at=20)}
    got = replay(engine, asks, profile=profile, timing=fixed(10, 10), max_num_seqs=1)
    assert (got.admitted("A2"), got.admitted("B")) == (20, 30)


@in_both_profiles
def test_2_2_in_a_closed_loop_a_turn_that_is_due_goes_before_a_new_request(engine, profile):
    """
    ms      0         10        20
    A       |pre      |  thinks |A2     two slots; B ends when A's second turn is due
    B       |pre      |dec      |
    C                           |       takes B's slot, behind A2
    """
    asks = {
        "A": Ask(8, 1, session=0),
        "A2": Ask(8, 1, session=0, delay=10),
        "B": Ask(8, 2, session=1),
        "C": Ask(8, 1, session=2),
    }
    got = replay(engine, asks, profile=profile, timing=fixed(10, 10), concurrency=2)
    assert [list(p) for p in got.scheduled()] == [["A", "B"], ["B"], ["A2", "C"]]


@in_both_profiles
def test_2_4_round_robin_over_workers_then_over_their_ranks(engine, profile):
    """2 workers of 2 ranks: w0r0, w1r0, w0r1, w1r1, and again."""
    asks = {f"r{i}": Ask(4, 1) for i in range(6)}
    got = replay(engine, asks, profile=profile, workers=2, dp=2)
    places = [(got.row(n)["worker"], got.row(n)["dp_rank"]) for n in asks]
    assert places == [(0, 0), (1, 0), (0, 1), (1, 1), (0, 0), (1, 0)]


@in_both_profiles
def test_2_4_a_pinned_rank_is_kept(engine, profile):
    asks = {"A": Ask(4, 1, rank=1), "B": Ask(4, 1, rank=1)}
    got = replay(engine, asks, profile=profile, dp=2)
    assert got.scheduled(rank=1) == [{"A": 4, "B": 4}]


def test_a_workload_without_any_identity_is_a_workload(engine):
    """No hash columns, no sessions, no pins: all prompts differ."""
    two = np.array([0, 0], np.int64)
    got = run(EngineSpec(timing=flat(), block_tokens=4, blocks=8), Workload(two, two + 8, two + 1), engine)
    assert got.tables["requests"]["cached_tokens_max"].tolist() == [0, 0]
