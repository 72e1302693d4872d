"""Section 5: the paged KV pool and its prefix cache. Blocks hold 4 tokens."""

from tests.rules.world import Ask, in_both_profiles, prompt, replay


@in_both_profiles
def test_5_a_a_full_hit_recomputes_the_whole_last_block(engine, profile):
    """
    t       0        5        9
    A 8/1   |8       |        |       blocks a0 a1
    B 8/1            |4       |       finds a0 a1, gives a1 up and computes a copy of it
    probe                     |4      sees 3 cached blocks: a0, a1 and the copy
    """
    text = prompt(group=1, tokens=8)
    asks = {"A": Ask(8, 1, text=text), "B": Ask(8, 1, at=5, text=text), "probe": Ask(4, 1, at=9)}
    got = replay(engine, asks, profile=profile)
    assert got.reused("B") == [4]
    assert got.scheduled()[1] == {"B": 4}
    assert (got.column("active_blocks")[2], got.column("cached_blocks")[2]) == (1, 3)


@in_both_profiles
def test_5_b_a_partial_hit(engine, profile):
    """12 tokens, the first 8 of them known: 4 are computed over 8 cached."""
    asks = {
        "A": Ask(8, 1, text=prompt(group=1, tokens=8)),
        "B": Ask(12, 1, at=5, text=prompt(group=1, tokens=8)),
    }
    got = replay(engine, asks, profile=profile)
    assert got.reused("B") == [8]
    assert (got.column("prefill_tokens")[1], got.column("prefill_kv_tokens")[1]) == (4, 8)


@in_both_profiles
def test_5_c_a_preempted_request_finds_its_own_generated_tokens(engine, profile):
    """
    bs=4, 5 blocks: A 8/12 grows at tokens 9 and 13, B 6/8 at tokens 9 and 13.

    B is thrown out knowing 6 prompt and 3 generated tokens, 8 of them in two full blocks. Nobody takes those before it
    returns, so it computes only the newest token: no further block is given up.
    """
    asks = {"A": Ask(8, 5), "B": Ask(6, 8)}
    got = replay(engine, asks, profile=profile, blocks=5)
    assert got.row("B")["n_preemptions"] == 1
    known = 6 + sum(t <= got.starts()[got.preempted().index(["B"])] for t in got.tokens_at("B"))
    assert known == 9
    assert got.reused("B") == [0, 8]
    back = next(p for p in got.passes() if any(s.kind == "resumed" for s in p.requests))
    assert [(s.tokens, s.computed_before) for s in back.requests if s.kind == "resumed"] == [(1, 8)]


@in_both_profiles
def test_5_d_a_nine_token_prompt_hits_its_two_full_blocks(engine, profile):
    text = prompt(group=1, tokens=9)
    got = replay(engine, {"A": Ask(9, 2, text=text), "B": Ask(9, 2, at=5, text=text)}, profile=profile)
    assert got.reused("A") == [0]
    assert got.reused("B") == [8]
    assert got.row("B")["cached_tokens_first"] == 8


@in_both_profiles
def test_5_e_a_request_may_hit_what_the_same_pass_computes(engine, profile):
    """Two identical 8-token prompts in one pass: the second shares the first's first block. 3 active blocks."""
    text = prompt(group=1, tokens=8)
    got = replay(engine, {"A": Ask(8, 1, text=text), "B": Ask(8, 1, text=text)}, profile=profile)
    assert got.scheduled() == [{"A": 8, "B": 4}]
    assert got.reused("B") == [4]
    assert got.column("active_blocks") == [3]


@in_both_profiles
def test_5_f_a_block_closed_by_a_generated_token_can_be_hit_at_once(engine, profile):
    """
    A: prompt [0, 1, 2], first answer 3. B: prompt [0, 1, 2, 3, 4].

    pass 0   A computes 0 1 2
    pass 1   A computes 3, which closes its block; B, admitted in this pass, finds it
    """
    asks = {"A": Ask(3, 3, text=[0, 1, 2, 3]), "B": Ask(5, 1, at=0.5, text=[0, 1, 2, 3, 4])}
    got = replay(engine, asks, profile=profile)
    assert got.scheduled()[1] == {"A": 1, "B": 1}
    assert got.reused("B") == [4]


@in_both_profiles
def test_5_g_a_block_can_be_hit_when_its_last_token_is_scheduled_not_before(engine, profile):
    """
    budget 2, A's prompt 8: pass 0 computes tokens 0 1, pass 1 tokens 2 3

    A rank with room for one more asks after pass 1 and after pass 2: its pool holds no full block, then one.
    """
    text = prompt(group=1, tokens=8)
    asks = {"A": Ask(8, 1, text=text), "B": Ask(8, 1, at=1.5, text=text)}
    got = replay(engine, asks, profile=profile, max_batched_tokens=2)
    assert got.scheduled()[:4] == [{"A": 2}] * 4
    # B's turn comes when A is through; by then one block of A's two is taken, the other given up.
    assert got.reused("B") == [4]


@in_both_profiles
def test_5_g_nothing_is_hit_one_token_short_of_a_block(engine, profile):
    """Budget 4: pass 0 gives A 3 tokens and leaves 1 for B, whose block of the same text is not closed yet."""
    text = prompt(group=1, tokens=8)
    asks = {"A": Ask(3, 1, text=text[:3]), "B": Ask(8, 1, text=text)}
    got = replay(engine, asks, profile=profile, max_batched_tokens=4)
    assert got.scheduled()[0] == {"A": 3, "B": 1}
    assert got.reused("B") == [0]


@in_both_profiles
def test_5_h_tails_are_evicted_before_heads(engine, profile):
    """
    2 blocks. A's 8 tokens leave a0 a1 cached; X needs one block and evicts a1; B still finds a0.
    """
    text = prompt(group=1, tokens=8)
    asks = {
        "A": Ask(8, 1, text=text),
        "X": Ask(4, 1, at=3),
        "B": Ask(8, 1, at=6, text=text),
    }
    got = replay(engine, asks, profile=profile, blocks=2)
    assert got.reused("B") == [4]


@in_both_profiles
def test_5_i_a_request_admitted_first_may_evict_what_the_next_one_would_have_hit(engine, profile):
    """3 blocks, one of them cached. X's 12 tokens take all three; B behind it sees nothing."""
    text = prompt(group=1, tokens=4)
    asks = {
        "A": Ask(4, 1, text=text),
        "X": Ask(12, 1, at=3),
        "B": Ask(5, 1, at=3, text=text),
    }
    got = replay(engine, asks, profile=profile, blocks=3)
    assert got.admitted("X") == 3
    assert got.admitted("B") == 4
    assert got.reused("B") == [0]


@in_both_profiles
def test_5_j_128_tokens_grow_the_lease_three_times(engine, profile):
    """1024 in / 128 out, 64-token blocks: 16 blocks for the prompt, one more at token 1025, one at token 1089."""
    got = replay(engine, {"A": Ask(1024, 128)}, profile=profile, block_tokens=64, blocks=64, max_batched_tokens=2048)
    active = got.column("active_blocks")
    assert len(active) == 128
    assert active[:2] == [16, 17]
    grown = [p for p in range(1, 128) if active[p] != active[p - 1]]
    assert grown == [1, 65]
    assert active[-1] == 18


@in_both_profiles
def test_5_k_a_sampled_token_gets_its_slot_in_the_next_pass(engine, profile):
    """4 blocks, two 4-token prompts, 3 outputs: two blocks in the first pass, all four in the second, nobody leaves."""
    got = replay(engine, {"A": Ask(4, 3), "B": Ask(4, 3)}, profile=profile, blocks=4)
    assert got.column("active_blocks") == [2, 4, 4]
    assert got.column("n_preempted") == [0, 0, 0]


@in_both_profiles
def test_5_8_the_last_token_never_gets_a_slot(engine, profile):
    """8 in / 9 out is 17 tokens, and 16 slots in 4 blocks hold all of them but the last."""
    got = replay(engine, {"A": Ask(8, 9)}, profile=profile, blocks=4)
    assert got.status("A") == "completed"
    assert max(got.column("active_blocks")) == 4


@in_both_profiles
def test_5_4_without_prefix_caching_nothing_is_shared_or_kept(engine, profile):
    text = prompt(group=1, tokens=8)
    asks = {"A": Ask(8, 1, text=text), "B": Ask(8, 1, at=3, text=text)}
    got = replay(engine, asks, profile=profile, prefix_caching=False)
    assert got.reused("B") == [0]
    assert got.column("cached_blocks") == [0, 0]


@in_both_profiles
def test_5_5_a_tokenless_request_needs_no_logits_and_keeps_a_full_hit(engine, profile):
    """Nothing is left to compute, so it ends with whatever pass comes next."""
    text = prompt(group=1, tokens=8)
    asks = {"A": Ask(8, 1, text=text), "B": Ask(8, 0, at=3, text=text)}
    got = replay(engine, asks, profile=profile)
    assert got.reused("B") == [8]
    assert got.status("B") == "completed"


@in_both_profiles
def test_5_3_the_same_id_at_another_position_is_another_block(engine, profile):
    """Chained identity: B's second block repeats A's first, and is no hit."""
    asks = {"A": Ask(4, 1, text=[1, 2, 3, 4]), "B": Ask(9, 1, at=3, text=[9, 9, 9, 9, 1, 2, 3, 4])}
    assert replay(engine, asks, profile=profile).reused("B") == [0]


@in_both_profiles
def test_4_3_admission_discounts_only_blocks_somebody_holds(engine, profile):
    """
    4 blocks. A's 8 tokens leave two cached blocks; H holds the other two and has just grown to fill them.

    B 9/1 would hit both cached blocks and needs three in all. Unheld hits have to be taken from the pool like any other
    block: 3 needed, 2 left. B waits for H.
    """
    text = prompt(group=1, tokens=8)
    asks = {
        "A": Ask(8, 1, text=text),
        "H": Ask(5, 4, at=2),
        "B": Ask(9, 1, at=3.5, text=text),
    }
    got = replay(engine, asks, profile=profile, blocks=4)
    assert got.admitted("B") == 6
    assert got.reused("B") == [8]
