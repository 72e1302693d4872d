"""Operator prices as arrays: exact inside the data, near the rule outside, never falling once cleaned."""

from __future__ import annotations

import importlib.util
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from perf_db.gpu.compile import Compiled, Limits, cached, compile_op_level, data_state
from perf_db.gpu.errors import PerfDataError
from perf_db.gpu.source import PerfRoot
from sim.jit import entry
from sim.timing.plain_tables import TablePricer
from sim.timing.tables import ArrayTiming
from sim.timing.tabulated import answer, pack
from tests.perf_db.gpu.fake_op_level import FakeOpLevel

LIMITS = Limits(max_batched_tokens=512, max_sequences=12, max_length=8192)


@entry
def answered(whole, numbers, np_, tp, kvp, b, kv):
    return answer(whole, numbers, np_, tp, kvp, b, kv)[:2]


def compiled(**how: Any) -> tuple[FakeOpLevel, Compiled]:
    model = FakeOpLevel(**how)
    return model, compile_op_level(model, LIMITS)


def timing(made: Compiled) -> ArrayTiming:
    return ArrayTiming("op_level", made.header, made.arrays)


def pricer(made: Compiled, mixed: Any = "one_forward") -> TablePricer:
    return TablePricer(timing(made), mixed)


def works(limits: Limits, n: int, seed: int = 3) -> list[tuple[int, int, int, int, int]]:
    """Random passes a scheduler with these limits may make."""
    rng, found = np.random.default_rng(seed), []
    top = limits.max_sequences
    for _ in range(n):
        np_ = int(rng.integers(0, min(top, 8) + 1))
        b = int(rng.integers(0 if np_ else 1, top - np_ + 1)) if np_ < top else 0
        tp = int(rng.integers(np_, max(limits.max_batched_tokens - b, np_) + 1)) if np_ else 0
        tp = int(np_ * 2.0 ** rng.uniform(0, np.log2(max(tp / np_, 1)))) if np_ else 0
        past = int(np_ * 2.0 ** rng.uniform(0, np.log2(limits.max_length))) if np_ and rng.random() < 0.6 else 0
        kv = int(b * 2.0 ** rng.uniform(1, np.log2(limits.max_length))) if b else 0
        found.append((np_, tp, past, b, kv))
    return found


@pytest.mark.parametrize("nextn", [0, 2])
@pytest.mark.parametrize("prefix_axis", [False, True])
def test_inside_the_data_the_arrays_are_the_rule(nextn: int, prefix_axis: bool) -> None:
    model, made = compiled(nextn=nextn, noise=0.2, prefix_axis=prefix_axis)
    plain, per = pricer(made, "two_prices"), nextn + 1
    assert made.header["square_root"] and made.header["lookups"] == 5 and made.header["nextn"] == nextn
    rng = np.random.default_rng(1)
    for _ in range(300):
        n = int(rng.choice([1, 2, 3, 4]))
        s = int(rng.integers(16, 512 // n + 1))
        p = int(rng.choice([0, 0, rng.integers(0, 512)])) if not prefix_axis else int(rng.choice([0, 512, 4096]))
        got = plain.answer(n, n * s, n * p, 0, 0)
        assert got.prefill_ms == pytest.approx(float(model.prefill(n, s, p)), rel=1e-12)
        b, kv = int(rng.integers(1, min(16 // per, 12) + 1)), int(rng.integers(4, 400))
        got = plain.answer(0, 0, 0, b, b * kv)
        assert got.decode_ms == pytest.approx(float(model.decode(b, kv)), rel=1e-12)


def test_drafts_that_no_layer_made_are_verified_all_the_same() -> None:
    model = FakeOpLevel()
    made = compile_op_level(model, Limits(512, 12, 8192, drafts=3))
    got = pricer(made, "two_prices").answer(0, 0, 0, 3, 300)
    assert made.header["nextn"] == 3 and got.decode_ms == pytest.approx(float(model.decode(12, 100)))
    assert made.header["deviation"]["decode_inside"]["max"] < 1e-12


def test_the_distance_to_the_rule_is_reported_by_side() -> None:
    _, made = compiled(noise=0.1)
    found = made.header["deviation"]
    assert set(found) == {f"{phase}_{side}" for phase in ("prefill", "decode") for side in ("inside", "outside")}
    assert found["prefill_inside"]["max"] < 1e-12 and found["decode_inside"]["max"] < 1e-12
    assert found["prefill_inside"]["n"] + found["prefill_outside"]["n"] == 1_000


def test_cleaned_prices_never_fall_when_work_grows() -> None:
    _, made = compiled(clean=True, noise=0.3)
    never_falling(pricer(made, "two_prices"), LIMITS)
    # Laid over a table without bumps the envelope changes next to nothing without a prefix.
    _, smooth = compiled(clean=True)
    plain = pricer(smooth, "two_prices")
    for n, s in ((1, 100), (2, 200), (4, 100)):
        assert plain.answer(n, n * s, 0, 0, 0).prefill_ms == pytest.approx(float(FakeOpLevel().prefill(n, s, 0)))


def never_falling(plain: TablePricer, limits: Limits) -> None:
    """More tokens, requests or KV never cost less."""
    rng = np.random.default_rng(9)
    for _ in range(400):
        n = int(rng.integers(1, min(limits.max_sequences, 8)))
        s = int(2.0 ** rng.uniform(0, np.log2(limits.max_batched_tokens // (n + 1) - 1)))
        p = int(2.0 ** rng.uniform(0, np.log2(limits.max_length // 4)))
        here = plain.answer(n, n * s, n * p, 0, 0).prefill_ms
        assert here > 0 and np.isfinite(here)
        more = [
            (n, n * (s + 1), n * p),
            (n, n * s, n * (p + 1)),
            (n, n * s, n * p * 2),
            (n + 1, (n + 1) * s, (n + 1) * p),
        ]
        for np_, tp, kvp in more:
            assert plain.answer(np_, tp, kvp, 0, 0).prefill_ms >= here * (1 - 1e-12), (n, s, p, np_, tp, kvp)
        b, kv = int(rng.integers(1, limits.max_sequences)), int(2.0 ** rng.uniform(1, np.log2(limits.max_length / 2)))
        here = plain.answer(0, 0, 0, b, b * kv).decode_ms
        assert here > 0 and np.isfinite(here)
        for other, length in ((b, kv + 1), (b, 2 * kv), (b + 1, kv)):
            assert plain.answer(0, 0, 0, other, other * length).decode_ms >= here * (1 - 1e-12), (b, kv, other, length)


@pytest.mark.parametrize("how", [{}, {"clean": True, "noise": 0.2}, {"prefix_axis": True}, {"nextn": 2}])
def test_kernel_and_definition_agree_on_what_a_scheduler_may_ask(how: dict[str, Any]) -> None:
    _, made = compiled(**how)
    kernel_agrees(made, LIMITS, 200)


def kernel_agrees(made: Compiled, limits: Limits, n: int) -> None:
    for mixed in ("one_forward", "two_prices"):
        plain, packed = pricer(made, mixed), pack(timing(made), mixed)  # type: ignore[arg-type]
        for work in works(limits, n):
            want = plain.answer(*work)
            assert answered(*packed, *work) == (want.prefill_ms, want.decode_ms), work
            assert want.prefill_ms >= 0 and want.decode_ms >= 0 and np.isfinite(want.prefill_ms + want.decode_ms)


def test_a_mixed_pass_is_one_forward_over_all_its_tokens() -> None:
    """2.5, replay form: means are floored, attention of the prefill has as many requests as hold its tokens."""
    model, made = compiled()
    got = pricer(made).answer(3, 100, 77, 5, 1_003)
    shared = model.shared("context", 105) + model.logits("context", 1)
    assert got.prefill_ms == pytest.approx(float(shared + model.context_attention(4, 33, 25)))
    assert got.decode_ms == pytest.approx(float(model.generation_attention(5, 200)))


def test_what_lies_beyond_the_staircase_is_said_to_be_extrapolated() -> None:
    _, made = compiled()
    plain = pricer(made)
    assert plain.answer(1, 256, 0, 0, 0).prefill_source == 1  # measured: a knot of every axis
    assert plain.answer(1, 300, 0, 0, 0).prefill_source == 2
    got = plain.answer(1, 300, 8_000, 0, 0)
    assert got.prefill_source == 3 and got.prefill_octaves == pytest.approx(1.0, abs=0.1)
    got = plain.answer(0, 0, 0, 8, 8 * 4_096)
    assert got.decode_source == 3 and got.decode_octaves == pytest.approx(1.0, abs=0.3)


def test_a_phase_that_a_pool_can_do_without_answers_nothing() -> None:
    """Only decode is priced: its arrays are those of a deployment with both, prefills are refused and say why."""
    with pytest.raises(PerfDataError, match="attn_dtype=fp8"):
        compiled(without="context")
    half = compile_op_level(FakeOpLevel(without="context"), LIMITS, needs=("generation",))
    whole = compiled()[1]
    for name, array in whole.arrays.items():
        assert name.startswith(("context", "prefix", "token", "batch")) or (half.arrays[name] == array).all(), name
    assert half.header["refused"]["context"]["reason"] == "missing_precision"
    assert set(half.header["deviation"]) == {"decode_inside", "decode_outside"}
    for mixed in ("one_forward", "two_prices"):
        one, both = pricer(half, mixed), pricer(whole, mixed)
        packed = pack(timing(half), mixed)  # type: ignore[arg-type]
        for work in works(LIMITS, 100):
            got, want = one.answer(*work), both.answer(*work)
            assert got.decode_ms == want.decode_ms
            assert np.isnan(got.prefill_ms) == (work[0] > 0 and want.prefill_ms > 0)
            np.testing.assert_array_equal(answered(*packed, *work), (got.prefill_ms, got.decode_ms))
    said = str(pricer(half).refusal(1, 8, 0, 2, 40))
    assert "no prices for prefill: no context_attention rows with attn_dtype=fp8" in said and "more KV blocks" in said


def test_a_prefill_pool_needs_no_prices_of_decodes() -> None:
    half = compile_op_level(FakeOpLevel(without="generation"), LIMITS, needs=("context",))
    one, both = pricer(half), pricer(compiled()[1])
    for work in works(LIMITS, 100):
        if work[0]:
            assert one.answer(*work[:3], 0, 0).prefill_ms == both.answer(*work[:3], 0, 0).prefill_ms
    assert np.isnan(one.answer(0, 0, 0, 1, 10).decode_ms)
    assert set(half.header["deviation"]) == {"prefill_inside", "prefill_outside"}
    assert "no prices for decode" in str(one.refusal(0, 0, 0, 1, 10))


def test_arrays_are_made_once_and_made_again_when_anything_changes(tmp_path: Path) -> None:
    calls: list[int] = []

    def make() -> Compiled:
        calls.append(1)
        return compiled()[1]

    first = cached({"a": 1}, tmp_path, make)
    again = cached({"a": 1}, tmp_path, make)
    assert len(calls) == 1 and again.digest() == first.digest() and again.header == first.header
    cached({"a": 2}, tmp_path, make)
    assert len(calls) == 2
    next(tmp_path.glob("*.npz")).write_bytes(b"damaged")
    cached({"a": 1}, tmp_path, make)
    cached({"a": 2}, tmp_path, make)
    assert len(calls) == 3 and not list(tmp_path.glob("*.part"))


def test_the_key_of_arrays_sees_contents_not_sizes_and_times(tmp_path: Path) -> None:
    roots = []
    for name, held in (("a", b"1111"), ("b", b"2222"), ("c", b"1111")):
        root = PerfRoot(tmp_path / name, "folder", None)
        file = root.data / "gpu" / "gemm" / "vllm" / "1" / "gemm_perf.parquet"
        file.parent.mkdir(parents=True)
        file.write_bytes(held)
        os.utime(file, (1, 1))
        roots.append((root, file))
    (a, edited), (b, other), (c, _) = roots
    assert data_state(a, "gpu") == data_state(c, "gpu") != data_state(b, "gpu")
    before = data_state(a, "gpu")
    time.sleep(0.05)  # the clock of a file system ticks in milliseconds
    edited.write_bytes(other.read_bytes())
    os.utime(edited, (1, 1))  # as `cp -p` would leave it
    assert before != data_state(a, "gpu") == data_state(b, "gpu")
    assert PerfRoot(a.path, "folder", None).digest(edited) == b.digest(other)


# ---------------------------------------------------------------- the recorded deployments, where the extra is at hand
DENSE, MOE, SPARSE = "Qwen/Qwen3-32B", "Qwen/Qwen3-30B-A3B", "deepseek-ai/DeepSeek-V3.2"
# Projections and experts in fp8, attention and KV in bfloat16; and all of it in fp8.
FP8_16, FP8 = {"gemm": "fp8", "moe": "fp8"}, {"gemm": "fp8", "moe": "fp8", "kv_cache": "fp8", "fmha": "fp8"}
SHAPES: list[tuple[str, dict[str, Any]]] = [
    (DENSE, {"tp": 1}), (DENSE, {"tp": 2}), (DENSE, {"tp": 4}), (DENSE, {"tp": 4, "nextn": 2}),
    (DENSE, {"tp": 4, **FP8_16}), (DENSE, {"tp": 2, **FP8}),
    (MOE, {"tp": 1}), (MOE, {"tp": 2}), (MOE, {"tp": 1, **FP8_16}), (SPARSE, {"dp": 8}),
]  # fmt: skip
WHERE = [(s, b) for s in ("h200_sxm", "b200_sxm") for b in ("vllm", "trtllm", "sglang")]
needs_data = pytest.mark.skipif(
    importlib.util.find_spec("aiconfigurator_core") is None, reason="needs the extra: pip install 'tracemill[perfdata]'"
)


@needs_data
@pytest.mark.slow
@pytest.mark.parametrize(("model", "shape"), SHAPES, ids=lambda v: v if isinstance(v, str) else str(v))
@pytest.mark.parametrize(("system", "backend"), WHERE)
def test_arrays_of_every_recorded_deployment(model: str, shape: dict[str, Any], system: str, backend: str) -> None:
    from perf_db.gpu.deployment import resolve
    from perf_db.gpu.errors import PerfDataError
    from perf_db.gpu.oplevel import OpLevel
    from perf_db.gpu.source import open_root

    root, limits = open_root(), Limits(2048, 48, 40_960)
    try:
        deployment = resolve(root, model, system, backend, **shape)
        made = {clean: compile_op_level(OpLevel(deployment, root, clean=clean), limits) for clean in (False, True)}
    except PerfDataError as error:
        assert error.reason in ("missing_table", "missing_precision", "missing_shape")
        pytest.skip(f"{error.reason}: {error}")
    for each in made.values():
        kernel_agrees(each, limits, 100)
    never_falling(pricer(made[True], "two_prices"), limits)
    found = made[False].header["deviation"]
    assert found["prefill_inside"]["max"] < 1e-9 and found["decode_inside"]["max"] < 1e-9
