"""Intrusive lists over requests: running order, waiting queue, calendar and growth wheel."""

from __future__ import annotations

from sim.jit import inlined, kernel
from sim.state import (
    CNEXT,
    CPREV,
    G0,
    GNEXT,
    GPREV,
    KV_BASE,
    N_DECODE,
    ORDER,
    OUTPUT,
    PREEMPTED_N,
    PROMPT,
    QNEXT,
    QPREV,
    RECEIVED,
    RUN_HEAD,
    RUN_N,
    RUN_TAIL,
    SHARED,
    WAIT_HEAD,
    WAIT_N,
    WAIT_TAIL,
)


@kernel
def push_running(st, k, r):
    q, rank = st.q, st.r
    tail = rank[k, RUN_TAIL]
    q[r, QPREV] = tail
    q[r, QNEXT] = -1
    if tail >= 0:
        q[tail, QNEXT] = r
    else:
        rank[k, RUN_HEAD] = r
    rank[k, RUN_TAIL] = r
    rank[k, RUN_N] += 1


@kernel
def drop_running(st, k, r):
    q, rank = st.q, st.r
    before, after = q[r, QPREV], q[r, QNEXT]
    if before >= 0:
        q[before, QNEXT] = after
    else:
        rank[k, RUN_HEAD] = after
    if after >= 0:
        q[after, QPREV] = before
    else:
        rank[k, RUN_TAIL] = before
    rank[k, RUN_N] -= 1


@kernel
def push_waiting(st, k, r):
    """An arrival joins the end."""
    q, rank = st.q, st.r
    tail = rank[k, WAIT_TAIL]
    q[r, QPREV] = tail
    q[r, QNEXT] = -1
    if tail >= 0:
        q[tail, QNEXT] = r
    else:
        rank[k, WAIT_HEAD] = r
    rank[k, WAIT_TAIL] = r
    rank[k, WAIT_N] += 1


@kernel
def push_front(st, k, r):
    """A preempted request goes to the front (4.4)."""
    q, rank = st.q, st.r
    head = rank[k, WAIT_HEAD]
    q[r, QPREV] = -1
    q[r, QNEXT] = head
    if head >= 0:
        q[head, QPREV] = r
    else:
        rank[k, WAIT_TAIL] = r
    rank[k, WAIT_HEAD] = r
    rank[k, WAIT_N] += 1
    rank[k, PREEMPTED_N] += 1


@kernel
def drop_waiting(st, k, r, was_preempted):
    q, rank = st.q, st.r
    before, after = q[r, QPREV], q[r, QNEXT]
    if before >= 0:
        q[before, QNEXT] = after
    else:
        rank[k, WAIT_HEAD] = after
    if after >= 0:
        q[after, QPREV] = before
    else:
        rank[k, WAIT_TAIL] = before
    rank[k, WAIT_N] -= 1
    if was_preempted:
        rank[k, PREEMPTED_N] -= 1


@inlined
def last_pass(st, r):
    """Pass of the last token of a request whose span is open."""
    return st.q[r, G0] + max(st.q[r, OUTPUT] - st.q[r, RECEIVED], 1) - 1


@kernel
def enter_calendar(cfg, st, k, r):
    """Into the bucket of its last token, in running order: the order in which requests end decides the eviction
    order."""
    q = st.q
    c = last_pass(st, r) & cfg.mask
    before, after = st.calendar[k, c, 1], -1
    # Requests begin to decode in running order, so this loop runs only after somebody sat a pass out.
    while before >= 0 and q[before, ORDER] > q[r, ORDER]:
        after, before = before, q[before, CPREV]
    q[r, CPREV] = before
    q[r, CNEXT] = after
    if before >= 0:
        q[before, CNEXT] = r
    else:
        st.calendar[k, c, 0] = r
    if after >= 0:
        q[after, CPREV] = r
    else:
        st.calendar[k, c, 1] = r


@kernel
def leave_calendar(cfg, st, k, r):
    q = st.q
    c = last_pass(st, r) & cfg.mask
    before, after = q[r, CPREV], q[r, CNEXT]
    if before >= 0:
        q[before, CNEXT] = after
    else:
        st.calendar[k, c, 0] = after
    if after >= 0:
        q[after, CPREV] = before
    else:
        st.calendar[k, c, 1] = before


@inlined
def _residue(cfg, st, r):
    """Passes in which r takes a block: those that find its computed tokens at a block boundary."""
    q = st.q
    return (q[r, G0] + 1 - (q[r, PROMPT] + q[r, RECEIVED])) % cfg.bs


@kernel
def enter_decode(cfg, st, k, r):
    """Count r among the requests that make one token in every pass from now on."""
    q, growth = st.q, st.growth
    res = _residue(cfg, st, r)
    before, after = growth[k, res, 1], -1
    while before >= 0 and q[before, ORDER] > q[r, ORDER]:
        after, before = before, q[before, GPREV]
    q[r, GPREV] = before
    q[r, GNEXT] = after
    if before >= 0:
        q[before, GNEXT] = r
    else:
        growth[k, res, 0] = r
    if after >= 0:
        q[after, GPREV] = r
    else:
        growth[k, res, 1] = r
    growth[k, res, 2] += 1
    if q[r, SHARED] * cfg.bs > q[r, PROMPT]:
        growth[k, res, 3] += 1
    st.r[k, N_DECODE] += 1
    st.r[k, KV_BASE] += q[r, PROMPT] + q[r, RECEIVED] - q[r, G0]


@kernel
def leave_decode(cfg, st, k, r):
    q, growth = st.q, st.growth
    res = _residue(cfg, st, r)
    before, after = q[r, GPREV], q[r, GNEXT]
    if before >= 0:
        q[before, GNEXT] = after
    else:
        growth[k, res, 0] = after
    if after >= 0:
        q[after, GPREV] = before
    else:
        growth[k, res, 1] = before
    growth[k, res, 2] -= 1
    if q[r, SHARED] * cfg.bs > q[r, PROMPT]:
        growth[k, res, 3] -= 1
    st.r[k, N_DECODE] -= 1
    st.r[k, KV_BASE] -= q[r, PROMPT] + q[r, RECEIVED] - q[r, G0]
