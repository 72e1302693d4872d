"""Where profile `vllm` (vLLM 0.28.0's own scheduler) parts from profile `parity` (the reference simulator).

Every figure of profile `vllm` here was recorded from vLLM. Blocks hold 4 tokens and a pass takes 1 ms unless said.
"""

import pytest

from tests.rules.world import Ask, flat, prompt, replay


def test_a1_a_freed_slot_serves_the_pass_after_the_next(engine):
    """
    2 slots, all at 0: A 4/3, B 4/6, C 4/3. A ends at 3. Pass 3 was chosen when pass 2 started, with A in its slot.

    t        0     1     2     3     4     5     6
    A        |4    |1    |1    |
    B        |4    |1    |1    |1    |1    |1    |
    C parity                   |4    |1    |1
    C vllm                           |4    |1    |1
    """
    asks = {"A": Ask(4, 3), "B": Ask(4, 6), "C": Ask(4, 3)}
    got = replay(engine, asks, profile="vllm", async_scheduling=True, max_num_seqs=2)
    assert got.admitted("C") == 4
    assert got.scheduled()[3] == {"B": 1}
    # A's blocks still count in pass 3: A held 2, B holds 2.
    assert got.column("active_blocks")[3] == 4
    assert got.column("chosen_ns")[3] == 2_000_000
    assert replay(engine, asks, profile="parity", async_scheduling=True, max_num_seqs=2).admitted("C") == 3


def test_a2_the_early_choice_preempts_for_blocks_about_to_fall_free(engine):
    """
    5 blocks, no cache: A 8/4, B 5/8. Pass 4 is chosen at 3, one pass before A ends, and B's ninth token has no room:
    B leaves and is re-admitted with 9 tokens to recompute. Its token times do not change.
    """
    asks = {"A": Ask(8, 4), "B": Ask(5, 8)}
    got = replay(engine, asks, profile="vllm", async_scheduling=True, blocks=5, prefix_caching=False)
    assert got.row("B")["n_preemptions"] == 1
    assert got.scheduled()[4] == {"B": 9}
    assert got.tokens_at("B") == [1, 2, 3, 4, 5, 6, 7, 8]
    synchronous = replay(engine, asks, profile="vllm", blocks=5, prefix_caching=False)
    assert synchronous.row("B")["n_preemptions"] == 0
    assert synchronous.tokens_at("B") == [1, 2, 3, 4, 5, 6, 7, 8]


@pytest.mark.parametrize(("async_scheduling", "reused"), [(False, 4), (True, 0)])
def test_a3_a_block_closed_by_a_token_in_flight_cannot_be_hit_yet(engine, async_scheduling, reused):
    """Budget 3: a = [0, 1, 2] answers 3 first; b = [0, 1, 2, 3, 4] is admitted while that 3 is still being computed."""
    asks = {"a": Ask(3, 4, text=[0, 1, 2, 3, 30, 31]), "b": Ask(5, 1, text=[0, 1, 2, 3, 4])}
    got = replay(engine, asks, profile="vllm", async_scheduling=async_scheduling, max_batched_tokens=3, max_num_seqs=3)
    assert got.admitted("b") == 1
    assert got.reused("b") == [reused]


@pytest.mark.parametrize(("async_scheduling", "reused"), [(False, 8), (True, 4)])
def test_a3_such_a_block_is_lost_when_its_owner_is_preempted(engine, async_scheduling, reused):
    """5 blocks: A 9/4 and B 6/8. B leaves in pass 3 with its eighth token in flight when scheduling is asynchronous."""
    asks = {"A": Ask(9, 4), "B": Ask(6, 8)}
    got = replay(engine, asks, profile="vllm", async_scheduling=async_scheduling, blocks=5)
    assert got.preempted()[3] == ["B"]
    assert got.reused("B") == [0, reused]


def test_a4_an_arrival_read_after_the_choice_joins_the_pass_behind(engine):
    """
    ms      0         10        20
    A 4/1   |---------|
    B            ^ 5  |---------            read before the choice at 10
    C                 ^ 10      |-------    the tie is read after it
    """
    asks = {"A": Ask(4, 1), "B": Ask(4, 2, at=5), "C": Ask(4, 2, at=10)}
    got = replay(engine, asks, profile="vllm", timing=flat(10), async_scheduling=True)
    assert (got.admitted("B"), got.admitted("C")) == (10, 20)


def test_a4_or_with_it_if_ties_are_read_first(engine):
    asks = {"A": Ask(4, 1), "B": Ask(4, 2, at=5), "C": Ask(4, 2, at=10)}
    got = replay(engine, asks, profile="vllm", timing=flat(10), async_scheduling=True, boundary_arrivals="before")
    assert (got.admitted("B"), got.admitted("C")) == (10, 10)


def test_a5_an_engine_without_a_queued_batch_is_idle(engine):
    """As A4 without B: nothing is queued at 10, so C is read and admitted at once."""
    asks = {"A": Ask(4, 1), "C": Ask(4, 2, at=10)}
    got = replay(engine, asks, profile="vllm", timing=flat(10), async_scheduling=True)
    assert got.admitted("C") == 10


def test_c1_what_can_never_fit_is_refused_on_arrival_and_blocks_nobody(engine):
    """4 blocks: A 20/2 needs six. vLLM's scheduler would let it block the queue; its start-up check is against it."""
    asks = {"A": Ask(20, 2), "B": Ask(4, 4)}
    got = replay(engine, asks, profile="vllm", blocks=4)
    assert got.status("A") == "rejected exceeds_kv_pool"
    assert got.row("A")["end_ns"] == 0
    assert got.tokens_at("B") == [1, 2, 3, 4]


def test_c1_so_is_a_request_that_would_outgrow_the_pool(engine):
    """9 in / 30 out needs ten blocks in the end; four hold the prompt, and parity finds out only when it is stuck."""
    got = replay(engine, {"A": Ask(9, 30)}, profile="vllm", blocks=4)
    assert got.status("A") == "rejected exceeds_kv_pool"


def test_c5_without_chunking_generated_tokens_count_against_the_budget_too(engine):
    """
    bs=2, 7 blocks, 3 slots, budget 12, no cache, no chunks: A 2/6 and B 3/7 at 1, C 3/7 at 2.

    At 7 B waits with 8 known tokens and C with 5: 8 + 5 > 12.
    vllm    B alone
    parity  B's 8, and 4 of C's, whose remaining *prompt* of 3 fits
    """
    asks = {"A": Ask(2, 6, at=1), "B": Ask(3, 7, at=1), "C": Ask(3, 7, at=2)}
    world = {
        "block_tokens": 2,
        "blocks": 7,
        "max_num_seqs": 3,
        "max_batched_tokens": 12,
        "max_model_len": 12,
        "prefix_caching": False,
        "chunked_prefill": False,
    }
    got = replay(engine, asks, profile="vllm", **world)
    assert got.starts()[6] == 7
    assert got.scheduled()[6] == {"B": 8}
    assert got.scheduled()[8] == {"C": 5}
    other = replay(engine, asks, profile="parity", **world)
    assert other.scheduled()[6] == {"B": 8, "C": 4}


@pytest.mark.parametrize(("watermark", "admitted"), [(0.0, 1), (0.25, 4)])
def test_c7_the_watermark_keeps_blocks_free_beside_running_requests(engine, watermark, admitted):
    """8 blocks, 2 of them spare: A 4/4 holds one or two, B's 5 do not leave 2 free until A is gone."""
    asks = {"A": Ask(4, 4), "B": Ask(20, 1, at=0.5)}
    got = replay(engine, asks, profile="vllm", blocks=8, watermark=watermark)
    assert got.admitted("B") == admitted


def test_c7_it_does_not_bind_an_empty_engine(engine):
    got = replay(engine, {"B": Ask(28, 1)}, profile="vllm", blocks=8, watermark=0.25)
    assert got.admitted("B") == 0


@pytest.mark.parametrize(("watermark", "chosen"), [(0.0, 1), (0.25, 2)])
def test_c7_it_binds_whenever_somebody_runs_scheduled_or_not(engine, watermark, chosen):
    """
    Asynchronous, 8 blocks: A 4/2 gets its last token from pass 1, so the choice at 1 schedules nothing of it.

    A still runs, and B's 5 blocks beside its 2 leave only one: with a watermark of 2, B is chosen at 2, not at 1.
    """
    asks = {"A": Ask(4, 2), "B": Ask(20, 1, at=0.5)}
    got = replay(engine, asks, profile="vllm", blocks=8, watermark=watermark, async_scheduling=True)
    assert got.scheduled()[2] == {"B": 20}
    assert got.column("chosen_ns")[2] == chosen * 1_000_000


@pytest.mark.parametrize(("reserve", "admitted"), [(True, 6), (False, 1)])
def test_c8_room_for_the_whole_prompt_is_an_option(engine, reserve, admitted):
    """4 blocks, budget 4: A 4/6 holds one or two, B's first chunk fits long before its 12 tokens do."""
    asks = {"A": Ask(4, 6), "B": Ask(12, 1, at=0.5)}
    got = replay(engine, asks, profile="vllm", blocks=4, max_batched_tokens=4, max_num_seqs=4, reserve_full_isl=reserve)
    assert got.admitted("B") == admitted
    assert got.row("B")["n_preemptions"] == (0 if reserve else 2)


@pytest.mark.parametrize("profile", ["vllm", "parity"])
def test_d1_freed_blocks_without_content_go_before_cached_ones(engine, profile):
    """2 blocks: a 4/1 leaves a cached block, x 3/1 a nameless one. y 4/1 takes the nameless one; b still finds a's."""
    text = prompt(group=1, tokens=4)
    asks = {
        "a": Ask(4, 1, text=text),
        "x": Ask(3, 1, at=3),
        "y": Ask(4, 1, at=6),
        "b": Ask(5, 1, at=9, text=text),
    }
    assert replay(engine, asks, profile=profile, blocks=2).reused("b") == [4]


def test_d2_an_empty_choice_is_no_pass(engine):
    """Asynchronous, A 4/2: the choice at 1 finds nothing to do; two passes are listed."""
    got = replay(engine, {"A": Ask(4, 2)}, profile="vllm", async_scheduling=True)
    assert got.column("pass_no") == [0, 1]
    assert got.tokens_at("A") == [1, 2]
