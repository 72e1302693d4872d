"""Section 6: asynchronous scheduling. Passes take 10 ms unless said otherwise."""

import pytest

from tests.rules.world import Ask, fixed, flat, in_both_profiles, replay


@pytest.mark.parametrize(("async_scheduling", "admitted"), [(False, 20), (True, 30)])
@in_both_profiles
def test_6_a_an_arrival_inside_a_pass(engine, profile, async_scheduling, admitted):
    """
    ms      0         10   15   20        30
    A       |-prefill-|-decode--|-decode--|-decode--
    B                      ^ arrives inside pass 1; pass 2 is chosen already when scheduling is asynchronous
                                |sync     |async
    """
    asks = {"A": Ask(8, 7), "B": Ask(8, 7, at=15)}
    got = replay(engine, asks, profile=profile, timing=fixed(10, 10), async_scheduling=async_scheduling)
    assert got.admitted("B") == admitted


@pytest.mark.parametrize(("async_scheduling", "mid", "edge"), [(False, 10, 10), (True, 20, 30)])
@in_both_profiles
def test_6_b_an_arrival_at_a_pass_end_waits_one_pass_more(engine, profile, async_scheduling, mid, edge):
    """
    ms      0         10        20        30
    A       |---------|---------|---------|---------
    M            ^ 5, inside pass 0: skips one pass
    E                 ^ 10, exactly between passes: skips two
    """
    asks = {"A": Ask(4, 9), "M": Ask(4, 2, at=5), "E": Ask(4, 2, at=10)}
    got = replay(engine, asks, profile=profile, timing=flat(10), async_scheduling=async_scheduling)
    assert (got.admitted("M"), got.admitted("E")) == (mid, edge)


@pytest.mark.parametrize(("async_scheduling", "admitted", "token"), [(False, 20, 40), (True, 40, 60)])
@in_both_profiles
def test_6_c_the_request_that_refills_a_slot(engine, profile, async_scheduling, admitted, token):
    """
    Closed loop of 2, fixed 10 + 10 ms: A and B prefill 0..10, decode 10..20. A ends, C is released at 20.

    sync    C joins pass 2, mixed: 20..40
    async   passes 2 and 3 go by (20..30, 30..40), C joins pass 4, mixed: 40..60
    """
    asks = {"A": Ask(4, 2), "B": Ask(4, 10), "C": Ask(4, 2)}
    got = replay(engine, asks, profile=profile, concurrency=2, timing=fixed(10, 10), async_scheduling=async_scheduling)
    assert got.row("C")["arrival_ns"] / 1e6 == 20
    assert got.admitted("C") == admitted
    assert got.tokens_at("C")[0] == token


@pytest.mark.parametrize("async_scheduling", [False, True])
def test_6_d_with_nothing_else_to_run_everybody_queued_is_admitted(engine, async_scheduling):
    """
    ms      0         10
    A 4/1   |---------| ends
    B            ^ 5
    C                 ^ 10       both admitted at 10
    """
    asks = {"A": Ask(4, 1), "B": Ask(4, 2, at=5), "C": Ask(4, 2, at=10)}
    got = replay(engine, asks, profile="parity", timing=flat(10), async_scheduling=async_scheduling)
    assert got.admitted("B") == got.admitted("C") == 10


def test_6_e_a_preempted_request_resumes_before_a_gated_arrival(engine):
    """
    bs=4, 6 blocks, no cache, 1 ms passes: A 8/8 and B 8/8, B is thrown out in pass 5 as in 4-A.

    A ends at 8, when N (arrived 7.5, inside pass 7) may enter pass 9 at the earliest. B is no arrival and resumes in
    pass 8 at once; N follows behind it.
    """
    asks = {"A": Ask(8, 8), "B": Ask(8, 8), "N": Ask(4, 1, at=7.5)}
    got = replay(engine, asks, profile="parity", blocks=6, prefix_caching=False, async_scheduling=True, max_num_seqs=3)
    assert got.row("B")["n_preemptions"] == 1
    assert got.scheduled()[8] == {"B": 13}
    assert got.admitted("N") == 9


@in_both_profiles
def test_6_3_an_idle_engine_reads_an_arrival_at_once(engine, profile):
    for async_scheduling in (False, True):
        asks = {"A": Ask(4, 1), "B": Ask(4, 1, at=25)}
        got = replay(engine, asks, profile=profile, timing=flat(10), async_scheduling=async_scheduling)
        assert got.admitted("B") == 25
