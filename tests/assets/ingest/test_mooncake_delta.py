"""Turns that give only what is new: what they share is checked against plain token sequences."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from tests.assets.ingest.samples import ids, lines, read, reasons


def row(session: str, prompt: int, output: int, hashes: list[int], **more: Any) -> dict[str, Any]:
    return {"session_id": session, "input_length": prompt, "output_length": output, "hash_ids": hashes, **more}


def test_the_prompt_is_the_conversation_so_far(tmp_path: Path) -> None:
    rows = [row("a", 16, 2, [1, 2], timestamp=0), row("a", 10, 1, [3, 4], delay=5), row("a", 1, 0, [9], delay=0)]
    trace = read(tmp_path, lines(rows), format="mooncake-delta", block_tokens=8)
    assert trace.prompt_tokens.tolist() == [16, 28, 30]
    assert trace.hashed_tokens is not None
    assert trace.hashed_tokens.tolist() == [18, 29, 30]
    assert trace.delay_ns is not None
    assert trace.delay_ns.tolist() == [0, 5_000_000, 0]


def test_what_is_set_aside_is_not_part_of_the_conversation(tmp_path: Path) -> None:
    rows = [
        row("a", 8, 2, [1], timestamp=0, request_id="x"),
        row("a", 8, 2, [2], delay=1, request_id="x"),
        row("a", 8, -2, [2], delay=1),
        row("a", 8, 2, [3], delay=1, request_id="y"),
    ]
    trace = read(tmp_path, lines(rows), format="mooncake-delta", block_tokens=8)
    assert trace.prompt_tokens.tolist() == [8, 18]
    assert [each[1] for each in reasons(trace)] == ["duplicate_id", "negative"]


def test_without_ids_nothing_can_be_joined(tmp_path: Path) -> None:
    rows = [row("a", 8, 2, [1], timestamp=0), {"session_id": "a", "input_length": 4, "output_length": 1}]
    assert reasons(read(tmp_path, lines(rows), format="mooncake-delta", block_tokens=8)) == [
        (2, "missing_field", "hash_ids")
    ]


def as_tokens(rows: list[dict[str, Any]], block: int) -> list[list[object]]:
    """Every row's prompt and output token by token: an id stands for a block of equal tokens, output is always new."""
    texts: dict[str, list[object]] = {}
    found = []
    for number, each in enumerate(rows):
        text = texts.setdefault(each["session_id"], [])
        text += [h for h in each["hash_ids"] for _ in range(block)][: each["input_length"]]
        text += [("out", number)] * each["output_length"]
        found.append(list(text))
    return found


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize(("block", "cut"), [(4, 4), (8, 4), (4, 6), (3, 16)])
def test_two_rows_share_exactly_the_blocks_whose_tokens_are_equal(
    tmp_path: Path, seed: int, block: int, cut: int
) -> None:
    draw = random.Random(seed)
    rows = []
    for number in range(12):
        length = draw.randrange(1, 30)
        hashes = [draw.randrange(3) for _ in range(-(-length // block))]
        rows.append(row(f"s{draw.randrange(4)}", length, draw.choice([0, 0, 3, 9]), hashes, timestamp=number))
    trace = read(tmp_path, lines(rows), format="mooncake-delta", block_tokens=block, cut_tokens=cut)
    texts = as_tokens(rows, block)
    assert trace.hash_block_tokens == cut
    for a in range(12):
        for b in range(a):
            same = 0
            while same < min(len(texts[a]), len(texts[b])) and texts[a][same] == texts[b][same]:
                same += 1
            left, right = ids(trace, a), ids(trace, b)
            equal = 0
            while equal < min(len(texts[a]), len(texts[b])) // cut and left[equal] == right[equal]:
                equal += 1
            assert equal == same // cut, json.dumps([rows[a], rows[b]])
