"""What is said about a trace, on traces small enough to count by hand."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from assets.ingest import Trace
from assets.trace_stats import best_reuse, lengths, trace_stats
from tests.assets.ingest.samples import AZURE, lines, read


def row(at: int, prompt: int, ids: list[int], **more: Any) -> dict[str, Any]:
    return {"timestamp": at, "input_length": prompt, "output_length": 3, "hash_ids": ids, **more}


def test_reuse_counts_the_last_block_by_its_real_length(tmp_path: Path) -> None:
    rows = [row(0, 10, [1, 2, 3]), row(1, 10, [1, 2, 3]), row(2, 8, [1, 9]), row(3, 8, [2, 9])]
    found = best_reuse(read(tmp_path, lines(rows), block_tokens=4))
    assert found is not None
    assert (found["blocks"], found["reusable_blocks"], found["reusable_tokens"]) == (10, 4, 14)
    assert found["share_of_prompt_tokens"] == 14 / 36


def test_the_same_id_elsewhere_is_another_block(tmp_path: Path) -> None:
    found = best_reuse(read(tmp_path, lines([row(0, 8, [7, 7]), row(1, 8, [8, 7])]), block_tokens=4))
    assert found is not None
    assert found["reusable_blocks"] == 0


def test_unknown_is_not_zero(tmp_path: Path) -> None:
    found = trace_stats(read(tmp_path, AZURE))
    assert found["prefix"] is None
    assert found["sessions"] is None
    json.dumps(found, allow_nan=False)


@pytest.mark.parametrize("seed", range(20))
def test_reuse_against_a_set_of_prefixes(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    rows = []
    for number in range(40):
        prompt = draw.randrange(1, 30)
        rows.append(row(number, prompt, [draw.randrange(2) for _ in range(-(-prompt // 4))]))
    seen: set[tuple[int, ...]] = set()
    blocks = tokens = 0
    for each in rows:
        for end in range(1, len(each["hash_ids"]) + 1):
            prefix = tuple(each["hash_ids"][:end])
            if prefix in seen:
                blocks += 1
                tokens += min(4, each["input_length"] - 4 * (end - 1))
            seen.add(prefix)
    found = best_reuse(read(tmp_path, lines(rows), block_tokens=4))
    assert found is not None
    assert (found["reusable_blocks"], found["reusable_tokens"]) == (blocks, tokens)


def test_generated_text_is_not_part_of_a_prompt(tmp_path: Path) -> None:
    rows = [row(0, 8, [1, 2], session_id="a"), {**row(0, 4, [3], session_id="a"), "delay": 0}]
    rows[1].pop("timestamp")
    trace = read(tmp_path, lines(rows), format="mooncake-delta", block_tokens=4)
    found = best_reuse(trace)
    assert found is not None
    assert trace.prompt_tokens.tolist() == [8, 15]
    # Of the 15 tokens of the second prompt, 8 are the first prompt; its three generated tokens fill no block.
    assert (found["blocks"], found["reusable_blocks"], found["reusable_tokens"]) == (6, 2, 8)


def test_ties_load_and_turns(tmp_path: Path) -> None:
    rows = [row(0, 4, [1], session_id="a"), row(0, 4, [1]), row(500, 4, [1], session_id="a"), row(1000, 4, [1])]
    found = trace_stats(read(tmp_path, lines(rows)))
    assert found["sessions"] == {"sessions": 1, "turns": 2, "most_turns": 2}
    load = found["arrivals"]
    assert (load["requests"], load["distinct_times"], load["requests_in_ties"], load["largest_tie"]) == (3, 2, 2, 2)
    assert load["mean_per_s"] == 2.0
    assert (sum(load["per_bucket"]), load["per_bucket"][0]) == (3, 2)


def test_histogram(tmp_path: Path) -> None:
    import numpy as np

    found = lengths(np.array([1, 2, 3, 4, 8, 9]))
    bins = [(each["below"], each["requests"]) for each in found["histogram"]]
    assert bins == [(2, 1), (4, 2), (8, 1), (16, 2)]
    assert sum(n for _, n in bins) == 6
    assert lengths(np.array([0]))["histogram"] == [{"below": 1, "requests": 1}]


def test_quarantine_shows_an_example_of_each_reason(tmp_path: Path) -> None:
    trace: Trace = read(tmp_path, lines([row(0, 4, [1]), row(0, -4, [1]), row(0, -5, [1])]) + "\n{")
    assert trace_stats(trace)["quarantine"] == [
        {"reason": "negative", "rows": 2, "first_line": 2, "example": json.dumps(row(0, -4, [1]))},
        {"reason": "bad_json", "rows": 1, "first_line": 4, "example": "{"},
    ]
