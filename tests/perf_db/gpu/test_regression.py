"""Regression on observed passes: the fit is that of a plain non-negative least squares, updates cost nothing more."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.optimize import nnls

from perf_db.gpu.errors import PerfDataError
from perf_db.gpu.forward_jsonl import Observation, RankWork
from perf_db.gpu.regression import CAPACITY, Plane, Regression, Weights, features


def decode(b: int, kv: int) -> RankWork:
    return RankWork(0, 0, 0, b, kv)


def test_4_3_features_are_the_worst_rank_and_all_tokens() -> None:
    ranks = (RankWork(2, 10, 6, 3, 50), RankWork(0, 0, 0, 4, 90))
    attention = 6 + 50 + (6 * 10 / 2 + 10 * 10 / 4 + 10 / 2)
    assert features(ranks, "aggregated", Weights()) == (attention, 17.0)
    assert features(ranks, "prefill", Weights()) == (attention - 50, 10.0)
    assert features(ranks, "decode", Weights()) == (90.0, 7.0)
    # Past KV counts only where something is computed over it.
    assert features((RankWork(1, 0, 6, 1, 5),), "aggregated", Weights()) == (5.0, 1.0)


def test_4_3_each_kind_of_pass_has_a_store_and_no_other_one_answers() -> None:
    seen = Regression("aggregated")
    both, alone = (RankWork(1, 8, 0, 1, 4),), (RankWork(1, 8),)
    assert seen.store_of(both) == "mixed"
    assert seen.store_of((RankWork(1, 8), decode(1, 4))) == "across_ranks"
    assert (seen.store_of(alone), seen.store_of((decode(1, 4),)), seen.store_of((RankWork(),))) == (
        "prefill", "decode", None,
    )  # fmt: skip
    for i in range(9):
        seen.observe(Observation((decode(1 + i, 40 * (1 + i)),), 2.0 + i))
    assert seen.predict((decode(3, 120),)) == pytest.approx(4.0)
    assert seen.predict(alone) is None and seen.predict(both) is None
    assert Regression("decode").store_of(alone) is None


def test_4_3_five_rows_and_a_growing_time_are_needed() -> None:
    seen = Regression("decode")
    for i in range(4):
        seen.observe(Observation((decode(1 + i, 10),), 5.0 + i))
    assert seen.predict((decode(2, 10),)) is None
    seen.observe(Observation((decode(5, 10),), 9.0))
    assert seen.predict((decode(2, 10),)) == pytest.approx(6.0)
    assert seen.predict((decode(1, 10),)) > 0
    falling = Regression("decode")
    for i in range(9):
        falling.observe(Observation((decode(1 + i, 10),), 20.0 - i))
    assert falling.predict((decode(2, 10),)) is None


def test_4_3_predictions_have_a_floor() -> None:
    seen = Regression("decode")
    for i in range(9):
        seen.observe(Observation((decode(50 + i, 10),), 1.0 + i))
    assert seen.predict((decode(1, 10),)) == 1e-6


@pytest.mark.parametrize("seed", range(12))
def test_4_3_the_fit_is_non_negative_least_squares_with_a_free_intercept(seed: int) -> None:
    rng = np.random.default_rng(seed)
    true = rng.uniform(-1, 2, 2) * [1e-3, 0.1]
    plane, rows = Plane(), []
    for _ in range(40):
        x = rng.uniform(0, [9_000, 60])
        rows.append((*x, float(3.0 + true @ x + rng.normal(0, 0.3))))
        plane.add(rows[-1])
    data = np.array(rows)
    scaled = (data[:, :2] - data[:, :2].mean(0)) / data[:, :2].std(0)
    # A free intercept is the mean of what centred slopes leave.
    want, _ = nnls(scaled, data[:, 2] - data[:, 2].mean())
    found = plane.fit()
    if not (want > 0).any():
        assert found is None
        return
    slopes = want / data[:, :2].std(0)
    assert found == pytest.approx((data[:, 2].mean() - slopes @ data[:, :2].mean(0), *slopes), rel=1e-6, abs=1e-9)


def test_4_3_running_sums_are_those_of_the_rows_that_are_kept() -> None:
    rng, plane = np.random.default_rng(4), Plane()
    for i in range(400):
        far = 1e6 if i % 50 == 0 else 1.0
        plane.add((float(rng.uniform(0, 900) * far), float(rng.integers(1, 60)), float(rng.uniform(1, 9))))
        data = np.array(plane.rows)
        assert len(data) <= CAPACITY
        np.testing.assert_allclose(plane.mean, data.mean(0), rtol=1e-9)
        want = (data - data.mean(0)).T @ (data - data.mean(0))
        np.testing.assert_allclose(plane.scatter, want, rtol=1e-5, atol=1e-5 * np.abs(want).max())


def test_4_3_one_feature_that_never_changes_is_left_out() -> None:
    plane = Plane()
    for i in range(8):
        plane.add((100.0, float(i), 2.0 + 3.0 * i))
    assert plane.fit() == pytest.approx((2.0, 0.0, 3.0))


def test_planes_as_arrays_price_what_single_predictions_say() -> None:
    from sim.timing.plain_tables import TablePricer
    from sim.timing.tables import ArrayTiming

    rng, seen = np.random.default_rng(2), Regression("aggregated")
    for np_, b in itertools.product((0, 1, 2), (0, 3, 9)):
        for _ in range(8 if np_ or b else 0):
            work = RankWork(np_, np_ * int(rng.integers(5, 90)), np_ * 7, b, b * int(rng.integers(9, 99)))
            ms = 1.0 + 0.01 * work.sum_prefill_tokens + 0.002 * work.sum_decode_kv_tokens + 0.05 * b
            seen.observe(Observation((work,), ms))
    prices = TablePricer(ArrayTiming("regression", {}, seen.arrays()), "one_forward")
    for work in (RankWork(1, 40, 7), decode(4, 200), RankWork(1, 50, 7, 3, 90)):
        got = prices.answer(
            work.num_prefill_requests, work.sum_prefill_tokens, work.sum_prefill_kv_tokens, work.num_decode_requests,
            work.sum_decode_kv_tokens,
        )  # fmt: skip
        assert got.prefill_ms + got.decode_ms == pytest.approx(seen.predict((work,)))


def test_observations_that_fit_nothing_are_an_error() -> None:
    with pytest.raises(PerfDataError, match=r"too few passes to fit \(decode 0, mixed 0, across_ranks 0, prefill 0\)"):
        Regression("aggregated").arrays()
