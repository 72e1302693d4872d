"""Prompts that are prefilled where they decode (CD-1 to CD-4), by worked timelines. Times in ms, blocks of 4 tokens.

Defaults are those of `tests.rules.test_pools`: a prefill 10 ms, a decode 1 ms, instant transfers.
"""

from __future__ import annotations

import pytest

from sim.spec import Routing, Transfer
from tests.rules.test_pools import Pools, pools
from tests.rules.world import MS, Ask, fixed, prompt

TEXT = prompt(group=1, tokens=20)


def handed(got: Pools) -> list[str]:
    """Who went through the prefill pool."""
    return [got.story.names[i] for i in got.story.replayed.tables["handoffs"]["request"]]


def test_cd_1_short_prompts_stay_where_they_decode(engine: str) -> None:
    """A lacks 8 tokens and is prefilled by decode worker 1 at once; B lacks one too many."""
    got = pools(engine, {"A": Ask(8, 3), "B": Ask(9, 1, at=50)}, local=8)
    assert handed(got) == ["B"]
    assert got.tokens("A") == [10, 11, 12] and got.tokens("B") == [61]
    assert (got.story.row("A")["worker"], got.story.row("A")["admitted_ns"]) == (1, 0)


def test_cd_1_what_counts_is_what_the_decode_rank_lacks(engine: str) -> None:
    """A's 20 tokens were handed over to the decode worker; B repeats them and adds four."""
    asks = {"A": Ask(20, 1, text=TEXT), "B": Ask(24, 1, at=50, text=TEXT), "C": Ask(25, 1, at=100, text=TEXT)}
    got = pools(engine, asks, local=4)
    assert handed(got) == ["A", "C"]
    assert got.tokens("B") == [60] and got.story.reused("B") == [20]


def test_cd_1_blocks_are_heard_of_when_the_decode_pass_ends(engine: str) -> None:
    """A's KV is at the decode worker from 10 on, in a pass that ends at 13. B comes at 12, C at 13."""
    asks = {"A": Ask(20, 9, text=TEXT), "B": Ask(24, 1, at=12, text=TEXT), "C": Ask(24, 1, at=13, text=TEXT)}
    assert handed(pools(engine, asks, local=4, decode={"timing": fixed(10, 3)})) == ["A", "B"]


def test_cd_1_a_look_that_comes_to_nothing_moves_no_cursor(engine: str) -> None:
    """Decode workers 1 and 2 take turns: A, then B when it is held, then C."""
    asks = {"A": Ask(8, 1), "B": Ask(30, 1, at=20), "C": Ask(8, 1, at=50)}
    got = pools(engine, asks, local=8, decode={"workers": 2})
    assert handed(got) == ["B"]
    assert [got.story.row(name)["worker"] for name in asks] == [1, 2, 1]


def test_cd_1_pins_and_routers_say_whose_turn_it_is(engine: str) -> None:
    asks = {"A": Ask(8, 1, rank=1), "B": Ask(8, 90, at=20), "C": Ask(8, 1, at=50)}
    got = pools(engine, asks, local=8, decode={"workers": 2})
    assert [got.story.row(name)["worker"] for name in asks] == [2, 1, 2]
    got = pools(engine, {"B": asks["B"], "C": asks["C"]}, local=8, decode={"workers": 2}, routing=Routing())
    assert [got.story.row(name)["worker"] for name in "BC"] == [1, 2]


def test_cd_2_it_shares_passes_with_those_who_decode(engine: str) -> None:
    """B comes at 15.5 and joins the pass of 16: 10 + 1 ms, in which A gets its sixth token."""
    got = pools(engine, {"A": Ask(40, 9), "B": Ask(8, 2, at=15.5)}, local=8)
    assert got.tokens("A") == [11, 12, 13, 14, 15, 16, 27, 28, 29]
    assert got.tokens("B") == [27, 28]


def test_cd_2_it_is_chunked_like_any_prompt(engine: str) -> None:
    got = pools(engine, {"A": Ask(8, 2)}, local=8, decode={"max_batched_tokens": 4})
    assert got.tokens("A") == [20, 21]


def test_cd_2_who_was_handed_over_goes_first(engine: str) -> None:
    """Eight blocks, six of them reserved for A, whose KV arrives at 60. B needs three and waits from 20 on; in front of
    A it would wait for ever."""
    asks = {"A": Ask(24, 2), "B": Ask(12, 1, at=20)}
    got = pools(engine, asks, local=12, decode={"blocks": 8}, transfer=Transfer(fallback_ns=50 * MS))
    assert got.tokens("A") == [61, 62] and got.tokens("B") == [72]


def test_cd_3_its_prompt_is_paid_also_when_it_is_computed_again(engine: str) -> None:
    """Six blocks. A needs a fourth, then a fifth; B, the later one, is thrown out and computes its prompt again, which
    costs nothing where it was handed over."""
    asks = {"A": Ask(12, 6), "B": Ask(8, 8)}

    def paid(local: int) -> int:
        table = pools(engine, asks, local=local, decode={"blocks": 6}).story.replayed.tables["passes"]
        return int(table["prefill_tokens"][table["worker"] == 1].sum())

    assert paid(1) == 0
    assert paid(12) > 12 + 8


@pytest.mark.parametrize(("prompt_tokens", "said"), [(12, "rejected prompt_reaches_max_model_len"), (8, "completed")])
def test_cd_2_what_can_never_run_there_is_rejected(engine: str, prompt_tokens: int, said: str) -> None:
    got = pools(engine, {"A": Ask(prompt_tokens, 2)}, local=20, decode={"max_model_len": 12})
    assert got.story.status("A") == said and not handed(got)


def test_cd_3_trtllm_promises_it_its_whole_sequence(engine: str) -> None:
    """Eight blocks of 4. A (8 in, 12 out) is promised five; B would need five and waits for A's end at 21."""
    got = pools(engine, {"A": Ask(8, 12), "B": Ask(8, 12)}, local=8, decode={"blocks": 8}, profile="trtllm")
    assert got.tokens("A")[0] == 10 and got.tokens("A")[-1] == 21 and got.tokens("B")[0] == 31
