"""Section 3: length limits, tokenless requests, rejection."""

from tests.rules.world import Ask, flat, in_both_profiles, replay


@in_both_profiles
def test_3_1_the_length_limit_shortens_the_output_and_is_a_normal_end(engine, profile):
    """Limit 12, prompt 8: four of the twenty tokens asked for."""
    got = replay(engine, {"A": Ask(8, 20)}, profile=profile, max_model_len=12)
    assert got.status("A") == "completed"
    assert (got.row("A")["requested_tokens"], got.row("A")["output_tokens"]) == (20, 4)


def test_3_1_a_prompt_that_reaches_the_limit_is_rejected_at_the_head_of_the_queue(engine):
    """
    ms      0         10
    A       |-prefill-|-decode--|
    B           ^ arrives at 5; the pass chosen at 10 meets it, and its end at 20 rejects it
    """
    asks = {"A": Ask(4, 2), "B": Ask(8, 2, at=5)}
    got = replay(engine, asks, profile="parity", timing=flat(10), max_model_len=8)
    assert got.status("B") == "rejected prompt_reaches_max_model_len"
    assert got.row("B")["end_ns"] / 1e6 == 20


def test_3_1_vllm_refuses_it_on_arrival(engine):
    asks = {"A": Ask(4, 2), "B": Ask(8, 2, at=5)}
    got = replay(engine, asks, profile="vllm", timing=flat(10), max_model_len=8)
    assert got.status("B") == "rejected prompt_reaches_max_model_len"
    assert got.row("B")["end_ns"] / 1e6 == 5


@in_both_profiles
def test_3_2_a_tokenless_request_completes_with_its_prefill(engine, profile):
    got = replay(engine, {"A": Ask(8, 0), "B": Ask(8, 1)}, profile=profile)
    assert got.status("A") == "completed"
    assert got.row("A")["end_ns"] / 1e6 == 1
    assert got.tokens_at("A") == []
    assert got.row("A")["first_token_ns"] == -1
    assert got.column("n_decode") == [0]


def test_3_3_a_rejection_lets_its_follower_run_in_the_same_pass(engine):
    """A 4-block pool of 4-token blocks can never hold 20 tokens; the request behind is served at once."""
    got = replay(engine, {"big": Ask(20, 2), "small": Ask(4, 1)}, profile="parity", blocks=4)
    assert got.status("big") == "rejected exceeds_kv_pool"
    assert got.row("big")["end_ns"] / 1e6 == 1
    assert got.tokens_at("small") == [1]


def test_3_3_a_rejection_alone_takes_no_time(engine):
    got = replay(engine, {"big": Ask(20, 2, at=7)}, profile="parity", blocks=4)
    assert got.row("big")["end_ns"] / 1e6 == 7
    assert got.scheduled() == []


@in_both_profiles
def test_3_6_the_reuse_count_of_the_first_admission_is_kept(engine, profile):
    """B finds 4 tokens, is preempted, and comes back to find another number: first and largest are both reported.

    bs=4, 4 blocks. A and B share their first block and hold three in all; both need one more in pass 1, one is free.
    """
    text = range(4)
    asks = {"A": Ask(8, 6, text=text), "B": Ask(8, 6, text=text)}
    got = replay(engine, asks, profile=profile, blocks=4)
    assert got.row("B")["n_preemptions"] == 1
    assert got.row("B")["cached_tokens_first"] == 4
    assert got.reused("B")[0] == 4
    assert got.row("B")["cached_tokens_max"] == max(got.reused("B"))
    assert got.row("B")["n_admissions"] == 2
