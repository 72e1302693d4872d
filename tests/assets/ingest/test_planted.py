"""1,000 bad lines of every kind among 1,000,000: all are found, on their lines, by several readers at once."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pyarrow.parquet as pq
import pytest

from assets.ingest.fields import REASONS
from assets.ingest.ingest import ingest

READERS = 3


class Planted(NamedTuple):
    """A kind of file: a header, an ordinary line by its number, and the lines that are wrong, by their reason."""

    format: str
    header: str
    line: Callable[[int], str]
    faults: dict[str, Callable[[int], str]]


def mooncake(i: int, **change: object) -> str:
    row: dict[str, object] = {"timestamp": i, "input_length": 700, "output_length": 5, "hash_ids": f"[{i}, {i + 1}]"}
    fields = {**row, **change}
    return "{" + ", ".join(f'"{name}": {value}' for name, value in fields.items() if value is not None) + "}"


def named(i: int, **change: object) -> str:
    return mooncake(i, request_id=f'"r{i}"', **change)


def azure(i: int, prompt: object = 374, output: object = 44, month: int = 11) -> str:
    return f"2023-{month}-16 {i // 3600 % 24:02}:{i // 60 % 60:02}:{i % 60:02}.6805900,{prompt},{output}"


def burst(i: int, output: int = 5, total: int = 10) -> str:
    return f"{i}.25,GPT-4,5,{output},{total},API log"


def dynamo(i: int, kind: str = "request_end") -> str:
    replay = f'{{"trace_block_size": 16, "input_length": 9, "input_sequence_hashes": [{i}]}}'
    request = f'{{"request_id": "r{i}", "output_tokens": 5, "request_received_ms": {i}, "replay": {replay}}}'
    return f'{{"schema": "dynamo.request.trace.v1", "event_type": "{kind}", "request": {request}}}'


def agentic(i: int, waits: str = "[]") -> str:
    return (
        f'{{"request_id": "r{i}", "timestamp": {i}, "wait_for": {waits}, "input_length": 9, "output_length": 1, '
        f'"hash_ids": [{i}]}}'
    )


def applied(i: int, latencies: str = "[1]") -> str:
    return (
        '{"num_turns": 1, "input_prompt_length": 16, "assistant_response_length": [8], "tool_call_output_length": [4], '
        f'"tool_call_latency": {latencies}, "final_assistant_response_length": {i % 9}}}'
    )


KINDS: dict[str, Planted] = {
    "many lines at a time, JSON": Planted(
        "mooncake",
        "",
        mooncake,
        {
            "bad_json": lambda i: mooncake(i)[:-3],
            "missing_field": lambda i: mooncake(i, output_length=None),
            "wrong_type": lambda i: mooncake(i, input_length='"700"'),
            "negative": lambda i: mooncake(-i),
            "not_finite": lambda i: mooncake(i, timestamp="NaN"),
            "non_positive": lambda i: mooncake(i, input_length=0),
            "out_of_range": lambda i: mooncake(i, output_length=2**32),
            "hash_count_mismatch": lambda i: mooncake(i, input_length=9999),
            "conflicting_fields": lambda i: mooncake(i, input_tokens=701),
            "output_count_mismatch": lambda i: mooncake(i, output_token_ids="[1]"),
            "delay_without_turn": lambda i: mooncake(i, delay=5),
        },
    ),
    "many lines at a time, CSV": Planted(
        "azure",
        "TIMESTAMP,ContextTokens,GeneratedTokens",
        azure,
        {
            "bad_line": lambda i: azure(i).rpartition(",")[0],
            "missing_field": lambda i: azure(i, output=""),
            "wrong_type": lambda i: azure(i, prompt="7.5"),
            "negative": lambda i: azure(i, prompt=-7),
            "not_finite": lambda i: azure(i, prompt="inf"),
            "non_positive": lambda i: azure(i, prompt=0),
            "out_of_range": lambda i: azure(i, prompt=2**40),
            "bad_timestamp": lambda i: azure(i, month=13),
        },
    ),
    "many lines at a time, CSV with totals": Planted(
        "burstgpt",
        "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type",
        burst,
        {"failed_at_source": lambda i: burst(i, 0, 5), "total_mismatch": lambda i: burst(i, 5, 11)},
    ),
    "line by line": Planted(
        "mooncake",
        "",
        lambda i: named(i, session_id=f'"s{i % 10}"') if i % 2 else named(i),
        {
            "duplicate_id": lambda i: mooncake(i, request_id='"r1"'),
            "turn_goes_back": lambda i: named(0, session_id=f'"s{(i | 1) % 10}"', timestamp=0).replace("r0", f"r{i}"),
            "delay_without_turn": lambda i: named(i, delay=5),
        },
    ),
    "whole files, events": Planted(
        "dynamo", "", dynamo, {"unknown_schema": lambda i: dynamo(i, "request_lost"), "bad_json": lambda i: "{"}
    ),
    "whole files, graphs": Planted(
        "agentic_mooncake", "", agentic, {"no_such_request": lambda i: agentic(i, '["nobody"]')}
    ),
    "conversations": Planted("applied_compute_agentic", "", applied, {"too_few_turns": lambda i: applied(i, "[]")}),
}
# The others cannot be planted in a file: the configuration asks for them.
ASKED_FOR = {"zero_output"}


def test_every_reason_is_planted_somewhere() -> None:
    assert {reason for kind in KINDS.values() for reason in kind.faults} | ASKED_FOR == set(REASONS)


def planted(kind: Planted, n: int, each: int, draw: random.Random) -> tuple[dict[int, str], Iterator[str]]:
    """The reason by line number, and the lines. The first lines are ordinary ones."""
    places = draw.sample(range(30, n + 1), each * len(kind.faults))
    reasons = list(kind.faults)
    bad = {place: reasons[i % len(reasons)] for i, place in enumerate(places)}
    shift = 1 if kind.header else 0

    def lines() -> Iterator[str]:
        if kind.header:
            yield kind.header
        for i in range(1, n + 1):
            yield kind.faults[bad[i]](i) if i in bad else kind.line(i)

    return {place + shift: reason for place, reason in bad.items()}, lines()


def check(folder: Path, kind: Planted, n: int, each: int) -> None:
    bad, lines = planted(kind, n, each, random.Random(n))
    source = folder / "source"
    with source.open("w") as file:
        file.writelines(f"{line}\n" for line in lines)

    def read(i: int) -> dict[int, str]:
        out = folder / f"out{i}.trace"
        counts = ingest(source, out, format=kind.format)["counts"]
        assert counts["rows_read"] == counts["clean"] + counts["quarantined"]
        assert counts["quarantined"] == len(bad)
        found = pq.read_table(out / "quarantine.parquet", columns=["source_line", "reason"])
        return dict(zip(found["source_line"].to_pylist(), found["reason"].to_pylist()))

    with ThreadPoolExecutor(READERS) as readers:
        for found in readers.map(read, range(READERS)):
            assert found == bad
    assert set(Counter(bad.values()).values()) == {each}


@pytest.mark.parametrize("name", KINDS)
def test_a_few_bad_lines_of_every_kind_are_found_on_their_lines(tmp_path: Path, name: str) -> None:
    check(tmp_path, KINDS[name], n=2_000, each=20)


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_a_thousand_of_every_kind_in_a_million_are_found_on_their_lines(tmp_path: Path, name: str) -> None:
    # Formats that have to be held as a whole take a kilobyte a row.
    n = 100_000 if name.startswith("whole") else 1_000_000
    check(tmp_path, KINDS[name], n=int(os.environ.get("TRACEMILL_PLANTED", n)), each=1_000)
