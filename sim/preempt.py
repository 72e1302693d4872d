"""Preemption: a running request gives up its blocks and goes back to the front of the queue (4.4)."""

from __future__ import annotations

import sim.state as S
from sim.jit import kernel
from sim.kv.pool import available, release
from sim.queues import drop_running, last_pass, leave_calendar, leave_decode, push_front
from sim.spans import close_span


@kernel
def computed_now(st, k, r):
    """Tokens of r whose KV is written, or will be by passes already chosen."""
    q, state = st.q, st.q[r, S.STATE]
    if state == S.DECODE:
        return q[r, S.PROMPT] + q[r, S.RECEIVED] + st.r[k, S.NEXT_PASS] - 1 - q[r, S.G0]
    if state == S.PREFILL:
        return q[r, S.COMPUTED]
    if state == S.LAST:
        return q[r, S.PROMPT] + q[r, S.RECEIVED] + last_pass(st, r) - q[r, S.G0]
    return q[r, S.PROMPT] + q[r, S.RECEIVED] - 1  # PAUSED


@kernel
def hashed_tokens(cfg, st, k, r, computed):
    """Leading tokens of r that full blocks may be hashed over: of a token still in flight nobody knows the value."""
    q, state = st.q, st.q[r, S.STATE]
    if not cfg.caching:
        return 0
    if state in (S.DECODE, S.LAST):
        newest = last_pass(st, r) if state == S.LAST else st.r[k, S.NEXT_PASS] - 1
        if newest > st.r[k, S.DELIVERED]:
            return max(q[r, S.PROMPT] + q[r, S.RECEIVED], computed - 1)
    return computed


@kernel
def preempt(cfg, inp, st, k, slot, now, victim, asker, extra):
    """Take `victim` off rank k. `extra`: tokens this very choice had already given it and not yet counted."""
    q, rank = st.q, st.r
    state = q[victim, S.STATE]
    computed = computed_now(st, k, victim) + extra
    closed = hashed_tokens(cfg, st, k, victim, computed) // cfg.bs
    held = (computed + cfg.bs - 1) // cfg.bs
    drop_running(st, k, victim)
    if state == S.DECODE:
        leave_decode(cfg, st, k, victim)
        leave_calendar(cfg, st, k, victim)
        close_span(st, victim, rank[k, S.NEXT_PASS] - q[victim, S.G0])
    elif state == S.PREFILL:
        rank[k, S.N_PREFILL] -= 1
    elif state == S.PAUSED:
        rank[k, S.N_PAUSED] -= 1
    elif cfg.role == S.PREFILLS:
        # LAST: what its pass computed can no longer be handed over, so it is computed again.
        leave_calendar(cfg, st, k, victim)
        state = S.WAITING
    elif q[victim, S.OUTPUT] > 0:
        # LAST: it stays in the calendar, where the delivery of its last token finds it.
        close_span(st, victim, q[victim, S.OUTPUT] - q[victim, S.RECEIVED])
    release(inp, st, victim, held, closed, False)
    q[victim, S.STATE] = S.WAITING_LAST if state == S.LAST else S.WAITING
    q[victim, S.COMPUTED] = 0
    q[victim, S.N_PREEMPTED] += 1
    push_front(st, k, victim)
    st.b[k, slot, S.B_OWN_PREEMPTED] += 1
    row, log = st.g[S.N_PRESSURE_LOG], st.pressure
    log[0, row] = victim
    log[1, row] = k
    log[2, row] = rank[k, S.NEXT_PASS]
    log[3, row] = now
    log[4, row] = asker
    log[5, row] = held
    log[6, row] = computed
    log[7, row] = rank[k, S.RUN_N]
    log[8, row] = rank[k, S.WAIT_N]
    log[9, row] = cfg.blocks - available(st, k)
    st.g[S.N_PRESSURE_LOG] = row + 1
