"""Made-up traffic: exact lengths, named sharing, arrivals by distribution, and requests that do not move."""

from __future__ import annotations

import numpy as np
import pytest

from assets import synthetic


def test_round_half_away() -> None:
    assert [synthetic.round_half_away(x) for x in (0, 0.49, 0.5, 2.5, 19.2, 31.5)] == [0, 0, 1, 3, 19, 32]


@pytest.mark.parametrize(
    ("prompt", "ratio", "block", "tokens"),
    [(1024, 0.3, 16, 304), (1000, 0.5, 16, 512), (1000, 1.0, 64, 1024), (10, 0.1, 16, 0), (1024, 0.0, 16, 0)],
)
def test_shared_prefixes_are_whole_blocks(prompt: int, ratio: float, block: int, tokens: int) -> None:
    """Rule WL-EX1."""
    assert synthetic.shared_tokens(prompt, ratio, block) == tokens


def made(n: int, **changes: object) -> synthetic.Columns:
    options = {
        "input_tokens": 1024,
        "output_tokens": 128,
        "shared_prefix_ratio": 0.3,
        "prefix_groups": 5,
        "block_tokens": 16,
        "seed": 1,
    }
    return synthetic.requests(n, **{**options, **changes})  # type: ignore[arg-type]


def test_requests_share_by_group() -> None:
    columns = made(50_000)
    assert columns.hash_block_tokens == 304
    assert columns.hash_ids is not None
    counts = np.bincount(columns.hash_ids, minlength=5)
    assert len(counts) == 5
    assert (abs(counts - 10_000) < 3 * np.sqrt(50_000 * 0.2 * 0.8)).all()
    assert (columns.prompt_tokens == 1024).all()
    assert (columns.output_tokens == 128).all()


def test_nothing_shared_is_known_rather_than_unknown() -> None:
    columns = made(10, shared_prefix_ratio=0.0)
    assert columns.hash_offsets is not None
    assert columns.hash_ids is not None
    assert columns.hash_offsets.tolist() == [0] * 11
    assert len(columns.hash_ids) == 0


def test_a_request_does_not_depend_on_how_many_follow() -> None:
    few, many = made(100), made(10_000)
    assert few.hash_ids is not None
    assert many.hash_ids is not None
    np.testing.assert_array_equal(few.hash_ids, many.hash_ids[:100])
    for arrivals in (
        lambda n: synthetic.constant_arrivals(n, 3),
        lambda n: synthetic.poisson_arrivals(n, 3, 9),
        lambda n: synthetic.gamma_arrivals(n, 3, 4, 9),
        lambda n: synthetic.gamma_arrivals(n, 3, 0.3, 9),
    ):
        np.testing.assert_array_equal(arrivals(100), arrivals(10_000)[:100])


def test_streams_differ_by_seed_and_purpose_and_fill_the_unit_interval() -> None:
    one = synthetic.uniforms(1, "a", 100_000)
    assert one.min() >= 0
    assert one.max() < 1
    assert abs(one.mean() - 0.5) < 3 / np.sqrt(12 * 100_000)
    for other in (synthetic.uniforms(2, "a", 100_000), synthetic.uniforms(1, "b", 100_000)):
        assert abs(np.corrcoef(one, other)[0, 1]) < 0.02


def test_pinned_sequence() -> None:
    """Our own streams: these numbers must not change with numpy or with us."""
    drawn = [0.9018709670826979, 0.2543462405099599, 0.40324233882879534]
    assert synthetic.uniforms(42, "arrival", 3).tolist() == drawn
    assert synthetic.poisson_arrivals(4, 10, 42).tolist() == [0, 29_349_392, 80_973_810, 98_475_618]


def test_constant_rate() -> None:
    """Rule WL-1: 10 per second are 0, 100, 200, 300 ms."""
    assert synthetic.constant_arrivals(4, 10).tolist() == [0, 100_000_000, 200_000_000, 300_000_000]
    assert synthetic.constant_arrivals(4, 3).tolist() == [0, 333_333_333, 666_666_667, 1_000_000_000]


@pytest.mark.parametrize(
    ("arrivals", "mean_ms", "std_ms"),
    [
        (synthetic.poisson_arrivals(200_000, 20, 1), 50, 50),
        (synthetic.gamma_arrivals(200_000, 20, 4, 1), 50, 25),  # rule WL-2
        (synthetic.gamma_arrivals(200_000, 20, 1, 1), 50, 50),
        (synthetic.gamma_arrivals(200_000, 20, 0.25, 1), 50, 100),
    ],
)
def test_gaps_have_the_mean_and_spread_asked_for(arrivals: np.ndarray, mean_ms: float, std_ms: float) -> None:
    gaps = np.diff(arrivals) / 1e6
    assert arrivals[0] == 0
    assert arrivals.dtype == np.int64
    assert (gaps >= 0).all()
    assert abs(gaps.mean() - mean_ms) < 3 * std_ms / np.sqrt(len(gaps))
    assert abs(gaps.std() / std_ms - 1) < 0.03


def test_arrivals_past_the_end_of_the_clock() -> None:
    for arrivals in (
        lambda: synthetic.constant_arrivals(10, 1e-10),
        lambda: synthetic.poisson_arrivals(10, 1e-300, 1),
        lambda: synthetic.gamma_arrivals(10, 1e-12, 2, 1),
    ):
        with pytest.raises(OverflowError, match="do not end"):
            arrivals()


def conversations(**changes: object) -> synthetic.Columns:
    options = {
        "turns": 3,
        "new_tokens": 8,
        "output_tokens": 2,
        "inter_turn_delay_ms": 5,
        "shared_prefix_ratio": 0.0,
        "prefix_groups": 0,
        "block_tokens": 4,
        "seed": 1,
    }
    return synthetic.sessions(2, **{**options, **changes})  # type: ignore[arg-type]


def tokens(columns: synthetic.Columns, r: int) -> list[object]:
    """Every described token of a request, as the rule of `Workload` reads them."""
    assert columns.hash_offsets is not None
    assert columns.hash_ids is not None
    assert columns.hashed_tokens is not None
    ids = columns.hash_ids[columns.hash_offsets[r] : columns.hash_offsets[r + 1]]
    return [(int(ids[p // columns.hash_block_tokens]), p) for p in range(int(columns.hashed_tokens[r]))]


@pytest.mark.parametrize("shared", [{}, {"shared_prefix_ratio": 0.5, "prefix_groups": 1}])
def test_a_turn_repeats_the_conversation(shared: dict[str, object]) -> None:
    """Rule WL-7: 8 new, 2 out, 3 turns give prompts of 8, 18 and 28."""
    columns = conversations(**shared)
    assert columns.prompt_tokens.tolist() == [8, 18, 28] * 2
    assert columns.session is not None
    assert columns.session.tolist() == [0, 0, 0, 1, 1, 1]
    assert columns.delay_ns is not None
    assert columns.delay_ns.tolist() == [0, 5_000_000, 5_000_000] * 2
    for session in range(2):
        first, second, third = (tokens(columns, 3 * session + turn) for turn in range(3))
        assert [len(each) for each in (first, second, third)] == [10, 20, 30]  # prompt and output
        assert second[:10] == first
        assert third[:20] == second


def test_conversations_share_their_prefix_and_nothing_else() -> None:
    columns = conversations(shared_prefix_ratio=0.5, prefix_groups=1)
    one, other = tokens(columns, 0), tokens(columns, 3)
    assert one[:4] == other[:4]
    assert not set(one[4:]) & set(other[4:])
    alone = conversations()
    assert not set(tokens(alone, 2)) & set(tokens(alone, 5))


def test_a_shared_prefix_never_reaches_into_what_is_generated() -> None:
    columns = conversations(new_tokens=10, shared_prefix_ratio=1.0, prefix_groups=1)
    one, other = tokens(columns, 0), tokens(columns, 3)
    assert one[:8] == other[:8]
    assert not set(one[8:]) & set(other[8:])
