"""Recorded figures of another estimator, a small part of them: every deployment's kind, every file, both outcomes."""

from __future__ import annotations

import shutil
from pathlib import Path

import polars as pl
import pytest

from assets.golden.perf_check import check_dir
from perf_db.gpu.errors import PerfDataError
from perf_db.gpu.source import PerfRoot
from tests.perf_db.gpu.measured import extra_root

RECORDED = Path(__file__).parent / "perf"


@pytest.fixture(scope="module")
def root() -> PerfRoot:
    return extra_root("0.12.0")


@pytest.mark.slow
def test_recorded_figures_are_met(root):
    report = check_dir(RECORDED, root)
    # Recorded corrections are no part of the small set.
    assert [o.line for o in report.outcomes if o.status != "passed"] == [
        "skipped  correction   perf: no correction.json"
    ]
    assert report.closing == "54 passed, 0 failed, 1 skipped" and report.figures == 1986
    assert max(worst for kind, worst in report.worst.items()) < 1e-9
    refused = {o.name: o.detail for o in report.outcomes if o.kind == "status" and "refused" in o.detail}
    assert len(refused) == 3 and all("missing_precision" in why for why in refused.values())


@pytest.fixture
def bent(tmp_path):
    """One deployment, with the means to change a file."""
    for file in RECORDED.iterdir():
        shutil.copy(file, tmp_path)
    lines = (RECORDED / "status.csv").read_text().splitlines()
    (tmp_path / "status.csv").write_text("\n".join(lines[:2]) + "\n")
    return tmp_path


def test_a_figure_that_differs_is_named(root, bent):
    decode = pl.read_parquet(bent / "decode.parquet")
    decode.with_columns(latency_ms=pl.col("latency_ms") * (1 + 1e-8)).write_parquet(bent / "decode.parquet")
    (failed,) = [o for o in check_dir(bent, root).outcomes if o.status == "failed"]
    assert failed.kind == "decode" and 0.9e-8 < failed.worst < 1.1e-8
    assert "latency_ms at batch " in failed.detail and " there" in failed.detail


def test_an_absent_file_is_a_skipped_check(root, bent):
    (bent / "mixed.parquet").unlink()
    report = check_dir(bent, root)
    skipped = {o.kind: o.detail for o in report.outcomes if o.status == "skipped"}
    assert skipped["mixed"] == "no mixed.parquet"
    assert report.exit_code == 0


def test_a_price_where_the_other_has_none_is_a_difference(root, bent):
    text = (bent / "status.csv").read_text().splitlines()
    names = text[0].split(",")
    row = text[1].split(",")
    row[names.index("decode_ok")] = "0"
    (bent / "status.csv").write_text("\n".join([text[0], ",".join(row)]) + "\n")
    (failed,) = [o for o in check_dir(bent, root).outcomes if o.status == "failed"]
    assert failed.kind == "status" and "decode is answered here" in failed.detail


def test_a_folder_of_something_else(root, tmp_path):
    with pytest.raises(PerfDataError, match=r"no status.csv; `perf check` takes a folder of recorded figures"):
        check_dir(tmp_path, root)
