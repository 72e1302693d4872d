"""Handoffs that are not activated in time (PD-15)."""

from __future__ import annotations

import sim.pools.state as P
import sim.state as S
from sim.jit import kernel
from sim.pools.commands import command
from sim.pools.handoff import try_to_reserve
from sim.pools.wire import call_off, give_up
from sim.result import CANCELED, HANDOFF_TIMEOUT
from sim.source import end_request, mark_dirty


@kernel
def _drop(st, po, i):
    """Handoff i wants no room any more."""
    k = st.q[i, S.RANK]
    before, at = -1, po.k[k, P.WANTED_HEAD]
    while at != i:
        before, at = at, po.h[at, P.NEXT_WANTED]
    after = po.h[i, P.NEXT_WANTED]
    if before >= 0:
        po.h[before, P.NEXT_WANTED] = after
    else:
        po.k[k, P.WANTED_HEAD] = after
        po.k[k, P.REFUSED_AT] = -1
    if after < 0:
        po.k[k, P.WANTED_TAIL] = before
    st.r[k, S.WANTED_N] -= 1


@kernel
def expire(cfg, inp, st, po, now):
    """Handoffs whose time is over are canceled. `cfg`: of the decode pool."""
    h, g = po.h, po.g
    i = g[P.DEADLINE_HEAD]
    while i >= 0:
        if not h[i, P.OFF] and h[i, P.ACTIVATED] < 0:
            if h[i, P.HELD] + g[P.TIMEOUT] > now:
                break
            if h[i, P.RESERVED] >= 0:
                give_up(st, po, i, now)
                call_off(cfg, inp, st, po, i, CANCELED, HANDOFF_TIMEOUT, now)
            else:
                _give_way(cfg, inp, st, po, i, now)
        i = h[i, P.NEXT_DEADLINE]
    g[P.DEADLINE_HEAD] = i
    if i < 0:
        g[P.DEADLINE_TAIL] = -1


@kernel
def _give_way(cfg, inp, st, po, i, now):
    """A handoff that has no room yet is canceled."""
    h, k = po.h, st.q[i, S.RANK]
    worker = po.worker_of[k]
    h[i, P.OFF] = 1
    end_request(cfg, inp, st, i, CANCELED, HANDOFF_TIMEOUT, now)
    command(st, po, po.worker_of[h[i, P.SOURCE]], i, P.NEXT_RELEASE)
    if h[i, P.PHASE] == P.RESERVE:
        h[i, P.PHASE] = P.DROPPED  # the worker has not been asked yet
        return
    # A worker that computes does not look at its list, so this may as well happen now.
    _drop(st, po, i)
    h[i, P.PHASE] = P.OVER
    if st.w[worker, S.GROUP_END] < 0:
        try_to_reserve(cfg, inp, st, po, k, now)
        mark_dirty(st, worker)
