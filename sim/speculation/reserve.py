"""Policy mode: blocks for all tokens that a pass may make are reserved together before it runs (8.4)."""

from __future__ import annotations

import sim.speculation.columns as D
import sim.state as S
from sim.admission import note_rejected
from sim.items import cdiv
from sim.jit import inlined, kernel
from sim.kv.pool import available, take
from sim.result import LOOKAHEAD_EXCEEDS_POOL
from sim.speculation.blocks import give, leave
from sim.speculation.plain import serve_planned
from sim.speculation.preempt import next_victim, preempt, withdraw
from sim.speculation.sampling import accepted, propose
from sim.speculation.spans import close_span, leave_slot


@inlined
def reserve(cfg, inp, st, dr, k, slot, now, n, drafting):
    """Whoever reaches the end of its sequence verifies a round in this very pass, the completing prefill included.

    Returns the items of the batch, which are more than before if plans had to be taken back.
    """
    # What a prefill worker holds is to be handed over.
    for i in range(n if cfg.role != S.PREFILLS else 0):
        r = dr.items[k, slot, i, D.I_REQUEST]
        if dr.items[k, slot, i, D.I_LIVE] and dr.items[k, slot, i, D.I_SAMPLES] and st.q[r, S.OUTPUT] == 0:
            leave(cfg, inp, st, dr, k, r)  # it has ended, and what it held serves the bursts (3.2)
    row = dr.ring[k, st.r[k, S.NEXT_PASS] & (dr.ring.shape[1] - 1)]
    planned = row[D.W_BLOCKS] & D.LOWER_BITS
    _propose(cfg, st, dr, k, slot, 0, n, drafting)
    if planned + _wanted(cfg, st, dr, k, slot, n) <= available(st, k):
        if planned > 0:
            take(st, k, planned)
        if cfg.promises:
            st.r[k, S.PROMISED] -= planned
    else:
        if dr.ranks[k, D.N_PLANNED] > 0:
            first = serve_planned(cfg, inp, st, dr, k, slot, n)
            _propose(cfg, st, dr, k, slot, 0, first, drafting)
            n += first
        _make_room(cfg, inp, st, dr, k, slot, now, n)
    q, d = st.q, dr.d
    for i in range(n):
        r = _ready(st, dr, k, slot, i)
        if r < 0:
            continue
        item = dr.items[k, slot, i]
        own = q[r, D.SLOT]
        give(cfg, st, dr, k, r, cdiv(q[r, S.PROMPT] + q[r, S.RECEIVED] + item[D.I_MOST], cfg.bs) - d[own, D.BLOCKS])
        if item[D.I_VERIFIED] > 0:
            item[D.I_ACCEPTED] = accepted(dr, r, d[own, D.ROUND], item[D.I_VERIFIED])
            d[own, D.ROUND] += 1
    return n


@inlined
def _propose(cfg, st, dr, k, slot, low, high, drafting):
    q = st.q
    for i in range(low, high):
        r = _ready(st, dr, k, slot, i)
        if r >= 0:
            item = dr.items[k, slot, i]
            item[D.I_VERIFIED] = propose(st, dr, r) if drafting else 0
            item[D.I_MOST] = min(1 + item[D.I_VERIFIED], q[r, S.OUTPUT] - q[r, S.RECEIVED])


@inlined
def _wanted(cfg, st, dr, k, slot, n):
    """Blocks that the items of a batch reserve."""
    q, wanted = st.q, 0
    for i in range(n):
        r = _ready(st, dr, k, slot, i)
        if r >= 0:
            most = q[r, S.PROMPT] + q[r, S.RECEIVED] + dr.items[k, slot, i, D.I_MOST]
            wanted += cdiv(most, cfg.bs) - dr.d[q[r, D.SLOT], D.BLOCKS]
    return wanted


@kernel
def _make_room(cfg, inp, st, dr, k, slot, now, n):
    """While the blocks of all do not fit, the next victim leaves, and what remains is asked again."""
    q = st.q
    while _wanted(cfg, st, dr, k, slot, n) > available(st, k):
        asker, never = -1, -1
        for i in range(n):
            r = _ready(st, dr, k, slot, i)
            if r >= 0:
                most = cdiv(q[r, S.PROMPT] + q[r, S.RECEIVED] + dr.items[k, slot, i, D.I_MOST], cfg.bs)
                asker = r if asker < 0 else asker
                never = r if never < 0 and most > cfg.blocks else never
        if never >= 0:
            _refuse(cfg, inp, st, dr, k, slot, never)
            continue
        victim = next_victim(cfg, st, k)
        withdraw(st, dr, k, slot, victim)
        preempt(cfg, inp, st, dr, k, slot, now, victim, asker, 1)


@inlined
def _ready(st, dr, k, slot, i):
    """Request of item i if it is to make tokens in this pass, or -1."""
    item = dr.items[k, slot, i]
    ready = item[D.I_LIVE] and item[D.I_SAMPLES] and st.q[item[D.I_REQUEST], S.OUTPUT] > 0
    return item[D.I_REQUEST] if ready else -1


@kernel
def _refuse(cfg, inp, st, dr, k, slot, r):
    """What its round may make would not fit into an empty pool."""
    close_span(st, dr, r)
    withdraw(st, dr, k, slot, r)
    leave(cfg, inp, st, dr, k, r)
    leave_slot(st, dr, k, r)
    note_rejected(st, k, slot, r, LOOKAHEAD_EXCEEDS_POOL)
