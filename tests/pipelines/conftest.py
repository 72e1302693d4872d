"""A small configuration on disk, and the command line called in this process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

TINY = """\
traffic:
  source: {type: trace, path: tiny.jsonl, format: mooncake}
  load: {type: trace_timestamps}
engine:
  context_length: 4096
  workers:
    aggregated:
      scheduler: {max_batched_tokens: 512, max_sequences: 8}
      kv_cache: {block_size: 16, capacity: {type: fixed, blocks: 256}}
      timing: {type: fixed, prefill_ms: 10, decode_ms: 3}
"""
TRACE = """\
{"timestamp": 0, "input_length": 600, "output_length": 4, "hash_ids": [1, 2]}
{"timestamp": 5, "input_length": 700, "output_length": 3, "hash_ids": [1, 3]}
this line is no JSON
{"timestamp": 90, "input_length": 600, "output_length": 2, "hash_ids": [1, 2]}
"""

Cli = Callable[..., Result]


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    """A configuration over three usable rows and a broken one."""
    (tmp_path / "tiny.jsonl").write_text(TRACE)
    config = tmp_path / "tiny.yaml"
    config.write_text(TINY)
    return config


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "warehouse"


@pytest.fixture
def cli(root: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """`cli("show", "last")`: exit code, stdout and stderr of a command on this test's warehouse."""
    from pipelines.cli import main

    monkeypatch.setenv("TRACEMILL_WAREHOUSE", str(root))

    def run(*words: object) -> Result:
        return CliRunner().invoke(main, [str(word) for word in words])

    return run
