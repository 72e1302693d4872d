"""Every format: whatever the lines hold, the sums hold; and what is written in a format is read back as it was."""

from __future__ import annotations

import random
import tempfile
from pathlib import Path
from typing import Any

import pytest

from assets.ingest import FORMATS, Trace, TraceError, read_trace
from assets.ingest.fields import REASONS
from tests.assets.ingest.samples import AZURE, VIDUR, lines
from tests.assets.ingest.test_agentic import HEADER, after, call, document, step, subagent
from tests.assets.ingest.test_csv_formats import NEW_BURST
from tests.assets.ingest.test_json_formats import chat, event

MOONCAKE = {"timestamp": 5, "input_length": 600, "output_length": 7, "hash_ids": [1, 2], "session_id": "s"}
CONVERSATION = {
    "num_turns": 2,
    "input_prompt_length": 16,
    "assistant_response_length": [8, 8],
    "tool_call_output_length": [4, 4],
    "tool_call_latency": [0.035, 0.0],
    "final_assistant_response_length": 6,
}
NAMED = {"prompt_tokens": 5, "output_tokens": 2, "arrival": 0.5, "session_id": "s", "hash_ids": [1]}
LOG = {"request_id": "b-0", "input_toks": 9, "output_toks": 5, "arrival_time": 1787267980.25, "queued_ts": 27536.6}
SPLITWISE = "request_id,request_type,application_id,arrival_timestamp,batch_size,prompt_size,token_size"
FILES = {
    "mooncake": lines([MOONCAKE] * 3),
    "mooncake-delta": lines([MOONCAKE] * 3),
    "agentic_mooncake": lines([HEADER, step("a"), step("b", after("a", 5)), step("c", after("a"), after("b"))]),
    "dynamo": lines([event("a", 10, 5, [1]), event("b", 8, 5, [1], agent_context={"session_id": "x"})]),
    "weka": "\n".join(
        document(call(0, 3, []), *inner, call(5, 9, [1, 2]), name=name)
        for name, inner in (("a", []), ("b", [subagent(1, call(0, 9, [1, 2]))]), ("c", []))
    ),
    "applied_compute_agentic": lines([CONVERSATION] * 2),
    "qwen_bailian": lines([chat(1, -1, 10), chat(3, -1, 2), chat(2, 1, 11), chat(4, 1, 12)]),
    "azure": AZURE,
    "burstgpt": f"{NEW_BURST}0,a,10,GPT-4,5,5,10,x\n4,,1,GPT-4,5,5,10,API\n30,a,2.5,GPT-4,5,5,10,x",
    "vidur": VIDUR,
    "splitwise": f"{SPLITWISE}\n0,2,0,1,1,9,32",
    "vllm_log": lines([LOG, {**LOG, "request_id": "b-1"}]),
    "csv": "prompt_tokens,output_tokens,arrival,session_id,hash_ids\n5,2,0.5,s,1 2\n6,2,0.75,s,[1]",
    "jsonl": lines([NAMED] * 3),
}


def test_every_format_has_a_sample() -> None:
    assert set(FILES) | {"parquet"} == set(FORMATS)


def sums_hold(trace: Trace) -> None:
    counts = trace.counts
    assert counts.lines == counts.header + counts.blank + counts.skipped + counts.records
    assert counts.rows_read == counts.clean + counts.quarantined == len(trace) + len(trace.quarantine)
    assert set(trace.quarantine.reason) <= set(REASONS)
    assert len(set(trace.request_id.tolist())) == len(trace)
    assert trace.arrival_ns.min() == 0
    assert (trace.arrival_ns[1:] >= trace.arrival_ns[:-1]).all()
    assert (trace.prompt_tokens > 0).all()
    assert (trace.output_tokens >= 0).all()
    if trace.session is not None and trace.turn is not None:
        turns: dict[int, int] = {}
        for session, turn in zip(trace.session.tolist(), trace.turn.tolist()):
            if session >= 0:
                assert turn == turns.get(session, 0), "turns of a session come in order, from 0"
                turns[session] = turn + 1


def damaged(text: str, draw: random.Random) -> bytes:
    data = bytearray(text.encode())
    for _ in range(draw.randrange(1, 4)):
        at = draw.randrange(len(data))
        kind = draw.random()
        if kind < 0.4:
            data[at] = draw.choice(b'0159-.,:"[]{}e\n \xffnt')
        elif kind < 0.6:
            del data[at : at + draw.randrange(1, 12)]
        elif kind < 0.8:
            data[at:at] = draw.choice(
                [b"null", b"-", b"1e400", b"NaN", b"true", b'""', b"99999999999999999999", b"[]", b"{}"]
            )
        else:
            start = draw.randrange(len(data))
            data[at:at] = data[start : start + 40]
        if not data:
            data = bytearray(b"x")
    return bytes(data)


@pytest.mark.parametrize("name", FILES)
def test_damaged_files_are_read_or_refused(tmp_path: Path, name: str) -> None:
    draw, path, read = random.Random(name), tmp_path / "trace", 0
    for _ in range(150):
        path.write_bytes(damaged(FILES[name], draw))
        try:
            trace = read_trace(path, format=name, needs_timestamps=None, cut_tokens=4)
        except TraceError:
            continue
        sums_hold(trace)
        read += 1
    assert read > 15


def written(name: str, rows: list[dict[str, Any]]) -> str:
    """Rows (at in microseconds, prompt, output) in a format without sessions."""
    if name == "mooncake":
        return lines(
            {"timestamp": r["at"] / 1e3, "input_length": r["in"], "output_length": r["out"], "hash_ids": r["ids"]}
            for r in rows
        )
    if name == "qwen_bailian":
        return lines(
            chat(i, -1, r["at"] / 1e6, input_length=r["in"], output_length=r["out"], hash_ids=r["ids"])
            for i, r in enumerate(rows)
        )
    if name == "dynamo":
        made = []
        for i, r in enumerate(rows):
            each = event(str(i), 0, 0, r["ids"])
            each["request"] |= {"output_tokens": r["out"], "request_received_ms": r["at"] / 1e3, "total_time_ms": i}
            each["request"]["replay"] |= {"input_length": r["in"], "trace_block_size": 16}
            made.append(each)
        return lines(made)
    if name == "vllm_log":
        return lines(
            {"input_toks": r["in"], "output_toks": r["out"], "arrival_time": 1.75e9 + r["at"] / 1e6} for r in rows
        )
    if name == "azure":
        body = [f"2024-05-10 {_clock(r['at'])}+00:00,{r['in']},{r['out']}" for r in rows]
        return "\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens", *body])
    if name == "burstgpt":
        body = [f"{r['at'] / 1e6!r},,1,GPT-4,{r['in']},{r['out']},{r['in'] + r['out']},API" for r in rows]
        return NEW_BURST + "\n".join(body)
    if name == "vidur":
        body = [f"{r['at'] / 1e6!r},{r['in']},{r['out']}" for r in rows]
        return "\n".join(["arrived_at,num_prefill_tokens,num_decode_tokens", *body])
    assert name == "splitwise"
    return "\n".join([SPLITWISE, *(f"{i},2,0,{r['at'] / 1e6!r},1,{r['in']},{r['out']}" for i, r in enumerate(rows))])


def _clock(us: int) -> str:
    seconds, part = divmod(us, 10**6)
    return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{part:06}"


WRITABLE = ("mooncake", "qwen_bailian", "dynamo", "vllm_log", "azure", "burstgpt", "vidur", "splitwise")


@pytest.mark.parametrize("name", WRITABLE)
@pytest.mark.parametrize("seed", range(5))
def test_what_is_written_is_read_back(name: str, seed: int) -> None:
    draw = random.Random(seed)
    at = 0
    rows: list[dict[str, Any]] = []
    for _ in range(60):
        at += draw.choice([0, 1, 1000, 999_999, draw.randrange(10**8)])
        prompt = draw.randrange(1, 400)
        ids = [draw.randrange(2**50) for _ in range(-(-prompt // 16))]
        rows.append({"at": at, "in": prompt, "out": draw.randrange(1, 99), "ids": ids})
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace"
        path.write_text(written(name, rows))
        trace = read_trace(path, block_tokens=16)
    assert trace.format == name
    assert len(trace.quarantine) == 0
    assert trace.prompt_tokens.tolist() == [r["in"] for r in rows]
    assert trace.output_tokens.tolist() == [r["out"] for r in rows]
    exact = [(r["at"] - rows[0]["at"]) * 1000 for r in rows]
    # A double of seconds since 1970 resolves a quarter of a microsecond.
    slack = 300 if name == "vllm_log" else 0
    assert abs(trace.arrival_ns - exact).max() <= slack
    if trace.hash_ids is not None:
        assert trace.hash_ids.tolist() == [each for r in rows for each in r["ids"]]
