"""A killed ingest leaves nothing that could be taken for a trace, and the next one completes."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

from assets.ingest import read_trace
from assets.ingest.ingest import ingest

KILLS = int(os.environ.get("TRACEMILL_KILLS", "4"))
PROGRAM = "import sys; from assets.ingest.ingest import ingest; print(flush=True); ingest(sys.argv[1], sys.argv[2])"


def test_killed_at_random_moments(tmp_path: Path) -> None:
    source, out, draw = tmp_path / "source.jsonl", tmp_path / "out.trace", random.Random(1)
    with source.open("w") as file:
        for i in range(60_000):
            row = {"timestamp": 60_000 - i, "input_length": 1200, "output_length": 3, "hash_ids": [1, 2, i]}
            file.write(json.dumps(row) + "\n")
    for _ in range(KILLS):
        child = subprocess.Popen([sys.executable, "-c", PROGRAM, source, out], stdout=subprocess.PIPE)
        assert child.stdout is not None
        child.stdout.readline()
        time.sleep(draw.random() * 0.8)
        child.kill()
        child.wait()
        child.stdout.close()
        if out.exists():
            assert len(read_trace(out)) == 60_000
    ingest(source, out)
    trace = read_trace(out)
    assert len(trace) == 60_000
    assert trace.source_line[0] == 60_000
    assert sorted(each.name for each in tmp_path.iterdir()) == ["out.trace", "source.jsonl"]
