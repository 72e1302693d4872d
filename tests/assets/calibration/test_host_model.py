"""Host constants: what is planted is found, what is not planted stays, and nothing sees the rows it is scored on."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from assets.accuracy.amounts import COMPONENTS
from assets.accuracy.loops import releases_behind
from assets.calibration.host_model import (
    DECODE,
    HOST_CONSTANTS,
    LoopRows,
    _Misfit,
    _Model,
    constant_of,
    fit,
    keys_of,
    of_class,
    predict,
    resampled,
)
from assets.calibration.validation import folds, held_out, mape, nested, select

PLANTED = {"prefill_pass_ms_per_layer": 0.3, "client_ms": 0.7, "moe_decode_factor": 1.3}


def rows(n: int = 120, noise: float = 0.02, seed: int = 0, groups: int = 24) -> LoopRows:
    """Made-up loops that answer to the planted constants."""
    rng = np.random.default_rng(seed)

    def amounts(scale: float) -> np.ndarray:
        found = rng.lognormal(0, 0.7, (n, len(COMPONENTS))) * scale
        for name, low, high in (("prefill_passes", 0.5, 6), ("decode_passes", 0.1, 2), ("prefill_tokens", 1e2, 1e4)):
            found[:, COMPONENTS.index(name)] = rng.uniform(low, high, n) * (1 if scale > 1 else 0.1)
        found[:, COMPONENTS.index("running")] = rng.uniform(1, 100, n)
        return found

    empty = np.full(n, np.nan)
    made = LoopRows(
        row_id=np.arange(n).astype(str), ttft=amounts(20.0), tpot=amounts(1.0), truth_ttft_ms=empty,
        truth_tpot_ms=empty, layers=rng.choice([32.0, 61.0, 80.0], n), clients=rng.choice([4.0, 16.0, 64.0, 256.0], n),
        prompt_tokens=rng.choice([900.0, 7000.0], n), mla=np.zeros(n, bool), blackwell=rng.random(n) < 0.5,
        laboratory=np.zeros(n, bool), ranks=np.zeros(n, bool),
        releases=rng.integers(0, 4, n).astype(float),
        group=np.array([f"g{i % groups}" for i in range(n)]), model=np.array([f"m{i % 5}" for i in range(n)]),
        system=np.array([f"s{i % 2}" for i in range(n)]), precision=np.full(n, "fp8"),
        dense_precision=np.full(n, "fp8"),
    )  # fmt: skip
    ttft, tpot = predict(made, PLANTED)
    blur = lambda v: v * np.exp(rng.normal(0, noise, n))  # noqa: E731
    return LoopRows(
        **{
            name: {"truth_ttft_ms": blur(ttft), "truth_tpot_ms": blur(tpot)}.get(name, getattr(made, name))
            for name in LoopRows.__dataclass_fields__
        }
    )


def test_defaults_change_nothing() -> None:
    made = rows()
    ttft, tpot = predict(made, {})
    priced = len(COMPONENTS) - 4
    assert ttft == pytest.approx(made.ttft[:, :priced].sum(1)) and tpot == pytest.approx(made.tpot[:, :priced].sum(1))


def test_planted_constants_are_found() -> None:
    found = fit(rows(), tuple(PLANTED))
    assert found == pytest.approx(PLANTED, rel=0.1)
    ends = resampled(rows(), tuple(PLANTED), times=20)
    for name, (low, high) in ends.items():
        assert low < PLANTED[name] * 1.1 and high > PLANTED[name] * 0.9


def test_a_constant_that_nothing_determines_stays_at_its_default() -> None:
    made = rows()  # no model with latent attention
    found = fit(made, (*PLANTED, "mla_decode_factor"))
    assert found["mla_decode_factor"] == pytest.approx(HOST_CONSTANTS["mla_decode_factor"].default, abs=0.02)


def test_slopes_are_those_of_the_latencies() -> None:
    made = rows(30, groups=6)
    made.mla[::2] = True
    names = tuple(HOST_CONSTANTS)
    keys = keys_of(made, names)
    rng = np.random.default_rng(3)
    z = np.array([c.low + rng.uniform(0.2, 0.4) * (c.high - c.low) for c in map(constant_of, keys)])
    model = _Model(made, keys)
    told, slopes = model.with_slopes(z)
    for k in range(len(keys)):
        step = 1e-6 * max(abs(z[k]), 1.0)
        moved = z.copy()
        moved[k] += step
        for before, after, slope in zip(told, model(moved), slopes):
            assert slope[k] == pytest.approx((after - before) / step, rel=1e-3, abs=1e-3), keys[k]


def test_the_search_ends_where_a_general_one_does() -> None:
    from scipy.optimize import minimize

    made, keys = rows(), ("client_ms", "decode_pass_us_per_layer", "moe_decode_factor", "request_ms")
    misfit = _Misfit(made, keys, {})
    here = np.array(list(fit(made, keys).values()))
    bounds = list(zip(misfit.low, misfit.high))
    there = minimize(misfit, misfit.default + 0.01, method="L-BFGS-B", bounds=bounds)
    assert misfit(here) <= there.fun * 1.0001


def test_a_class_has_a_factor_of_its_own_and_an_unknown_one_none() -> None:
    made = rows(240)
    slower = np.where(made.model == "m1", 1.4, 1.0)
    decode = np.isin(COMPONENTS, DECODE)
    slowed = dataclasses.replace(made, tpot=made.tpot * np.where(decode, slower[:, None], 1))
    made.truth_tpot_ms[:] = predict(slowed, {})[1]
    made.truth_ttft_ms[:] = predict(made, {})[0]
    found = fit(made, ("decode_factor_of_model",))
    assert set(found) == {of_class("decode_factor_of_model", f"m{i}") for i in range(5)}
    # Decode operators are two fifths of these latencies, and the pull towards 1 is that of a group's whole latency.
    assert 1.05 < found[of_class("decode_factor_of_model", "m1")] < 1.4
    assert found[of_class("decode_factor_of_model", "m2")] == pytest.approx(1.0, abs=0.02)
    others = made.take(made.model != "m1")
    unknown = fit(others, ("decode_factor_of_model",))
    known = made.take(made.model == "m1")
    assert predict(known, unknown)[1] == pytest.approx(predict(known, {})[1])
    ends = resampled(made, ("decode_factor_of_model",), times=10)
    low, high = ends[of_class("decode_factor_of_model", "m1")]
    assert 1.0 <= low <= high < 1.5


def test_a_release_counts_as_often_as_the_engine_is_behind() -> None:
    made = rows()
    slow = predict(made, {"release_decode_factor": 1.1})[1]
    decode = [COMPONENTS.index(name) for name in DECODE]
    gained = made.tpot[:, decode].sum(1) * (1.1**made.releases - 1)
    assert slow - predict(made, {})[1] == pytest.approx(gained)
    assert releases_behind("0.19.0", "0.24.0") == 5 and releases_behind("v1.2.0rc6.post1", "1.3.0rc20") == 1
    for unknown in ("None", "nightly-5b8c30", "gpt-oss-dev", "1.0.0", "0.25.1"):
        assert releases_behind(unknown, "0.24.0") == 0


def test_engine_timestamps_know_no_client() -> None:
    made = rows()
    with_client, _ = predict(made, PLANTED)
    without, _ = predict(made, PLANTED, client=False)
    assert with_client - without == pytest.approx(0.7 * made.clients)


def test_groups_are_never_split() -> None:
    groups = [f"g{i % 7}" for i in range(50)]
    fold = folds(groups, 3, seed=1)
    assert all(len({f for f, g in zip(fold, groups) if g == name}) == 1 for name in set(groups))
    assert len(set(fold)) == 3


def test_selection_takes_what_was_planted_first() -> None:
    chosen = select(rows(), ("client_ms", "request_ms", "moe_decode_factor", "gemm_factor"), most=2)
    assert set(chosen) == {"client_ms", "moe_decode_factor"} or "client_ms" in chosen


def test_held_out_rows_are_foretold() -> None:
    made = rows()
    found = held_out(made, tuple(PLANTED))
    assert mape(found.ttft_ms, made.truth_ttft_ms) < 0.03
    assert len(found.constants) == 6
    outer = nested(made, ("client_ms", "moe_decode_factor", "prefill_pass_ms_per_layer"))
    assert mape(outer.tpot_ms, made.truth_tpot_ms) < 0.05 and len(outer.terms) == 4


def test_a_missing_latency_is_no_obstacle() -> None:
    made = rows()
    made.truth_tpot_ms[::3] = np.nan
    assert fit(made, ("client_ms",))["client_ms"] > 0
    assert np.isfinite(mape(made.ttft.sum(1), made.truth_tpot_ms))
