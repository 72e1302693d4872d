"""A closed loop's passes need no price: priced afterwards they give what the engine gives that knows the price."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from assets.accuracy.amounts import COMPONENTS, N_PRICED, Pricer, amounts
from assets.accuracy.closed_loop import Loop, Passes, lengths, play
from assets.accuracy.loops import binding, case_of
from sim.engine import replay
from sim.inputs import Workload
from sim.result import MemorySink
from sim.spec import EngineSpec, PassCostTiming
from sim.timing.plain import Work, pass_cost

TIMING = PassCostTiming(2.0, 9.0, 90.0, 20.0, 40.0, 150.0, 8.0)


def priced_afterwards(passes: Passes) -> tuple[float, float]:
    """Mean TTFT and TPOT, ms."""
    held = (passes.n_prefill, passes.prefill_tokens, passes.prefill_kv, passes.n_decode, passes.decode_kv)
    ms = np.array([sum(pass_cost(TIMING, Work(*(int(v) for v in work)))) for work in zip(*held)])
    before = np.concatenate([[0.0], np.cumsum(ms)])
    ttft = before[passes.first + 1] - before[passes.asked]
    later = passes.output_tokens > 1
    decoding = (before[passes.last + 1] - before[passes.first + 1])[later]
    return float(ttft.mean()), float((decoding / (passes.output_tokens[later] - 1)).mean())


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize(
    "loop",
    [
        Loop("vllm", 4, 300, 40),
        Loop("vllm", 16, 700, 30, budget=512),
        Loop("vllm", 8, 200, 60, blocks=120),  # a pool that cannot hold all of them
        Loop("trtllm", 8, 300, 20, exact=True),
    ],
)
def test_priced_afterwards_as_priced_within(loop: Loop, asynchronous: bool) -> None:
    loop = replace(loop, asynchronous=asynchronous)
    passes = play(loop)
    prompts, outputs = lengths(loop)
    spec = EngineSpec(
        profile=loop.profile,  # type: ignore[arg-type]
        timing=TIMING,
        block_tokens=16,
        blocks=loop.blocks or 1 << 14,
        max_num_seqs=loop.clients,
        max_batched_tokens=loop.budget,
        prefix_caching=False,
        async_scheduling=asynchronous and loop.profile == "vllm",
    )
    sink = MemorySink()
    replay(spec, Workload(np.zeros(len(prompts), np.int64), prompts, outputs, concurrency=loop.clients), sink)
    r = sink.table("requests")
    ttft = (r["first_token_ns"] - r["arrival_ns"]) / 1e6
    tpot = (r["last_token_ns"] - r["first_token_ns"]) / 1e6 / np.maximum(r["output_tokens"] - 1, 1)
    # The engine's clock counts whole nanoseconds.
    assert priced_afterwards(passes) == pytest.approx((ttft.mean(), tpot[r["output_tokens"] > 1].mean()), rel=1e-7)
    if loop.blocks:
        assert passes.n_preempted > 0


def test_lengths_are_drawn_as_the_benchmark_draws_them() -> None:
    prompts, outputs = lengths(Loop("vllm", 50, 1000, 200))
    assert len(prompts) == 500 and prompts.min() >= 800 and prompts.max() <= 1000
    assert 860 < prompts.mean() < 940 and outputs.min() >= 160
    prompts, outputs = lengths(Loop("vllm", 50, 1000, 200, exact=True))
    assert set(prompts) == {1000} and abs(outputs.mean() - 200) < 3


def test_a_pool_that_never_fills_does_not_make_another_loop() -> None:
    loop = Loop("vllm", 4, 1000, 200)
    assert binding(loop, 10_000) is None and binding(loop, 100) == 100


def row(**columns: object) -> dict[str, object]:
    base = {
        "row_id": "a", "backend": "vllm", "mode": "agg", "model": "meta-llama/Llama-3.1-70B", "model_family": "x",
        "system": "h200_sxm", "tp": 4, "pp": 1, "attention_dp": 1, "moe_tp": None, "moe_ep": None, "gemm_quant": "fp8",
        "moe_quant": None, "prompt_tokens": 1024, "output_tokens": 128, "concurrency": 8, "origin": "dump",
    }  # fmt: skip
    return base | columns


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"mode": "disagg"}, "disaggregated"),
        ({"backend": "other"}, "unknown_backend"),
        ({"concurrency": None}, "unknown_load"),
        ({"prompt_tokens": None}, "unknown_lengths"),
    ],
)
def test_what_cannot_be_replayed_says_why(columns: dict[str, object], reason: str) -> None:
    assert case_of(row(**columns)).reason == reason


def test_labels_are_mended_and_the_rule_is_noted() -> None:
    case = case_of(row())
    assert case.labels is not None and case.labels.model == "meta-llama/Meta-Llama-3.1-70B"
    assert "is meta-llama/Meta-Llama-3.1-70B" in case.labels.notes[0]
    wide = case_of(row(model="MiniMaxAI/MiniMax-M2.5", tp=4, attention_dp=4, moe_quant="fp8", concurrency=64))
    assert wide.labels is not None and wide.loop is not None
    assert (wide.labels.tp, wide.labels.dp, wide.labels.moe_ep, wide.labels.moe) == (1, 4, 4, "fp8_block")
    assert (wide.loop.clients, wide.clients) == (16, 64)  # of one rank, of the engine
    node = case_of(row(origin="lab_runs", prompt_tokens=2000, concurrency=64))
    assert node.loop is not None and (node.loop.clients, node.loop.exact) == (32, True)
    assert case_of(row(backend="sglang")).provisional


def test_amounts_are_the_parts_of_the_price() -> None:
    """Against the operator model itself; skipped where the performance data are not installed."""
    from perf_db.gpu.deployment import resolve
    from perf_db.gpu.errors import PerfDataError
    from perf_db.gpu.oplevel import OpLevel
    from perf_db.gpu.source import open_root

    try:
        root = open_root()
    except PerfDataError:
        pytest.skip("needs the perfdata extra")
    oplevel = OpLevel(resolve(root, "Qwen/Qwen3-32B", "h200_sxm", "vllm", tp=4), root, clean=True)
    passes = play(Loop("vllm", 8, 600, 80))
    pricer = Pricer(oplevel, 8192 + 8)
    parts = pricer.components(passes)
    whole = oplevel.mixed(passes.n_prefill, passes.prefill_tokens, passes.prefill_kv, passes.n_decode, passes.decode_kv)
    # Lengths of decode attention are put on a lattice of half a percent.
    assert parts[:N_PRICED].sum(0) == pytest.approx(whole, rel=2e-3)
    found = amounts(pricer, passes, with_share=True)
    assert found.ttft[COMPONENTS.index("prefill_passes")] >= 1
    assert found.tpot[:N_PRICED].sum() > 0 and found.extrapolated_share == 0
    # Nobody is preempted, so every gap between tokens is one pass, and there are no other passes than the loop's.
    counts = [COMPONENTS.index(name) for name in ("prefill_passes", "decode_passes")]
    assert found.e2e is not None and found.itl is not None and found.whole is not None
    assert found.itl[counts].sum() == pytest.approx(1) and found.whole[counts].sum() == found.n_passes
    gaps = (passes.output_tokens - 1).mean()
    assert found.e2e[counts].sum() == pytest.approx(found.ttft[counts].sum() + gaps)
    assert found.whole[:N_PRICED].sum() == pytest.approx(parts[:N_PRICED].sum())
    assert found.n_tokens == passes.output_tokens.sum()
