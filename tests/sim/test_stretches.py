"""A replay in stretches: the kernel returns when its logs are full or its patience ends, and goes on where it was."""

from __future__ import annotations

import numpy as np
import pytest

import sim.engine
import sim.reference
import sim.setup
from sim.inputs import Workload
from sim.result import MemorySink
from sim.spec import EngineSpec, FlatTiming
from tests.sim.answers import ask, difference
from tests.sim.fuzz import differ
from tests.sim.worlds import World, world


@pytest.fixture
def small_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Logs that hold what one look at them must leave room for, and no row more."""
    monkeypatch.setattr(sim.setup, "LOG_ROWS", 0)
    monkeypatch.setattr(sim.setup, "LOG_PAD", 0)


@pytest.mark.parametrize("first", range(0, 600, 100))
@pytest.mark.usefixtures("small_logs")
def test_logs_that_fill_up_in_the_middle_change_nothing(first: int) -> None:
    for seed in range(first, first + 100):
        said = differ(world(seed))
        assert not said, f"world({seed}): {said}"


@pytest.mark.parametrize("patience", [1, 7])
def test_control_comes_back_between_passes_and_changes_nothing(monkeypatch: pytest.MonkeyPatch, patience: int) -> None:
    monkeypatch.setattr(sim.engine, "PATIENCE", patience)
    for seed in range(150):
        said = differ(world(seed))
        assert not said, f"world({seed}): {said}"


@pytest.mark.usefixtures("small_logs")
def test_many_replicas_may_have_many_chunks_in_flight() -> None:
    """Rows of passes in flight stay in the logs, from all replicas at once."""
    n, replicas, seqs = 400, 20, 8
    load = Workload(np.zeros(n, np.int64), np.full(n, 4), np.full(n, 3))
    spec = EngineSpec(timing=FlatTiming(1.0), workers=replicas, max_num_seqs=seqs, blocks=64, block_tokens=4)
    assert not differ(World(spec, load))


def _steady() -> World:
    n = 40
    load = Workload(np.arange(n) * 1_000_000, np.full(n, 8), np.full(n, 20))
    return World(EngineSpec(timing=FlatTiming(1.0), block_tokens=4, blocks=64, max_num_seqs=4), load)


def test_progress_counts_requests_up_to_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sim.engine, "PATIENCE", 10)
    steady, heard = _steady(), []
    sim.engine.replay(steady.spec, steady.load, MemorySink(), progress=lambda done, total: heard.append((done, total)))
    assert len(heard) > 10
    assert heard == sorted(heard)
    assert {total for _, total in heard} == {40}
    assert heard[-1] == (40, 40)


def test_ctrl_c_stops_between_two_stretches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sim.engine, "PATIENCE", 10)
    steady, sink = _steady(), MemorySink()

    def press(done: int, total: int) -> None:
        if done >= 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sim.engine.replay(steady.spec, steady.load, sink, progress=press)
    seen = len(sink.table("passes")["pass_no"])
    assert 0 < seen < 200
    # Nothing of an interrupted replay is left behind for the next one.
    assert not difference(ask(sim.reference.replay, steady), ask(sim.engine.replay, steady))
