"""Planted changes of separate pools are named, and every nanosecond between the pools is booked where it was spent."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from assets.desk.diff import Diff, diff_runs
from assets.desk.session import open_run
from assets.desk.text import diff_text
from sim import reference_transfers
from sim.errors import ReplayError
from sim.inputs import Workload
from sim.spec import FixedTiming, Transfer
from tests.assets.desk.pool_plants import PLANTS
from tests.assets.desk.test_plants import check_named
from tests.assets.desk.worlds import Run, pools, record, traffic

SEEDS = 4
QUICK = ("bandwidth", "fewer decode places", "failures")


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Run]:
    folder = tmp_path_factory.mktemp("bases")
    return cache(lambda seed: record(folder / str(seed), "base", pools(seed), traffic(seed)))


def plant(name: str, seed: int, base: Run, tmp_path: Path) -> tuple[Run, Diff]:
    with pytest.MonkeyPatch.context() as patch:
        spec, load, facts = PLANTS[name].change(pools(seed), traffic(seed), seed, patch)
        head = record(tmp_path, "head", spec, load, **facts)
    return head, diff_runs(base.recorded, head.recorded)


@pytest.mark.parametrize(
    ("name", "seeds"),
    [(name, 3) for name in QUICK] + [pytest.param(name, SEEDS, marks=pytest.mark.slow) for name in PLANTS],
)
def test_a_planted_change_is_named(name: str, seeds: int, bases: Callable[[int], Run], tmp_path: Path) -> None:
    told, named, kind = 0, set(), PLANTS[name]
    for seed in range(6 * seeds):
        try:
            base = bases(seed)
            head, diff = plant(name, seed, base, tmp_path / str(seed))
        except ReplayError:
            continue  # in a pool this small requests can block each other for ever
        if diff.same:
            continue  # too mild for this deployment
        told += 1
        check_named(diff, kind.mechanisms, kind.inputs, base, head, seed)
        assert diff.mechanism is not None
        named.add(diff.mechanism.name)
        if told >= seeds and named >= kind.first:
            return
    pytest.fail(f"{name}: {told} seeds make a difference, named {sorted(named)}")


PHASES = ("queue", "prefill", "destination", "transfer", "ready", "first_decode", "decode", "preempted")


def test_phases_add_up_and_are_those_of_the_handover(tmp_path: Path) -> None:
    """Whoever was not preempted spent between the pools what the instants of its handover say, to the nanosecond."""
    waited, preempted = dict.fromkeys(PHASES, 0), 0
    for seed in range(6):
        run = record(tmp_path, f"r{seed}", pools(seed), traffic(seed))
        with open_run(run.recorded) as con:
            columns = ", ".join(f"{name}_ns" for name in PHASES)
            rows = con.execute(
                f"""SELECT p.ttft_ns, p.e2e_ns, p.preempted_first_ns, [{columns}], r.arrival_ns, r.first_token_ns,
                    r.last_token_ns, h.prefill_admitted_ns, h.held_ns, h.reserved_ns, h.transferred_ns,
                    h.decode_admitted_ns
                FROM request_phases p JOIN requests r USING (request_id) JOIN handoffs h USING (request_id)"""
            ).fetchall()
        assert rows
        for ttft, e2e, lost_first, spent, *instants in rows:
            found = dict(zip(PHASES, spent, strict=True))
            assert min(spent) >= 0 and sum(spent) == e2e
            assert sum(spent[:6]) + lost_first == ttft
            arrival, first, last, *between = instants
            steps = [arrival, *between, first, last]
            lengths = [b - a for a, b in pairwise(steps)]
            if found["preempted"]:
                preempted += 1
                assert spent[2:5] == lengths[2:5]
            else:
                assert spent[:7] == lengths
            waited = {name: waited[name] + found[name] for name in PHASES}
    assert preempted and all(waited.values()), waited


def test_a_prompt_that_is_not_handed_over_is_prefill_to_its_first_token(tmp_path: Path) -> None:
    """As where it decodes; and one whose KV never came waits for it until it is decoded."""
    run = record(tmp_path, "r", pools(0), traffic(0))
    with open_run(run.recorded) as con:
        con.execute("CREATE TABLE kept AS FROM handoffs")
        con.execute("CREATE OR REPLACE VIEW handoffs AS FROM kept")
        one, other = (r for (r,) in con.execute("SELECT request_id FROM kept ORDER BY ALL LIMIT 2").fetchall())
        con.execute("DELETE FROM kept WHERE request_id = ?", [one])
        con.execute("UPDATE kept SET transferred_ns = NULL, activated_ns = NULL WHERE request_id = ?", [other])
        ask = """SELECT p.prefill_ns + p.preempted_first_ns - (r.first_token_ns - r.admitted_ns),
                        p.destination_ns + p.transfer_ns + p.ready_ns + p.first_decode_ns
                 FROM request_phases p JOIN requests r USING (request_id) WHERE request_id = ?"""
        assert con.execute(ask, [one]).fetchall() == [(0, 0)]
        ask = """SELECT p.transfer_ns - (h.decode_admitted_ns - h.reserved_ns), ready_ns
                 FROM request_phases p JOIN handoffs h USING (request_id) WHERE request_id = ?"""
        assert con.execute(ask, [other]).fetchall() == [(0, 0)]


def test_a_transfer_that_changes_no_pass_is_still_named(tmp_path: Path) -> None:
    """The second prompt's KV arrives while the first one's long decode pass runs, a nanosecond sooner or later."""
    timing = FixedTiming(1.0, 5000.0)
    spec = pools(0)
    spec = dataclasses.replace(
        spec,
        prefill=dataclasses.replace(spec.prefill, timing=timing, workers=1, dp=1, blocks=64),
        decode=dataclasses.replace(spec.decode, timing=timing, workers=1, dp=1, blocks=64, max_num_seqs=8),
        transfer=Transfer(bytes_per_token=1000.0, bytes_per_second=4e6),
    )
    load = Workload(np.array([0, 30_000_000]), np.array([8, 12]), np.array([3, 3]))
    base = record(tmp_path, "base", spec, load)
    assert diff_runs(base.recorded, record(tmp_path, "again", spec, load).recorded).same
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reference_transfers, "nearest_ns", lambda s: round(s * 1e9) + (s > 0.0025))
        diff = diff_runs(base.recorded, record(tmp_path, "head", spec, load).recorded)
    assert diff.first_pass is None and [name for name, *_ in diff.tables] == ["handoffs"]
    assert diff.mechanism is not None and diff.mechanism.name == "transfer"
    assert "which changes no pass" in diff_text(diff)
