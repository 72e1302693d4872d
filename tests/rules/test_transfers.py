"""KV transfers that share links, wait for their first byte, fail, come too late or begin early (PD-10, PD-15, PD-17 to
PD-19), by worked timelines. Times in ms; the KV of a token takes a link 1 ms unless a test says otherwise."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sim.result import ACTIVATED, GAVE_UP, NEVER_FITS, TIMED_OUT
from sim.spec import PolynomialTiming, Transfer
from sim.speculation import draws
from tests.rules.test_pools import Pools, pools, rate
from tests.rules.world import MS, Ask, fixed

NEVER = -1 / MS
FIFO = {"links": "shared", "sharing": "fifo"}
FAIR = {"links": "shared", "sharing": "fair"}


def over(ms_per_token: float = 1, **settings: Any) -> Transfer:
    return replace(rate(ms_per_token), **settings)


def sent(got: Pools, name: str) -> tuple[float, ...]:
    """Reserved, queued for its link, begun, transferred."""
    row = got.handoff(name)
    return tuple(row[f"{instant}_ns"] for instant in ("reserved", "queued", "began", "transferred"))


def ended(got: Pools, name: str) -> tuple[float, ...]:
    """The request's end; withdrawn at the destination and released at the source."""
    row = got.handoff(name)
    return got.story.row(name)["end_ns"] / MS, row["withdrawn_ns"], row["released_ns"]


# ------------------------------------------------------------------------------------------------ PD-10: links
def test_pd_10_without_links_everyone_has_the_whole_bandwidth(engine: str) -> None:
    got = pools(engine, {"A": Ask(20, 1), "B": Ask(10, 1)}, transfer=over())
    assert sent(got, "A") == (10, 10, 10, 30) and sent(got, "B") == (10, 10, 10, 20)
    assert [got.handoff(name)["attempts"] for name in "AB"] == [1, 1]


def test_pd_10_fifo_serves_one_after_the_other(engine: str) -> None:
    got = pools(engine, {"A": Ask(20, 1), "B": Ask(10, 1)}, transfer=over(**FIFO))
    assert sent(got, "A") == (10, 10, 10, 30) and sent(got, "B") == (10, 10, 30, 40)
    assert got.tokens("A") == [31] and got.tokens("B") == [41]


def test_pd_10_fair_shares_are_equal(engine: str) -> None:
    """Both at half speed until B has its 10 ms of work, at 30; A has had 10 of 20 then, and goes on alone."""
    got = pools(engine, {"A": Ask(20, 1), "B": Ask(10, 1)}, transfer=over(**FAIR))
    assert sent(got, "A") == (10, 10, 10, 40) and sent(got, "B") == (10, 10, 10, 30)


def test_pd_10_fair_shares_change_when_somebody_comes(engine: str) -> None:
    """A alone until 20; then both at half speed until B has 4 ms, at 28; A has had 14 of 20, and ends at 34."""
    got = pools(engine, {"A": Ask(20, 1), "B": Ask(4, 1, at=1)}, transfer=over(**FAIR))
    assert sent(got, "B") == (20, 20, 20, 28) and sent(got, "A") == (10, 10, 10, 34)


def test_pd_10_not_a_nanosecond_is_lost(engine: str) -> None:
    """1 ns per token, prompts of 1, 1 and 2: three thirds, then one alone. All 4 ns of work are done after 4 ns."""
    asks = {"A": Ask(1, 1), "B": Ask(1, 1), "C": Ask(2, 1)}
    got = pools(engine, asks, transfer=over(1e-6, **FAIR))
    held = 10 * MS
    assert [round(got.handoff(name)["transferred_ns"] * MS) - held for name in "ABC"] == [3, 3, 4]


@pytest.mark.parametrize(
    ("links", "many", "ends"),
    [
        ("per_source", "prefill", (30, 20)),
        ("per_source", "decode", (30, 40)),
        ("per_destination", "prefill", (30, 40)),
        ("per_destination", "decode", (30, 20)),
        ("shared", "prefill", (30, 40)),
        ("shared", "decode", (30, 40)),
    ],
)
def test_pd_10_whose_link_it_is(engine: str, links: str, many: str, ends: tuple[int, int]) -> None:
    """A and B from two prefill workers to one decode worker, or from one to two. Ranks of a worker share its link."""
    got = pools(engine, {"A": Ask(20, 1), "B": Ask(10, 1)}, transfer=over(links=links), **{many: {"workers": 2}})
    assert tuple(got.handoff(name)["transferred_ns"] for name in "AB") == ends
    ranks = pools(engine, {"A": Ask(20, 1), "B": Ask(10, 1)}, transfer=over(links=links), **{many: {"dp": 2}})
    assert tuple(ranks.handoff(name)["transferred_ns"] for name in "AB") == (30, 40)


@pytest.mark.parametrize("sharing", ["fifo", "fair"])
def test_pd_10_what_takes_no_time_is_there_at_once(engine: str, sharing: str) -> None:
    got = pools(engine, {"A": Ask(4, 1)}, transfer=Transfer(links="shared", sharing=sharing))
    assert got.instants("A") == (10, 10, 10, 10, 10) and got.tokens("A") == [11]


def test_pd_10_with_a_constant_for_unknown_sizes_links_are_shared_as_well(engine: str) -> None:
    got = pools(engine, {"A": Ask(20, 1), "B": Ask(10, 1)}, transfer=Transfer(fallback_ns=5 * MS, links="shared"))
    assert sent(got, "A") == (10, 10, 10, 15) and sent(got, "B") == (10, 10, 15, 20)
    assert got.handoff("A")["sent_bytes"] == -1


def test_bytes_are_those_of_the_tokens_and_the_fixed_state(engine: str) -> None:
    got = pools(engine, {"A": Ask(100, 1)}, transfer=Transfer(1_000, 1e9, fixed_bytes=50_000)).handoff("A")
    assert got["sent_bytes"] == 150_000


# ------------------------------------------------------------------------------------------- PD-17: the first byte
def test_pd_17_the_first_byte_takes_its_time(engine: str) -> None:
    got = pools(engine, {"A": Ask(4, 1)}, transfer=over(first_byte_ns=5 * MS))
    assert sent(got, "A") == (10, 15, 15, 19) and got.tokens("A") == [20]


@pytest.mark.parametrize(("shared", "ends"), [(FIFO, (25, 35)), (FAIR, (35, 35))])
def test_pd_17_the_link_is_free_meanwhile(engine: str, shared: dict[str, Any], ends: tuple[int, int]) -> None:
    """Both wait from 10 to 15, and only then is anything sent."""
    got = pools(engine, {"A": Ask(10, 1), "B": Ask(10, 1)}, transfer=over(first_byte_ns=5 * MS, **shared))
    assert tuple(got.handoff(name)["transferred_ns"] for name in "AB") == ends
    assert sent(got, "B")[:2] == (10, 15)


# --------------------------------------------------------------------------------------- PD-18: failures and retries
def seed_where(*fails: bool, share: float = 0.5) -> int:
    """A seed for which the first attempts of the first requests end so."""
    threshold = over(failure_rate=share).failure_threshold
    return next(
        seed
        for seed in range(1_000)
        if all((draws.draw(seed, draws.TRANSFER, i, 0) < threshold) == fail for i, fail in enumerate(fails))
    )


def test_pd_18_a_failed_transfer_ends_its_request(engine: str) -> None:
    """It is found out when the attempt ends; both sides are idle and give back what they hold at once."""
    got = pools(engine, {"A": Ask(4, 3), "B": Ask(4, 1, at=30)}, transfer=over(failure_rate=1.0))
    assert got.story.status("A") == "failed transfer_failed" and got.handoff("A")["outcome"] == GAVE_UP
    assert ended(got, "A") == (14, 14, 14) and got.tokens("A") == []
    assert got.handoff("A")["activated_ns"] == NEVER and ended(got, "B") == (44, 44, 44)


def test_pd_18_retries_begin_as_the_attempt_before_ends(engine: str) -> None:
    got = pools(engine, {"A": Ask(4, 1)}, transfer=over(failure_rate=1.0, retries=2, first_byte_ns=1 * MS))
    assert ended(got, "A") == (25, 25, 25) and got.handoff("A")["attempts"] == 3
    assert sent(got, "A")[:3] == (10, 21, 21)


def test_pd_18_a_retry_queues_again(engine: str) -> None:
    """A 10-20, B 20-30, A again 30-40, B again 40-50."""
    got = pools(engine, {"A": Ask(10, 1), "B": Ask(10, 1)}, transfer=over(failure_rate=1.0, retries=1, **FIFO))
    assert sent(got, "A")[1:3] == (20, 30) and sent(got, "B")[1:3] == (30, 40)
    assert (ended(got, "A")[0], ended(got, "B")[0]) == (40, 50)


def test_pd_18_an_attempt_that_fails_may_be_followed_by_one_that_does_not(engine: str) -> None:
    transfer = over(failure_rate=0.5, retries=9, seed=seed_where(True, False))
    got = pools(engine, {"A": Ask(4, 1), "B": Ask(4, 1)}, transfer=transfer)
    attempts = got.handoff("A")["attempts"]
    assert attempts > 1 and got.handoff("A")["transferred_ns"] == 10 + 4 * attempts
    assert got.handoff("B")["attempts"] == 1 and got.story.status("A") == "completed"


@pytest.mark.parametrize("links", ["none", "shared"])
def test_pd_18_what_fails_is_drawn_by_request_and_attempt(engine: str, links: str) -> None:
    """Neither the time nor the link has a say."""
    asks = {f"R{i}": Ask(4 + i % 3, 1, at=i) for i in range(12)}
    transfer = over(failure_rate=0.4, seed=7, links=links)
    got = pools(engine, asks, transfer=transfer)
    fails = [draws.draw(7, draws.TRANSFER, i, 0) < transfer.failure_threshold for i in range(12)]
    assert [got.handoff(name)["outcome"] == GAVE_UP for name in asks] == fails and 0 < sum(fails) < 12


def test_pd_5_a_worker_gives_back_what_failed_when_its_pass_is_over(engine: str) -> None:
    """A decodes 24-26.5 while B's transfer, 21.5-25.5, fails."""
    transfer = over(failure_rate=0.5, seed=seed_where(False, True))
    got = pools(engine, {"A": Ask(4, 9), "B": Ask(4, 1, at=1)}, decode={"timing": fixed(10, 2.5)}, transfer=transfer)
    assert got.instants("A")[2] == 14 and sent(got, "B")[:3] == (21.5, 21.5, 21.5)
    assert ended(got, "B") == (25.5, 26.5, 25.5)


def test_pd_15_blocks_of_a_failed_handoff_serve_the_next(engine: str) -> None:
    """Six decode blocks: A is sent 10-26, into four of them, and fails; B, who needs three, is reserved then."""
    transfer = over(failure_rate=0.5, seed=seed_where(True, False))
    got = pools(engine, {"A": Ask(16, 1), "B": Ask(12, 1)}, decode={"blocks": 6}, transfer=transfer)
    assert ended(got, "A") == (26, 26, 26)
    assert sent(got, "B") == (26, 26, 26, 38) and got.story.status("B") == "completed"


def test_pd_14_a_failed_handoff_frees_its_slot_of_a_closed_loop(engine: str) -> None:
    got = pools(engine, {"A": Ask(4, 9), "B": Ask(4, 1)}, transfer=over(failure_rate=1.0), concurrency=1)
    assert got.story.row("B")["arrival_ns"] == 14 * MS


def test_2_5_the_next_turn_goes_on_as_after_any_end(engine: str) -> None:
    asks = {"A": Ask(4, 9, session=1), "B": Ask(4, 1, session=1, delay=3)}
    got = pools(engine, asks, transfer=over(failure_rate=1.0))
    assert got.story.row("B")["arrival_ns"] == 17 * MS


# ----------------------------------------------------------------------------------------------- PD-18: deadlines
def test_pd_18_canceled_while_it_waits_for_room(engine: str) -> None:
    """A has the only place until 25. B, held at 20, wanted it, and is gone at 23."""
    asks = {"A": Ask(4, 15), "B": Ask(4, 1, at=1)}
    got = pools(engine, asks, decode={"max_num_seqs": 1}, transfer=Transfer(timeout_ns=3 * MS))
    assert got.story.status("B") == "canceled handoff_timeout" and ended(got, "B") == (23, NEVER, 23)
    row = got.handoff("B")
    assert (row["reserved_ns"] == NEVER, row["attempts"], row["outcome"]) == (True, 0, TIMED_OUT)
    assert got.tokens("A")[-1] == 25 and got.handoff("A")["outcome"] == ACTIVATED


@pytest.mark.parametrize(("decode_ms", "reserved"), [(1, 25), (2, 26)])
def test_pd_18_who_stood_behind_it_is_asked_next(engine: str, decode_ms: float, reserved: float) -> None:
    """Twelve decode blocks. A has four from 10 on; B wants nine, and C behind it one. B is gone at 25: C is reserved
    then if the worker is between two passes, else when its pass is over, at 26."""
    asks = {"A": Ask(16, 20), "B": Ask(36, 1), "C": Ask(4, 1, at=1)}
    decode = {"blocks": 12, "timing": fixed(10, decode_ms)}
    got = pools(engine, asks, decode=decode, transfer=over(0.25, timeout_ns=15 * MS))
    assert got.instants("A")[1:3] == (10, 14) and got.story.status("B") == "canceled handoff_timeout"
    assert got.handoff("C")["reserved_ns"] == reserved and got.story.status("C") == "completed"


def test_pd_18_canceled_before_the_worker_was_even_asked(engine: str) -> None:
    """The decode worker computes 11-31; B is held at 20 and gone at 22."""
    asks = {"A": Ask(4, 3), "B": Ask(4, 1, at=1)}
    got = pools(engine, asks, decode={"timing": fixed(10, 20)}, transfer=over(0.25, timeout_ns=2 * MS))
    assert got.instants("A")[2] == 11 and ended(got, "B") == (22, NEVER, 22)
    assert got.handoff("B")["reserved_ns"] == NEVER and got.tokens("A") == [31, 51, 71]


@pytest.mark.parametrize(("shared", "began", "done"), [(FIFO, 25, 29), (FAIR, 20, 26.5)])
def test_pd_18_canceled_in_transfer_frees_the_link(
    engine: str, shared: dict[str, Any], began: float, done: float
) -> None:
    """A is sent from 10 on and gone at 25. FIFO: B, queued since 20, begins. Fair: B has had 2.5 of its 4 ms."""
    asks = {"A": Ask(20, 1), "B": Ask(4, 1, at=1)}
    got = pools(engine, asks, transfer=over(timeout_ns=15 * MS, **shared))
    assert got.story.status("A") == "canceled handoff_timeout" and ended(got, "A") == (25, 25, 25)
    assert got.handoff("A")["transferred_ns"] == NEVER
    assert sent(got, "B") == (20, 20, began, done) and got.story.status("B") == "completed"


@pytest.mark.parametrize("links", ["none", "shared"])
def test_pd_18_canceled_before_its_first_byte(engine: str, links: str) -> None:
    transfer = over(timeout_ns=3 * MS, first_byte_ns=5 * MS, links=links)
    got = pools(engine, {"A": Ask(4, 1)}, transfer=transfer)
    assert ended(got, "A") == (13, 13, 13) and got.story.duration == 13


def test_pd_18_canceled_when_it_was_there_but_not_activated(engine: str) -> None:
    """The decode worker computes 24-34; B's KV arrives at 28, and its time is over at 32. The worker learns of both at
    34, and gives its blocks back. Two ms more, and it is activated at 34, which is in time."""
    asks, decode = {"A": Ask(4, 3), "B": Ask(4, 1, at=1)}, {"timing": fixed(10, 10)}
    got = pools(engine, asks, decode=decode, transfer=over(timeout_ns=12 * MS))
    assert sent(got, "B") == (24, 24, 24, 28)
    assert got.story.status("B") == "canceled handoff_timeout" and ended(got, "B") == (32, 34, 32)
    later = pools(engine, asks, decode=decode, transfer=over(timeout_ns=14 * MS))
    assert later.handoff("B")["activated_ns"] == 34 and later.story.status("B") == "completed"


def test_pd_4_the_source_of_a_canceled_handoff_waits_for_its_workers_pass(engine: str) -> None:
    """B is computed 10-20. A's time is over at 13; its source is released at 20."""
    got = pools(engine, {"A": Ask(20, 1), "B": Ask(4, 1, at=1)}, transfer=over(timeout_ns=3 * MS))
    assert ended(got, "A") == (13, 13, 20)


def test_a_deadline_that_was_met_is_no_event(engine: str) -> None:
    got = pools(engine, {"A": Ask(4, 1)}, transfer=over(timeout_ns=500 * MS))
    assert got.story.replayed.outcome.end_ns == 15 * MS


def test_pd_14a_what_can_never_be_held_is_not_a_timeout(engine: str) -> None:
    got = pools(engine, {"A": Ask(28, 2)}, decode={"blocks": 6}, transfer=over(timeout_ns=MS))
    assert got.story.status("A") == "failed exceeds_kv_pool" and got.handoff("A")["outcome"] == NEVER_FITS


# ------------------------------------------------------------------- PD-19: sent while the prompt is being computed
def layered(ms_per_token: float = 1, layers: int = 10, **settings: Any) -> Transfer:
    return over(ms_per_token, layers=layers, **settings)


@pytest.mark.parametrize(("tokens", "end"), [(20, 21), (11, 12), (10, 11), (4, 10.4), (1, 10.1)])
def test_pd_19_what_is_left_after_the_pass(engine: str, tokens: int, end: float) -> None:
    """The pass takes P = 10, from 0 on, and its first of L = 10 layers is there at 1. Of T ms, the larger of T / L (the
    last layer's share) and T - P (L - 1) / L are left when it is over."""
    got = pools(engine, {"A": Ask(tokens, 1)}, transfer=layered())
    assert sent(got, "A") == (0, 1, 1, end) and got.handoff("A")["held_ns"] == 10
    assert end - 10 == pytest.approx(max(tokens / 10, tokens - 10 * 9 / 10))
    assert got.tokens("A") == [end + 1]


def test_pd_19_one_layer_hides_nothing(engine: str) -> None:
    got = pools(engine, {"A": Ask(20, 1)}, transfer=layered(layers=1))
    assert sent(got, "A") == (0, 10, 10, 30)


def test_pd_19_of_a_prompt_in_chunks_the_last_pass_counts(engine: str) -> None:
    """16 tokens 0-10, 4 tokens 10-20: the destination is asked at 10."""
    got = pools(engine, {"A": Ask(20, 1)}, prefill={"max_batched_tokens": 16}, transfer=layered())
    assert sent(got, "A") == (10, 11, 11, 31) and got.handoff("A")["held_ns"] == 20


@pytest.mark.parametrize(
    ("decode_ms", "tokens", "reserved", "end"), [(6, 4, 16.4, 21.4), (6, 20, 16.4, 36.4), (20, 4, 30.4, 34.4)]
)
def test_pd_19_what_is_reserved_late_hides_less(
    engine: str, decode_ms: float, tokens: int, reserved: float, end: float
) -> None:
    """B is computed 11-21, and asked for at 11; the decode worker's pass ends at 16.4 or 30.4. Layers that are there by
    then go at once; after 21 all of them are."""
    asks = {"A": Ask(4, 3), "B": Ask(tokens, 1, at=11)}
    got = pools(engine, asks, decode={"timing": fixed(10, decode_ms)}, transfer=layered())
    assert got.instants("A")[:3] == (10, 0, 10.4) and sent(got, "B") == (reserved, reserved, reserved, end)


@pytest.mark.parametrize(
    ("shared", "tokens", "ends"),
    [
        (FIFO, (20, 10), (21, 31)),
        (FIFO, (4, 20), (10.4, 30.4)),
        (FAIR, (4, 4), (10.4, 10.4)),
        (FAIR, (20, 10), (31, 21)),
    ],
)
def test_pd_19_on_a_link(
    engine: str, shared: dict[str, Any], tokens: tuple[int, int], ends: tuple[float, float]
) -> None:
    """Both join at 1. FIFO: who waits for a layer keeps the link. Fair: who has had its bytes takes no share."""
    asks = dict(zip("AB", (Ask(n, 1) for n in tokens)))
    got = pools(engine, asks, transfer=layered(**shared))
    assert tuple(got.handoff(name)["transferred_ns"] for name in "AB") == ends


def test_pd_19_the_first_byte_is_awaited_meanwhile(engine: str) -> None:
    got = pools(engine, {"A": Ask(20, 1)}, transfer=layered(first_byte_ns=5 * MS))
    assert sent(got, "A") == (0, 5, 5, 25)


def test_pd_19_what_takes_no_time_is_there_when_the_prompt_is(engine: str) -> None:
    for links in ("none", "shared"):
        got = pools(engine, {"A": Ask(20, 1)}, transfer=Transfer(layers=4, links=links))
        assert got.instants("A") == (10, 0, 10, 10, 10)


def test_pd_19_a_retry_sends_everything_again(engine: str) -> None:
    got = pools(engine, {"A": Ask(4, 1)}, transfer=layered(failure_rate=1.0, retries=1))
    assert ended(got, "A") == (14.4, 14.4, 14.4) and sent(got, "A")[1:3] == (10.4, 10.4)


def test_pd_19_blocks_are_taken_while_the_prompt_is_computed(engine: str) -> None:
    """Six decode blocks. A has four of them from 0 on, and B, computed 10-20, is asked for at 10 and gets none until A
    has ended at 14.8. Its 6 ms begin then."""
    got = pools(engine, {"A": Ask(16, 4), "B": Ask(12, 1, at=1)}, decode={"blocks": 6}, transfer=layered(0.5))
    assert got.instants("A")[1:3] == (0, 10.8) and got.tokens("A")[-1] == 14.8
    assert sent(got, "B") == (14.8, 14.8, 14.8, 20.8)


def test_pd_14a_what_can_never_be_held_fails_when_it_is_computed(engine: str) -> None:
    got = pools(engine, {"A": Ask(28, 2)}, decode={"blocks": 6}, transfer=layered())
    assert got.story.row("A")["end_ns"] == 10 * MS and got.handoff("A")["outcome"] == NEVER_FITS


def test_rt_2_targets_take_turns_as_passes_begin(engine: str) -> None:
    """B's pass on the second prefill worker begins later and ends sooner than A's."""
    asks = {"A": Ask(900, 1), "B": Ask(4, 1, at=1)}
    got = pools(
        engine, asks, prefill={"workers": 2, "timing": PolynomialTiming()}, decode={"workers": 2}, transfer=layered()
    )
    assert got.handoff("B")["held_ns"] < got.handoff("A")["held_ns"]
    assert [got.handoff(name)["worker"] for name in "AB"] == [2, 3]
