"""The same answer again: twice, without compilation, with bounds checks."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import sim.engine
import sim.reference
import sim.settle
import sim.setup
import sim.speculation.plain
import sim.speculation.setup
from sim.errors import ReplayError
from sim.result import TABLES, MemorySink
from sim.tail import close_open_spans
from tests.sim.answers import ask, difference
from tests.sim.pool_play import play
from tests.sim.reached import Lines, lines_that_say
from tests.sim.worlds import RARE, World, world

ROOT = Path(__file__).parents[2]
PLAIN, CHECKED = range(300), range(20)


def test_twice_gives_the_same_rows_in_the_same_order() -> None:
    for seed in range(200):
        asked, columns = world(seed), []
        try:
            for _ in range(2):
                sink = MemorySink()
                outcome = sim.engine.replay(asked.spec, asked.load, sink)
                columns.append({(t, c): v for t in TABLES for c, v in sink.table(t).items()} | outcome.latencies)
        except ReplayError:
            continue
        first, second = columns
        assert all(np.array_equal(first[key], second[key]) for key in first), f"world({seed})"


def test_as_plain_python_the_kernels_give_the_same_tables_and_run_every_line() -> None:
    *said, missed = elsewhere("from tests.sim.test_repeat import uncompiled; uncompiled()", NUMBA_DISABLE_JIT="1")
    assert said == digests(PLAIN)
    assert missed == "[]"


@pytest.mark.slow  # compiles everything once more, about a minute
def test_with_bounds_checks_the_kernels_give_the_same_tables(tmp_path: Path) -> None:
    code = "from tests.sim.test_repeat import checked; checked()"
    assert elsewhere(code, NUMBA_BOUNDSCHECK="1", TRACEMILL_CACHE=str(tmp_path)) == digests(CHECKED)


def checked() -> None:
    """Print digests. For a process with bounds checks, which it makes sure of."""
    asked = world(0)
    shared = sim.engine.share(asked.load, asked.spec.block_tokens)
    follow, config = sim.engine.followers(asked.load), sim.setup.config_of(asked.spec, asked.load)
    state = sim.setup.allocate(asked.spec, asked.load, shared, follow, config, 8)
    with pytest.raises(IndexError):
        close_open_spans(state, 10**6)
    print(*digests(CHECKED), sep="\n")


def digests(seeds: range) -> list[str]:
    return [ask(sim.engine.replay, asked).digest() for asked in (*map(world, seeds), *RARE)]


def elsewhere(code: str, **environment: str) -> list[str]:
    """Lines printed by a fresh process."""
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        env=os.environ | environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=900,
    )
    assert ran.returncode == 0, ran.stderr[-4000:]
    return ran.stdout.splitlines()


def uncompiled() -> None:
    """Print digests, then the kernel lines that nothing reached. For a process without compilation."""
    sources = {str(file): file.read_text() for file in (ROOT / "sim").rglob("*.py")}
    files = [file for file, text in sources.items() if re.search(r"^@\w*(kernel|inlined|entry)$", text, re.M)]
    # Short logs and little patience, for the lines that hand them over in the middle; short plans, soon made again.
    sim.setup.LOG_ROWS = sim.setup.LOG_PAD = 0
    sim.speculation.setup.RING_ROWS, sim.speculation.plain.WALK_PASSES = 8, 1
    sim.engine.PATIENCE = 50
    with Lines(files) as lines:
        print(*digests(PLAIN), sep="\n")
        play(range(100))
        livelocks()
    # No state leads there, see OUT_OF_REACH in test_differential.py.
    out_of_reach = lines_that_say("not cfg.chunked and q[r, S.PROMPT] - before > budget:", str(ROOT / "sim/running.py"))
    print(lines.missed(out_of_reach))


def livelocks() -> None:
    """With no patience for preemptions, the first one is taken for a livelock, by both engines."""
    for module in (sim.reference, sim.settle, sim.engine):
        module.LIVELOCK_CHOICES = 0  # type: ignore[attr-defined]
    said = [livelock(world(seed)) for seed in range(40)]
    assert sum(said) > 5


def livelock(asked: World) -> bool:
    wanted, got = ask(sim.reference.replay, asked), ask(sim.engine.replay, asked)
    assert not difference(wanted, got)
    return wanted.error.startswith("Livelock: request ") and "raise kv_cache.capacity.blocks" in wanted.error
