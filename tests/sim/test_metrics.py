"""Metrics rules MR-1 to MR-11: what is counted, how it is summarised, which request is good."""

import math
import statistics
from itertools import pairwise

import numpy as np
import pytest

from sim.distribution import (
    exact_float_sum,
    exact_int_sum,
    exact_square_sum,
    of_floats,
    of_ns,
    of_weighted_ns,
    of_weighted_rates,
    rank,
    select,
)
from sim.metrics import Sla, Tap, compute, metric_rows, steady_window, summary
from sim.result import COMPLETED, REJECTED, REQUESTS, UNFINISHED, MemorySink, Outcome
from sim.spec import EngineSpec

MS = 1_000_000  # ns


def world(*requests: dict, end_ms: float | None = None, engine_ms: float = 1.0):
    """Requests table and outcome of finished requests given as arrival and token times in ms."""
    columns = {name: np.full(len(requests), -1, np.int64) for name in REQUESTS}
    gaps = []
    for r, given in enumerate(requests):
        tokens = [round(t * MS) for t in given.get("tokens", [])]
        status = given.get("status", COMPLETED)
        ended = round(given["end"] * MS) if "end" in given else tokens[-1] if tokens else -1
        row = {
            "request": r,
            "arrival_ns": round(given.get("at", 0) * MS),
            "first_token_ns": tokens[0] if tokens else -1,
            "second_token_ns": tokens[1] if len(tokens) > 1 else -1,
            "last_token_ns": tokens[-1] if tokens else -1,
            "end_ns": -1 if status == UNFINISHED else ended,
            "status": status,
            "prompt_tokens": given.get("prompt", 10),
            "output_tokens": len(tokens),
            "cached_tokens_first": given.get("first", 0),
            "cached_tokens_max": given.get("most", 0),
            "n_admissions": 1,
            "n_preemptions": given.get("preempted", 0),
        }
        for name, value in row.items():
            columns[name][r] = value
        if status == COMPLETED:
            gaps += [(b - a, 1, b) for a, b in pairwise(tokens)]
    table = np.array(gaps, np.int64).reshape(-1, 3)
    latencies = {"gap_ns": table[:, 0], "gap_weight": table[:, 1], "gap_end_ns": table[:, 2]}
    last = int(columns["end_ns"].max(initial=0)) if end_ms is None else round(end_ms * MS)
    return columns, Outcome(last, engine_ms, 3, len(requests), 7, latencies)


def run_of(*requests: dict, **more):
    return compute(*world(*requests), None, EngineSpec(), **more).run


FOUR_TOKENS = {"at": 0, "tokens": [50, 60, 75, 95]}


def test_mr_ex1_four_tokens():
    """
    ms      0         50   60     75        95
            arrival   t1   t2     t3        t4
            |-- TTFT 50 --|
                      | TTST 10 |
                       |10 | 15   |   20    |   ITL, mean 15
                       |------ 45 / 3 ------|   TPOT 15
            |---------------- E2E 95 -------|
    """
    got = run_of(FOUR_TOKENS).latencies
    assert got["ttft"].mean == 50
    assert got["ttst"].mean == 10
    assert (got["itl"].n, got["itl"].min, got["itl"].mean, got["itl"].max) == (3, 10, 15, 20)
    assert got["tpot"].mean == 15
    assert got["e2e_latency"].mean == 95


def test_mr1_only_completed_requests_count():
    got = compute(
        *world(
            FOUR_TOKENS,
            {"at": 1, "status": REJECTED, "end": 200},
            {"at": 2, "tokens": [300, 400], "status": UNFINISHED},
            end_ms=500,
        ),
        None,
        EngineSpec(),
    )
    assert (got.n_requests, got.run.n_completed, got.n_rejected) == (3, 1, 1)
    assert (got.run.input_tokens, got.run.output_tokens) == (10, 4)
    assert got.run.latencies["ttft"].n == 1
    # The last completion ends the measured time; a later rejection does not.
    assert got.summary()["duration_ms"] == 95
    assert got.summary()["decode_worker_seconds"] == 0.5


def test_mr2_tpot_weighs_requests_and_itl_weighs_gaps():
    """One request with gaps [10], one with [30, 30, 30]: TPOT mean (10 + 30) / 2, ITL mean 100 / 4."""
    got = run_of({"tokens": [5, 15]}, {"tokens": [5, 35, 65, 95]}).latencies
    assert got["tpot"].mean == 20
    assert got["itl"].mean == 25


def test_mr2_the_zeros_of_a_burst_count_in_itl_but_not_in_the_rate():
    """
    ms      0         40            60
            arrival   t1 t2 t3      t4      three tokens become visible in one pass
    """
    got = run_of({"tokens": [40, 40, 40, 60]}).latencies
    assert (got["itl"].n, got["itl"].min, got["itl"].median) == (3, 0, 0)
    rate = got["output_token_throughput_per_user"]
    assert (rate.n, rate.min, rate.max, rate.std) == (1, 50, 50, 0)


def test_one_token_has_no_tpot_and_none_has_no_ttft():
    got = run_of({"tokens": [40]}, {"end": 30}).latencies
    assert {name: d.n for name, d in got.items()} == {
        "ttft": 1,
        "ttst": 0,
        "tpot": 0,
        "itl": 0,
        "e2e_latency": 1,
        "output_token_throughput_per_user": 0,
    }


@pytest.mark.parametrize(("percentile", "value"), [(50, 30), (75, 30), (90, 40)])
def test_mr6_percentile_is_the_value_at_the_rounded_rank(percentile, value):
    """[10, 20, 30, 40]: ranks 1.5 -> 2, 2.25 -> 2, 2.7 -> 3; halves go up, nothing is interpolated."""
    assert [10, 20, 30, 40][rank(4, percentile)] == value


def test_median_of_the_twelve_recorded_values():
    values = np.array([0, 1, 1, 2.5, 4, 4, 7.25, 9.5, 15, 22, 22, 100])
    assert of_floats(values).median == 7.25


def test_mr8_without_samples_rows_hold_none_and_the_summary_zero():
    requests, outcome = world({"status": REJECTED, "end": 3})
    rows = {
        (metric, stat): (value, n)
        for _, metric, stat, value, _, n in metric_rows(requests, outcome, None, EngineSpec())
    }
    assert rows["ttft", "mean"] == (None, 0)
    assert rows["prefix_reuse", "max"] == (None, 0)
    got = summary(requests, outcome, EngineSpec())
    assert (got["mean_ttft_ms"], got["num_ttft_samples"], got["duration_ms"]) == (0, 0, 0)
    assert got["request_throughput_rps"] == 0


def test_mr_ex2_throughput_and_gpu_hours():
    """4 completed requests, 400 output tokens, 2.0 s, one worker of 2 GPUs."""
    tokens = np.linspace(1000, 2000, 100).tolist()
    got = summary(*world(*[{"tokens": tokens}] * 4), EngineSpec(), gpus_per_worker=2)
    assert got["output_throughput_tok_s"] == 200
    assert got["request_throughput_rps"] == 2
    assert got["decode_worker_seconds"] == 2
    assert got["gpu_hours"] == pytest.approx(4 / 3600, rel=1e-15)


def test_workers_and_ranks_in_gpu_hours():
    got = summary(*world({"tokens": [360]}), EngineSpec(workers=2, dp=4))
    assert got["decode_worker_seconds"] == 0.72
    assert got["decode_gpus_per_worker"] == 4
    assert got["gpu_hours"] == pytest.approx(0.0008, rel=1e-15)


def test_prefix_reuse_of_the_best_and_of_the_first_admission():
    got = summary(
        *world({"tokens": [5], "prompt": 20, "first": 4, "most": 12}, {"tokens": [5], "prompt": 20}), EngineSpec()
    )
    assert got["first_admission_prefix_cache_reused_ratio"] == 4 / 40
    assert got["prefix_cache_reused_ratio"] == 12 / 40


# ------------------------------------------------------------------ goodput


def n_good(request: dict, **limits) -> int | None:
    return run_of(request, sla=Sla(**limits)).n_good


def test_mr_ex3_both_limits_reached_exactly_is_good():
    assert n_good(FOUR_TOKENS, ttft_ms=50, itl_ms=15) == 1


def test_mr_ex3_a_tenth_of_a_millisecond_too_late_is_not():
    assert n_good({"at": 0, "tokens": [50, 60, 75, 95.1]}, ttft_ms=50, itl_ms=15) == 0


def test_mr10_one_token_skips_the_itl_test():
    assert n_good({"tokens": [40]}, itl_ms=0.001) == 1


def test_mr10_no_token_is_good_only_under_an_e2e_limit():
    assert n_good({"end": 30}, e2e_ms=30) == 1
    assert n_good({"end": 30}, e2e_ms=29.9) == 0
    assert n_good({"end": 30}, ttft_ms=1e9) == 0
    assert n_good({"end": 30}, itl_ms=1e9) == 0


def test_mr11_goodput_divides_by_the_same_duration():
    got = summary(*world(FOUR_TOKENS, {"tokens": [200]}), EngineSpec(), sla=Sla(ttft_ms=50))
    assert got["goodput_completed_requests"] == 1
    assert got["goodput_request_throughput_rps"] == 1 / 0.2
    assert got["goodput_output_throughput_tok_s"] == 4 / 0.2
    assert "goodput_completed_requests" not in summary(*world(FOUR_TOKENS), EngineSpec())


@pytest.mark.parametrize(
    "limits", [{}, {"ttft_ms": 0}, {"itl_ms": -1}, {"e2e_ms": math.inf}, {"e2e_ms": 5, "ttft_ms": 5}]
)
def test_mr9_limits_are_positive_and_of_one_kind(limits):
    with pytest.raises(ValueError, match="sla"):
        Sla(**limits)


# ------------------------------------------------------------------ steady state


def test_steady_window_runs_from_the_tenth_to_the_ninetieth_percentile_of_arrivals():
    assert steady_window(np.arange(0, 110, 10)) == (10, 90)
    assert steady_window(np.array([], np.int64)) is None


def test_steady_state_of_eleven_requests():
    """
    ms      0    10   20  ...  90   100       one request every 10 ms, tokens 4 and 6 ms after its arrival
                 |---- window ----|           arrivals 10..90: nine requests
    """
    requests = [{"at": t, "tokens": [t + 4, t + 6]} for t in range(0, 110, 10)]
    got = compute(*world(*requests), None, EngineSpec()).steady
    assert got is not None
    assert got.duration_ns == 80 * MS
    assert got.latencies["ttft"].n == 9
    # Inside 10..90: both tokens of the requests arriving at 10..80.
    assert (got.n_completed, got.output_tokens, got.latencies["itl"].n) == (8, 16, 8)
    assert got.rate(got.output_tokens) == 200


def test_a_burst_has_no_steady_state():
    assert compute(*world(*[{"tokens": [4]}] * 20), None, EngineSpec()).steady is None


def test_a_window_may_be_given():
    got = compute(
        *world({"at": 0, "tokens": [4]}, {"at": 50, "tokens": [60]}), None, EngineSpec(), window=(40 * MS, 70 * MS)
    )
    assert got.steady is not None
    assert got.steady.latencies["ttft"].mean == 10


# ------------------------------------------------------------------ exact sums


@pytest.mark.parametrize("seed", range(5))
def test_sums_are_exact_whatever_the_order(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 100_000))
    whole = rng.integers(0, 10 ** int(rng.integers(2, 18)), n)
    doubles = rng.random(n) * 10.0 ** rng.integers(-12, 12, n)
    weights = rng.integers(1, 5000, n)
    values = whole.tolist()
    assert exact_int_sum(whole) == sum(values)
    assert exact_square_sum(whole) == sum(v * v for v in values)
    assert exact_square_sum(whole, weights) == sum(w * v * v for w, v in zip(weights.tolist(), values))
    assert exact_float_sum(doubles) == math.fsum(doubles.tolist())
    assert exact_float_sum(rng.permutation(doubles)) == math.fsum(doubles.tolist())
    few = weights % 7 + 1
    assert exact_float_sum(doubles, few) == math.fsum(np.repeat(doubles, few).tolist())


def test_sums_past_64_bits():
    assert exact_int_sum(np.full(1000, 2**62 + 1)) == 1000 * (2**62 + 1)
    assert exact_square_sum(np.full(3, 2**50 + 1)) == 3 * (2**50 + 1) ** 2


def test_distribution_agrees_with_the_plain_definition():
    values = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5]
    got = of_ns(np.array(values, np.int64) * MS)
    assert got.mean == statistics.fmean(values)
    assert got.std == pytest.approx(statistics.pstdev(values), rel=1e-15)
    assert (got.min, got.max, got.median, got.p99) == (1, 9, 4, 9)


def test_weighted_samples_read_like_repeated_ones():
    assert select(np.array([7, 3, 5]), list(range(6)), np.array([2, 1, 3])) == [3, 5, 5, 5, 7, 7]


@pytest.mark.parametrize("seed", range(20))
def test_selection_equals_sorting(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 40_000))
    values = rng.integers(0, 10 ** int(rng.integers(1, 17)), n)
    if seed % 3 == 0:  # most of them equal, a few far away
        values = np.where(rng.random(n) < 0.9, values[0], values)
    weights = rng.integers(1, 9, n)
    ranks = sorted(rng.integers(0, n, 7).tolist())
    assert select(values, ranks) == np.sort(values)[ranks].tolist()
    assert select(values, ranks, weights) == np.sort(np.repeat(values, weights))[ranks].tolist()


def test_weighted_distributions_equal_those_of_repeated_samples():
    rng = np.random.default_rng(7)
    values, weights = rng.integers(0, 10**9, 5000), rng.integers(1, 300, 5000)
    values[:10] = 0
    assert of_weighted_ns(values, weights) == of_ns(np.repeat(values, weights))
    repeated = np.repeat(values, weights)
    assert of_weighted_rates(values, weights) == of_floats(1e9 / repeated[repeated > 0])


# ------------------------------------------------------------------ tap


def test_tap_forwards_rows_and_computes_the_same_metrics():
    requests, outcome = world(FOUR_TOKENS, {"tokens": [200], "preempted": 1})
    chunks = {"n_tokens": np.array([8, 5, 3]), "prompt_tokens": np.array([8, 2, 0])}
    sink = MemorySink()
    tap = Tap(sink)
    tap.rows("chunks", chunks)
    tap.rows("requests", requests)
    assert sink.table("requests")["end_ns"].tolist() == [95 * MS, 200 * MS]
    # The last chunk recomputed generated tokens only, which is decode work to the reference.
    assert tap.compute(outcome, EngineSpec()).summary() == summary(requests, outcome, EngineSpec(), chunks=chunks)
    assert tap.compute(outcome, EngineSpec()).committed_prefill_tokens == 13
