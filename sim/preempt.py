"""Preemption: a running request gives up its blocks and goes back to the front of the queue (4.4)."""

from __future__ import annotations

from sim.jit import kernel
from sim.kv.pool import available, release
from sim.queues import drop_running, last_pass, leave_calendar, leave_decode, push_front
from sim.spans import close_span
from sim.state import (
    B_OWN_PREEMPTED,
    COMPUTED,
    DECODE,
    DELIVERED,
    G0,
    LAST,
    N_PAUSED,
    N_PREEMPTED,
    N_PREFILL,
    N_PRESSURE_LOG,
    NEXT_PASS,
    OUTPUT,
    PAUSED,
    PREFILL,
    PROMPT,
    RECEIVED,
    RUN_N,
    STATE,
    WAIT_N,
    WAITING,
    WAITING_LAST,
)


@kernel
def computed_now(st, k, r):
    """Tokens of r whose KV is written, or will be by passes already chosen."""
    q, state = st.q, st.q[r, STATE]
    if state == DECODE:
        return q[r, PROMPT] + q[r, RECEIVED] + st.r[k, NEXT_PASS] - 1 - q[r, G0]
    if state == PREFILL:
        return q[r, COMPUTED]
    if state == LAST:
        return q[r, PROMPT] + q[r, RECEIVED] + last_pass(st, r) - q[r, G0]
    return q[r, PROMPT] + q[r, RECEIVED] - 1  # PAUSED


@kernel
def hashed_tokens(cfg, st, k, r, computed):
    """Leading tokens of r that full blocks may be hashed over: of a token still in flight nobody knows the value."""
    q, state = st.q, st.q[r, STATE]
    if not cfg.caching:
        return 0
    if state in (DECODE, LAST):
        newest = last_pass(st, r) if state == LAST else st.r[k, NEXT_PASS] - 1
        if newest > st.r[k, DELIVERED]:
            return max(q[r, PROMPT] + q[r, RECEIVED], computed - 1)
    return computed


@kernel
def preempt(cfg, inp, st, k, slot, now, victim, asker, extra):
    """Take `victim` off rank k. `extra`: tokens this very choice had already given it and not yet counted."""
    q, rank = st.q, st.r
    state = q[victim, STATE]
    computed = computed_now(st, k, victim) + extra
    closed = hashed_tokens(cfg, st, k, victim, computed) // cfg.bs
    held = (computed + cfg.bs - 1) // cfg.bs
    drop_running(st, k, victim)
    if state == DECODE:
        leave_decode(cfg, st, k, victim)
        leave_calendar(cfg, st, k, victim)
        close_span(st, victim, rank[k, NEXT_PASS] - q[victim, G0])
    elif state == PREFILL:
        rank[k, N_PREFILL] -= 1
    elif state == PAUSED:
        rank[k, N_PAUSED] -= 1
    elif q[victim, OUTPUT] > 0:
        # LAST: it stays in the calendar, where the delivery of its last token finds it.
        close_span(st, victim, q[victim, OUTPUT] - q[victim, RECEIVED])
    release(inp, st, victim, held, closed, False)
    q[victim, STATE] = WAITING_LAST if state == LAST else WAITING
    q[victim, COMPUTED] = 0
    q[victim, N_PREEMPTED] += 1
    push_front(st, k, victim)
    st.b[k, slot, B_OWN_PREEMPTED] += 1
    row, log = st.g[N_PRESSURE_LOG], st.pressure
    log[0, row] = victim
    log[1, row] = k
    log[2, row] = rank[k, NEXT_PASS]
    log[3, row] = now
    log[4, row] = asker
    log[5, row] = held
    log[6, row] = computed
    log[7, row] = rank[k, RUN_N]
    log[8, row] = rank[k, WAIT_N]
    log[9, row] = cfg.blocks - available(st, k)
    st.g[N_PRESSURE_LOG] = row + 1
