"""Error figures by hand, and a report that says the same of its rows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from assets.accuracy.plots import charts, svg
from assets.accuracy.report import build, load_of
from assets.accuracy.statistics import distances, error_figures, loaded_half
from assets.accuracy.text import report_text
from assets.accuracy.truth import truth_row


def test_figures_by_hand() -> None:
    truth, told = np.array([100.0, 100.0, 200.0, 50.0]), np.array([110.0, 80.0, 200.0, 100.0])
    found = error_figures(truth, told, list("aabc"), list("xxxy"), n_rows=5)
    assert found.mape.value == pytest.approx((0.1 + 0.2 + 0 + 1) / 4)
    # Rank (n - 1) / 2 = 1.5, halves up: the third of 0, 0.1, 0.2, 1.
    assert found.median_ape.value == pytest.approx(0.2)
    assert found.p90_ape.value == pytest.approx(1.0)
    assert found.bias.value == pytest.approx(0.1)
    assert found.balanced_mape.value == pytest.approx(((0.1 + 0.2 + 0) / 3 + 1) / 2)
    assert found.total_error.value == pytest.approx(490 / 450 - 1)
    assert (found.n_rows, found.n_answered, found.n_groups, found.coverage) == (5, 4, 3, 0.8)


def test_intervals_draw_whole_groups() -> None:
    # Ten groups of ten equal rows: the interval is that of ten values, not of a hundred.
    rng = np.random.default_rng(0)
    errors = rng.normal(0, 0.2, 10)
    told = np.repeat(1 + errors, 10)
    whole = error_figures(np.ones(100), told, np.repeat(np.arange(10), 10).tolist(), ["m"] * 100)
    single = error_figures(np.ones(100), told, list(range(100)), ["m"] * 100)

    def width(found: Any) -> float:
        return found.mape.high - found.mape.low

    assert width(whole) > 2.5 * width(single)
    assert whole.mape.low < whole.mape.value < whole.mape.high
    alone = error_figures(np.ones(3), np.ones(3), ["g"] * 3, ["m"] * 3)
    assert (alone.mape.low, alone.mape.high) == (None, None)
    assert error_figures(np.zeros(0), np.zeros(0), [], [], n_rows=2).coverage == 0


def test_distances_look_at_distributions_not_at_requests() -> None:
    truth = np.array([1.0, 2.0, 3.0])
    assert distances(truth, truth[::-1]) == {"ks": 0.0, "wasserstein": 0.0}
    assert distances(truth, truth * 2)["wasserstein"] == pytest.approx(1.0)


def test_the_loaded_half_met_company() -> None:
    arrival, end = np.array([0, 1, 2, 100]), np.array([50, 51, 52, 110])
    assert loaded_half(arrival, end).tolist() == [False, True, True, False]


def measured(row_id: str, value: float, **columns: Any) -> dict[str, Any]:
    given = {"grain": "deployment", "statistic": "mean", "clock": "client", "group": "g", "source": "f"}
    given |= {"source_line": 1, "backend": "vllm", "model_family": "m", "system": "s", **columns}
    return truth_row("t", row_id, given.pop("metric", "ttft"), value, **given)


def predicted(row: dict[str, Any], value: float | None, predictor: str = "tracemill", **columns: Any) -> dict[str, Any]:
    given = {name: row[name] for name in ("truth_set", "row_id", "metric", "statistic")}
    error = None if value is None else value / row["value"] - 1
    defaults = {"standing": "held_out", "reason": None, "provisional": False, "extrapolated_share": 0.25}
    more = {"evidence_json": "{}", "snapshot": None}
    return {
        **given, "predictor": predictor, "truth": row["value"], "prediction": value, "signed_error": error,
        **defaults, **more, **columns,
    }  # fmt: skip


def test_no_row_disappears() -> None:
    truth = [
        measured("a", 100, concurrency=4, group="g1"),
        measured("b", 100, concurrency=64, group="g2"),
        measured("c", 100, concurrency=None, group="g3", model_family="n"),
        measured("d", 100, concurrency=4, group="g1", repeat_of="a"),
    ]
    ours = [predicted(truth[0], 110), predicted(truth[1], None, reason="missing_table"), predicted(truth[3], 500)]
    other = [predicted(row, 150, "reference") for row in truth[:3]]
    report = build(truth, ours + other, resamples=50)
    assert (report.n_rows, report.repeats) == (3, 1)
    assert report.reasons == {("tracemill", "missing_table"): 1, ("tracemill", "not_asked"): 1}
    cell = report.cell("tracemill", "ttft")
    assert cell is not None and cell.figures.coverage == pytest.approx(1 / 3)
    # Side by side, both are judged by the row that both answer.
    pair = [c for c in report.cells if c.slice == "rows both answer"]
    assert {(c.predictor, round(c.figures.mape.value or 0, 6), c.figures.n_answered) for c in pair} == {
        ("tracemill", 0.1, 1),
        ("reference", 0.5, 1),
    }
    assert {c.label["load"] for c in report.cells if c.slice == "load"} == {"1-8", "33-128", "unknown"}
    assert [row["row_id"] for row in report.worst] == ["a"]
    text = report_text(report)
    assert "missing_table" in text and "25 % of pass time outside the data" in text
    assert all(not isinstance(v, float) or math.isfinite(v) for v in report.as_json()["cells"][0].values())


def test_per_request_truth_has_two_halves() -> None:
    rows = []
    for i in range(40):
        about = {"grain": "request", "statistic": "value", "arrival_ns": i * 10**9, "prompt_tokens": 5}
        rows += [measured(f"r{i}", 100 + i, **about), measured(f"r{i}", 2000 + 50 * i, metric="e2e", **about)]
    report = build(rows, [predicted(row, row["value"] * 1.1) for row in rows], resamples=20)
    found = {(s["metric"], s["half"]): s for s in report.shapes}
    assert set(found) == {(m, h) for m in ("ttft", "e2e") for h in ("all", "loaded", "unloaded")}
    assert found["e2e", "loaded"]["n_rows"] + found["e2e", "unloaded"]["n_rows"] == 40
    assert found["ttft", "all"]["total_error"] == pytest.approx(0.1)
    assert "distributions" in report_text(report)


def test_passes_by_kind_and_size() -> None:
    held = [
        {"n_prefill": 1, "prefill_tokens": 500, "n_decode": 0},
        {"n_prefill": 1, "prefill_tokens": 500, "n_decode": 9},
        {"n_prefill": 0, "prefill_tokens": 0, "n_decode": 9},
    ]
    rows = [measured(f"p{i}", 10, grain="pass", statistic="value", metric="pass", **h) for i, h in enumerate(held)]
    report = build(rows, [predicted(row, 10.0 + i) for i, row in enumerate(rows)], resamples=20)
    found = {(p["kind"], p["tokens"]): p["median_signed_error"] for p in report.passes}
    assert found["prefill-only", "129-1024"] == pytest.approx(0.0)
    assert found["mixed", "all"] == pytest.approx(0.1)
    assert found["decode-only", "1-16"] == pytest.approx(0.2)


def test_pictures_hold_every_predictor() -> None:
    truth = [measured(f"r{i}", 10.0 * (i + 1), concurrency=i + 1) for i in range(5)]
    rows = [predicted(row, row["value"] * 1.2) for row in truth] + [predicted(r, r["value"], "other") for r in truth]
    picture = svg([charts(truth, rows, "ttft")])
    assert picture.startswith("<svg") and "● tracemill" in picture and "● other" in picture
    assert picture.count("h0") == 20


@pytest.mark.parametrize(("clients", "load"), [(1, "1-8"), (8, "1-8"), (9, "9-32"), (129, "129+"), (None, "unknown")])
def test_loads(clients: int | None, load: str) -> None:
    assert load_of(clients) == load
