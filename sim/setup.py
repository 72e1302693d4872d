"""A deployment and a workload as the arrays a kernel runs on."""

from __future__ import annotations

import numpy as np

import sim.state as S
from sim.errors import WorkloadError
from sim.inputs import Workload
from sim.logs import logged
from sim.plays import Followers
from sim.prefix import Shared
from sim.result import UNFINISHED
from sim.spec import EngineSpec, FrontEnd, Routing
from sim.state import Config, Inputs, Router, State

# Small enough for the logs to stay in the processor's cache, and for drained columns to reuse memory.
LOG_ROWS = 1 << 13
# Columns of a log a power of two apart would all fall into one set of the processor's cache.
LOG_PAD = 24
NO_STOP = -1
EMPTY_LINKS = (
    S.RANK,
    S.QNEXT,
    S.QPREV,
    S.CNEXT,
    S.CPREV,
    S.GNEXT,
    S.GPREV,
    S.NNEXT,
    S.ANEXT,
    S.SEGMENTS,
    S.EXTENTS,
    S.PREV_PASS,
    S.CACHED_NOW,
    S.CACHED_FIRST,
    S.CACHED_MAX,
)


def _served_outputs(spec: EngineSpec, load: Workload) -> np.ndarray:
    """Outputs of the requests that can enter the calendar. vLLM refuses on arrival what the pool can never hold."""
    outputs = spec.outputs(load.prompt_tokens, load.output_tokens)
    if spec.profile != "vllm":
        return outputs
    return outputs[load.prompt_tokens + np.maximum(outputs - 1, 0) <= spec.blocks * spec.block_tokens]


def config_of(spec: EngineSpec, load: Workload) -> Config:
    vllm = spec.profile == "vllm"
    depth = 2 if vllm and spec.async_scheduling else 1
    ties = spec.boundary_arrivals or ("after" if depth == 2 else "before")
    longest = int(_served_outputs(spec, load).max(initial=0))
    buckets = 8
    while buckets < longest + 4:
        buckets *= 2
    return Config(
        n=len(load),
        vllm=int(vllm),
        trtllm=int(spec.profile == "trtllm"),
        promises=int(spec.reserves_to_end),
        depth=depth,
        gated=int(spec.profile == "parity" and spec.async_scheduling),
        reads_ties=int(ties == "before" or not vllm),
        workers=spec.workers,
        dp=spec.dp,
        bs=spec.block_tokens,
        blocks=spec.blocks,
        seqs=min(spec.max_num_seqs, max(1, len(load))),
        budget=spec.max_batched_tokens,
        limit=spec.max_model_len or 0,
        caching=int(spec.prefix_caching),
        chunked=int(spec.chunked_prefill),
        fifo=int(spec.preemption == "fifo"),
        interval=spec.prefill_schedule_interval,
        spare=int(spec.watermark * (spec.blocks + 1)),  # vLLM counts its null block in
        reserve_full=int(spec.reserve_full_isl),
        stop=NO_STOP if spec.stop_ns is None else spec.stop_ns,
        mask=buckets - 1,
        concurrency=load.concurrency or 0,
        sessions=int(load.session is not None),
        plays=int(load.wait_offsets is not None),
        sends=-1 if load.send_limit is None else load.send_limit,
        pinned=int(load.pinned_rank is not None),
        front=int(spec.front is not None),
        client=0 if spec.front is None or load.concurrency is not None else spec.front.client_ns,
        reply=0 if spec.front is None else spec.front.reply_ns,
    )


def inputs_of(load: Workload, shared: Shared, follow: Followers, front: FrontEnd | None = None) -> Inputs:
    pinned = np.zeros(0, np.int32) if load.pinned_rank is None else np.array(load.pinned_rank, np.int32)
    arrival = np.array(load.arrival_ns, np.int64)
    return Inputs(
        arrival=arrival,
        firsts=follow.firsts,
        member=follow.member,
        follow=follow.follow,
        pinned=pinned,
        chain_at=shared.at,
        chain=shared.chain,
        inbound=np.zeros(0, np.int64) if front is None else front.inbound(load.prompt_tokens, load.concurrency),
    )


def log_rows(rows: int) -> int:
    """Capacity of a log to which a worker may write `rows` rows between two looks at it."""
    return max(LOG_ROWS, 2 * rows) + LOG_PAD


def allocate(spec: EngineSpec, load: Workload, shared: Shared, follow: Followers, config: Config, rows: int) -> State:
    """Arrays of a fresh replay. Large ones are touched only as far as they are used.

    Args:
        rows: rows a worker may write to a log between two looks at it; logs hold at least twice that.
    """
    rows = log_rows(rows)
    # Rows of passes in flight, two batches a rank, stay in their logs when these are emptied.
    kept = 2 * spec.ranks * config.seqs
    n, ranks = len(load), spec.ranks
    fresh = np.zeros(S.Q_WIDTH, np.int32)
    fresh[list(EMPTY_LINKS)] = -1
    fresh[S.STATUS] = UNFINISHED
    q = np.empty((n, S.Q_WIDTH), np.int32)
    q[:] = fresh  # row by row: a column at a time would walk the whole array once per column
    output = spec.outputs(load.prompt_tokens, load.output_tokens)
    q[:, S.PROMPT], q[:, S.OUTPUT], q[:, S.SHARED] = load.prompt_tokens, output, shared.blocks
    r = np.zeros((ranks, S.R_WIDTH), np.int64)
    for column in (
        S.RUN_HEAD,
        S.RUN_TAIL,
        S.WAIT_HEAD,
        S.WAIT_TAIL,
        S.INBOX_HEAD,
        S.INBOX_TAIL,
        S.PREFILL_AT,
        S.DELIVERED,
    ):
        r[:, column] = -1
    r[:, S.FREE] = spec.blocks
    w = np.zeros((spec.workers, S.W_WIDTH), np.int64)
    w[:, S.GROUP_END] = -1
    g = np.zeros(S.G_WIDTH, np.int64)
    g[S.NODE_FREE], g[S.NODE_BUMP] = -1, ranks
    # Every node stands for at least one physical block of its rank.
    nodes = ranks * (spec.blocks + 1) + 1
    if nodes > 2**31 - 1:
        raise WorkloadError(f"{ranks} ranks of {spec.blocks} blocks exceed 2^31 blocks; lower kv_cache.capacity.blocks")
    nd = np.empty((nodes, S.N_WIDTH), np.int32)
    for column in (0, 1):
        nd[:ranks, column] = np.arange(ranks)  # a sentinel is its own neighbour
    buckets = config.mask + 1

    def log(table: str, rows: int) -> np.ndarray:
        return np.empty((len(logged(table, drafting=spec.speculation is not None)), rows), np.int64)

    sessions = n if load.session is not None else 0
    behind = n if spec.front is not None else 0
    return State(
        q=q,
        t=np.full((n, S.T_WIDTH), -1, np.int64),
        r=r,
        w=w,
        g=g,
        nd=nd,
        b=np.zeros((ranks, 2, S.B_WIDTH), np.int64),
        s=np.zeros((2 * config.seqs + 8, S.S_WIDTH), np.int64),
        calendar=np.full((ranks, buckets, 2), -1, np.int32),
        growth=_growth(ranks, spec.block_tokens),
        copies=np.full((ranks, max(1, shared.n_identities), 2), -1, np.int32),
        lease=np.empty(max(1, len(shared.chain)), np.int32),
        heap=np.zeros((spec.workers + 1, 2), np.int64),
        turns=np.zeros((sessions + 1, 2), np.int64),
        pending=follow.pending,
        dirty=np.zeros(spec.workers + 1, np.int32),
        passes=log("passes", rows),
        spans=log("spans", rows + kept),
        admissions=log("admissions", rows),
        chunks=log("chunks", rows + kept),
        pressure=log("pressure", rows),
        sent=np.full(behind, -1, np.int64),
        on_the_way=np.zeros((behind, 2), np.int64),
    )


def router_of(
    routing: Routing | None, requests: int, ranks: int, shared: Shared, *, looks: bool = False
) -> Router | None:
    """What a KV-aware router begins with; None where requests take turns and nobody looks at what ranks hold."""
    if routing is None and not looks:
        return None
    by_cost, routing = int(routing is not None), routing or Routing()
    identities = max(1, shared.n_identities)
    return Router(
        by_cost=by_cost,
        scale=float(routing.prefill_load_scale),
        credit=float(routing.overlap_credit),
        books=np.zeros((ranks, S.BOOK_WIDTH), np.int64),
        uncached=np.full(requests, -1, np.int64),
        users=np.zeros((ranks, identities), np.int32),
        changed=np.full((ranks, identities, 2), -1, np.int32),
    )


def _growth(ranks: int, block_tokens: int) -> np.ndarray:
    growth = np.zeros((ranks, block_tokens, 4), np.int32)
    growth[:, :, :2] = -1
    return growth
