"""Prices: the kernel gives the plain definition's answer to the last bit, and refuses what is no duration."""

from __future__ import annotations

import math
import random
import re
from dataclasses import replace

import numba
import numpy as np
import pytest

import sim.engine
import sim.reference
from sim.errors import TimingError
from sim.inputs import Workload
from sim.jit import entry
from sim.result import MemorySink
from sim.spec import (
    EngineSpec,
    FixedTiming,
    FlatTiming,
    PassCostTiming,
    PolynomialTiming,
    PoolsSpec,
    TableTiming,
    Timing,
    Transfer,
)
from sim.timing.compiled import compile_timing, price
from sim.timing.plain import PlainPricer, Work, nearest_ns, scaled_ns
from tests.sim.answers import ask, difference
from tests.sim.worlds import World


@entry
def priced(prices, n_prefill, prefill_tokens, prefill_kv, n_decode, decode_kv):
    return price(prices, n_prefill, prefill_tokens, prefill_kv, n_decode, decode_kv)


def random_timing(rng: random.Random) -> Timing:
    def knots(count: int) -> np.ndarray:
        return np.sort(rng.sample(range(1, 5_000), count)).astype(float) * rng.choice([1, 1, 0.37])

    def values(*shape: int) -> np.ndarray:
        drawn = [rng.choice([rng.uniform(0, 40), rng.uniform(0, 1e-3), 7.5]) for _ in range(math.prod(shape))]
        return np.array(drawn).reshape(shape)

    kind = rng.choice(["fixed", "flat", "polynomial", "pass_cost", "table", "table", "table"])
    if kind == "pass_cost":
        return PassCostTiming(*(rng.choice([0.0, rng.uniform(0, 60), rng.uniform(0, 1e-3)]) for _ in range(7)))
    if kind == "fixed":
        return FixedTiming(rng.uniform(0, 90), rng.uniform(0, 9))
    if kind == "flat":
        return FlatTiming(rng.uniform(0, 90))
    if kind == "polynomial":
        return PolynomialTiming()
    p, k, c = rng.randint(2, 6), rng.randint(2, 6), rng.randint(2, 5)
    return TableTiming(knots(p), values(p), knots(k), knots(c), values(k, c))


def random_work(rng: random.Random) -> Work:
    def count() -> int:
        return rng.choice([0, rng.randint(0, 9), rng.randint(0, 300)])

    n, b, most = count(), count(), rng.choice([60, 3_000, 40_000])
    # Decoding requests have a context each, and prefilling ones compute something.
    tokens = n + rng.randint(0, most) if n else 0
    return Work(n, tokens, rng.randint(0, most) if n else 0, b, b + rng.randint(0, most) if b else 0)


def test_compiled_equals_plain_bit_for_bit():
    """Knots, between them and beyond them; every kind, every way to speed up. A refused price is -1."""
    rng, refused, beyond = random.Random(5), 0, 0
    for _ in range(150):
        spec = EngineSpec(
            timing=random_timing(rng),
            blocks=rng.randint(1, 900),
            block_tokens=rng.choice([1, 16, 64]),
            speedup_ratio=rng.choice([1.0, 1.0, 2.0, 0.3, 1.7, 0.0]),
            decode_speedup_ratio=rng.choice([1.0, 1.0, 2.5, 0.0]),
        )
        plain, prices = PlainPricer(spec), compile_timing(spec)
        for _ in range(60):
            work = random_work(rng)
            got = priced(prices, *work)
            try:
                assert got == tuple(plain.price(work))
            except TimingError:
                refused += 1
                assert -1 in got[:2]
            if isinstance(spec.timing, TableTiming) and work.n_decode:
                beyond += not spec.timing.decode_kv_tokens[0] <= work.decode_kv <= spec.timing.decode_kv_tokens[-1]
    assert refused > 10
    assert beyond > 500


def test_one_signature_prices_every_model():
    for timing in (FixedTiming(1, 1), PolynomialTiming(), random_timing(random.Random(3))):
        priced(compile_timing(EngineSpec(timing=timing)), 1, 8, 0, 1, 8)
    if not numba.config.DISABLE_JIT:
        assert len(priced.signatures) == 1


@pytest.mark.parametrize(
    ("ms", "ns"),
    [
        (0.0, 0),
        (1.0, 1_000_000),
        (22.3740625, 22_374_062),  # a tie in decimals; the double of seconds lies below it
        (0.0000025, 3),  # and here it lies above
        (0.001953125, 1_953),
        (0.5 / 1024, 488),
        (1e-9, 0),
        (3.3333333333, 3_333_333),
    ],
)
def test_1_2_milliseconds_become_the_nearest_whole_nanoseconds(ms, ns):
    assert nearest_ns(ms / 1000) == ns
    prices = compile_timing(EngineSpec(timing=FlatTiming(ms)))
    assert priced(prices, 1, 1, 0, 0, 0)[0] == ns


def test_1_2_rounding_is_exact_for_any_double():
    rng = random.Random(9)
    for _ in range(3_000):
        ms = rng.choice([rng.uniform(0, 1e-5), rng.uniform(0, 50), rng.randrange(10**9) / 2e6, rng.uniform(0, 8e9)])
        ratio = rng.choice([1.0, 1.7, 3.0, 0.123])
        if ms / ratio < 9e9:
            prices, work = compile_timing(EngineSpec(timing=FlatTiming(ms), speedup_ratio=ratio)), Work(1, 1, 0, 0, 0)
            assert priced(prices, *work)[0] == scaled_ns(ms, ratio, phase="whole", where=work), ms


def test_pd_7_rounding_of_transfers_is_exact_beyond_what_a_double_counts():
    side = EngineSpec(
        profile="parity", timing=FlatTiming(1.0), block_tokens=4, blocks=10, max_num_seqs=2, async_scheduling=False
    )
    load = Workload(np.zeros(1, np.int64), np.array([5]), np.array([2]))
    rng = random.Random(3)
    sizes = [4.00000000000005, 5.3, *(rng.uniform(3, 200) for _ in range(40))]  # 2**53 ns are 104 days
    for size in sizes:
        spec = PoolsSpec(side, side, Transfer(bytes_per_token=size, bytes_per_second=3e-7))
        sink = MemorySink()
        sim.engine.replay(spec, load, sink)
        took = sink.table("handoffs")["transferred_ns"] - sink.table("handoffs")["reserved_ns"]
        assert took.tolist() == [nearest_ns(5 * size / 3e-7)], size


def one_request(timing: Timing, prompt: int = 4, output: int = 3) -> World:
    load = Workload(np.zeros(1, np.int64), np.array([prompt]), np.array([output]))
    return World(EngineSpec(timing=timing, blocks=64, block_tokens=4, async_scheduling=False), load)


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize("ms", [NAN, INF, -INF, -0.25])
@pytest.mark.parametrize(
    ("phase", "make"),
    [
        ("whole", FlatTiming),
        ("prefill", lambda ms: FixedTiming(ms, 1.0)),
        ("decode", lambda ms: FixedTiming(1.0, ms)),
    ],
)
def test_no_duration_is_an_error_that_names_the_pass(phase, make, ms):
    if phase == "prefill" and ms == -0.25:
        # A finite negative prefill is floored (1.2), whatever model it comes from.
        assert not ask(sim.engine.replay, one_request(make(ms))).error
        return
    asked = one_request(make(ms))
    wanted, got = ask(sim.reference.replay, asked), ask(sim.engine.replay, asked)
    assert not difference(wanted, got)
    assert got.error.startswith(f"TimingError: the timing model priced the {phase} part of a pass at {ms} ms for ")
    assert "'n_decode': 1, 'decode_kv': 5" in got.error or phase != "decode"
    assert "correct the model's tables" in got.error


def test_a_hole_in_a_table_is_an_error_only_where_it_is_asked_for():
    def table(where: tuple[int, int]) -> TableTiming:
        grid = np.ones((3, 2))
        grid[where] = NAN
        return TableTiming(np.array([1.0, 9]), np.array([1.0, 1]), np.array([1.0, 8, 90]), np.array([1.0, 9]), grid)

    with pytest.raises(TimingError, match="decode part of a pass at nan ms"):
        sim.engine.replay(*_ask(one_request(table((0, 0)))), MemorySink())
    assert not ask(sim.engine.replay, one_request(table((2, 0)), prompt=2, output=3)).error


def _ask(asked: World) -> tuple[EngineSpec, Workload]:
    return asked.spec, asked.load


@pytest.mark.parametrize(
    ("timing", "speedup", "said"),
    [
        (FlatTiming(1e10), 1.0, "the whole part of a pass at 10000000000.0 ms for .* no pass takes 9e+09 ms or more"),
        (FixedTiming(1.0, 6e9), 0.5, "the decode part of a pass at 6000000000.0 ms for .*, divided by 0.5"),
        (FlatTiming(8e9), 1.0, "past the end of its clock, 146 years"),
    ],
)
def test_durations_that_do_not_fit_the_clock_are_an_error(timing, speedup, said):
    """The last is no pass too long, but a thousand of them are."""
    asked = one_request(timing, output=1_000)
    asked = World(replace(asked.spec, speedup_ratio=speedup, blocks=512), asked.load)
    wanted, got = ask(sim.reference.replay, asked), ask(sim.engine.replay, asked)
    assert not difference(wanted, got)
    assert re.search(said.replace("+", r"\+"), got.error)


@pytest.mark.parametrize(
    ("speedup", "decode_speedup", "prefill_ms", "decode_ms"),
    [(2, 1, 5, 2), (2, 4, 5, 0.5), (0, 4, 10, 4), (2, 0, 5, 4)],
)
def test_a_speed_up_of_nothing_leaves_a_part_unscaled(speedup, decode_speedup, prefill_ms, decode_ms):
    asked = one_request(FixedTiming(10, 4))
    spec = replace(asked.spec, speedup_ratio=float(speedup), decode_speedup_ratio=float(decode_speedup))
    passes = ask(sim.engine.replay, World(spec, asked.load)).tables["passes"]
    assert passes["prefill_ns"].tolist() == [prefill_ms * 1_000_000, 0, 0]
    assert passes["decode_ns"].tolist() == [0, decode_ms * 1_000_000, decode_ms * 1_000_000]
