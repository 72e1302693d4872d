"""Array timings: kernels give the definition's answers, bit for bit, and evidence is counted alike."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import numpy as np
import pytest

import sim.engine
from sim.errors import TimingError
from sim.jit import entry
from sim.result import PASSES
from sim.spec import EngineSpec
from sim.timing.compiled import compile_timing, price
from sim.timing.evidence import EvidenceCounter
from sim.timing.plain import PlainPricer, Work
from sim.timing.plain_tables import TablePricer
from sim.timing.tables import ArrayTiming, TimingArraysError, lookup_code, mixed_pass, split_codes
from sim.timing.tabulated import answer, pack
from tests.sim import arrays
from tests.sim.answers import ask
from tests.sim.fuzz import differ
from tests.sim.worlds import World, world


@entry
def answered(whole, numbers, np_, tp, kvp, b, kv):
    return answer(whole, numbers, np_, tp, kvp, b, kv)


@entry
def priced(prices, np_, tp, kvp, b, kv):
    return price(prices, np_, tp, kvp, b, kv)


def random_work(rng: random.Random) -> Work:
    n, b = rng.choice([0, 1, rng.randint(1, 9)]), rng.choice([0, 1, rng.randint(1, 18)])
    tokens = n + rng.randint(0, rng.choice([9, 300])) if n else 0
    kv = b + rng.randint(0, rng.choice([9, 200, 900])) if b else 0
    return Work(n, tokens, rng.choice([0, rng.randint(0, 200)]) if n else 0, b, kv)


def same(a: tuple, b: tuple) -> bool:
    return all(x == y or (math.isnan(x) and math.isnan(y)) for x, y in zip(a, b, strict=True))


def test_kernels_answer_like_the_definition_bit_for_bit():
    rng, refused, sources = random.Random(11), 0, set()
    for _ in range(250):
        timing = arrays.any_kind(rng)
        mixed = mixed_pass(timing, rng.choice(["vllm", "parity"]))
        plain, packed = TablePricer(timing, mixed), pack(timing, mixed)
        for _ in range(60):
            work = random_work(rng)
            wanted = plain.answer(*work)
            assert same(answered(*packed, *work), tuple(wanted)), (timing.kind, work)
            refused += math.isnan(wanted.prefill_ms) or math.isnan(wanted.decode_ms)
            sources |= {wanted.prefill_source, wanted.decode_source}
    assert refused > 200
    assert sources == {0, 1, 2, 3}


def test_prices_are_scaled_and_refused_like_any_others():
    rng, refused = random.Random(12), 0
    for _ in range(60):
        spec = EngineSpec(timing=arrays.any_kind(rng), speedup_ratio=rng.choice([1.0, 2.0]))
        plain, prices = PlainPricer(spec), compile_timing(spec)
        for _ in range(40):
            work = random_work(rng)
            got = priced(prices, *work)
            try:
                cells = split_codes(np.array(got[2:]))[0].tolist()
                assert (*got[:2], *cells) == tuple(plain.price(work))
            except TimingError:
                refused += 1
                assert -1 in got[:2]
    assert refused > 50


@pytest.mark.parametrize("seed", range(6))
def test_evidence_is_counted_alike_in_compiled_code(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sim.timing.evidence.FIRST_ROOM", 2)  # so that the table has to grow
    rng = random.Random(seed)
    timing, profile = arrays.any_kind(rng), rng.choice(["vllm", "parity"])
    spec = EngineSpec(timing=timing, profile=profile)
    pricer, prices, rows = PlainPricer(spec), compile_timing(spec), []
    for number in range(3_000):
        work = random_work(rng)
        try:
            got = pricer.price(work)
        except TimingError:
            continue
        codes = priced(prices, *work)[2:]
        row = dict.fromkeys(PASSES, 0) | {"pass_no": number, "prefill_ns": got.prefill_ns, "decode_ns": got.decode_ns}
        row |= dict(zip(("prefill_cell", "decode_cell"), codes, strict=True))
        names = ("n_prefill", "prefill_tokens", "prefill_kv_tokens", "n_decode", "decode_kv_tokens")
        rows.append(row | dict(zip(names, work, strict=True)))
    one, other, at = EvidenceCounter(timing, profile), EvidenceCounter(timing, profile, compiled=False), 0
    while at < len(rows):
        chunk = rows[at : at + rng.choice([1, 7, 900])]
        at += len(chunk)
        columns = {name: np.array([row[name] for row in chunk], np.int64) for name in PASSES}
        other.add(columns)
        one.add(columns)  # puts cells in the place of the codes
    a, b = one.lookups(), other.lookups()
    assert a.keys() == b.keys() and len(a["cell"]) > 3
    for name in a:
        assert a[name].tolist() == b[name].tolist(), name
    paid = sum(row["prefill_ns"] for row in rows)
    assert a["total_ns"][(a["phase"] == 0) | (a["phase"] == 2)].sum() == paid


@pytest.mark.parametrize("first", range(0, 120, 40))
def test_both_engines_give_the_same_tables(first: int) -> None:
    """Worlds of the differential tests at tabulated prices; half of them under the factors of a snapshot."""
    priced_apart = 0
    for seed in range(first, first + 40):
        rng, asked = random.Random(seed), world(seed)
        timing = rng.choice([arrays.op_level, lambda r: arrays.forward(r, wide=True), arrays.regression])(rng)
        if rng.random() < 0.5:
            timing = arrays.corrected(rng, timing)
        asked = World(replace(asked.spec, timing=timing), asked.load)
        said = differ(asked)
        assert not said, f"world({seed}) with {timing.kind} timing: {said}"
        priced_apart += bool(ask(sim.engine.replay, asked).tables)
    assert priced_apart > 10


def test_a_part_without_time_leaves_its_row() -> None:
    """7-B: a zero share is evidence that the lookup ran."""
    rng = random.Random(1)
    timing = arrays.forward(rng, wide=True)
    quiet = dict(timing.arrays)
    quiet["decode_baseline"] = np.full(len(quiet["decode_baseline"]), 99.0)
    counter = EvidenceCounter(ArrayTiming("forward", timing.header, quiet))
    row = dict.fromkeys(PASSES, 0) | {"n_prefill": 1, "prefill_tokens": 8, "n_decode": 1, "decode_kv_tokens": 9}
    row |= {"prefill_cell": lookup_code(3, 2, -1), "decode_cell": lookup_code(0, 2, -1)}
    counter.add({name: np.array([value], np.int64) for name, value in row.items()})
    found = counter.columns()
    assert found["phase"].tolist() == [2, 3]
    assert found["n_lookups"].tolist() == [1, 1]


def test_arrays_that_are_none_are_named() -> None:
    made = arrays.op_level(random.Random(3))
    short = {**made.arrays, "context_logits": made.arrays["context_logits"][:-1]}
    with pytest.raises(TimingArraysError, match="context_nodes has 40 entries where 39 are due"):
        ArrayTiming("op_level", made.header, short)
    with pytest.raises(
        TimingArraysError, match="planes is missing; weights is missing; x is not an array of regression"
    ):
        ArrayTiming("regression", {}, {"x": np.zeros(1)})
    with pytest.raises(TimingArraysError, match="context_lengths must hold at least 2 increasing lengths"):
        ArrayTiming("op_level", made.header, {**made.arrays, "context_lengths": made.arrays["context_lengths"][::-1]})
