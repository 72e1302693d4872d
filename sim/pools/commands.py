"""What workers are told between passes (PD-5), and requests that end without having been served."""

from __future__ import annotations

import sim.pools.state as P
import sim.state as S
from sim.jit import inlined, kernel
from sim.source import request_ended


@kernel
def end_request(cfg, inp, st, i, status, reason, now):
    """Request i ends without having been served."""
    q = st.q
    q[i, S.STATE], q[i, S.STATUS], q[i, S.REASON] = S.DONE, status, reason
    st.t[i, S.END] = now
    st.g[S.N_DONE] += 1
    request_ended(cfg, inp, st, i, now)


@kernel
def command(st, po, worker, i, link):
    """Handoff i joins the worker's commands."""
    w, tail = po.w, po.w[worker, P.COMMAND_TAIL]
    po.h[i, link] = -1
    if tail >= 0:
        po.h[tail, link] = i
    else:
        w[worker, P.COMMAND_HEAD] = i
    w[worker, P.COMMAND_TAIL] = i
    if st.w[worker, S.GROUP_END] < 0:
        listen(po, worker)


@inlined
def listen(po, worker):
    """An idle worker is to obey one of its commands."""
    po.obey[po.g[P.N_OBEY]] = worker
    po.g[P.N_OBEY] += 1


@inlined
def next_command(po, worker, link):
    w = po.w
    i = w[worker, P.COMMAND_HEAD]
    if i >= 0:
        w[worker, P.COMMAND_HEAD] = po.h[i, link]
        if po.h[i, link] < 0:
            w[worker, P.COMMAND_TAIL] = -1
    return i
