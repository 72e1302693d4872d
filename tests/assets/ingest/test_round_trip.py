"""A random trace written in each format is read back as it was: with sessions, waits, prefixes, ranks and names."""

from __future__ import annotations

import csv
import io
import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from assets.ingest import Trace, read_trace
from assets.ingest.ingest import ingest
from tests.assets.ingest.samples import ids, lines
from tests.assets.ingest.test_agentic import HEADER, document, not_before, step, waits
from tests.assets.ingest.test_ingest import same

MS = 10**6
BLOCK = 16


def drawn(draw: random.Random, *, sessions: bool, n: int = 80) -> list[dict[str, Any]]:
    """Requests in order of their times (ms); later turns have a think time instead of none."""
    at, known, rows = 0, dict[str, int](), []
    for i in range(n):
        at += draw.choice([0, 1, 7, 250, 60_000])
        prompt = draw.randrange(1, 400)
        row: dict[str, Any] = {
            "name": f"r{i}",
            "at": at,
            "in": prompt,
            "out": draw.randrange(99),
            "rank": draw.randrange(4),
        }
        row["ids"] = [draw.randrange(2**50) for _ in range(-(-prompt // BLOCK))]
        if sessions and draw.random() < 0.7:
            row["session"] = draw.choice("abcdef")
            row["turn"] = known.get(row["session"], 0)
            row["delay"] = draw.choice([0, 5, 900]) if row["turn"] else 0
            known[row["session"]] = row["turn"] + 1
        rows.append(row)
    return rows


def check(trace: Trace, rows: list[dict[str, Any]], *, names: bool = True, ranks: bool = True) -> None:
    """Rows of the trace are those that were written. Times of later turns are their own affair."""
    assert len(trace.quarantine) == 0
    order = {line: i for i, line in enumerate(trace.request_id.tolist())}
    assert sorted(order) == list(range(len(rows)))
    for i, row in enumerate(rows):
        at = order[i]
        assert (trace.prompt_tokens[at], trace.output_tokens[at]) == (row["in"], row["out"])
        if names:
            assert (trace.external_id or [])[at] == row["name"]
        if ranks and trace.pinned_rank is not None:
            assert trace.pinned_rank[at] == row["rank"]
        if trace.hash_ids is not None:
            assert ids(trace, at) == row["ids"]
        turn = row.get("turn", -1)
        if trace.turn is not None and trace.delay_ns is not None:
            assert (trace.session_id or [])[at] == row.get("session")
            assert trace.turn[at] == turn
            assert turn < 1 or trace.delay_ns[at] == row["delay"] * MS
        if turn < 1:
            assert trace.arrival_ns[at] == (row["at"] - rows[0]["at"]) * MS


def mooncake(rows: list[dict[str, Any]]) -> str:
    made = []
    for row in rows:
        each = {
            "timestamp": row["at"],
            "input_length": row["in"],
            "output_length": row["out"],
            "hash_ids": row["ids"],
            "request_id": row["name"],
            "dp_rank": row["rank"],
        }
        if "session" in row:
            each["session_id"] = row["session"]
            if row["turn"]:
                each["delay"] = row["delay"]
        made.append(each)
    return lines(made)


COLUMNS = ("arrival", "prompt_tokens", "output_tokens", "hash_ids", "request_id", "dp_rank", "session_id", "delay")


def named(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        dict(
            zip(
                COLUMNS,
                (row["at"], row["in"], row["out"], row["ids"], row["name"], row["rank"], row.get("session"))
                + (row["delay"] if row.get("turn") else None,),
                strict=True,
            )
        )
        for row in rows
    ]


def written(name: str, rows: list[dict[str, Any]], path: Path) -> None:
    if name == "mooncake":
        path.write_text(mooncake(rows))
    elif name == "jsonl":
        path.write_text(lines(named(rows)))
    elif name == "csv":
        text = io.StringIO()
        writer = csv.DictWriter(text, COLUMNS)
        writer.writeheader()
        writer.writerows({**row, "hash_ids": json.dumps(row["hash_ids"])} for row in named(rows))
        path.write_text(text.getvalue())
    else:
        pq.write_table(pa.Table.from_pylist(named(rows)), path)


@pytest.mark.parametrize("name", ["mooncake", "jsonl", "csv", "parquet"])
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("sessions", [False, True])
def test_rows_with_everything(tmp_path: Path, name: str, seed: int, sessions: bool) -> None:
    rows = drawn(random.Random(f"{name} {seed}"), sessions=sessions)
    path = tmp_path / "made"
    written(name, rows, path)
    trace = read_trace(path, format=name, block_tokens=BLOCK)
    check(trace, rows)
    ingest(path, tmp_path / "made.trace", format=name, block_tokens=BLOCK)
    same(read_trace(tmp_path / "made.trace"), trace)


@pytest.mark.parametrize("seed", range(4))
def test_mooncake_delta(tmp_path: Path, seed: int) -> None:
    """Whole prompts come back: everything before, answers included, and then what is new."""
    draw, rows = random.Random(seed), []
    for i in range(40):
        new = draw.randrange(1, 60)
        row = {"timestamp": i, "input_length": new, "output_length": draw.randrange(9), "session_id": draw.choice("ab")}
        rows.append({**row, "hash_ids": [draw.randrange(2**40) for _ in range(-(-new // BLOCK))]})
    trace = read_trace(_file(tmp_path, lines(rows)), format="mooncake-delta", block_tokens=BLOCK, cut_tokens=BLOCK)
    history, want = {"a": 0, "b": 0}, []
    for row in rows:
        want.append(history[row["session_id"]] + row["input_length"])
        history[row["session_id"]] = want[-1] + row["output_length"]
    by_row = sorted(zip(trace.request_id.tolist(), trace.prompt_tokens.tolist()))
    assert [prompt for _, prompt in by_row] == want


@pytest.mark.parametrize("seed", range(6))
def test_plays_of_agentic_mooncake(tmp_path: Path, seed: int) -> None:
    draw, rows, want, floors = random.Random(seed), [], {}, {}
    for i in range(50):
        play = draw.choice("pq")
        name, mine = f"{play}{i}", [each for each in want if each[0] == play]
        kinds = [("completion", "sequence"), ("completion", "join"), ("dispatch", "spawn")]
        found = []
        for other in draw.sample(mine, min(len(mine), draw.choice([0, 1, 1, 2, 3]))):
            trigger, relation = draw.choice(kinds)
            found.append(
                {"request_id": other, "trigger": trigger, "delay_ms": draw.randrange(50), "relation": relation}
            )
        want[name] = [(each["request_id"], each["delay_ms"], each["trigger"] == "dispatch") for each in found]
        floors[name] = draw.choice([0, 30, 400])
        rows.append(step(name, *found, not_before=floors[name], play=play))
    draw.shuffle(rows)
    trace = read_trace(_file(tmp_path, lines([HEADER, *rows])))
    assert {name: sorted(each) for name, each in waits(trace).items()} == {n: sorted(each) for n, each in want.items()}
    opened = {p: min(floors[n] for n in want if n[0] == p and not want[n]) for p in "pq"}
    by_name = dict(zip(trace.external_id or [], not_before(trace)))
    assert by_name == {name: max(0, floors[name] - opened[name[0]]) for name in want}
    assert trace.arrival_ns.tolist() == sorted(trace.arrival_ns.tolist())
    ingest(tmp_path / "made", tmp_path / "made.trace")
    prepared = read_trace(tmp_path / "made.trace")
    same(prepared, trace)
    assert (waits(prepared), not_before(prepared)) == (waits(trace), not_before(trace))


@pytest.mark.parametrize("seed", range(4))
def test_weka_sessions(tmp_path: Path, seed: int) -> None:
    draw, text, want = random.Random(seed), [], []
    for name in "abc":
        at, calls, end = 0, [], 0
        for i in range(draw.randrange(1, 20)):
            at = 0 if i == 0 else end + draw.randrange(3000)
            took, prompt = draw.randrange(1, 2000), draw.randrange(4, 200)
            hashes = list(range(prompt // 4))  # every prompt goes on from the one before, or is its beginning
            calls.append({"t": at / 1e3, "type": "n", "model": "m", "in": prompt, "out": draw.randrange(9)})
            calls[-1] |= {"hash_ids": hashes, "api_time": took / 1e3}
            want.append((name, prompt, calls[-1]["out"], at - end if i else 0, at, len(hashes)))
            end = at + took
        text.append(document(*calls, name=name))
    trace = read_trace(_file(tmp_path, "\n".join(text)))
    assert trace.delay_ns is not None
    assert trace.hash_offsets is not None
    floors = not_before(trace) or [0.0] * len(trace)
    counts = (trace.hash_offsets[1:] - trace.hash_offsets[:-1]).tolist()
    columns = (
        trace.prompt_tokens.tolist(),
        trace.output_tokens.tolist(),
        (trace.delay_ns / MS).tolist(),
        floors,
        counts,
    )
    got = sorted(zip(trace.request_id.tolist(), trace.session_id or [], *columns))
    assert [row[1:] for row in got] == want


@pytest.mark.parametrize("seed", range(3))
def test_applied_compute_conversations(tmp_path: Path, seed: int) -> None:
    draw, rows, want = random.Random(seed), [], []
    for _ in range(10):
        turns, prompt = draw.randrange(1, 6), draw.randrange(1, 99)
        row: dict[str, Any] = {"num_turns": turns, "input_prompt_length": prompt}
        row["assistant_response_length"] = [draw.randrange(1, 30) for _ in range(turns)]
        row["tool_call_output_length"] = [draw.randrange(30) for _ in range(turns)]
        row["tool_call_latency"] = [draw.randrange(3000) / 1e3 for _ in range(turns)]
        row["final_assistant_response_length"] = draw.randrange(1, 30)
        rows.append(row)
        lengths = zip(row["assistant_response_length"], row["tool_call_output_length"], row["tool_call_latency"])
        delay = 0.0
        for answer, output, latency in lengths:
            want.append((prompt, answer, round(delay * 1e9)))
            prompt, delay = prompt + answer + output, latency
        want.append((prompt, row["final_assistant_response_length"], round(delay * 1e9)))
    trace = read_trace(_file(tmp_path, lines(rows)), needs_timestamps=False, cut_tokens=4)
    assert trace.delay_ns is not None
    columns = (trace.prompt_tokens.tolist(), trace.output_tokens.tolist(), trace.delay_ns.tolist())
    assert [row[1:] for row in sorted(zip(trace.request_id.tolist(), *columns))] == want


def _file(folder: Path, text: str) -> Path:
    path = folder / "made"
    path.write_text(text)
    return path
