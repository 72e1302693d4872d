"""Compiled once, and never run after the sources have changed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numba
import numpy as np
import pytest

import sim.engine
import sim.loop
import sim.prefix
import sim.tail
from sim import jit
from sim.errors import ReplayError
from sim.result import MemorySink
from tests.sim.worlds import world

compiled = pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="compilation is off")


@compiled
def test_every_world_runs_the_same_machine_code():
    """Another signature would be another compilation, in the middle of somebody's run. Worlds that draft have one of
    their own, so that all others run code without a trace of drafts."""
    for drafting in (False, True):
        sim.engine.load_kernels(drafting=drafting)
    kernels = (sim.loop.run, sim.tail.close_open_spans, sim.prefix._plant, sim.prefix._measure, sim.prefix._write)
    sim.engine.replay(world(0).spec, world(0).load, MemorySink())
    before = [list(kernel.signatures) for kernel in kernels]
    for seed in range(100):
        asked = world(seed)
        try:
            sim.engine.replay(asked.spec, asked.load, MemorySink())
        except ReplayError:
            continue
    assert [list(kernel.signatures) for kernel in kernels] == before


@compiled
@pytest.mark.parametrize("kind", ["read_only", "int32", "strided"])
def test_columns_of_any_make_run_the_same_machine_code(kind: str):
    """Frames hand out read-only, narrow and strided columns."""
    asked = world(0)
    sim.engine.replay(asked.spec, asked.load, MemorySink())
    for name in ("arrival_ns", "prompt_tokens", "output_tokens", "hash_offsets", "hash_ids", "hashed_tokens"):
        column = getattr(asked.load, name)
        if column is None:
            continue
        if kind == "int32":
            column = column.astype(np.int32)
        elif kind == "strided":
            column = np.repeat(column, 2)[::2]
        else:
            column = column.copy()
            column.flags.writeable = False
        object.__setattr__(asked.load, name, column)
    before = list(sim.loop.run.signatures)
    sim.engine.replay(asked.spec, asked.load, MemorySink())
    assert sim.loop.run.signatures == before


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the sources that the key is taken of."""
    copy = tmp_path / "sim"
    shutil.copytree(Path(jit.__file__).parent, copy, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(jit, "_SIM", copy)
    return copy


def test_kernels_are_kept_under_the_key_of_their_sources():
    assert Path(numba.config.CACHE_DIR).name == jit.source_key()


# Kernels, what they call, and the constants compiled into them.
@pytest.mark.parametrize("file", ["loop.py", "kv/pool.py", "state.py", "result.py", "timing/plain.py", "jit.py"])
def test_an_edit_that_can_change_machine_code_changes_the_key(sources: Path, file: str):
    before = jit.source_key()
    (sources / file).write_text((sources / file).read_text() + "\n")
    assert jit.source_key() != before


@pytest.mark.parametrize("file", ["reference.py", "metrics.py", "config/rules.py", "engine.py", "notes.txt"])
def test_an_edit_that_cannot_keeps_it(sources: Path, file: str):
    before, path = jit.source_key(), sources / file
    path.write_text((path.read_text() if path.exists() else "") + "\n")
    assert jit.source_key() == before


def test_no_kernel_depends_on_a_file_outside_its_key():
    """Every module of `sim` that a kernel's globals reach is among the sources of the key."""
    known = {str(path) for path in jit.kernel_sources()}
    for module in [m for name, m in sys.modules.items() if name.startswith("sim.")]:
        kernels = [x for x in vars(module).values() if hasattr(x, "py_func") and x.__module__ == module.__name__]
        for kernel in kernels:
            used = [kernel.py_func.__globals__.get(name) for name in kernel.py_func.__code__.co_names]
            files = {sys.modules[x.__module__].__file__ for x in used if hasattr(x, "py_func")}
            files |= {x.__file__ for x in used if isinstance(x, ModuleType) and x.__name__.startswith("sim.")}
            assert files | {module.__file__} <= known


def test_bounds_checked_code_is_kept_apart(monkeypatch: pytest.MonkeyPatch):
    before = jit.source_key()
    monkeypatch.setattr(numba.config, "BOUNDSCHECK", 1)
    assert jit.source_key() != before


def test_the_cache_stays_inside_the_environment_unless_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.delenv("TRACEMILL_CACHE", raising=False)
    assert jit.cache_root().is_relative_to(sys.prefix)
    monkeypatch.setenv("TRACEMILL_CACHE", str(tmp_path))
    assert jit.cache_root() == tmp_path


def test_old_states_are_forgotten_and_the_present_one_is_not(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("TRACEMILL_CACHE", str(tmp_path))
    for age, name in enumerate([jit.source_key(), "a", "b", "c", "d"]):
        (tmp_path / name).mkdir()
        os.utime(tmp_path / name, (age, age))
    jit.prune(keep=2)
    assert {p.name for p in tmp_path.iterdir()} == {jit.source_key(), "c", "d"}


def test_what_configuration_and_metrics_need_is_imported_without_the_compiler():
    code = (
        "import sys, sim.config, sim.spec, sim.inputs, sim.result, sim.metrics, sim.errors, sim.reference;"
        "assert 'numba' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[2])
