"""A made-up table of deployments, from file to report: every metric foretold, every other row with its reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from assets.accuracy.importers import read_truth
from assets.accuracy.plots import charts, svg
from assets.accuracy.report import OURS, build
from assets.accuracy.text import report_text
from assets.calibration.run import calibrate_deployments
from perf_db.gpu.errors import PerfDataError
from tests.assets.accuracy.make_deployments import FILE, PLANTED

METRICS = ("ttft", "tpot", "itl", "e2e", "output_throughput")


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("amounts")


def test_every_metric_of_a_deployment_is_foretold_by_constants_that_never_saw_it(cache: Path) -> None:
    from assets.accuracy.predict import predict_deployments

    truth = read_truth(FILE)
    assert truth.form == "silicon" and {row["backend_version"] for row in truth.rows} == {"1.0"}
    try:
        made = predict_deployments(truth, cache=cache, terms=tuple(PLANTED))
    except PerfDataError:
        pytest.skip("needs the perfdata extra")
    report = build(truth.rows, made.rows, resamples=50)
    for metric in METRICS:
        cell = report.cell(OURS, metric, "backend", backend="vllm")
        assert cell is not None and cell.figures.n_answered == 28 and not cell.provisional
        assert cell.figures.mape.value < 0.045  # latencies were blurred by 3 %
        other = report.cell(OURS, metric, "backend", backend="sglang")
        assert other is not None and other.provisional
    assert report.reasons == {(OURS, "disaggregated"): 5, (OURS, "draft_tokens_not_recorded"): 5}
    text = report_text(report)
    assert "sglang · provisional" in text and "10 priced provisionally" in text
    assert "of pass time outside the data" in text
    picture = svg([charts(truth.rows, made.rows, metric) for metric in METRICS])
    assert "measured, tokens/s" in picture and "measured, ms" in picture


def test_planted_constants_are_found_again(cache: Path) -> None:
    try:
        made = calibrate_deployments(read_truth(FILE), cache=cache, terms=tuple(PLANTED))
    except PerfDataError:
        pytest.skip("needs the perfdata extra")
    for name, planted in PLANTED.items():
        assert made.snapshot.host_constants[f"vllm.{name}"] == pytest.approx(planted, rel=0.25)
    assert any(text.startswith("sglang: 1 deployment groups") for text in made.warnings)
