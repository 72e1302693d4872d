"""Blocks of requests whose computed tokens do not follow from the pass number: counted one by one."""

from __future__ import annotations

import sim.speculation.columns as D
import sim.state as S
from sim.items import cdiv
from sim.jit import inlined, kernel
from sim.kv.pool import close_shared, release, take
from sim.queues import drop_running


@inlined
def blocks_for(cfg, dr, computed):
    """Blocks held while `computed` tokens are computed; a drafter with a model of its own wants slots ahead (8.3)."""
    return cdiv(min(computed + dr.lookahead, max(dr.longest, computed)), cfg.bs)


@inlined
def give(cfg, st, dr, k, r, count):
    """Hand `count` blocks to a running request; they must be available."""
    take(st, k, count)
    dr.d[st.q[r, D.SLOT], D.BLOCKS] += count
    if cfg.promises:
        st.r[k, S.PROMISED] -= count


@inlined
def hash_upto(cfg, inp, st, dr, r, tokens):
    """Hash the full blocks among the leading `tokens` of r (5.6)."""
    blocks = tokens // cfg.bs
    if cfg.caching and blocks > dr.d[st.q[r, D.SLOT], D.HASHED]:
        if st.q[r, S.CLOSED] < st.q[r, S.SHARED]:
            close_shared(inp, st, r, blocks)
        dr.d[st.q[r, D.SLOT], D.HASHED] = blocks


@kernel
def leave(cfg, inp, st, dr, k, r):
    """A running request has ended: its place and its blocks are free."""
    own = st.q[r, D.SLOT]
    dr.ranks[k, D.N_LEFT] += 1
    drop_running(st, k, r)
    if cfg.promises:
        st.r[k, S.PROMISED] -= cdiv(st.q[r, S.PROMPT] + st.q[r, S.OUTPUT], cfg.bs) - dr.d[own, D.BLOCKS]
    release(inp, st, r, dr.d[own, D.BLOCKS], dr.d[own, D.HASHED], True)
