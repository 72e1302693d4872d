"""Small authored files with the quirks of published ones, and helpers to read them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from assets.ingest import Trace, TraceError, read_trace

S = 10**9  # ns

AZURE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:46.6805900,374,44
2023-11-16 18:15:50.9951690,396,109
2023-11-16 18:15:51.2224670,879,55"""
VIDUR = """arrived_at,num_prefill_tokens,num_decode_tokens
0.0,374,44
4.314579,396,109
4.541877,879,55
"""


def read(folder: Path, text: str | bytes, name: str = "trace", **options: Any) -> Trace:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_trace(path, **options)


def lines(rows: Iterable[dict[str, Any]]) -> str:
    return "\n".join(json.dumps(row) for row in rows)


def reasons(trace: Trace) -> list[tuple[int, str, str | None]]:
    found = trace.quarantine
    return list(zip(found.source_line, found.reason, found.field))


def ids(trace: Trace, row: int) -> list[int]:
    assert trace.hash_ids is not None
    assert trace.hash_offsets is not None
    return trace.hash_ids[trace.hash_offsets[row] : trace.hash_offsets[row + 1]].tolist()


def refused(folder: Path, text: str, said: str, **options: Any) -> None:
    with pytest.raises(TraceError, match=said):
        read(folder, text, **options)
