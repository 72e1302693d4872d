"""Section 14.2: end-to-end figures of 1024 in / 128 out, 64-token blocks, budget 8,192, fixed 1 + 1 ms."""

from importlib.util import find_spec

import numpy as np
import pytest

from assets.golden.run import run
from sim.inputs import Workload
from sim.spec import EngineSpec, FixedTiming
from tests.rules.world import in_both_profiles


def load(n: int, concurrency: int | None) -> Workload:
    """n distinct prompts, all at once or in a closed loop."""
    return Workload(
        np.zeros(n, np.int64), np.full(n, 1024, np.int64), np.full(n, 128, np.int64), concurrency=concurrency
    )


def spec(**more) -> EngineSpec:
    return EngineSpec(**{"timing": FixedTiming(1, 1), "blocks": 16384, "block_tokens": 64, **more})


@in_both_profiles
def test_14_2_64_requests_at_once(engine, profile):
    """
    pass 0   8 prompts of 1024                        np 8, Tp 8,192
    pass 1   8 decodes, 8,184 prompt tokens           np 8, Tp 8,184, B 8, KV 8,200
    pass 2   15 decodes, the rest of a chunk first    np 9, Tp 8,177, KVp 1,016, B 15
    ...
    pass 8   the last 218 prompt tokens               np 1, Tp 218, KVp 806, B 63
    pass 9   starts at 17 ms, all 64 decode           KV 65,881
    """
    got = run(spec(profile=profile, async_scheduling=False), load(64, None), engine)
    passes = got.tables["passes"]
    assert len(passes["pass_no"]) == 136
    assert got.tables["requests"]["end_ns"].max() == 144_000_000
    names = ("n_prefill", "prefill_tokens", "prefill_kv_tokens", "n_decode", "decode_kv_tokens")
    shape = np.stack([passes[name] for name in names], axis=1).tolist()
    assert shape[0] == [8, 8192, 0, 0, 0]
    assert shape[1] == [8, 8184, 0, 8, 8200]
    assert shape[2][:4] == [9, 8177, 1016, 15]
    assert shape[8][:4] == [1, 218, 806, 63]
    assert shape[9] == [0, 0, 0, 64, 65881]
    assert passes["start_ns"][9] == 17_000_000


@pytest.mark.parametrize(("async_scheduling", "passes", "ms"), [(False, 392, 418), (True, 396, 422)])
@in_both_profiles
def test_14_2_192_requests_in_a_closed_loop_of_64(engine, profile, async_scheduling, passes, ms):
    got = run(spec(profile=profile, async_scheduling=async_scheduling), load(192, 64), engine)
    assert len(got.tables["passes"]["pass_no"]) == passes
    assert got.tables["requests"]["end_ns"].max() == ms * 1_000_000
    assert got.tables["requests"]["output_tokens"].sum() == 24_576


@pytest.mark.slow
@pytest.mark.skipif(find_spec("sim.engine") is None, reason="the compiled engine is not there")
@pytest.mark.parametrize(
    ("n", "concurrency", "passes", "ms"), [(65_536, 64, 133_127, 143_357), (262_144, 256, 133_154, 170_975)]
)
def test_14_2_long_closed_loops(n, concurrency, passes, ms):
    """Asynchronous, profile parity. The plain engine would need minutes."""
    got = run(spec(profile="parity", async_scheduling=True), load(n, concurrency), "fast")
    assert got.outcome.n_passes == passes
    assert got.tables["requests"]["end_ns"].max() == ms * 1_000_000
