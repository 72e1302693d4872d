"""The engine's state as arrays: which column means what.

Every population is one 2-D array with a row per member, so that what belongs to one request, node or rank sits in one
or two cache lines, and a kernel call passes a handful of arrays. Columns are named by the constants below. Lists are
intrusive: -1 ends a list, links are columns of the member.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

# ---------------------------------------------------------------- requests: State.q, int32 (n, Q_WIDTH)
(
    PROMPT,  # tokens
    OUTPUT,  # tokens it may make: the budget cut at max_model_len
    RANK,  # worker * dp + dp_rank, -1 before placement
    STATE,  # see below
    RECEIVED,  # tokens made in closed spans (results in flight included)
    COMPUTED,  # tokens computed; only while PREFILL (other states imply it)
    G0,  # pass of the first token of the open span
    ORDER,  # running order: admissions of a rank, counted
    QNEXT,  # running list, waiting list, inbox, rejected list: a request is in one of them at a time
    QPREV,
    CNEXT,  # calendar bucket of its last token
    CPREV,
    GNEXT,  # growth bucket
    GPREV,
    NNEXT,  # requests that start a span in the same pass
    ANEXT,  # requests admitted by the same choice
    SHARED,  # leading blocks that some other request has too: they are individual nodes
    CLOSED,  # of these, how many are in its lease as hashed nodes
    RUN_START,  # first private block of the current run: blocks taken since the admission
    SEGMENTS,  # private segments taken back from the cache at the admission, last one first
    EXTENTS,  # its own private blocks that are cached and unreferenced
    N_PREEMPTED,
    N_ADMITTED,
    N_SPANS,
    PREV_PASS,  # last pass of the span before, -1 none
    CACHED_NOW,  # prefix tokens of the latest admission
    CACHED_FIRST,
    CACHED_MAX,
    MARK,  # number of the literal choice that scheduled it
    GATE,  # first pass that may admit it (profile parity, asynchronous)
    STATUS,
    REASON,
) = range(32)
Q_WIDTH = 32

# Values of STATE.
WAITING = 0  # placed; also preempted
PREFILL = 1  # running, sequence not yet computed to its end
DECODE = 2  # running, one token per pass; implied by G0: in the calendar and the growth wheel
PAUSED = 3  # running, ready to decode, but left out of the last pass
LAST = 4  # running, its last token is in flight
WAITING_LAST = 5  # preempted while its last token was in flight
DONE = 6
TRANSFERRED = 7  # waiting on a decode worker, its prompt's KV present

# Roles of a worker's pool.
AGGREGATED, PREFILLS, DECODES = range(3)

# ---------------------------------------------------------------- request times: State.t, int64 (n, T_WIDTH)
ARRIVAL, ADMITTED, FIRST_TOKEN, LAST_TOKEN, END = range(5)
T_WIDTH = 5

# ---------------------------------------------------------------- ranks: State.r, int64 (ranks, R_WIDTH)
(
    NEXT_PASS,
    DELIVERED,  # last pass whose results are applied
    N_DECODE,  # B: requests in DECODE
    KV_BASE,  # sum over them of (tokens at span start - G0): context in pass g = KV_BASE + B * g
    RUN_HEAD,
    RUN_TAIL,
    RUN_N,
    WAIT_HEAD,
    WAIT_TAIL,
    WAIT_N,  # preempted ones included
    PREEMPTED_N,
    INBOX_HEAD,
    INBOX_TAIL,
    FREE,
    INACTIVE,
    ORDERS,
    N_PREFILL,  # running requests in PREFILL
    PREFILL_AT,  # one of them
    N_PAUSED,
    SATURATED,  # the last unthrottled choice left requests waiting
    CARRIED,  # preemptions of empty choices since the last pass
    BARREN,  # preempting choices since the last token
    QUEUE_HEAD,  # slot of the oldest committed batch
    QUEUE_N,
    ENDED,  # a request ended since the last choice
    CHOICES,
    ACTING,  # takes part in the group pass
    ADMISSIONS,
    PROMISED,  # blocks that running requests will still take until their end, where they are promised them
    WANTED_N,  # reservations that handoffs wait for (decode pools)
) = range(30)
R_WIDTH = 32

# ---------------------------------------------------------------- workers: State.w, int64 (workers, W_WIDTH)
GROUP_END, WAVE, GROUP_PASSES, DIRTY, NEXT_RANK = range(5)
W_WIDTH = 8

# ---------------------------------------------------------------- globals: State.g, int64 (G_WIDTH,)
(
    NOW,
    NEXT_FIRST,  # position in Inputs.firsts
    IN_FLIGHT,
    NEXT_WORKER,
    N_TURNS,
    N_DIRTY,
    N_HEAP,
    N_DONE,
    NODE_BUMP,  # nodes never used yet start here
    NODE_FREE,  # recycled nodes
    N_PASSES,
    N_SPANS_LOG,
    N_ADMISSIONS_LOG,
    N_CHUNKS_LOG,
    N_PRESSURE_LOG,
    PEAK_ACTIVE,
    STARTING,  # passes of this instant have ended, its starts are not all made
    N_STARTED,  # of the dirty workers
    BLAME_RANK,
    BLAME_REQUEST,
    TOTAL_PASSES,
    LAST_EVENT,
    N_SENT,
    N_ON_THE_WAY,  # sent, not yet in the engine
) = range(24)
G_WIDTH = 24

# ---------------------------------------------------------------- cached blocks: State.nd, int32 (nodes, N_WIDTH)
(
    LNEXT,  # least recently released first; the first `ranks` nodes are the lists' sentinels
    LPREV,
    HASH,  # identity of a shared block; -1: a run of private blocks
    USERS,  # requests that hold a shared block
    OWNER,  # request of a private run; -1: nobody will ask for it again
    FIRST,  # first block of the run, within its request
    COUNT,
    RUN,  # preemptions of its owner before the run was computed: lower is older
    SNEXT,  # copies of one identity, oldest first; or runs of one request
    SPREV,
) = range(10)
N_WIDTH = 10

# ---------------------------------------------------------------- committed batches: State.b, int64 (ranks, 2, B_WIDTH)
(
    B_PASS,
    B_CHOSEN,
    B_START,
    B_PREFILL_NS,
    B_DECODE_NS,
    B_NP,
    B_TP,
    B_KVP,
    B_B,
    B_KV,
    B_TOKENS,
    B_CHUNK,
    B_MADE,
    B_CONTINUING,
    B_ADMITTED,
    B_PREEMPTED,
    B_RUNNING,
    B_WAITING,
    B_WAITING_PREEMPTED,
    B_ACTIVE,
    B_CACHED,
    B_FREE,
    B_PREFILL_CELL,
    B_DECODE_CELL,
    B_NEW_HEAD,
    B_NEW_TAIL,
    B_ADM_HEAD,
    B_ADM_TAIL,
    B_REJ_HEAD,
    B_REJ_TAIL,
    B_HAS_ITEMS,
    B_OWN_PREEMPTED,
) = range(32)
B_WIDTH = 32

# ---------------------------------------------------------------- scratch of one choice: State.s, int64 (cap, S_WIDTH)
S_REQUEST, S_TOKENS, S_BEFORE, S_KIND, S_CACHED, S_LIVE = range(6)
S_WIDTH = 6

# ---------------------------------------------------------------- sessions and plays
# Inputs.member: where the waits for a request start in Inputs.follow, who opens its session, its earliest arrival
# after that one's.
M_FOLLOW, M_OPENER, M_NOT_BEFORE = range(3)
M_WIDTH = 3
F_WHO, F_DELAY, F_ON_DISPATCH = range(3)
F_WIDTH = 3
# State.pending: latest of what has been waited for so far, events still waited for; of an opener, requests of its
# session that have not ended.
P_READY, P_WAITS, P_LEFT = range(3)
P_WIDTH = 3

# ---------------------------------------------------------------- a router's view of ranks: Router.books, int64
# Group passes that ended; tokens it saw uncached of prompts without a token yet; blocks and requests not ended.
EPOCH, BOOK_UNCACHED, BOOK_BLOCKS, BOOK_REQUESTS = range(4)
BOOK_WIDTH = 4

# What a kernel call returns.
FINISHED, DRAIN, STOPPED_AT_CAP, DEADLOCK, LIVELOCK, BAD_PRICE, PAUSE = range(7)


class Config(NamedTuple):
    """Constants of a replay; all int64."""

    n: int
    vllm: int
    trtllm: int
    promises: int  # [trtllm] requests are admitted only with blocks for their whole output
    depth: int  # batches in flight: 1 synchronous, 2 asynchronous
    gated: int
    reads_ties: int
    workers: int
    dp: int
    bs: int
    blocks: int
    seqs: int
    budget: int
    limit: int  # max_model_len, 0 none
    caching: int
    chunked: int
    fifo: int
    interval: int
    spare: int  # watermark, blocks
    reserve_full: int
    stop: int
    mask: int  # calendar buckets - 1
    concurrency: int  # 0: open load
    sessions: int
    plays: int  # some may wait for another's arrival
    sends: int  # requests sent in all, -1 no limit
    pinned: int
    front: int = 0  # requests take a way to the engine
    client: int = 0  # of it, ns per open request; 0 in a closed loop
    reply: int = 0  # ns from the engine to the client
    role: int = AGGREGATED
    keeps_local: int = 0  # [decode pools] computes prompts of its own, too


class Inputs(NamedTuple):
    """Read-only columns."""

    arrival: np.ndarray  # int64 (n,)
    firsts: np.ndarray  # int32: requests that open a session or play, or stand alone, in source order
    member: np.ndarray  # int64 (n + 1, M_WIDTH), or no rows without sessions
    follow: np.ndarray  # int64 (waits, F_WIDTH): who waits for a request, those of one request together (sim.plays)
    pinned: np.ndarray  # int32 (n,) or empty
    chain_at: np.ndarray  # int64 (n + 1,) or (1,): where a request's shared identities start
    chain: np.ndarray  # int32: identities of shared leading blocks
    inbound: np.ndarray  # int64 (n,), ns from the client to the engine; empty without a front end


class Router(NamedTuple):
    """What a KV-aware router knows (`sim.routing`)."""

    by_cost: int  # 0: requests take turns, and only what ranks hold is looked at
    scale: float
    credit: float
    books: np.ndarray  # int64 (ranks, BOOK_WIDTH)
    uncached: np.ndarray  # int64 (n,): tokens of a request in BOOK_UNCACHED; -1 not placed, or ended
    users: np.ndarray  # int32 (ranks, identities): requests not ended whose prompt holds a shared block
    changed: np.ndarray  # int32 (ranks, identities, 2): epoch of the last change, whether a copy was there before it


class State(NamedTuple):
    """Everything that changes."""

    q: np.ndarray
    t: np.ndarray
    r: np.ndarray
    w: np.ndarray
    g: np.ndarray
    nd: np.ndarray
    b: np.ndarray
    s: np.ndarray
    calendar: np.ndarray  # int32 (ranks, buckets, 2): head, tail
    growth: np.ndarray  # int32 (ranks, bs, 4): head, tail, count, sharers
    copies: np.ndarray  # int32 (ranks, identities, 2): oldest, newest
    lease: np.ndarray  # int32, parallel to Inputs.chain: node held for each shared block
    heap: np.ndarray  # int64 (workers, 2): group end, worker
    turns: np.ndarray  # int64 (n or 1, 2): ready, opener << 32 | request
    pending: np.ndarray  # int64 (n, P_WIDTH), or no rows without sessions
    dirty: np.ndarray  # int32 (workers,): workers that may start something now, in order
    passes: np.ndarray  # logs, int64 (columns, capacity)
    spans: np.ndarray
    admissions: np.ndarray
    chunks: np.ndarray
    pressure: np.ndarray
    sent: np.ndarray  # int64 (n,): when the client sent it, -1 not yet; empty without a front end
    on_the_way: np.ndarray  # int64 (n, 2): arrival in the engine, request; empty without a front end
    route: Router | None = None  # None: requests take turns, and what is said of routers is not even compiled
