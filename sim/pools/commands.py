"""What workers are told between passes (PD-5)."""

from __future__ import annotations

import sim.pools.state as P
import sim.state as S
from sim.jit import inlined, kernel
from sim.queues import append


@kernel
def command(st, po, worker, i, link):
    """Handoff i joins the worker's commands."""
    append(po.h, link, po.w[worker], P.COMMAND_HEAD, P.COMMAND_TAIL, i)
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
