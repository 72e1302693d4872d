"""A killed ingest leaves nothing that could be taken for a trace, and the next one completes."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from assets.ingest import read_trace
from assets.ingest.ingest import ingest

PROGRAM = "import sys; from assets.ingest.ingest import ingest; print(flush=True); ingest(sys.argv[1], sys.argv[2])"
ROWS = 60_000


def mooncake(i: int) -> str:
    row = {"timestamp": ROWS - i, "input_length": 1200, "output_length": 3, "hash_ids": [1, 2, i]}
    return json.dumps(row)


def with_names(i: int) -> str:
    return json.dumps({**json.loads(mooncake(i)), "request_id": f"r{i}"})


def azure(i: int) -> str:
    left = ROWS - i
    return f"2023-11-16 {left // 3600:02}:{left // 60 % 60:02}:{left % 60:02}.1234567,374,44"


KINDS: dict[str, tuple[str, Callable[[int], str]]] = {
    "many lines at a time": ("", mooncake),
    "line by line": ("", with_names),
    "CSV": ("TIMESTAMP,ContextTokens,GeneratedTokens\n", azure),
}


def killed(folder: Path, kind: str, kills: int) -> None:
    source, out, draw = folder / "source", folder / "out.trace", random.Random(kind)
    header, line = KINDS[kind]
    source.write_text(header + "".join(f"{line(i)}\n" for i in range(ROWS)))
    for _ in range(kills):
        child = subprocess.Popen([sys.executable, "-c", PROGRAM, source, out], stdout=subprocess.PIPE)
        assert child.stdout is not None
        child.stdout.readline()
        time.sleep(draw.random() * 1.2)
        child.kill()
        child.wait()
        child.stdout.close()
        if out.exists():
            assert len(read_trace(out)) == ROWS
    ingest(source, out)
    trace = read_trace(out)
    assert len(trace) == ROWS
    assert trace.source_line[0] == ROWS + bool(header), "times go back: the last line arrives first"
    assert sorted(each.name for each in folder.iterdir()) == ["out.trace", "source"]


@pytest.mark.parametrize("kind", KINDS)
def test_killed_a_few_times(tmp_path: Path, kind: str) -> None:
    killed(tmp_path, kind, 3)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_killed_fifty_times_at_random_moments(tmp_path: Path, kind: str) -> None:
    killed(tmp_path, kind, 50)
