"""Planted changes are named: first pass, input, mechanism; and the attribution adds up to the nanosecond."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import cache
from pathlib import Path

import pytest

from assets.desk.attribution import Attribution
from assets.desk.diff import Diff, diff_runs
from assets.desk.text import diff_text
from sim.result import COMPLETED, Columns
from tests.assets.desk.oracle import first_divergence, passes
from tests.assets.desk.plants import PLANTS
from tests.assets.desk.worlds import Run, deployment, record, traffic

SEEDS = 20


def total(requests: Columns, column: str) -> int:
    """Sum over completed requests with a token of the time from arrival to `column`."""
    kept = (requests["status"] == COMPLETED) & (requests["first_token_ns"] >= 0)
    return int((requests[column] - requests["arrival_ns"])[kept].sum())


def check_sums(found: list[Attribution], base: Columns, head: Columns) -> None:
    for a, column in zip(found, ("first_token_ns", "last_token_ns"), strict=True):
        assert (a.base_ns, a.head_ns) == (total(base, column), total(head, column))
        assert sum(a.terms.values()) == a.change_ns
        assert sum(b for b, _ in a.parts.values()) + a.only_base_ns == a.base_ns
        assert all(b >= 0 and h >= 0 for b, h in a.parts.values())


def check_named(
    diff: Diff, mechanisms: Collection[str], inputs: Collection[str], base: Run, head: Run, seed: int
) -> None:
    """A diff names one of the mechanisms and all the inputs, adds up, and begins where the two runs part."""
    assert diff.mechanism is not None and diff.mechanism.name in mechanisms, (seed, diff_text(diff))
    assert set(diff.input_change) == set(inputs), seed
    assert diff.explained
    check_sums(diff.attribution, base.tables["requests"], head.tables["requests"])
    if diff.matched_by == "request_id":
        ids = {i: int(r) for i, r in enumerate(head_ids(head))}
        own = {i: i for i in range(len(base.tables["requests"]["request"]))}
        expected = first_divergence(passes(base.tables, own), passes(head.tables, ids))
        assert (diff.first_pass.key if diff.first_pass else None) == expected, (seed, diff_text(diff))


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Run]:
    """The unchanged run of a seed, made once for all plants."""
    folder = tmp_path_factory.mktemp("bases")
    return cache(lambda seed: record(folder / str(seed), "base", deployment(seed), traffic(seed)))


def plant(name: str, seed: int, base: Run, tmp_path: Path) -> tuple[Run, Diff]:
    spec, load = deployment(seed), traffic(seed)
    with pytest.MonkeyPatch.context() as patch:
        spec, load, facts = PLANTS[name].change(spec, load, seed, patch)
        head = record(tmp_path, "head", spec, load, **facts)
    return head, diff_runs(base.recorded, head.recorded)


@pytest.mark.slow
@pytest.mark.parametrize("name", PLANTS)
def test_a_planted_change_is_named(name: str, bases: Callable[[int], Run], tmp_path: Path) -> None:
    told = 0
    for seed in range(3 * SEEDS):
        base = bases(seed)
        head, diff = plant(name, seed, base, tmp_path / str(seed))
        if diff.same:
            continue  # too mild for this deployment
        told += 1
        check_named(diff, PLANTS[name].mechanisms, PLANTS[name].inputs, base, head, seed)
        if told == SEEDS:
            return
    pytest.fail(f"{name}: only {told} seeds make a difference")


def head_ids(run: Run) -> list[int]:
    """request_id of the engine's request numbers."""
    import pyarrow.parquet as pq

    path = run.recorded.file("requests")
    assert path is not None
    return pq.read_table(path, columns=["request_id"])["request_id"].to_pylist()


@pytest.mark.parametrize("name", ["evict the newest", "a nanosecond more"])
def test_a_mutated_engine_that_hides_its_sources_is_no_explained_change(name: str, tmp_path: Path) -> None:
    """The mechanism is still found; but nothing among the inputs can have set it off."""
    for seed in range(40):
        spec, load = deployment(seed), traffic(seed)
        base = record(tmp_path / str(seed), "base", spec, load)
        with pytest.MonkeyPatch.context() as patch:
            spec, load, _ = PLANTS[name].change(spec, load, seed, patch)
            head = record(tmp_path / str(seed), "head", spec, load)
        diff = diff_runs(base.recorded, head.recorded)
        if not diff.same:
            assert diff.input_change == ["none"] and not diff.explained
            assert diff.mechanism is not None and diff.mechanism.name in PLANTS[name].mechanisms
            assert "NOT REPRODUCIBLE" in diff_text(diff)
            return
    pytest.fail("no seed makes a difference")


def test_random_pairs_add_up(tmp_path: Path) -> None:
    """Runs that have nothing to do with each other."""
    runs = [record(tmp_path, f"r{i}", deployment(i), traffic(50 + i, n=18 + i)) for i in range(5)]
    for base in runs:
        for head in runs:
            diff = diff_runs(base.recorded, head.recorded)
            assert diff.same == (base is head)
            if not diff.same:
                check_sums(diff.attribution, base.tables["requests"], head.tables["requests"])
