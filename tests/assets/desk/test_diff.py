"""The pieces of a diff on the replay drawn in perf_db/hand_made.py, and the command."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from assets.desk.diff import diff_runs
from assets.desk.pair import Recorded, open_pair
from assets.desk.text import diff_text
from assets.views import open_store
from tests.assets.desk.large import PER_REQUEST, long_run
from tests.assets.desk.plan import joins
from tests.assets.desk.worlds import deployment, record, traffic
from tests.perf_db.hand_made import B, hand_made, write_run
from tests.pipelines.conftest import Cli, cli, root, tiny  # noqa: F401  (fixtures)

MS = 1_000_000


def test_phases_of_the_drawing(tmp_path: Path) -> None:
    """A loses its blocks at 35 and has them again at 52; that is no time between tokens like any other."""
    store = open_store(tmp_path)
    write_run(store, "r1")
    columns = "request_id, queue_ns, prefill_ns, decode_ns, preempted_first_ns, preempted_ns, ttft_ns, e2e_ns"
    with store.connect() as con:
        found = con.execute(f"SELECT {columns} FROM request_phases WHERE run_id = 'r1' ORDER BY ALL").fetchall()
    assert [(r, *(ns / MS for ns in rest)) for r, *rest in found] == [
        (0, 0, 10, 25, 0, 17, 10, 52),
        (2, 6, 20, 5, 0, 0, 26, 31),
        (3, 15, 5, 0, 0, 0, 20, 20),
    ]


def test_the_macros_say_what_the_diff_says(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    write_run(store, "r1")
    later = hand_made()
    later["requests"]["last_token_ns"][B] += MS
    write_run(store, "r2", tables=later)
    diff = diff_runs(Recorded.of_store(store, "r1"), Recorded.of_store(store, "r2"))
    with store.connect() as con:
        rows = con.execute("SELECT sum(e2e_ns), sum(ttft_ns) FROM diff_requests('r1', 'r2')").fetchall()
        figures = con.execute("SELECT * FROM diff_metrics('r1', 'r2') ORDER BY ALL").fetchall()
    assert rows == [(MS, 0)]
    assert {a.latency: a.change_ns for a in diff.attribution} == {"ttft": 0, "e2e": MS}
    assert len(figures) == len(diff.figures) == 2


def test_equal_results_are_one_line(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    write_run(store, "r1")
    write_run(store, "r2", name="again")
    diff = diff_runs(Recorded.of_store(store, "r1"), Recorded.of_store(store, "r2"))
    assert diff.same and diff.explained
    text = diff_text(diff)
    assert text.startswith("same  r1 (by hand)  and  r2 (again)") and "\n" not in text


def test_a_request_that_reaches_no_pass(tmp_path: Path) -> None:
    """Only its row differs: every pass is the same, and the reason is still told."""
    store = open_store(tmp_path)
    write_run(store, "r1")
    other = hand_made()
    other["requests"]["requested_tokens"][3] = 9  # D, which was rejected on arrival
    write_run(store, "r2", tables=other, trace_digest="t2", replay_id="r2")
    diff = diff_runs(Recorded.of_store(store, "r1"), Recorded.of_store(store, "r2"))
    assert diff.first_pass is None and diff.mechanism is not None and diff.mechanism.name == "length"
    assert diff.input_change == ["trace: requested_tokens"]
    assert "request 4 has another length, which changes no pass" in diff_text(diff)


def test_passes_that_look_alike_but_hold_others_are_told_apart(tmp_path: Path) -> None:
    """B and C swap places: every row of `passes` stays the same."""
    store = open_store(tmp_path)
    write_run(store, "r1")
    other = hand_made()
    spans = other["spans"]["request"]
    spans[:] = np.where(spans == 1, 2, np.where(spans == 2, 1, spans))
    write_run(store, "r2", tables=other, replay_id="r2")
    diff = diff_runs(Recorded.of_store(store, "r1"), Recorded.of_store(store, "r2"))
    assert diff.first_pass is not None and diff.first_pass.key == (0, 0, 1)
    assert diff.first_pass.differing() == []
    assert diff.mechanism is not None and diff.mechanism.name == "sampling"


def test_rows_that_moved_up_are_matched_by_content(tmp_path: Path) -> None:
    spec, load = deployment(1), traffic(1)
    base = record(tmp_path, "base", spec, load)
    head = record(tmp_path, "head", spec, load, ids=np.arange(len(load)) + 1, trace_digest="other",
                  provenance_json=json.dumps({"rows_read": len(load) + 1}))  # fmt: skip
    diff = diff_runs(base.recorded, head.recorded)
    assert diff.matched_by == "content of the rows"
    assert diff.first_pass is None and diff.requests["only_base"] == diff.requests["only_head"] == 0
    assert all(a.change_ns == 0 for a in diff.attribution)


def test_a_late_difference_in_a_long_run(tmp_path: Path) -> None:
    n = 60_000
    base, head = long_run(tmp_path, "base", n), long_run(tmp_path, "head", n, dearer_from=n - 7)
    diff = diff_runs(base, head)
    assert diff.first_pass is not None and diff.first_pass.pass_no == n - 7
    assert diff.mechanism is not None and diff.mechanism.name == "price"
    ttft, e2e = diff.attribution
    assert ttft.change_ns == 0 and e2e.terms["pass time"] == e2e.change_ns == 7
    assert e2e.n_common == n // PER_REQUEST


def test_slices_of_time_find_what_one_look_finds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spec, load = deployment(3), traffic(3)
    base = record(tmp_path, "base", spec, load)
    head = record(tmp_path, "head", deployment(3, blocks=spec.blocks - 2), load)
    whole = diff_runs(base.recorded, head.recorded)
    monkeypatch.setattr("assets.desk.divergence.SLICE_ROWS", 5)
    sliced = diff_runs(base.recorded, head.recorded)
    assert whole.first_pass is not None and whole.first_pass == sliced.first_pass


def test_no_join_of_the_phases_is_a_cross_product(tmp_path: Path) -> None:
    base, head = long_run(tmp_path, "base", 20_000), long_run(tmp_path, "head", 20_000, dearer_from=5)
    with open_pair(base, head) as pair:
        for side in ("base", "head"):
            found = joins(pair.con, f"FROM {side}.request_phases")
            # `runs` has one row for each.
            of_rows = [text for text in found if text != "run_id = run_id"]
            assert of_rows and all("request_id" in text or "pass_no" in text for text in of_rows), found
            assert pair.con.execute(f"SELECT count(*) FROM {side}.runs").fetchone() == (1,)


def test_the_command(cli: Cli, tiny: Path) -> None:  # noqa: F811
    for change in ((), ("--set", "engine.workers.aggregated.timing.decode_ms=4")):
        assert cli("replay", tiny, "--json", *change).exit_code == 0
    first = json.loads(cli("sql", "SELECT min(run_id) AS r FROM runs", "--format", "json").stdout)["r"]

    assert "Without HEAD it is the last run." in cli("diff", "--help").stdout
    assert cli("diff", first, first).exit_code == 0
    assert cli("diff", first, "nobody").exit_code == 2
    answer = cli("diff", first, "last")
    assert answer.exit_code == 1
    assert "engine.workers.aggregated.timing.decode_ms  3 → 4" in answer.stdout
    assert "mechanism   price: decode lookup at 1 request with " in answer.stdout
    found = json.loads(cli("diff", first, "last", "--json").stdout)
    assert found["mechanism"] == "price" and found["explained"]
    assert found["input_change"] == ["configuration: engine.workers.aggregated.timing.decode_ms"]
    assert all(sum(a["terms_ns"].values()) == a["change_ns"] for a in found["attribution"])


def forget(recorded: Recorded, table: str, column: str) -> Recorded:
    """The run as a release would have written it that had no such column."""
    tables = []
    for t in recorded.commit.tables:
        if t.table == table:
            columns = {c: kind for c, kind in t.columns.items() if c != column}
            digests = {c: digest for c, digest in t.digests.items() if c != column}
            t = dataclasses.replace(t, digest="other", columns=columns, digests=digests)
        tables.append(t)
    run = recorded.run | {"schema_digest": "older", "result_digest": "other"}
    return Recorded(dataclasses.replace(recorded.commit, run=run, tables=tuple(tables)), recorded.root)


def test_releases_with_other_columns_are_compared_in_what_both_write(tmp_path: Path) -> None:
    base = record(tmp_path, "base", deployment(3), traffic(3)).recorded
    head = record(tmp_path, "head", deployment(3, max_num_seqs=2), traffic(3)).recorded
    older = forget(base, "passes", "n_waiting")
    diff = diff_runs(older, base)
    assert diff.same and diff.same_in_common and "in the columns that both write" in diff_text(diff)
    known, found = diff_runs(base, head), diff_runs(older, head)
    assert found.first_pass is not None and known.first_pass is not None
    assert found.first_pass.key == known.first_pass.key and found.mechanism == known.mechanism
    assert found.input_change == [*known.input_change, "tables: declarations"]
