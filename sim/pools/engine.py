"""A replay on separate pools, in compiled code behind a plain function."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np

import sim.pools.state as P
import sim.state as S
from sim.engine import PATIENCE, bad_price, check, outcome_of, run_to_end
from sim.errors import Deadlock, Livelock, ReplayError, WorkloadError
from sim.explain import blocked_message, livelock_message
from sim.inputs import Workload
from sim.plays import followers
from sim.pools.collect import PoolsCollector
from sim.pools.drafting import drafters_of, with_room
from sim.pools.loop import run_pools
from sim.pools.setup import allocate_pools, configs_of, doubled, pins_of, pools_of
from sim.pools.state import Pools
from sim.prefix import Shared, share
from sim.result import MemorySink, Outcome, Sink
from sim.settle import LIVELOCK_CHOICES
from sim.setup import inputs_of, router_of
from sim.spec import EngineSpec, FlatTiming, PoolsSpec, Routing, Speculation
from sim.state import Router, State
from sim.timing.compiled import compile_timing


def replay(
    spec: PoolsSpec, workload: Workload, sink: Sink, *, progress: Callable[[int, int], None] | None = None
) -> Outcome:
    """Replay `workload` on two pools, handing finished rows to `sink` as it goes.

    Raises:
        Deadlock, Livelock, TimingError: the replay cannot be completed; what reached the sink must be thrown away.
        WorkloadError: the workload breaks its own contract.
    """
    check(spec.prefill, workload, pins=False)
    check(spec.decode, workload, pins=False)
    _check_pins(spec, workload)
    if spec.prefill.speculation is not None and spec.decode.speculation is None:
        raise WorkloadError("prefill.speculation: drafts are verified in the decode pool; give it a drafter as well")
    if spec.profile == "parity" and any(side.async_scheduling for side in spec.sides):
        raise WorkloadError("async_scheduling: separate pools have it in profile vllm only; set it to False")
    if spec.local_prefill_tokens is not None and spec.speculation is not None:
        raise WorkloadError("local_prefill_tokens: decode workers that draft prefill nothing themselves; leave it out")
    if spec.local_prefill_tokens is not None and any(side.async_scheduling for side in spec.sides):
        raise WorkloadError("local_prefill_tokens: not known together with async_scheduling; leave one of them out")
    if spec.transfer.layers and spec.prefill.async_scheduling:
        raise WorkloadError("transfer.layers: prefill workers that choose ahead may take a prompt back; leave one out")
    if len(workload) and spec.transfer.sent_bytes(int(workload.prompt_tokens.max()) + spec.block_tokens) >= 2**63:
        raise WorkloadError("transfer.bytes_per_token: the longest prompt's KV exceeds 2^63 bytes; lower it")
    load_kernels(drafting=spec.speculation is not None, routing=spec.looks_at_ranks)
    began = time.perf_counter()
    caching = spec.prefill.prefix_caching or spec.decode.prefix_caching
    shared = share(workload, spec.decode.block_tokens, caching=caching)
    follow = followers(workload)
    prefill, decode = configs_of(spec, workload)
    both, both_shared = doubled(workload, shared, spec.decode.block_tokens)
    inputs = inputs_of(workload, both_shared, follow)._replace(pinned=pins_of(workload))
    # One look at all workers may end a pass of each, and begin two.
    rows = sum(3 * side.ranks * (4 * c.seqs + 8) for side, c in ((spec.prefill, prefill), (spec.decode, decode)))
    wide = decode._replace(seqs=max(prefill.seqs, decode.seqs))
    pools = pools_of(spec, len(workload))
    state = allocate_pools(spec, both, both_shared, follow, wide, rows)
    state = state._replace(route=_router(spec, len(both), shared))
    prices = compile_timing(spec.prefill), compile_timing(spec.decode)
    drafters = drafters_of(spec, len(workload), prefill, decode, rows)
    collector = PoolsCollector(spec, workload, decode, state, sink, pools, drafters[1])

    def step() -> int:
        if collector.drafting is not None:
            collector.drafting = with_room(collector.drafting, decode.seqs)
        who = drafters[0], collector.drafting
        return run_pools(prefill, decode, inputs, state, pools, *who, *prices, rows, PATIENCE)

    status = run_to_end(step, collector, state, len(workload), progress)
    if status in (S.DEADLOCK, S.LIVELOCK, S.BAD_PRICE):
        raise _error(status, spec, state, pools)
    return outcome_of(began, collector, state, len(workload), status, progress)


def _router(spec: PoolsSpec, rows: int, shared: Shared) -> Router | None:
    return router_of(spec.routing, rows, spec.ranks, shared, looks=spec.looks_at_ranks)


def _check_pins(spec: PoolsSpec, load: Workload) -> None:
    for name, role, side in (
        ("pinned_rank", "decode", spec.decode),
        ("pinned_prefill_rank", "prefill", spec.prefill),
    ):
        pins = getattr(load, name)
        if pins is not None and (pins >= side.ranks).any():
            raise WorkloadError(
                f"request {int((pins >= side.ranks).argmax())}: {name} must be below the {side.ranks} ranks of the "
                f"{role} pool"
            )


_loaded: set[tuple[bool, bool]] = set()


def load_kernels(*, drafting: bool = False, routing: bool = False) -> None:
    """Load the compiled kernels of separate pools, or compile them on the first use on a machine.

    Args:
        drafting: those of replays with speculative decoding, which are compiled apart.
        routing: those of replays behind KV-aware routers, likewise.
    """
    if (drafting, routing) in _loaded:
        return
    _loaded.add((drafting, routing))
    one, ids = np.ones(1, np.int64), np.zeros(1, np.int64)
    tiny = Workload(ids, one, one, hash_offsets=np.array([0, 1]), hash_ids=ids)
    side = EngineSpec(
        profile="parity", timing=FlatTiming(1.0), blocks=1, max_num_seqs=1, async_scheduling=False, stop_ns=0
    )
    if drafting:
        side = replace(side, speculation=Speculation("mtp", 1, (0.0,)))
    replay(PoolsSpec(side, side, routing=Routing() if routing else None), tiny, MemorySink())


def _error(status: int, spec: PoolsSpec, state: State, pools: Pools) -> ReplayError:
    """The error of a replay that cannot go on."""
    now = int(state.g[S.NOW])

    def side(rank: int) -> EngineSpec:
        return spec.prefill if rank < pools.prefill_ranks else spec.decode

    rank = int(state.g[S.BLAME_RANK])
    if status == S.BAD_PRICE:
        return bad_price(side(rank), state, rank)
    if status == S.LIVELOCK:
        victim, worker = int(state.r[rank, S.WAIT_HEAD]), int(pools.worker_of[rank])
        place = rank - int(pools.w[worker, P.FIRST_RANK])
        return Livelock(livelock_message(side(rank), victim % pools.n, worker, place, LIVELOCK_CHOICES, now))
    heads = [(k, int(state.r[k, head])) for k in range(pools.ranks) for head in (S.WAIT_HEAD, S.RUN_HEAD, S.INBOX_HEAD)]
    heads += [(k, int(pools.k[k, P.WANTED_HEAD])) for k in range(pools.ranks)]
    k, r = next((k, head) for k, head in heads if head >= 0)
    prompt = int(state.q[r, S.PROMPT])
    known, pool = prompt + int(state.q[r, S.RECEIVED]), "prefill" if k < pools.prefill_ranks else "decode"
    return Deadlock(blocked_message(side(k), r % pools.n, prompt, known, now, pool=pool))
