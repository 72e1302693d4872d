"""Baselines are accepted with a reason and an explanation, checked by rows or by tolerance, and explain themselves."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from assets.desk import baselines
from assets.desk.baselines import BaselineError
from assets.desk.diff import diff_runs
from assets.desk.pair import Recorded
from assets.views import open_store
from perf_db.store import Store
from tests.assets.desk.tamper import tamper
from tests.assets.desk.worlds import deployment, record, traffic
from tests.pipelines.conftest import Cli, cli, root, tiny  # noqa: F401  (fixtures)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """Runs a and b: the same; c: fewer slots; d: another engine, whose mean TTFT is a thousandth higher."""
    for name in ("a", "b"):
        record(tmp_path / "w", name, deployment(3), traffic(3), name="nightly")
    record(tmp_path / "w", "c", deployment(3, max_num_seqs=2), traffic(3), name="nightly")
    record(tmp_path / "w", "d", deployment(3), traffic(3), name="nightly", engine_digest="other", replay_id="other")
    tamper(tmp_path / "w", "d", "UPDATE metrics SET value = value * 1.001 WHERE metric = 'ttft' AND stat = 'mean'")
    return open_store(tmp_path / "w")


def accept(store: Store, folder: Path, run: str, reason: str = "it is right", **more: object) -> baselines.Baseline:
    return baselines.accept(store, run, folder=folder, reason=reason, author="me", **more)[0]  # type: ignore[arg-type]


def test_a_baseline_needs_a_reason(store: Store, tmp_path: Path) -> None:
    with pytest.raises(BaselineError, match="needs a reason"):
        accept(store, tmp_path / "baselines", "a", reason="  ")
    assert baselines.names(tmp_path / "baselines") == []


def test_the_same_rows_pass_and_others_differ(store: Store, tmp_path: Path) -> None:
    kept = accept(store, tmp_path / "baselines", "a")
    assert baselines.check(kept, Recorded.of_store(store, "b"), store).passed
    found = baselines.check(kept, Recorded.of_store(store, "c"), store)
    assert not found.passed and found.diff is not None and found.diff.mechanism is not None
    assert found.diff.mechanism.name == "admission/gate"


def test_an_accepted_change_goes_into_the_history(store: Store, tmp_path: Path) -> None:
    accept(store, tmp_path / "baselines", "a")
    with pytest.raises(BaselineError, match="holds the accepted rows of 'nightly' already"):
        accept(store, tmp_path / "baselines", "b")
    kept = accept(store, tmp_path / "baselines", "c", reason="two slots are enough")
    first, second = kept.history
    assert (first["entry_no"], first["mechanism"], first["diff"]) == (0, None, None)
    assert (second["author"], second["reason"], second["mechanism"]) == ("me", "two slots are enough", "admission/gate")
    assert second["input_change"] == "configuration: engine.max_num_seqs"
    assert second["diff"]["attribution"][0]["change_ns"] == second["ttft_change_ns"]
    with store.connect() as con:
        rows = con.execute("SELECT baseline, entry_no, reason FROM baselines ORDER BY ALL").fetchall()
    assert rows == [("nightly", 0, "it is right"), ("nightly", 1, "two slots are enough")]
    assert baselines.latest_run(store, kept).run["run_id"] == "d"


def test_an_unexplained_difference_is_refused(store: Store, tmp_path: Path) -> None:
    accept(store, tmp_path / "baselines", "a")
    record(tmp_path / "w2", "e", deployment(3), traffic(3), name="nightly")
    tamper(tmp_path / "w2", "e", "UPDATE metrics SET value = value * 1.001 WHERE metric = 'ttft' AND stat = 'mean'")
    with pytest.raises(BaselineError, match="not explained and cannot be accepted: input change none"):
        accept(open_store(tmp_path / "w2"), tmp_path / "baselines", "e")
    tamper(tmp_path / "w2", "e", "UPDATE passes SET n_admitted = 0")
    with pytest.raises(BaselineError, match="breaks laws and cannot be accepted: passes_count_their_requests"):
        accept(open_store(tmp_path / "w2"), tmp_path / "baselines", "e")
    assert len(baselines.load(tmp_path / "baselines", "nightly").history) == 1


def test_tolerances_decide_by_figure(store: Store, tmp_path: Path) -> None:
    for tolerances, passes in (
        ({}, False),
        ({"ttft.mean": 0.002}, True),
        ({"ttft": 0.002}, True),
        ({"*": 0.002}, True),
        ({"*": 0.002, "ttft.mean": 0.0005}, False),
        ({"e2e_latency": 0.5}, False),
    ):
        folder = tmp_path / f"{len(tolerances)}{passes}{next(iter(tolerances), '')}"
        kept = accept(store, folder, "a", tolerances=tolerances)
        found = baselines.check(kept, Recorded.of_store(store, "d"), store)
        assert found.passed is passes, tolerances
        # Two figures moved: of the whole run and of the steady state.
        assert {(f.metric, f.stat) for f in found.moved} == {("ttft", "mean")}


def test_a_fresh_clone_explains_a_difference(store: Store, tmp_path: Path) -> None:
    accept(store, tmp_path / "baselines", "a")
    shutil.copytree(tmp_path / "baselines", tmp_path / "clone" / "baselines")
    shutil.rmtree(store.root)
    kept = baselines.load(tmp_path / "clone" / "baselines", "nightly")
    head = record(tmp_path / "elsewhere", "x", deployment(3, max_num_seqs=2), traffic(3), name="nightly")
    found = diff_runs(kept.recorded, head.recorded)
    assert found.explained and found.mechanism is not None and found.mechanism.name == "admission/gate"


def test_of_a_large_run_the_figures_are_kept(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(baselines, "COPIED_BYTES", 0)
    kept = accept(store, tmp_path / "baselines", "a", tolerances={"*": 0.01})
    assert kept.pinned
    assert {p.name for p in (tmp_path / "baselines" / "nightly").iterdir()} == {"baseline.json", "metrics.parquet"}
    assert baselines.check(kept, Recorded.of_store(store, "c"), store).diff is not None  # its rows are in the store
    record(tmp_path / "other", "x", deployment(3, max_num_seqs=2), traffic(3), name="nightly")
    other = open_store(tmp_path / "other")
    found = baselines.check(kept, Recorded.of_store(other, "x"), other)
    assert found.diff is None and found.beyond and not found.passed
    with pytest.raises(BaselineError, match="pinned to run a"):
        accept(other, tmp_path / "baselines", "x")


def test_the_commands(cli: Cli, tiny: Path, root: Path) -> None:  # noqa: F811
    folder = ("--baselines", root.parent / "baselines")
    assert cli("replay", tiny, "--json").exit_code == 0
    assert cli("baseline", "check", *folder).exit_code == 2
    assert cli("baseline", "accept", *folder).exit_code == 2
    wrong = cli("baseline", "accept", "--reason", "x", "--tolerance", "ttft", *folder)
    assert wrong.exit_code == 2 and "write FIGURE=SHARE" in wrong.stderr
    assert cli("baseline", "accept", "--reason", "the first", "--author", "me", *folder).exit_code == 0
    assert cli("baseline", "check", "nobody", *folder).exit_code == 2

    same = cli("baseline", "check", *folder)
    assert same.exit_code == 0 and same.stdout.startswith("same     tiny: run ")
    cli("replay", tiny, "--json", "--set", "engine.workers.aggregated.timing.prefill_ms=11")
    differs = cli("baseline", "check", *folder)
    assert differs.exit_code == 1 and "mechanism   price: prefill lookup at " in differs.stdout
    assert cli("diff", "baseline:tiny", "last", *folder).exit_code == 1
    again = cli("baseline", "accept", "--reason", "dearer prefill", *folder)
    assert again.exit_code == 0 and "mechanism   price" in again.stdout
    assert cli("baseline", "check", *folder).exit_code == 0
    told = cli("baseline", "history", *folder)
    assert told.exit_code == 0 and "the first" in told.stdout and "dearer prefill" in told.stdout
