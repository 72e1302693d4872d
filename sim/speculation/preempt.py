"""A running request gives up its blocks, or its place in a batch that is already chosen (4.4, 8.4)."""

from __future__ import annotations

import sim.speculation.columns as D
import sim.state as S
from sim.jit import inlined, kernel
from sim.kv.pool import available, release
from sim.queues import drop_running, push_front
from sim.result import KIND_RUNNING


@inlined
def next_victim(cfg, st, k):
    """Who gives way next."""
    return st.r[k, S.RUN_HEAD] if cfg.fifo else st.r[k, S.RUN_TAIL]


@kernel
def preempt(cfg, inp, st, dr, k, slot, now, victim, asker, reserving):
    """Take `victim` off rank k; tokens in flight will still be delivered."""
    q, d, rank, own = st.q, dr.d, st.r, st.q[victim, D.SLOT]
    held = d[own, D.BLOCKS]
    drop_running(st, k, victim)
    release(inp, st, victim, held, d[own, D.HASHED], False)
    row, log = st.g[S.N_PRESSURE_LOG], st.pressure
    log[6, row] = q[victim, S.COMPUTED]
    q[victim, S.STATE] = S.WAITING
    q[victim, S.COMPUTED] = 0
    q[victim, S.GATE] = 0
    q[victim, S.N_PREEMPTED] += 1
    d[own, D.BLOCKS] = 0
    d[own, D.HASHED] = 0
    d[own, D.OWED] = 0
    d[own, D.READY] = 0
    d[own, D.PREFILLING] = 1
    d[own, D.EPOCH] += 1
    d[own, D.STRETCH] += 1
    d[own, D.MARK] = 0
    push_front(st, k, victim)
    st.b[k, slot, S.B_OWN_PREEMPTED] += 1
    log[0, row] = victim
    log[1, row] = k
    log[2, row] = rank[k, S.NEXT_PASS]
    log[3, row] = now
    log[4, row] = asker
    log[5, row] = held
    log[7, row] = rank[k, S.RUN_N]
    log[8, row] = rank[k, S.WAIT_N]
    log[9, row] = cfg.blocks - available(st, k)
    log[D.PRESSURE_RESERVING, row] = reserving
    st.g[S.N_PRESSURE_LOG] = row + 1


@kernel
def take_back(st, dr, k, slot, victim):
    """A victim loses what this choice gave it. Returns those tokens. If it was admitted just now, that stands."""
    own = st.q[victim, D.SLOT]
    if dr.d[own, D.MARK] != st.r[k, S.CHOICES]:
        return 0
    item = dr.items[k, slot, dr.d[own, D.ITEM]]
    given = item[D.I_TOKENS]
    if item[D.I_CACHED] >= 0:
        item[D.I_TOKENS] = 0
        item[D.I_SAMPLES] = 0
    else:
        item[D.I_LIVE] = 0
    return given


@kernel
def withdraw(st, dr, k, slot, r):
    """r leaves a batch that is already chosen: its decode never happens, its prefill is done and paid (8.4)."""
    own = st.q[r, D.SLOT]
    if dr.d[own, D.MARK] != st.r[k, S.CHOICES]:
        return
    item = dr.items[k, slot, dr.d[own, D.ITEM]]
    part = min(max(0, st.q[r, S.PROMPT] - item[D.I_BEFORE]), item[D.I_TOKENS])
    plain = item[D.I_KIND] == KIND_RUNNING and part == 0 and item[D.I_SAMPLES] == 1
    if plain and item[D.I_TOKENS] == 1 + item[D.I_DRAFTS]:
        item[D.I_LIVE] = 0
    item[D.I_SAMPLES] = 0
