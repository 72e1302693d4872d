"""The same answer again: twice, without compilation, with bounds checks."""

from __future__ import annotations

import os
import random
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
from sim.inputs import Workload
from sim.result import TABLES, MemorySink
from sim.spec import EngineSpec, FixedTiming, PoolsSpec, Transfer
from sim.tail import close_open_spans
from sim.timing.compiled import compile_timing
from sim.timing.plain import Work
from sim.timing.tables import mixed_pass
from sim.timing.tabulated import pack
from tests.sim import arrays, test_pools, test_timing, test_timing_arrays
from tests.sim.answers import ask, difference
from tests.sim.pool_play import play
from tests.sim.pool_worlds import (
    late_pool,
    local_pool,
    pool_ahead,
    pool_drafts,
    pool_variant,
    pool_world,
    routed_pool,
    thrown_out_in_flight,
    tight_drafts,
    transfer_world,
)
from tests.sim.reached import Lines, lines_that_say
from tests.sim.worlds import RARE, World, behind_front_end, world

ROOT = Path(__file__).parents[2]
PLAIN, CHECKED = range(300), range(20)
# Guards against tables thinner than `tests.sim.arrays` makes: one point a curve, nothing at no past, sites off a ray.
THIN = (
    "return 0.0, -1, NO_SOURCE, 0.0",
    "return f[values + first], first, True",
    "return math.nan, -1, NO_SOURCE",
    "continue",
    "return False",
)


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


@pytest.mark.slow  # compiles everything once more, a minute or two even with little optimising
def test_with_bounds_checks_the_kernels_give_the_same_tables(tmp_path: Path) -> None:
    code = "from tests.sim.test_repeat import checked; checked()"
    unusual = {"NUMBA_BOUNDSCHECK": "1", "NUMBA_OPT": "1", "TRACEMILL_CACHE": str(tmp_path)}
    assert elsewhere(code, **unusual) == digests(CHECKED)


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
    sim.speculation.setup.RING_ROWS, sim.speculation.setup.BURST_LOG_ROWS, sim.speculation.plain.WALK_PASSES = 8, 20, 1
    sim.engine.PATIENCE = 50
    with Lines(files) as lines:
        print(*digests(PLAIN), sep="\n")
        play(range(100))
        pools()
        routed()
        handed_over()
        tabulated_prices()
        livelocks()
    # No state leads there, see OUT_OF_REACH in test_differential.py.
    out_of_reach = lines_that_say("not cfg.chunked and q[r, S.PROMPT] - before > budget:", str(ROOT / "sim/running.py"))
    tabulated = str(ROOT / "sim/timing/tabulated.py")
    out_of_reach |= {place for said in THIN for place in lines_that_say(said, tabulated)}
    print(lines.missed(out_of_reach))


def pools() -> None:
    for seed in (*range(250), *test_pools.RARE):
        ask(sim.engine.replay, pool_world(seed))
    for seed in range(60):
        ask(sim.engine.replay, pool_variant(seed))
    # Full logs by many admissions a pass; the end of the clock by 600 prefills of a hundred days, one after the other.
    for n, seqs, prefill_ms in ((4_000, 64, 2.0), (600, 1, 8.9e9)):
        load = Workload(np.zeros(n, np.int64), np.full(n, 9), np.full(n, 2))
        side = EngineSpec(max_num_seqs=seqs, async_scheduling=False, timing=FixedTiming(prefill_ms, 1.0))
        ask(sim.engine.replay, World(PoolsSpec(side, side, Transfer()), load))


def handed_over() -> None:
    """Links, failures and deadlines; roles that choose ahead; what waits in front of the engine; a year on a wire."""
    for seed in range(220):
        ask(sim.engine.replay, transfer_world(seed))
    for seed in range(80):
        ask(sim.engine.replay, pool_ahead(seed))
        ask(sim.engine.replay, pool_drafts(seed))
        ask(sim.engine.replay, behind_front_end(seed))
    for asked in (*map(late_pool, test_pools.LATE), *map(tight_drafts, test_pools.TIGHT_DRAFTS)):
        ask(sim.engine.replay, asked)
    ask(sim.engine.replay, thrown_out_in_flight())
    ask(sim.engine.replay, local_pool(test_pools.REFUSED_WHERE_IT_DECODES))
    side = EngineSpec(profile="parity", async_scheduling=False, timing=FixedTiming(1.0, 1.0))
    load = Workload(np.zeros(1, np.int64), np.array([5]), np.array([2]))
    ask(sim.engine.replay, World(PoolsSpec(side, side, Transfer(bytes_per_token=2.0, bytes_per_second=3e-7)), load))


def routed() -> None:
    for seed in range(60):
        ask(sim.engine.replay, routed_pool(seed))
        ask(sim.engine.replay, local_pool(seed))
        asked = world(seed, "routed")
        if asked.spec.speculation is not None:
            assert not difference(ask(sim.reference.replay, asked), ask(sim.engine.replay, asked)), seed
        ask(sim.engine.replay, asked)


def tabulated_prices() -> None:
    rng = random.Random(5)
    for _ in range(100):
        prices = compile_timing(EngineSpec(timing=test_timing.random_timing(rng)))
        for _ in range(30):
            test_timing_arrays.priced(prices, *test_timing_arrays.random_work(rng))
    test_timing_arrays.test_kernels_answer_like_the_definition_bit_for_bit()
    outside = [Work(1, 10**6, 0, 0, 0), Work(0, 0, 0, 10**6, 10**6), Work(10**4, 10**5, 9, 0, 0)]
    outside += [Work(0, 0, 0, b, kv) for b in range(1, 5) for kv in (b, 200, 245, 10**6)]
    outside += [Work(n, n * t, n * past, 0, 0) for n in range(1, 5) for t in (1, 5, 50) for past in (0, 1, 80, 10**4)]
    for number in range(400):
        timing = arrays.forward(rng) if number % 2 else arrays.any_kind(rng)
        packed = pack(timing, mixed_pass(timing, rng.choice(["vllm", "parity"])))
        for work in outside:
            test_timing_arrays.answered(*packed, *work)
    for seed in range(6):
        with pytest.MonkeyPatch.context() as patch:
            test_timing_arrays.test_evidence_is_counted_alike_in_compiled_code(seed, patch)


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
