"""The trace for Perfetto is well-formed, complete within its window, and small if it must be."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from assets.desk.pair import Recorded
from assets.desk.timeline import PER_HANDOFF, PER_PASS, PER_REQUEST, TimelineError, write_timeline
from assets.views import open_store
from tests.assets.desk.large import long_run
from tests.assets.desk.worlds import deployment, pools, record, traffic
from tests.perf_db.hand_made import write_run
from tests.pipelines.conftest import Cli, cli, root, tiny  # noqa: F401  (fixtures)


def events_of(path: Path) -> list[dict[str, Any]]:
    with gzip.open(path, "rt") as file:
        return json.load(file)["traceEvents"]


def test_the_drawing(tmp_path: Path) -> None:
    """perf_db/hand_made.py: A is away from 35 to 40 ms."""
    store = open_store(tmp_path / "w")
    write_run(store, "r1")
    done = write_timeline(Recorded.of_store(store, "r1"), tmp_path / "t.json.gz")
    events = events_of(tmp_path / "t.json.gz")
    assert (done.n_events, done.n_passes, done.n_requests, done.cut) == (len(events), 5, 4, False)
    passes = [(e["ts"], e["dur"], e["name"]) for e in events if e["ph"] == "X"]
    assert passes[:2] == [(0, 10_000, "prefill 100"), (10_000, 20_000, "prefill 28 + decode 1")]
    bars = {(e["id"], e["name"], e["ph"]): e["ts"] for e in events if e["ph"] in "be"}
    assert (bars[0, "preempted", "b"], bars[0, "preempted", "e"]) == (35_000, 40_000)
    assert (bars[0, "decode", "b"], bars[0, "decode", "e"]) == (10_000, 52_000)
    assert (bars[3, "queued", "b"], bars[3, "queued", "e"]) == (20_000, 35_000)
    counters = [e["args"] for e in events if e["ph"] == "C" and e["name"] == "rank 0 KV blocks"]
    assert counters[0] == {"in use": 7, "cached": 0}


@pytest.mark.parametrize("seed", range(3))
def test_every_bar_that_begins_ends_on_a_rank_that_has_a_name(seed: int, tmp_path: Path) -> None:
    side = record(tmp_path, "r", deployment(seed, workers=2, dp=2), traffic(seed)).recorded
    write_timeline(side, tmp_path / "t.json.gz")
    events = events_of(tmp_path / "t.json.gz")
    begun = Counter((e["pid"], e["tid"], e["id"], e["name"]) for e in events if e["ph"] == "b")
    ended = Counter((e["pid"], e["tid"], e["id"], e["name"]) for e in events if e["ph"] == "e")
    assert begun == ended and begun
    named = {(e["pid"], e["tid"]) for e in events if e["name"] == "thread_name"}
    assert {(e["pid"], e["tid"]) for e in events if e["ph"] in "Xbe"} <= named
    assert sum(e["ph"] == "X" for e in events) == side.run["n_passes"]


def test_a_window_and_a_cap(tmp_path: Path) -> None:
    side = long_run(tmp_path, "r", 20_000)  # a pass every 5 ms
    done = write_timeline(side, tmp_path / "a.json.gz", from_s=10, to_s=10.1)
    assert 20 <= done.n_passes <= 22 and not done.cut
    times = [e["ts"] for e in events_of(tmp_path / "a.json.gz") if e["ph"] in "be"]
    assert min(times) >= 10e6 and max(times) <= 10.1e6

    done = write_timeline(side, tmp_path / "b.json.gz", from_s=10, max_events=500)
    assert done.cut and done.n_events <= 500 + 2 and done.to_ns < side.run["end_ns"]
    whole = write_timeline(side, tmp_path / "c.json.gz", from_s=10, to_s=done.to_ns / 1e9)
    assert whole.n_passes == done.n_passes  # what is there is complete
    for wrong in ({"from_s": 5, "to_s": 4}, {"from_s": -1}, {"max_events": 3}):
        with pytest.raises(TimelineError):
            write_timeline(side, tmp_path / "d.json.gz", **wrong)  # type: ignore[arg-type]
    assert not (tmp_path / "d.json.gz").exists() and not list(tmp_path.glob(".d*"))


def test_the_same_run_gives_the_same_bytes(tmp_path: Path) -> None:
    side = record(tmp_path, "r", deployment(1), traffic(1)).recorded
    for name in ("a", "b"):
        write_timeline(side, tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_the_command(cli: Cli, tiny: Path, tmp_path: Path) -> None:  # noqa: F811
    assert cli("replay", tiny, "--json").exit_code == 0
    target = tmp_path / "trace.json.gz"
    made = cli("timeline", "-o", target)
    assert made.exit_code == 0 and "3 requests" in made.stdout and events_of(target)
    cut = cli("timeline", "last", "-o", target, "--max-events", "30")
    assert cut.exit_code == 0 and "cut at " in cut.stderr
    assert cli("timeline", "last", "-o", target, "--from", "2", "--to", "1").exit_code == 2
    for command in ("timeline", "report"):
        lost = cli(command, "last", "-o", tmp_path / "none" / "out")
        said = " ".join(lost.stderr.split())
        assert lost.exit_code == 2 and f"the folder {tmp_path / 'none'} does not exist" in said, said
        assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("seed", range(4))
def test_what_is_handed_over_stands_in_both_pools(seed: int, tmp_path: Path) -> None:
    """Prefill where it was computed, decode where it was made, the transfer between them with an arrow over it."""
    spec = pools(seed)
    run = record(tmp_path, "r", spec, traffic(seed))
    done = write_timeline(run.recorded, tmp_path / "t.json.gz")
    events = events_of(tmp_path / "t.json.gz")
    begun = Counter((e["pid"], e["tid"], e["id"], e["name"]) for e in events if e["ph"] == "b")
    assert begun == Counter((e["pid"], e["tid"], e["id"], e["name"]) for e in events if e["ph"] == "e")
    named = {(e["pid"], e["tid"]) for e in events if e["name"] == "thread_name"}
    assert {(e["pid"], e["tid"]) for e in events if e["ph"] in "Xbesf"} <= named
    processes = {e["pid"]: e["args"]["name"] for e in events if e["name"] == "process_name"}
    roles = {pid: name.split()[0] for pid, name in processes.items()}
    assert set(roles.values()) == {"prefill", "decode", "KV"}
    where = {"queued": "prefill", "prefill": "prefill", "held": "prefill", "transfer": "decode", "decode": "decode"}
    for event in events:
        if event["ph"] == "b" and event["name"] in where:
            assert roles[event["pid"]] == where[event["name"]], event
    table = run.tables["handoffs"]
    moved = table["reserved_ns"] >= 0
    bars = {e["id"]: e["ts"] for e in events if e["ph"] == "b" and e.get("cat") == "transfer"}
    ends = {e["id"]: e["ts"] for e in events if e["ph"] == "e" and e.get("cat") == "transfer"}
    assert bars == dict(zip(table["request"][moved].tolist(), (table["reserved_ns"][moved] / 1000).tolist()))
    assert ends == dict(zip(table["request"][moved].tolist(), (table["transferred_ns"][moved] / 1000).tolist()))
    # Arrows begin and end inside a pass of the ranks that they join.
    passes = [(e["pid"], e["tid"], e["ts"], e["ts"] + e["dur"]) for e in events if e["ph"] == "X"]
    arrows = [e for e in events if e["ph"] in "sf"]
    assert len(arrows) == 2 * int((table["decode_admitted_ns"] >= 0).sum()) > 0
    for arrow in arrows:
        at = (arrow["pid"], arrow["tid"])
        assert any(p[:2] == at and p[2] <= arrow["ts"] < p[3] for p in passes), arrow
    # The cap reckons with all of it.
    assert done.n_events <= PER_PASS * len(passes) + (PER_REQUEST + PER_HANDOFF) * 24 + 2 * len(run.tables["pressure"][
        "request"]) + len(processes) + 2 * len(named)  # fmt: skip


def test_a_loss_ends_with_the_return_to_its_rank(tmp_path: Path) -> None:
    """Passes of two pools are numbered apart: a loss in pass 3 of one is not older than one in pass 9 of the other."""
    lost = 0
    for seed in range(8):
        run = record(tmp_path, f"r{seed}", pools(seed), traffic(seed))
        write_timeline(run.recorded, tmp_path / "t.json.gz")
        bars = [e for e in events_of(tmp_path / "t.json.gz") if e["name"] == "preempted"]
        starts = [(e["id"], e["pid"], e["tid"], e["ts"]) for e in bars if e["ph"] == "b"]
        stops = [(e["id"], e["pid"], e["tid"], e["ts"]) for e in bars if e["ph"] == "e"]
        again: dict[tuple[int, int, int], list[int]] = {}
        admissions, pressure = run.tables["admissions"], run.tables["pressure"]
        for request, worker, rank, start, kind in zip(
            *(admissions[c].tolist() for c in ("request", "worker", "dp_rank", "start_ns", "kind")), strict=True
        ):
            if kind:
                again.setdefault((request, worker, rank), []).append(start)
        home = dict(zip(*(run.tables["requests"][c].tolist() for c in ("request", "worker")), strict=True))
        for request, worker, rank, chosen in zip(
            *(pressure[c].tolist() for c in ("request", "worker", "dp_rank", "chosen_ns")), strict=True
        ):
            number = request if worker == home[request] else f"{request} prefill"
            back = min(t for t in again[request, worker, rank] if t >= chosen)
            assert (number, worker + 1, rank + 1, chosen / 1000) in starts
            assert (number, worker + 1, rank + 1, back / 1000) in stops
            lost += 1
    assert lost > 5


@pytest.mark.parametrize("name", ["t.json", "t.json.gz", "t.JSON.GZ"])
def test_the_name_says_whether_it_is_packed(tmp_path: Path, name: str) -> None:
    store = open_store(tmp_path / "w")
    write_run(store, "r1")
    write_timeline(Recorded.of_store(store, "r1"), tmp_path / name)
    held = (tmp_path / name).read_bytes()
    assert held.startswith(b"\x1f\x8b") == name.lower().endswith(".gz")
    events = json.loads(gzip.decompress(held) if name.lower().endswith(".gz") else held)["traceEvents"]
    write_timeline(Recorded.of_store(store, "r1"), tmp_path / "u.json.gz")
    assert events == events_of(tmp_path / "u.json.gz")
