"""Intrusive lists over requests: running order, waiting queue, calendar and growth wheel; lists in order of coming.

A list is two numbers, its first and its last request, kept somewhere in an array `ends`, and two link columns; a list
that grows at its end only has one link column.
"""

from __future__ import annotations

import sim.state as S
from sim.jit import inlined, kernel


@inlined
def _link(q, ends, head, tail, r, before, after, prev, next_):
    """Put r between two neighbours; -1 stands for the end of the list."""
    q[r, prev] = before
    q[r, next_] = after
    if before >= 0:
        q[before, next_] = r
    else:
        ends[head] = r
    if after >= 0:
        q[after, prev] = r
    else:
        ends[tail] = r


@inlined
def append(items, link, ends, head, tail, i):
    """Put i at the end of a list with one link column."""
    items[i, link] = -1
    last = ends[tail]
    if last >= 0:
        items[last, link] = i
    else:
        ends[head] = i
    ends[tail] = i


@inlined
def unlink(q, ends, head, tail, r, prev, next_):
    before, after = q[r, prev], q[r, next_]
    if before >= 0:
        q[before, next_] = after
    else:
        ends[head] = after
    if after >= 0:
        q[after, prev] = before
    else:
        ends[tail] = before


@inlined
def link_in_order(q, ends, r, prev, next_):
    """Put r into a bucket (ends 0 and 1) where running order wants it."""
    before, after = ends[1], -1
    # Requests begin to decode in running order, so this loop runs only after somebody sat a pass out.
    while before >= 0 and q[before, S.ORDER] > q[r, S.ORDER]:
        after, before = before, q[before, prev]
    _link(q, ends, 0, 1, r, before, after, prev, next_)


@kernel
def push_running(st, k, r):
    ends = st.r[k]
    _link(st.q, ends, S.RUN_HEAD, S.RUN_TAIL, r, ends[S.RUN_TAIL], -1, S.QPREV, S.QNEXT)
    ends[S.RUN_N] += 1


@kernel
def drop_running(st, k, r):
    ends = st.r[k]
    unlink(st.q, ends, S.RUN_HEAD, S.RUN_TAIL, r, S.QPREV, S.QNEXT)
    ends[S.RUN_N] -= 1


@kernel
def push_waiting(st, k, r):
    """An arrival joins the end."""
    ends = st.r[k]
    _link(st.q, ends, S.WAIT_HEAD, S.WAIT_TAIL, r, ends[S.WAIT_TAIL], -1, S.QPREV, S.QNEXT)
    ends[S.WAIT_N] += 1


@kernel
def insert_waiting(st, k, r, before, after):
    """Between two waiting requests; -1 stands for the end of the queue."""
    _link(st.q, st.r[k], S.WAIT_HEAD, S.WAIT_TAIL, r, before, after, S.QPREV, S.QNEXT)
    st.r[k, S.WAIT_N] += 1


@kernel
def push_front(st, k, r):
    """A preempted request goes to the front (4.4)."""
    ends = st.r[k]
    _link(st.q, ends, S.WAIT_HEAD, S.WAIT_TAIL, r, -1, ends[S.WAIT_HEAD], S.QPREV, S.QNEXT)
    ends[S.WAIT_N] += 1
    ends[S.PREEMPTED_N] += 1


@kernel
def drop_waiting(st, k, r, was_preempted):
    ends = st.r[k]
    unlink(st.q, ends, S.WAIT_HEAD, S.WAIT_TAIL, r, S.QPREV, S.QNEXT)
    ends[S.WAIT_N] -= 1
    if was_preempted:
        ends[S.PREEMPTED_N] -= 1


@inlined
def last_pass(st, r):
    """Pass of the last token of a request whose span is open."""
    return st.q[r, S.G0] + max(st.q[r, S.OUTPUT] - st.q[r, S.RECEIVED], 1) - 1


@kernel
def enter_calendar(cfg, st, k, r):
    """Into the bucket of its last token, in running order: the order in which requests end decides the eviction
    order."""
    link_in_order(st.q, st.calendar[k, last_pass(st, r) & cfg.mask], r, S.CPREV, S.CNEXT)


@kernel
def leave_calendar(cfg, st, k, r):
    unlink(st.q, st.calendar[k, last_pass(st, r) & cfg.mask], 0, 1, r, S.CPREV, S.CNEXT)


@inlined
def _residue(cfg, st, r):
    """Passes in which r takes a block: those that find its computed tokens at a block boundary."""
    q = st.q
    return (q[r, S.G0] + 1 - (q[r, S.PROMPT] + q[r, S.RECEIVED])) % cfg.bs


@inlined
def _count(cfg, st, k, r, bucket, sign):
    """Add r to, or take it from, the sums over decoding requests."""
    q = st.q
    bucket[2] += sign
    if q[r, S.SHARED] * cfg.bs > q[r, S.PROMPT]:
        bucket[3] += sign
    st.r[k, S.N_DECODE] += sign
    st.r[k, S.KV_BASE] += sign * (q[r, S.PROMPT] + q[r, S.RECEIVED] - q[r, S.G0])


@kernel
def enter_decode(cfg, st, k, r):
    """Count r among the requests that make one token in every pass from now on."""
    bucket = st.growth[k, _residue(cfg, st, r)]
    link_in_order(st.q, bucket, r, S.GPREV, S.GNEXT)
    _count(cfg, st, k, r, bucket, 1)


@kernel
def leave_decode(cfg, st, k, r):
    bucket = st.growth[k, _residue(cfg, st, r)]
    unlink(st.q, bucket, 0, 1, r, S.GPREV, S.GNEXT)
    _count(cfg, st, k, r, bucket, -1)
