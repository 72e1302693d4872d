"""Small crowded deployments, replayed by the plain engine and recorded as runs."""

from __future__ import annotations

import dataclasses
import json
import random
from pathlib import Path
from typing import Any

import numpy as np

from assets.desk.pair import Recorded
from assets.identity import canonical_json, digest, performance_digest
from perf_db.commit import read_commit
from perf_db.layout import Layout
from perf_db.writer import Identity, RunWriter
from sim import reference, reference_pools
from sim.inputs import Workload
from sim.metrics import compute
from sim.result import Columns, MemorySink
from sim.spec import Deployment, EngineSpec, PoolsSpec, TableTiming, Transfer
from tests.perf_db.hand_made import run_facts

BLOCK = 4


def deployment(seed: int, **changes: Any) -> EngineSpec:
    """A pool that is too small for its slots, and passes that cost something else for every load."""
    rng = random.Random(f"deployment {seed}")
    timing = TableTiming(
        np.array([1, 8, 64]),
        np.array([1.0, 2.0, 9.0]),
        np.array([1, 60, 400]),
        np.array([1, 30, 90]),
        np.array([[1.0, 1.1, 1.3], [1.5, 1.7, 2.0], [3.0, 3.5, 4.0]]),
    )
    spec = EngineSpec(
        timing=timing,
        block_tokens=BLOCK,
        blocks=rng.randint(18, 26),
        max_num_seqs=rng.choice([4, 6]),
        max_batched_tokens=rng.choice([8, 16, 32]),
        async_scheduling=rng.random() < 0.5,
        workers=rng.choice([1, 1, 2]),
        dp=rng.choice([1, 1, 2]),
    )
    return dataclasses.replace(spec, **changes)


def pools(seed: int) -> PoolsSpec:
    """Two such pools: prompts are computed in the first, and wait for a transfer and for room in the second."""
    rng = random.Random(f"pools {seed}")
    one = deployment(seed, async_scheduling=False, workers=1, dp=1, profile=rng.choice(["vllm", "parity"]))
    return PoolsSpec(
        dataclasses.replace(one, blocks=rng.randint(24, 40), workers=rng.choice([1, 2]), dp=rng.choice([1, 1, 2])),
        dataclasses.replace(one, blocks=one.blocks + 8, workers=rng.choice([1, 1, 2]), dp=rng.choice([1, 1, 2])),
        Transfer(bytes_per_token=1000.0, bytes_per_second=rng.choice([4e6, 2e7]), missing_only=rng.random() < 0.5),
    )


def traffic(seed: int, n: int = 24) -> Workload:
    """Prompts that share beginnings, arriving faster than they are served."""
    rng = random.Random(f"traffic {seed}")
    prompts = [rng.randint(6, 48) for _ in range(n)]
    ids, offsets = [], [0]
    for r, prompt in enumerate(prompts):
        group, shared = rng.randrange(3), rng.randint(0, 8)
        blocks = -(-prompt // BLOCK)
        ids += [1000 * group + i if i < shared else 1_000_000 + 100 * r + i for i in range(blocks)]
        offsets.append(len(ids))
    return Workload(
        arrival_ns=np.cumsum([rng.randint(0, 12) * 1_000_000 for _ in range(n)]),
        prompt_tokens=np.array(prompts, np.int64),
        output_tokens=np.array([rng.randint(1, 16) for _ in range(n)], np.int64),
        hash_offsets=np.array(offsets, np.int64),
        hash_ids=np.array(ids, np.int64),
        hash_block_tokens=BLOCK,
    )


@dataclasses.dataclass(frozen=True)
class Run:
    """A run on disk and the tables it was made of."""

    recorded: Recorded
    tables: dict[str, Columns]


def record(root: Path, run_id: str, spec: Deployment, load: Workload, *, ids: Any = None, **facts: Any) -> Run:
    """Replay and commit, as `run_replay` does.

    Args:
        ids: request_id of every request; None numbers them.
    """
    sink = MemorySink()
    replay = reference_pools.replay if isinstance(spec, PoolsSpec) else reference.replay
    outcome = replay(spec, load, sink)  # type: ignore[operator]
    names = ("requests", "spans", "passes", "evidence", "pressure", "admissions", "chunks", "handoffs")
    tables = {name: sink.table(name) for name in names}
    layout = Layout(root)
    identity = Identity(np.arange(len(load)) if ids is None else np.asarray(ids))
    with RunWriter(layout, run_id, identity, lambda: None) as writer:
        for name, columns in tables.items():
            writer.rows(name, columns)
        writer.metrics(compute(tables["requests"], outcome, None, spec, sla=None).rows())
        writer.commit(about(spec, load, outcome.end_ns, outcome.peak_active_blocks) | facts)
    return Run(Recorded(read_commit(layout.commit_file(run_id)), root), tables)


def about(spec: Deployment, load: Workload, end_ns: int, peak: int) -> dict[str, Any]:
    """The row of `runs`, with digests of what was replayed."""
    if isinstance(spec, PoolsSpec):
        sides = {name: _settings(side) for name, side in (("prefill", spec.prefill), ("decode", spec.decode))}
        settings = {"kv_transfer": dataclasses.asdict(spec.transfer), "workers": sides}
    else:
        settings = _settings(spec)
        settings["workers"] = {"replicas": spec.workers, "aggregated": {"kv_cache": settings.pop("kv_cache")}}
    trace = [getattr(load, f.name) for f in dataclasses.fields(load)]
    trace_digest = digest(*(x.tobytes() if isinstance(x, np.ndarray) else repr(x) for x in trace))
    parts = {
        "config_json": canonical_json({"engine": settings}),
        "trace_digest": trace_digest,
        "performance_digest": performance_digest(spec),
        "provenance_json": json.dumps(_provenance(len(load))),
        "engine_digest": "engine",
    }
    return run_facts(
        **parts,
        replay_id=digest(*map(str, parts.values())),
        end_ns=end_ns,
        peak_active_blocks=peak,
        config_digest=digest(parts["config_json"]),
    )


def _settings(spec: EngineSpec) -> dict[str, Any]:
    known = {"timing", "blocks", "block_tokens"}
    settings = {f.name: getattr(spec, f.name) for f in dataclasses.fields(spec) if f.name not in known}
    return settings | {"kv_cache": {"block_size": spec.block_tokens, "capacity": {"blocks": spec.blocks}}}


def _provenance(n: int) -> dict[str, int]:
    return {"rows_read": n, "clean": n, "replayed": n, "quarantined": 0}
