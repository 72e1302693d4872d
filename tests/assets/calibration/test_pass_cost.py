"""A pass cost fitted to a log: slopes, recovery of what was planted, refusals, the snapshot."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from assets.accuracy.truth import TruthError, TruthSet, request_rows
from assets.calibration.constants import NAMES, Constant, DataSheet, from_data_sheet, from_log, with_choices
from assets.calibration.intervals import MEANING, Interval
from assets.calibration.objective import Objective, pass_slopes
from assets.calibration.pass_cost import Errors, _warnings, calibrate, errors, log_priors
from assets.calibration.recovery import ENGINE, made_up
from assets.calibration.replayer import Replayer
from assets.calibration.request_log import Prefixes, from_truth, workload_of
from assets.calibration.snapshot import Snapshot, load, save
from perf_db.gpu.snapshot import load_snapshot
from sim.spec import PassCostTiming
from sim.timing.plain import Work, pass_cost

TIMING = PassCostTiming(2.0, 9.0, 90.0, 20.0, 40.0, 150.0, 8.0)


def test_slopes_are_those_of_the_price() -> None:
    held = np.array([[1, 300, 50, 4, 900], [0, 0, 0, 7, 3000], [2, 900, 0, 0, 0]], float).T
    found = pass_slopes(TIMING, held)
    works = [Work(*(int(v) for v in column)) for column in held.T]
    for i, name in enumerate(NAMES):
        up = replace(TIMING, **{name: getattr(TIMING, name) * 1.0001})
        down = replace(TIMING, **{name: getattr(TIMING, name) / 1.0001})
        by_hand = [(sum(pass_cost(up, w)) - sum(pass_cost(down, w))) / (2 * np.log(1.0001)) * 1e-3 for w in works]
        assert found[i] == pytest.approx(by_hand, rel=1e-5, abs=1e-12), name


def test_an_objective_is_nothing_at_the_truth_without_noise() -> None:
    truth, log = made_up(1, 60)
    rows = np.ones(60, bool)
    replayer = Replayer(ENGINE, workload_of(log))
    times = replayer.times(PassCostTiming(*truth.tolist()))
    assert times is not None
    exact = replace(log, first_s=times[0], last_s=times[1])
    objective = Objective(replayer, exact, log_priors(exact, ENGINE, rows), rows, 0.0)
    assert objective.misfit(np.log(truth)) < 1e-6
    assert objective.misfit(np.log(truth * 1.2)) > 0.1
    residuals, slopes = objective.slopes(np.log(truth)) or (None, None)
    assert residuals is not None and slopes is not None and slopes.shape == (3, 60, 7)
    # Dearer passes make nothing earlier.
    assert slopes.min() > -1e-9


@pytest.mark.slow
def test_what_was_planted_is_found_and_the_rest_is_foretold() -> None:
    truth, log = made_up(2, 120)
    found = calibrate(log, ENGINE, seed=2, discrepancy=0.0)
    assert set(found.train) == set(found.held_out) == {"ttft", "tpot", "e2e"}
    assert abs(found.held_out["tpot"].total) < 0.02 and abs(found.held_out["e2e"].total) < 0.02
    assert found.intervals["token_us"].identified
    assert found.values[NAMES.index("token_us")] == pytest.approx(truth[NAMES.index("token_us")], rel=0.1)
    vague = [name for name, interval in found.intervals.items() if not interval.identified]
    assert all(any(name in text for text in found.warnings) for name in vague)
    again = calibrate(log, ENGINE, seed=2, discrepancy=0.0)
    assert again.values.tolist() == found.values.tolist()  # the same seed, the same fit


def test_a_train_error_is_never_reported_alone() -> None:
    _, log = made_up(1, 60)
    with pytest.raises(TruthError, match=r"6 requests to hold out, at least 20 .* error of the fitted requests alone"):
        calibrate(log, ENGINE, train_share=0.9)


def test_priors_have_the_scale_of_what_they_come_from() -> None:
    sheet = from_data_sheet(DataSheet(16e9, 131072, 16e9, 1e12, 200e12))
    named = {c.name: c for c in sheet}
    assert named["weights_ms"].prior == pytest.approx(16 / 0.9)
    assert named["kv_token_ns"].prior == pytest.approx(131072 / 0.9e12 * 1e9)
    assert [c.name for c in from_log(30, 4, 40, 40_000)] == list(NAMES)


def test_choices_are_checked() -> None:
    known = from_log(30, 4, 40, 40_000)
    made = {c.name: c for c in with_choices(known, priors={"base_ms": (3.0, None)}, fixed={"kv_token_ns": 100.0})}
    assert made["base_ms"].prior == 3.0 and not made["kv_token_ns"].free
    bounded = with_choices(known, bounds={"token_us": (1.0, 2.0)})
    assert next(c for c in bounded if c.name == "token_us").high == 2.0
    with pytest.raises(TruthError, match="no constant is called 'colour'; there are: base_ms"):
        with_choices(known, fixed={"colour": 1.0})
    with pytest.raises(TruthError, match="must lie within its bounds"):
        Constant("x", "ms", "", prior=5.0, low=6.0, high=7.0)


def truth_of(**columns: object) -> TruthSet:
    about = {"clock": "engine", "group": "g", "source": "f", "source_line": 1, "prompt_tokens": 8, "output_tokens": 4}
    rows = request_rows("t", "a", {"ttft": 100.0, "e2e": 400.0}, arrival_ns=0, **about)  # type: ignore[arg-type]
    return TruthSet("t", [{**row, **columns} for row in rows], str(columns.get("form", "requests")))


def test_a_log_needs_arrivals_and_both_latencies() -> None:
    log = from_truth(truth_of())
    assert log.first_s[0] == pytest.approx(0.1) and log.tpot_s[0] == pytest.approx(0.1) and not log.noted_at_boundary
    with pytest.raises(TruthError, match=r"f:1: request a has no arrival_ms; add column\(s\) arrival_ms: a replay"):
        from_truth(truth_of(arrival_ns=None))
    with pytest.raises(TruthError, match="no arrival_ms; vllm_bench files may leave them out: write a log"):
        from_truth(TruthSet("t", truth_of(arrival_ns=None).rows, "vllm_bench"))
    truth = truth_of()
    with pytest.raises(TruthError, match="request a has no e2e_ms"):
        from_truth(TruthSet("t", truth.rows[:1], "requests"))
    with pytest.raises(TruthError, match="no rows of single requests"):
        from_truth(TruthSet("t", [], "requests"))


def test_prefixes_and_earlier_arrivals_reach_the_workload() -> None:
    _, log = made_up(1, 4)
    made = workload_of(log, earlier_s=0.5, prefixes=Prefixes({"r1": [7, 8], "r3": [7]}, 16))
    assert made.hash_offsets is not None and made.hash_offsets.tolist() == [0, 0, 2, 2, 3]
    assert made.arrival_ns[0] == 0 and made.arrival_ns[-1] == round((log.arrival_s[-1] - 0.5) * 1e9)


def test_errors_leave_out_what_never_came() -> None:
    _, log = made_up(1, 30)
    first = log.first_s.copy()
    first[0] = np.nan
    found = errors(log, first, log.last_s, np.ones(30, bool))
    assert found["ttft"].n == 29 and found["ttft"].total == pytest.approx(0, abs=1e-9)


def test_a_snapshot_comes_back_and_says_what_is_wrong(tmp_path: Path) -> None:
    held = {"ttft": {"mean": 0.1}}
    made = Snapshot({"constants": "host_model"}, {"vllm.client_ms": 0.5, "trtllm.request_ms": 40.0}, {"held_out": held})
    path = tmp_path / "s.json"
    save(made, path)
    again = load(path)
    assert again == made and again.digest == made.digest and again.held_out() == {"ttft": 0.1}
    # One file for both kinds of tuning: what corrects passes reads it, too.
    assert load_snapshot(path).host_constants == made.host_constants
    assert again.of_backend() == {"vllm": {"client_ms": 0.5}, "trtllm": {"request_ms": 40.0}}
    with pytest.raises(TruthError, match="without a held-out error is not written"):
        save(replace(made, provenance={}), tmp_path / "t.json")
    with pytest.raises(TruthError, match="is no number"):
        save(replace(made, host_constants={"vllm.client_ms": float("nan")}), tmp_path / "t.json")
    assert not (tmp_path / "t.json").exists()
    for text, says in (("{", "no JSON"), ("{}", "no section identity"), ("[]", "no section")):
        path.write_text(text)
        with pytest.raises(TruthError, match=says):
            load(path)
    save(made, path)
    whole = json.loads(path.read_text())
    for value in (None, "zz", True, 10**400):
        path.write_text(json.dumps(whole | {"host_constants": {"a": value}}))
        with pytest.raises(TruthError, match=r"s.json: host_constants.a=.* is no finite number"):
            load(path)
    for odd, says in (({"ttft": 3}, r"held_out.ttft=3"), ({"ttft": {}}, "held_out.ttft"), ([1], r"held_out=\[1\]")):
        path.write_text(json.dumps(whole | {"provenance": {"held_out": odd}}))
        with pytest.raises(TruthError, match=f"s.json: provenance.{says}.* has no mean error"):
            load(path)
    sections = ("identity", "corrections", "host_constants", "provenance")
    path.write_text(json.dumps({"format": 9, **{name: {} for name in sections}}))
    with pytest.raises(TruthError, match="format 9"):
        load(path)


def test_a_constant_that_is_not_identified_comes_with_the_limit_and_once_with_what_that_means() -> None:
    known, fine = from_log(5.0, 100.0, 8.0, 4000.0), Errors(0.0, 0.01, 0.01, 20)
    values, held = np.array([c.prior for c in known]), {"tpot": fine, "e2e": fine}
    wide, loose, sure = Interval(0.5, 2, 1.0, False), Interval(0.9, 1.1, 0.1, False), Interval(0.9, 1.1, 0.1, True)
    names = ("base_ms", "weights_ms", "token_us")
    assert _warnings(dict(zip(names, (wide, loose, sure), strict=True)), known, values, held, held) == (
        "base_ms: not identified (95 % within a factor 2, the limit is 1.15)",
        "weights_ms: not identified (no narrower than half of its prior, or at a bound)",
        MEANING,
    )
    assert _warnings({"token_us": sure}, known, values, held, held) == ()
