"""Whatever a line holds, it ends up clean or in quarantine, and the sums hold."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from assets.ingest import read_trace
from assets.ingest.fields import REASONS

MOONCAKE = '{"timestamp": 1, "input_length": 600, "output_length": 7, "hash_ids": [1, 2]}'
AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44"
FIELDS = (
    "timestamp",
    "input_length",
    "output_length",
    "hash_ids",
    "session_id",
    "request_id",
    "delay",
    "dp_rank",
    "input_tokens",
)
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 2000),
    st.sampled_from([2**31, 2**63, 2**64, -(2**63) - 1, 10**400]),
    st.floats(),
    st.floats(1e300, 1.7e308),
    st.text(max_size=3),
    st.lists(st.one_of(st.integers(0, 9), st.just(2**64), st.booleans(), st.none()), max_size=4),
)


def settled(text: str | bytes, format: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        trace = read_trace(path, format=format)
        lines = path.read_bytes().split(b"\n")
    counts = trace.counts
    assert counts.lines == len(lines) - (lines[-1] == b"")
    assert counts.lines == counts.header + counts.blank + counts.clean + counts.quarantined
    assert len(trace) == counts.clean
    assert len(trace.quarantine) == counts.quarantined
    assert set(trace.quarantine.reason) <= set(REASONS)
    assert (trace.arrival_ns[1:] >= trace.arrival_ns[:-1]).all()
    assert len(set(trace.request_id.tolist())) == counts.clean
    assert (trace.prompt_tokens > 0).all()
    assert (trace.output_tokens >= 0).all()
    if trace.hash_offsets is not None:
        assert (trace.hash_offsets[1:] - trace.hash_offsets[:-1] == -(-trace.prompt_tokens // 512)).all()


@settings(max_examples=200, deadline=None)
@given(rows=st.lists(st.dictionaries(st.sampled_from(FIELDS), VALUES, max_size=9), max_size=6))
def test_json_of_any_shape(rows: list[dict[str, Any]]) -> None:
    settled("\n".join([MOONCAKE, *(json.dumps({**json.loads(MOONCAKE), **row}) for row in rows)]), "mooncake")


@settings(max_examples=100, deadline=None)
@given(junk=st.binary(max_size=60), format=st.sampled_from(["mooncake", "azure"]))
def test_bytes_of_any_kind(junk: bytes, format: str) -> None:
    settled((MOONCAKE if format == "mooncake" else AZURE).encode() + b"\n" + junk, format)
