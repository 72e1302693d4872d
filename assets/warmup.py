"""A replay small enough to take no time and broad enough to make every kernel compile."""

from __future__ import annotations

import numpy as np

from sim.inputs import Workload
from sim.result import MemorySink
from sim.spec import EngineSpec, FixedTiming


def warm_up() -> None:
    """Compile the engine, or load it from the cache where these sources were compiled before.

    One replay is enough: kernels have one signature each, whatever the timing, the load or the profile.
    """
    from sim.engine import replay

    n = 4
    workload = Workload(
        arrival_ns=np.zeros(n, np.int64),
        prompt_tokens=np.full(n, 40, np.int64),
        output_tokens=np.full(n, 8, np.int64),
        hash_offsets=np.arange(n + 1, dtype=np.int64),
        hash_ids=np.zeros(n, np.int64),
        hash_block_tokens=16,
        concurrency=2,
    )
    spec = EngineSpec(timing=FixedTiming(1.0, 1.0), block_tokens=16, blocks=32, max_num_seqs=4, max_batched_tokens=64)
    replay(spec, workload, MemorySink())
