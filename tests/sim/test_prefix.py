"""Which leading blocks requests share: trace ids of one size, engine blocks of another."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.inputs import Workload
from sim.prefix import share


def load(*rows: tuple[list[int], int], size: int, output: int = 0, hashed: list[int] | None = None) -> Workload:
    """Rows of (ids, prompt tokens)."""
    return Workload(
        np.zeros(len(rows), np.int64),
        np.array([prompt for _, prompt in rows]),
        np.full(len(rows), output),
        hash_offsets=np.cumsum([0] + [len(ids) for ids, _ in rows]),
        hash_ids=np.array([i for ids, _ in rows for i in ids], np.int64),
        hash_block_tokens=size,
        hashed_tokens=None if hashed is None else np.array(hashed),
    )


def chains(workload: Workload, block_tokens: int) -> list[list[int]]:
    found = share(workload, block_tokens)
    return [found.chain[a:b].tolist() for a, b in zip(found.at, found.at[1:])]


@pytest.mark.parametrize(("block_tokens", "tokens"), [(1, 4), (4, 4), (8, 0)])
def test_wl_ex2_a_prefix_in_pages_of_three_sizes(block_tokens, tokens):
    """
    trace block 4        |10         |20   |
    first row            a  a  a  a  b  b               6 tokens
    second row           a  a  a  a  c  c  c  c         8 tokens
                         |10         |30         |
    page 1: 4 shared pages, page 4: one, page 8: the first row has none, and the second differs inside
    """
    first, second = chains(load(([10, 20], 6), ([10, 30], 8), size=4), block_tokens)
    assert first == second
    assert len(first) * block_tokens == tokens


def test_an_id_that_repeats_names_another_block_at_another_place():
    """
    ids [7, 7], trace block 4, engine block 2: tokens 7 7 | 7 7 | 7 7 | 7 7, four different chains.

    The second row begins alike, so its blocks are the leading ones of the first; a text that only continues alike
    (the third row) shares none.
    """
    first, second, third = chains(load(([7, 7], 8), ([7, 7], 8), ([9, 7], 8), size=4), 2)
    assert first == second
    assert len(set(first)) == 4
    assert third == []


def test_the_last_id_describes_only_the_tokens_that_are_there():
    """
    trace block 4, page 1    |5          |6    |
    short row                a  a  a  a  b  b            6 tokens: both tokens of id 6 are shared
    long row                 a  a  a  a  b  b  b  b
    """
    short, long = chains(load(([5, 6], 6), ([5, 6], 8), size=4), 1)
    assert len(short) == 6
    assert short == long[:6]


def test_a_page_that_the_short_row_does_not_fill_is_not_its_own():
    short, long = chains(load(([5, 6], 6), ([5, 6], 8), size=4), 4)
    assert len(short) == 1
    assert short == long[:1]


def test_ids_may_go_on_into_the_answer():
    """
    page 4           prompt            answer
    first row        1  1  1  1        2  2  2  2       ids cover 4 + 4 tokens
    second row       1  1  1  1  2  2  2  2             all of it is prompt
    """
    asked = load(([1, 2], 4), ([1, 2], 8), size=4, output=4, hashed=[8, 8])
    first, second = chains(asked, 4)
    assert first == second
    assert len(first) == 2


def test_ids_beyond_what_is_hashed_are_surplus():
    first, second = chains(load(([1, 2], 4), ([1, 2], 8), size=4, output=4), 4)
    assert (len(first), second[:1]) == (1, first)


def test_an_answer_that_ends_early_has_no_block_beyond_its_end():
    first, second = chains(load(([1, 2, 3], 4), ([1, 2, 3], 12), size=4, output=2, hashed=[12, 12]), 4)
    assert len(first) == 1
    assert second[:1] == first


@pytest.mark.parametrize("ids", [[-(2**63), 2**63 - 1], [0, -1], [2**62, -(2**62)]])
def test_ids_are_any_64_bit_numbers(ids):
    first, second = chains(load((ids, 2), (ids, 2), size=1), 1)
    assert first == second
    assert len(set(first)) == 2


def test_without_ids_and_without_caching_nothing_is_shared():
    unnamed = Workload(np.zeros(2, np.int64), np.full(2, 8), np.full(2, 1))
    for found in (share(unnamed, 4), share(load(([1], 4), ([1], 4), size=4), 4, caching=False)):
        assert found.blocks.tolist() == [0, 0]
        assert found.n_identities == 0


@st.composite
def loads(draw: st.DrawFn) -> tuple[Workload, int]:
    size, block, n = draw(st.integers(1, 5)), draw(st.integers(1, 6)), draw(st.integers(1, 5))
    rows, hashed, output = [], [], draw(st.integers(0, 4))
    for _ in range(n):
        prompt = draw(st.integers(1, 12))
        rows.append((draw(st.lists(st.integers(1, 2), max_size=6)), prompt))
        hashed.append(draw(st.integers(0, 16)))
    return load(*rows, size=size, output=output, hashed=draw(st.sampled_from([hashed, None]))), block


@settings(max_examples=300, deadline=None, derandomize=True)
@given(loads())
def test_two_blocks_are_one_exactly_when_all_tokens_up_to_their_end_are_equal(given_load):
    workload, block = given_load
    found = chains(workload, block)
    texts = [_tokens(workload, r) for r in range(len(workload))]
    for r, text in enumerate(texts):
        full = len(text) // block
        assert len(found[r]) <= full
        for i in range(full):
            for s, other in enumerate(texts):
                same = r != s and text[: (i + 1) * block] == other[: (i + 1) * block]
                if same:  # then it is listed on both sides, under one identity
                    assert found[r][i] == found[s][i]
                elif r != s and i < len(found[r]):
                    assert found[r][i] not in found[s][i : i + 1]
        assert len(set(found[r])) == len(found[r])


def _tokens(workload: Workload, r: int) -> list[tuple[int, ...]]:
    """Tokens up to the last one computed; where no id describes one, it is nobody else's."""
    a, b = workload.hash_offsets[r : r + 2]
    ids = workload.hash_ids[a:b]
    described = workload.prompt_tokens[r] if workload.hashed_tokens is None else workload.hashed_tokens[r]
    return [
        (int(ids[p // workload.hash_block_tokens]),)
        if p < min(described, len(ids) * workload.hash_block_tokens)
        else (r, p)
        for p in range(workload.prompt_tokens[r] + workload.output_tokens[r])
    ]
