"""One point of a growth curve, in a process of its own: `python -m benchmarks.point '{...}'` prints JSON."""

from __future__ import annotations

import json
import resource
import sys
import time
from typing import Any

import numpy as np

from assets.synthetic import uniforms
from sim.engine import kernels_of, replay
from sim.inputs import Workload
from sim.result import Columns
from sim.spec import EngineSpec, FixedTiming, PolynomialTiming, PoolsSpec, Transfer


class Counter:
    """A sink that keeps nothing but the number of rows."""

    def __init__(self) -> None:
        self.n: dict[str, int] = {}

    def rows(self, table: str, columns: Columns) -> None:
        """See `sim.result.Sink`."""
        self.n[table] = self.n.get(table, 0) + len(next(iter(columns.values())))


def workload(n: int, *, prompt: int, output: int, spread: int, concurrency: int) -> Workload:
    """A closed loop of requests that share nothing; outputs are uniform within `output` ± `spread`."""
    outputs = output - spread + (uniforms(7, "output", n) * (2 * spread + 1)).astype(np.int64)
    return Workload(
        arrival_ns=np.zeros(n, np.int64),
        prompt_tokens=np.full(n, prompt, np.int64),
        output_tokens=outputs,
        # Known to share nothing; without these columns nothing would be hashed or looked up.
        hash_offsets=np.zeros(n + 1, np.int64),
        hash_ids=np.zeros(0, np.int64),
        hash_block_tokens=64,
        concurrency=concurrency,
    )


def deployment(point: dict[str, Any]) -> EngineSpec | PoolsSpec:
    """One worker; or `pools` workers for prefill and as many for decode, whose passes end at instants of their own."""
    spec = EngineSpec(
        profile=point["profile"],
        timing=PolynomialTiming() if "pools" in point else FixedTiming(1.0, 1.0),
        block_tokens=point["block_tokens"],
        blocks=point["blocks"],
        max_num_seqs=point["concurrency"],
        max_batched_tokens=point["budget"],
        workers=point.get("pools", 1),
        async_scheduling=point["profile"] == "vllm" and "pools" not in point,
    )
    if "pools" not in point:
        return spec
    # Llama 3 70B in 16 bits, to workers with 400 Gbit/s each.
    links = "per_destination" if point["shared"] else "none"
    return PoolsSpec(spec, spec, Transfer(bytes_per_token=327_680.0, bytes_per_second=50e9, links=links))


def measure(point: dict[str, Any]) -> dict[str, Any]:
    """Replay one point `repeats` times.

    Args:
        point: `concurrency`, `requests`, `prompt` and `output` tokens, `spread` of the outputs; `profile`,
            `block_tokens`, `blocks`, `budget` of every rank; with `pools` workers on either side, `shared`: whether
            transfers to one worker share its link.

    Returns:
        engine_ms, cpu_ms: of each repeat; passes and events of one; peak memory of all.
    """
    load = workload(
        point["requests"],
        prompt=point["prompt"],
        output=point["output"],
        spread=point.get("spread", 0),
        concurrency=point["concurrency"],
    )
    spec = deployment(point)
    kernels_of(spec)()
    engine_ms, cpu_ms = [], []
    for _ in range(point["repeats"]):
        counter = Counter()
        began = time.process_time()
        outcome = replay(spec, load, counter)
        cpu_ms.append((time.process_time() - began) * 1e3)
        engine_ms.append(outcome.engine_ms)
    return {
        "engine_ms": engine_ms,
        "cpu_ms": cpu_ms,
        "passes": outcome.n_passes,
        "events": events(load, spec, counter.n),
        "rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def events(load: Workload, spec: EngineSpec | PoolsSpec, rows: dict[str, int]) -> int:
    """What the engine has to act upon: arrivals, admissions, prompt chunks, KV blocks taken while decoding, ends; of a
    handoff, that it is held, reserved, sent, taken note of and released."""
    n, bs = len(load), spec.sides[0].block_tokens
    # The newest token's KV is written by the pass after it, so the last one takes no room.
    held = -(-(load.prompt_tokens + load.output_tokens - 1) // bs)
    grown = int((held - -(-load.prompt_tokens // bs)).sum())
    return 2 * n + rows["admissions"] + rows["chunks"] + grown + 5 * rows.get("handoffs", 0)


if __name__ == "__main__":
    print(json.dumps(measure(json.loads(sys.argv[1]))))
