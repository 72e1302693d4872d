"""A suite of four small scenarios over a trace of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from assets.desk.matrix.run import Outcome, run_matrix
from assets.desk.matrix.suite import load_suite
from assets.views import open_store
from perf_db.store import Store

SUITE = """\
about: tiny
keep: failed
common:
  engine.context_length: 4096
  engine.workers.aggregated.scheduler: {max_batched_tokens: 512, max_sequences: 8}
  engine.workers.aggregated.kv_cache: {block_size: 16, capacity: {type: fixed, blocks: 256}}
traces:
  few:
    traffic.source: {type: trace, path: few.jsonl, format: mooncake}
    traffic.load: {type: trace_timestamps}
  more:
    traffic.source: {type: trace, path: more.jsonl, format: mooncake}
    traffic.load: {type: trace_timestamps}
timing:
  slow: {engine.workers.aggregated.timing: {type: fixed, prefill_ms: 10, decode_ms: 3}}
  fast: {engine.workers.aggregated.timing: {type: fixed, prefill_ms: 5, decode_ms: 2}}
"""
FEW = """\
{"timestamp": 0, "input_length": 600, "output_length": 4, "hash_ids": [1, 2]}
{"timestamp": 5, "input_length": 700, "output_length": 3, "hash_ids": [1, 3]}
"""
MORE = FEW + '{"timestamp": 90, "input_length": 600, "output_length": 2, "hash_ids": [1, 2]}\n'
NAMES = ["tiny.few.fast", "tiny.few.slow", "tiny.more.fast", "tiny.more.slow"]


class Place:
    """A folder with the suite, its traces, baselines and a store."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.baselines = folder, folder / "baselines"
        self.suite = folder / "tiny.yaml"
        self.suite.write_text(SUITE)
        (folder / "few.jsonl").write_text(FEW)
        (folder / "more.jsonl").write_text(MORE)

    @property
    def store(self) -> Store:
        return open_store(self.folder / "warehouse")

    def edit(self, file: str, old: str, new: str) -> None:
        path = self.folder / file
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))

    def run(self, **options: object) -> Outcome:
        options = {"workers": 1, **options}
        return run_matrix(load_suite(self.suite), self.store, self.baselines, **options)  # type: ignore[arg-type]

    def ask(self, query: str) -> list[tuple]:
        with self.store.connect() as con:
            return con.execute(query).fetchall()


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)
