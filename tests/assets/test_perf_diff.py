"""Which evidence of a replay rests on rows that differ: the replay drawn in perf_db/hand_made.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from assets.perf_diff import NO_ROWS, reach
from perf_db.gpu.diff import Difference, Side, diff, side_of
from perf_db.store import Store
from tests.perf_db.gpu.measured import gemm, write_root
from tests.perf_db.hand_made import hand_made, write_run

FILE = "systems/data/h200_sxm/gemm/vllm/0.24.0/gemm_perf.parquet"
READ = "d"  # the digest of the file that the hand-made run has read


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def compared(tmp_path: Path, read: str) -> tuple[Difference, Side, Side]:
    """Twenty points of which rows 18 and 19 differ; `read` says which side the run has read."""
    curve = {m: 0.1 + m / 1000 for m in range(1, 21)}
    files = {"before": gemm(curve), "after": gemm(curve | {19: 1.0, 20: 2.0})}
    sides = {}
    for name, rows in files.items():
        write_root(tmp_path / name, {FILE.removeprefix("systems/data/"): rows})
        sides[name] = side_of(str(tmp_path / name), None)
    found = diff(sides["before"], sides["after"])
    for name, side in sides.items():
        side.root._digests[FILE] = READ if name == read else name
    return found, sides["before"], sides["after"]


@pytest.mark.parametrize("read", ["before", "after"])
def test_the_rows_that_differ_are_found_in_the_evidence(tmp_path: Path, store: Store, read: str) -> None:
    write_run(store, "r1")
    answer = reach(store, "r1", *compared(tmp_path, read))
    # Cell 3 rests on row 17 with a quarter and on row 18 with three; only row 18 differs. It took 35 of 52 ms.
    assert answer["rests_on"] == {FILE: read}
    assert (answer["cells"], answer["cells_hit"], answer["rows_hit"], answer["lookups"]) == (3, 1, 1, 3)
    assert answer["resting_ms"] == pytest.approx(0.75 * 35) and answer["total_ms"] == pytest.approx(52)
    (line,) = answer["lines"]
    assert (line["phase"], line["cell"], line["row_no"], line["state"]) == ("prefill", 3, 18, "changed")
    assert (line["before"], line["after"]) == (pytest.approx(0.119), 1.0) and line["point"] == "m=19 n=4096 k=4096"


def test_a_run_of_other_data_is_not_reached(tmp_path: Path, store: Store) -> None:
    write_run(store, "r1")
    answer = reach(store, "r1", *compared(tmp_path, "neither"))
    assert answer["rests_on"] == {FILE: "neither"} and answer["cells_hit"] == 0 and answer["share"] == 0


def test_a_run_without_rows_says_so(tmp_path: Path, store: Store) -> None:
    tables = {name: columns for name, columns in hand_made().items() if name != "cell_ops"}
    write_run(store, "r1", tables=tables)
    answer = reach(store, "r1", *compared(tmp_path, "after"))
    assert answer["note"] == NO_ROWS and answer["lines"] == []
