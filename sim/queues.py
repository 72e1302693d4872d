"""Intrusive lists over requests: running order, waiting queue, calendar and growth wheel."""

from __future__ import annotations

import sim.state as S
from sim.jit import inlined, kernel


@kernel
def push_running(st, k, r):
    q, rank = st.q, st.r
    tail = rank[k, S.RUN_TAIL]
    q[r, S.QPREV] = tail
    q[r, S.QNEXT] = -1
    if tail >= 0:
        q[tail, S.QNEXT] = r
    else:
        rank[k, S.RUN_HEAD] = r
    rank[k, S.RUN_TAIL] = r
    rank[k, S.RUN_N] += 1


@kernel
def drop_running(st, k, r):
    q, rank = st.q, st.r
    before, after = q[r, S.QPREV], q[r, S.QNEXT]
    if before >= 0:
        q[before, S.QNEXT] = after
    else:
        rank[k, S.RUN_HEAD] = after
    if after >= 0:
        q[after, S.QPREV] = before
    else:
        rank[k, S.RUN_TAIL] = before
    rank[k, S.RUN_N] -= 1


@kernel
def push_waiting(st, k, r):
    """An arrival joins the end."""
    q, rank = st.q, st.r
    tail = rank[k, S.WAIT_TAIL]
    q[r, S.QPREV] = tail
    q[r, S.QNEXT] = -1
    if tail >= 0:
        q[tail, S.QNEXT] = r
    else:
        rank[k, S.WAIT_HEAD] = r
    rank[k, S.WAIT_TAIL] = r
    rank[k, S.WAIT_N] += 1


@kernel
def push_front(st, k, r):
    """A preempted request goes to the front (4.4)."""
    q, rank = st.q, st.r
    head = rank[k, S.WAIT_HEAD]
    q[r, S.QPREV] = -1
    q[r, S.QNEXT] = head
    if head >= 0:
        q[head, S.QPREV] = r
    else:
        rank[k, S.WAIT_TAIL] = r
    rank[k, S.WAIT_HEAD] = r
    rank[k, S.WAIT_N] += 1
    rank[k, S.PREEMPTED_N] += 1


@kernel
def drop_waiting(st, k, r, was_preempted):
    q, rank = st.q, st.r
    before, after = q[r, S.QPREV], q[r, S.QNEXT]
    if before >= 0:
        q[before, S.QNEXT] = after
    else:
        rank[k, S.WAIT_HEAD] = after
    if after >= 0:
        q[after, S.QPREV] = before
    else:
        rank[k, S.WAIT_TAIL] = before
    rank[k, S.WAIT_N] -= 1
    if was_preempted:
        rank[k, S.PREEMPTED_N] -= 1


@inlined
def last_pass(st, r):
    """Pass of the last token of a request whose span is open."""
    return st.q[r, S.G0] + max(st.q[r, S.OUTPUT] - st.q[r, S.RECEIVED], 1) - 1


@kernel
def enter_calendar(cfg, st, k, r):
    """Into the bucket of its last token, in running order: the order in which requests end decides the eviction
    order."""
    q = st.q
    c = last_pass(st, r) & cfg.mask
    before, after = st.calendar[k, c, 1], -1
    # Requests begin to decode in running order, so this loop runs only after somebody sat a pass out.
    while before >= 0 and q[before, S.ORDER] > q[r, S.ORDER]:
        after, before = before, q[before, S.CPREV]
    q[r, S.CPREV] = before
    q[r, S.CNEXT] = after
    if before >= 0:
        q[before, S.CNEXT] = r
    else:
        st.calendar[k, c, 0] = r
    if after >= 0:
        q[after, S.CPREV] = r
    else:
        st.calendar[k, c, 1] = r


@kernel
def leave_calendar(cfg, st, k, r):
    q = st.q
    c = last_pass(st, r) & cfg.mask
    before, after = q[r, S.CPREV], q[r, S.CNEXT]
    if before >= 0:
        q[before, S.CNEXT] = after
    else:
        st.calendar[k, c, 0] = after
    if after >= 0:
        q[after, S.CPREV] = before
    else:
        st.calendar[k, c, 1] = before


@inlined
def _residue(cfg, st, r):
    """Passes in which r takes a block: those that find its computed tokens at a block boundary."""
    q = st.q
    return (q[r, S.G0] + 1 - (q[r, S.PROMPT] + q[r, S.RECEIVED])) % cfg.bs


@kernel
def enter_decode(cfg, st, k, r):
    """Count r among the requests that make one token in every pass from now on."""
    q, growth = st.q, st.growth
    res = _residue(cfg, st, r)
    before, after = growth[k, res, 1], -1
    while before >= 0 and q[before, S.ORDER] > q[r, S.ORDER]:
        after, before = before, q[before, S.GPREV]
    q[r, S.GPREV] = before
    q[r, S.GNEXT] = after
    if before >= 0:
        q[before, S.GNEXT] = r
    else:
        growth[k, res, 0] = r
    if after >= 0:
        q[after, S.GPREV] = r
    else:
        growth[k, res, 1] = r
    growth[k, res, 2] += 1
    if q[r, S.SHARED] * cfg.bs > q[r, S.PROMPT]:
        growth[k, res, 3] += 1
    st.r[k, S.N_DECODE] += 1
    st.r[k, S.KV_BASE] += q[r, S.PROMPT] + q[r, S.RECEIVED] - q[r, S.G0]


@kernel
def leave_decode(cfg, st, k, r):
    q, growth = st.q, st.growth
    res = _residue(cfg, st, r)
    before, after = q[r, S.GPREV], q[r, S.GNEXT]
    if before >= 0:
        q[before, S.GNEXT] = after
    else:
        growth[k, res, 0] = after
    if after >= 0:
        q[after, S.GPREV] = before
    else:
        growth[k, res, 1] = before
    growth[k, res, 2] -= 1
    if q[r, S.SHARED] * cfg.bs > q[r, S.PROMPT]:
        growth[k, res, 3] -= 1
    st.r[k, S.N_DECODE] -= 1
    st.r[k, S.KV_BASE] -= q[r, S.PROMPT] + q[r, S.RECEIVED] - q[r, S.G0]
