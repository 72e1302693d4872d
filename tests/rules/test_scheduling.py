"""Section 4: one scheduling pass."""

import pytest

from tests.rules.world import Ask, fixed, in_both_profiles, replay


@in_both_profiles
def test_4_a_lifo_preemption_and_resumption(engine, profile):
    """
    bs=4, 6 blocks, two requests 8/8, no prefix cache. A needs blocks 3 and 4 at tokens 9 and 13.

    t       0    1    2    3    4    5    6    7    8    9    10   11
    A       |8   |1   |1   |1   |1   |1   |1   |1   | done: eight tokens at 1..8
    B       |8   |1   |1   |1   |1   | no fourth block: out        |13  |1   |1   |
    blocks  4    6                   4                             4
    """
    asks = {"A": Ask(8, 8), "B": Ask(8, 8)}
    got = replay(engine, asks, profile=profile, blocks=6, max_batched_tokens=16, max_num_seqs=2, prefix_caching=False)
    assert got.preempted()[5] == ["B"]
    assert got.row("B")["n_preemptions"] == 1
    assert got.tokens_at("A") == [1, 2, 3, 4, 5, 6, 7, 8]
    assert got.tokens_at("B") == [1, 2, 3, 4, 5, 9, 10, 11]
    assert got.scheduled()[8] == {"B": 13}
    assert got.column("n_waiting_preempted")[5:9] == [1, 1, 1, 0]


@in_both_profiles
def test_4_a_pressure_is_recorded(engine, profile):
    asks = {"A": Ask(8, 8), "B": Ask(8, 8)}
    got = replay(engine, asks, profile=profile, blocks=6, max_batched_tokens=16, max_num_seqs=2, prefix_caching=False)
    table = {name: column.tolist() for name, column in got.replayed.tables["pressure"].items()}
    assert (table["request"], table["asker"]) == ([1], [0])
    # B held three blocks and had computed 12 of its 13 tokens.
    assert (table["pass_no"], table["blocks_released"], table["tokens_lost"]) == ([5], [3], [12])
    assert (table["n_running"], table["n_waiting"]) == ([1], [1])


@in_both_profiles
def test_4_b_the_last_prompt_takes_what_is_left_of_the_budget(engine, profile):
    """
    budget 12, prompts 8 and 8, bs=4, 6 blocks

    pass 0   r1: 8   r2: 4     3 blocks, one token (r1's)
    pass 1   r1: 1   r2: 4     r1 decodes beside r2's last chunk
    """
    got = replay(engine, {"r1": Ask(8, 2), "r2": Ask(8, 2)}, profile=profile, blocks=6, max_batched_tokens=12)
    assert got.scheduled()[:2] == [{"r1": 8, "r2": 4}, {"r1": 1, "r2": 4}]
    assert got.column("active_blocks")[0] == 3
    assert got.column("n_tokens")[0] == 1
    assert got.column("n_running")[0] == 2


@in_both_profiles
def test_4_c_the_second_prompt_starts_only_when_the_first_is_through(engine, profile):
    """
    budget 4, prompts 8 and 8

    pass 0   r1: 4
    pass 1   r1: 4             r1 has emitted, r2 has computed nothing
    """
    got = replay(engine, {"r1": Ask(8, 2), "r2": Ask(8, 2)}, profile=profile, max_batched_tokens=4)
    assert got.scheduled()[:2] == [{"r1": 4}, {"r1": 4}]
    assert got.tokens_at("r1")[0] == 2
    assert got.admitted("r2") == 2


@in_both_profiles
def test_4_d_prefill_only_on_every_fourth_pass_of_a_group(engine, profile):
    """
    N=4, dp 2, budget 8, everything on rank 0

    step    0        1        2        3        4            5        6        7        8
    A 4/12  |4       |1       |1       |1       |1           |1       |1       |1       |1
    B 12/3           queued                     |7           waits for step 8          |5
    """
    asks = {"A": Ask(4, 12, rank=0), "B": Ask(12, 3, at=0.5, rank=0)}
    got = replay(engine, asks, profile=profile, dp=2, max_batched_tokens=8, prefill_schedule_interval=4)
    assert got.scheduled()[:9] == [
        {"A": 4},
        {"A": 1},
        {"A": 1},
        {"A": 1},
        {"A": 1, "B": 7},
        {"A": 1},
        {"A": 1},
        {"A": 1},
        {"A": 1, "B": 5},
    ]
    assert (got.column("n_prefill")[1], got.column("n_decode")[1], got.column("n_waiting")[1]) == (0, 1, 1)


@pytest.mark.parametrize(("profile", "admitted"), [("parity", 5), ("vllm", 4)])
def test_4_d_the_count_starts_again_when_the_group_has_drained(engine, profile, admitted):
    """
    Closed loop of 2, N=4, 1 ms passes, everything on rank 0. A 4/1 and B 4/1 fill pass 0 and end together; C 4/12 and
    D 4/1 are released at that very instant, E when D ends.

    ms       0       1       2       3       4       5
    parity   |A B    |C D    |C      |C      |C      |C E     drained at 1: the count is 0 again, E waits for step 4
    vllm     |A B    |C D    |C      |C      |C E             C and D were there before anybody looked: theirs is step 1
    """
    asks = {
        "A": Ask(4, 1, rank=0),
        "B": Ask(4, 1, rank=0),
        "C": Ask(4, 12, rank=0),
        "D": Ask(4, 1, rank=0),
        "E": Ask(4, 1, rank=0),
    }
    got = replay(engine, asks, profile=profile, dp=2, concurrency=2, prefill_schedule_interval=4)
    assert got.row("E")["arrival_ns"] == 2_000_000
    assert got.admitted("E") == admitted


@in_both_profiles
def test_4_d_a_single_rank_is_never_throttled(engine, profile):
    asks = {"A": Ask(4, 12), "B": Ask(12, 3, at=0.5)}
    got = replay(engine, asks, profile=profile, dp=1, max_batched_tokens=8, prefill_schedule_interval=4)
    assert got.scheduled()[:3] == [{"A": 4}, {"A": 1, "B": 7}, {"A": 1, "B": 5}]


@in_both_profiles
def test_4_1_no_admission_in_a_pass_that_preempts(engine, profile):
    """A 4/8 and B 4/8 fill 4 blocks when both need a third; C would fit the blocks B gives back, but waits a pass."""
    asks = {"A": Ask(4, 8), "B": Ask(4, 8), "C": Ask(2, 1, at=4.5)}
    got = replay(engine, asks, profile=profile, blocks=4, prefix_caching=False)
    assert got.preempted()[5] == ["B"]
    assert got.scheduled()[5] == {"A": 1}


@in_both_profiles
def test_4_3_a_head_that_does_not_fit_stops_the_queue(engine, profile):
    """A holds 3 of 4 blocks. B needs 2 and waits; C needs 1, would fit, and must not overtake."""
    asks = {"A": Ask(9, 3), "B": Ask(8, 1), "C": Ask(4, 1)}
    got = replay(engine, asks, profile=profile, blocks=4)
    assert got.admitted("B") == got.admitted("C") == 3


@in_both_profiles
def test_4_3_admission_needs_room_for_the_whole_prompt_not_its_first_chunk(engine, profile):
    """Budget 5: B's first chunk of one token would fit the free block, its 8 tokens do not."""
    asks = {"A": Ask(4, 8), "B": Ask(8, 1, at=0.5)}
    got = replay(engine, asks, profile=profile, blocks=3, max_batched_tokens=5)
    assert got.admitted("B") == 8


@in_both_profiles
def test_4_3_max_num_seqs_bounds_the_running_requests(engine, profile):
    asks = {name: Ask(4, 2) for name in "ABC"}
    got = replay(engine, asks, profile=profile, max_num_seqs=2)
    assert got.scheduled() == [{"A": 4, "B": 4}, {"A": 1, "B": 1}, {"C": 4}, {"C": 1}]


def test_4_2_a_budget_below_the_running_batch_starves_the_later_ones(engine):
    """
    budget 4: A and B decode from pass 1 on, everybody else lives on the two tokens left of it

    pass    0       1            2            3            4            5
    A 2/6   |2      |1           |1           |1           |1           |1
    B 2/6   |2      |1           |1           |1           |1           |1
    C 6/1           |2           |2           |2 done
    D 2/3 @2.5                                             |2           |1
    E 2/3 @2.5                                                          |1     one token of budget is left
    """
    asks = {
        "A": Ask(2, 6),
        "B": Ask(2, 6),
        "C": Ask(6, 1),
        "D": Ask(2, 3, at=2.5),
        "E": Ask(2, 3, at=2.5),
    }
    got = replay(engine, asks, profile="parity", max_batched_tokens=4, max_num_seqs=64)
    assert got.scheduled()[:6] == [
        {"A": 2, "B": 2},
        {"A": 1, "B": 1, "C": 2},
        {"A": 1, "B": 1, "C": 2},
        {"A": 1, "B": 1, "C": 2},
        {"A": 1, "B": 1, "D": 2},
        {"A": 1, "B": 1, "D": 1, "E": 1},
    ]


def test_4_2_a_running_request_may_sit_passes_out(engine):
    """Budget 2 and three running requests: whoever stands behind the first two waits until one of them is done."""
    asks = {"A": Ask(1, 2), "B": Ask(1, 4), "C": Ask(1, 3)}
    got = replay(engine, asks, profile="parity", max_batched_tokens=2, max_num_seqs=64)
    assert got.scheduled() == [{"A": 1, "B": 1}, {"A": 1, "B": 1}, {"B": 1, "C": 1}, {"B": 1, "C": 1}, {"C": 1}]


@in_both_profiles
def test_4_2_without_chunking_a_prompt_waits_until_it_fits_the_budget_whole(engine, profile):
    """Budget 10: A's 8 leave 2. B's 8 wait for the next pass, where A's decode leaves 9."""
    asks = {"A": Ask(8, 2), "B": Ask(8, 1)}
    got = replay(engine, asks, profile=profile, max_batched_tokens=10, max_model_len=10, chunked_prefill=False)
    assert got.scheduled() == [{"A": 8}, {"A": 1, "B": 8}]


def test_4_4_fifo_throws_out_the_oldest(engine):
    """
    bs=4, 6 blocks, A and B 8/8: in pass 5 A itself asks for the fourth block and, being the oldest, is its own victim.
    B goes on alone and A comes back when it fits again.
    """
    asks = {"A": Ask(8, 8), "B": Ask(8, 8)}
    got = replay(engine, asks, profile="parity", blocks=6, preemption="fifo", prefix_caching=False)
    assert got.preempted()[5] == ["A"]
    assert got.tokens_at("B") == pytest.approx([1, 2, 3, 4, 5, 6, 7, 8])


def test_4_4_fifo_those_behind_a_victim_of_its_own_still_get_their_turn(engine):
    """
    Recorded. 25 blocks, prefill 10 ms, decode 3 ms. Rank 0 holds A 29/14 and C 57/8; rank 1 small ones, so that a pass
    of the group takes time even when rank 0 does nothing.

    When A asks for a block that is not there, it is the oldest and leaves. C decodes in the same pass, and ends at 51.
    """
    asks = {
        "A": Ask(29, 14, rank=0),
        "b": Ask(1, 1, at=5, rank=1),
        "C": Ask(57, 8, at=10, rank=0),
        "d": Ask(1, 4, at=32, rank=1),
    }
    got = replay(
        engine, asks, profile="parity", dp=2, blocks=25, preemption="fifo", prefix_caching=False, timing=fixed(10, 3)
    )
    thrown_out = got.preempted().index(["A"])
    assert list(got.scheduled()[thrown_out]) == ["C"]
    assert got.tokens_at("C")[-1] == 51
    assert got.replayed.tables["admissions"]["start_ns"][-1] == 51_000_000


@in_both_profiles
def test_4_4_a_preempted_request_goes_ahead_of_the_queue_and_never_repeats_a_token(engine, profile):
    asks = {"A": Ask(8, 8), "B": Ask(8, 8), "C": Ask(4, 1, at=6.5)}
    got = replay(engine, asks, profile=profile, blocks=6, max_num_seqs=2, prefix_caching=False, timing=fixed(1, 1))
    assert got.row("B")["n_preemptions"] == 1
    assert len(got.tokens_at("B")) == got.row("B")["output_tokens"] == 8
    assert sorted(got.tokens_at("B")) == got.tokens_at("B")
    back, fresh = got.replayed.tables["admissions"]["pass_no"][-2:].tolist()
    assert got.replayed.tables["admissions"]["request"][-2:].tolist() == [1, 2]
    assert back <= fresh
