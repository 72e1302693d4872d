"""One handoff after the other: held, reserved, transferred, activated, released (PD-3 to PD-16).

Workers apply commands between passes only (PD-5).
"""

from __future__ import annotations

import sim.pools.state as P
import sim.speculation.columns as D
import sim.state as S
from sim.items import cdiv
from sim.jit import inlined, kernel
from sim.kv.pool import available, close_shared, lookup, pin, release, take
from sim.pools.commands import command, listen, next_command
from sim.pools.wire import send
from sim.queues import append, insert_waiting
from sim.result import EXCEEDS_POOL, FAILED, NO_REASON, PROMPT_AT_LIMIT
from sim.routing import enter_books, least_cost
from sim.source import end_request, heap_pop, heap_push, mark_dirty
from sim.timing.compiled import nearest_ns
from sim.timing.plain import CLOCK_END_S, PAST_CLOCK_NS


@inlined
def _never_held(cfg, st, i):
    """Why no decode worker can ever take this prompt over (PD-14a)."""
    prompt = st.q[i, S.PROMPT]
    if cfg.limit > 0 and prompt >= cfg.limit:
        return PROMPT_AT_LIMIT
    if cdiv(prompt + cfg.trtllm, cfg.bs) > cfg.blocks:
        return EXCEEDS_POOL
    return NO_REASON


@kernel
def ask(cfg, inp, st, po, i):
    """The next target in turn is asked for room (RT-2, but for pins: RT-1, and where a router says: RT-4). Why it could
    never have it, if so."""
    h, g = po.h, po.g
    target = inp.pinned[i] if cfg.pinned else -1
    if target >= 0:
        target += po.prefill_ranks
    else:
        target = least_cost(cfg, inp, st, st.route, i, po.prefill_ranks, po.ranks, 1)
    if target < 0:
        target = g[P.NEXT_TARGET]
        g[P.NEXT_TARGET] = target + 1 if target + 1 < po.ranks else po.prefill_ranks
    reason = _never_held(cfg, st, i)
    if reason == NO_REASON:
        st.q[i, S.RANK] = target
        enter_books(cfg, inp, st, st.route, i, target)
        h[i, P.PHASE] = P.RESERVE
        command(st, po, po.worker_of[target], i, P.NEXT_COMMAND)
    return reason


@inlined
def _ask_in_time(cfg, inp, st, po, r, first_layer, until):
    i = r - po.n
    po.h[i, P.FIRST_LAYER], po.h[i, P.FLOOR] = first_layer, until
    ask(cfg, inp, st, po, i)


@kernel
def ask_early(prefill, cfg, inp, st, po, pre, worker, now):
    """PD-19: a pass of this prefill worker begins; who will be computed by it has the destination asked now.

    `pre`: the drafter of the prefill pool, or None.
    """
    low, until = po.w[worker, P.FIRST_RANK], st.w[worker, S.GROUP_END]
    first_layer = now + cdiv(until - now, po.g[P.LAYERS])
    for k in range(low, low + prefill.dp):
        slot = st.r[k, S.QUEUE_HEAD]
        if not st.r[k, S.ACTING] or st.b[k, slot, S.B_PASS] < 0:
            continue
        for tokenless in (True, False):
            if pre is None:
                r = st.calendar[k, st.b[k, slot, S.B_PASS] & prefill.mask, 0]
                while r >= 0:
                    if (st.q[r, S.OUTPUT] == 0) == tokenless:
                        _ask_in_time(cfg, inp, st, po, r, first_layer, until)
                    r = st.q[r, S.CNEXT]
            else:
                for at in range(pre.n_items[k, slot]):
                    item = pre.items[k, slot, at]
                    r = item[D.I_REQUEST]
                    if item[D.I_LIVE] and item[D.I_SAMPLES] and (st.q[r, S.OUTPUT] == 0) == tokenless:
                        _ask_in_time(cfg, inp, st, po, r, first_layer, until)


@kernel
def hold(cfg, inp, st, po, i, now):
    """PD-12: the destination is asked once the prompt is computed, unless that was done before (PD-19).

    `cfg`: of the decode pool.
    """
    h, g = po.h, po.g
    h[i, P.HELD] = now
    if po.wired and g[P.LAYERS] > 0:
        reason = _never_held(cfg, st, i)
    else:
        reason = ask(cfg, inp, st, po, i)
    if reason != NO_REASON:
        end_request(cfg, inp, st, i, FAILED, reason, now)
        h[i, P.PHASE] = P.OVER
        command(st, po, po.worker_of[h[i, P.SOURCE]], i, P.NEXT_RELEASE)
        return
    if po.wired and g[P.TIMEOUT] >= 0:
        # All have the same time, so the first to be held is the first to run out of it.
        append(h, P.NEXT_DEADLINE, g, P.DEADLINE_HEAD, P.DEADLINE_TAIL, i)


@inlined
def _want(st, po, i):
    k = st.q[i, S.RANK]
    po.h[i, P.PHASE] = P.WANTED
    append(po.h, P.NEXT_WANTED, po.k[k], P.WANTED_HEAD, P.WANTED_TAIL, i)
    st.r[k, S.WANTED_N] += 1


@kernel
def try_to_reserve(cfg, inp, st, po, k, now):
    """Room for the first handoff that wants it on rank k. True if it was found.

    A head that was refused for want of room is asked again only when blocks have been given back, and nobody is asked
    while all places are taken.
    """
    q, rank, h = st.q, st.r, po.h
    if rank[k, S.WANTED_N] == 0 or rank[k, S.RUN_N] >= cfg.seqs or po.k[k, P.REFUSED_AT] == po.k[k, P.GIVEN_BACK]:
        return False
    i = po.k[k, P.WANTED_HEAD]
    prompt = q[i, S.PROMPT]
    need, hit = cdiv(prompt, cfg.bs), 0
    if cfg.promises:
        # guaranteed_no_evict protects the rest of everybody's sequence, and nothing resident is reused.
        whole = cdiv(prompt + q[i, S.OUTPUT], cfg.bs)
        room = whole + rank[k, S.PROMISED]
    else:
        # max_utilization takes what is needed now, and reuses nothing either.
        used = 0
        if cfg.caching and q[i, S.SHARED] > 0 and not cfg.trtllm:
            hit, used = lookup(inp, st, i, prompt // cfg.bs)
        whole, room = need, need - used
    if room > available(st, k):
        po.k[k, P.REFUSED_AT] = po.k[k, P.GIVEN_BACK]
        return False
    after = h[i, P.NEXT_WANTED]
    po.k[k, P.WANTED_HEAD] = after
    if after < 0:
        po.k[k, P.WANTED_TAIL] = -1
    rank[k, S.WANTED_N] -= 1
    pin(inp, st, i, hit)
    take(st, k, need - hit)
    rank[k, S.PROMISED] += whole - need
    h[i, P.NUMBER] = po.k[k, P.RESERVATIONS]
    po.k[k, P.RESERVATIONS] += 1
    h[i, P.RESERVED] = now
    h[i, P.SENT] = (need - hit) * cfg.bs if po.missing_only else prompt
    h[i, P.PHASE] = P.ACTIVATE
    duration = po.fallback_ns
    if po.timed:
        seconds = (h[i, P.SENT] * po.bytes_per_token + po.fixed_bytes) / po.bytes_per_second
        # A longer one, or an infinite one, is no int64: the clock ends first, and the loop says so.
        duration = nearest_ns(seconds) if seconds < CLOCK_END_S else PAST_CLOCK_NS
    if po.wired:
        send(cfg, inp, st, po, i, duration, now)
        return True
    duration = min(po.g[P.FIRST_BYTE], PAST_CLOCK_NS - duration) + duration
    end = min(now, PAST_CLOCK_NS - duration) + duration
    h[i, P.TRANSFERRED_AT] = end
    if duration == 0:
        command(st, po, po.worker_of[k], i, P.NEXT_COMMAND)  # K-3: at this very instant
    else:
        heap_push(po.transfers, po.g[P.N_TRANSFERS], end, po.g[P.SEQUENCE] << 32 | i)
        po.g[P.N_TRANSFERS] += 1
        po.g[P.SEQUENCE] += 1
    return True


@kernel
def land(st, po, now):
    """Transfers that end at `now`."""
    while po.g[P.N_TRANSFERS] > 0 and po.transfers[0, 0] <= now:
        i = po.transfers[0, 1] & 0xFFFFFFFF
        heap_pop(po.transfers, po.g[P.N_TRANSFERS])
        po.g[P.N_TRANSFERS] -= 1
        command(st, po, po.worker_of[st.q[i, S.RANK]], i, P.NEXT_COMMAND)


@kernel
def catch_up(cfg, inp, st, po, worker, now):
    """A decode worker's pass ended: reservations asked for while it ran queue up, and each rank's first is tried."""
    h, w = po.h, po.w
    i, head, tail = w[worker, P.COMMAND_HEAD], -1, -1
    while i >= 0:
        after = h[i, P.NEXT_COMMAND]
        if h[i, P.PHASE] == P.RESERVE:
            _want(st, po, i)
        elif h[i, P.PHASE] != P.DROPPED:
            h[i, P.NEXT_COMMAND] = -1
            if tail >= 0:
                h[tail, P.NEXT_COMMAND] = i
            else:
                head = i
            tail = i
            listen(po, worker)
        i = after
    w[worker, P.COMMAND_HEAD], w[worker, P.COMMAND_TAIL] = head, tail
    first = w[worker, P.FIRST_RANK]
    for k in range(first, first + cfg.dp):
        try_to_reserve(cfg, inp, st, po, k, now)


@kernel
def _activate(cfg, inp, st, po, i, now):
    """Its KV is here: full blocks can be hit, and it queues by order of reservation. Who was preempted stands in front,
    but keeps its number, so that one reserved earlier goes ahead of it."""
    q, h = st.q, po.h
    k = q[i, S.RANK]
    q[i, S.STATE] = S.TRANSFERRED
    close_shared(inp, st, i, q[i, S.PROMPT] // cfg.bs if cfg.caching else 0)
    before, after = st.r[k, S.WAIT_TAIL], -1
    while before >= 0 and q[before, S.N_PREEMPTED] == 0 and h[before, P.NUMBER] > h[i, P.NUMBER]:
        after, before = before, q[before, S.QPREV]
    if st.r[k, S.PREEMPTED_N] > 0:
        r = st.r[k, S.WAIT_HEAD]
        while r >= 0 and h[r, P.NUMBER] < h[i, P.NUMBER]:
            r = q[r, S.QNEXT]
        before, after = st.r[k, S.WAIT_TAIL] if r < 0 else q[r, S.QPREV], r
    insert_waiting(st, k, i, before, after)
    h[i, P.ACTIVATED] = now
    h[i, P.PHASE] = P.OVER
    command(st, po, po.worker_of[h[i, P.SOURCE]], i, P.NEXT_RELEASE)


@kernel
def _withdraw(cfg, inp, st, po, i, now):
    """What was reserved for it is given back; nothing of it was ever hashed here."""
    q = st.q
    k, prompt = q[i, S.RANK], q[i, S.PROMPT]
    need = cdiv(prompt, cfg.bs)
    if cfg.promises:
        st.r[k, S.PROMISED] -= cdiv(prompt + q[i, S.OUTPUT], cfg.bs) - need
    release(inp, st, i, need, q[i, S.CLOSED], True)
    po.k[k, P.GIVEN_BACK] += 1
    po.h[i, P.WITHDRAWN] = now
    po.h[i, P.PHASE] = P.OVER


@kernel
def _release_source(cfg, inp, st, po, i, now):
    """`cfg`: of the prefill pool."""
    prompt, ahead = st.q[i, S.PROMPT], po.ahead * st.q[po.n + i, S.OUTPUT]
    release(inp, st, po.n + i, cdiv(prompt + ahead, cfg.bs), prompt // cfg.bs if cfg.caching else 0, True)
    po.h[i, P.RELEASED] = now


@inlined
def _obey_decode(decode, inp, st, po, i, now):
    phase = po.h[i, P.PHASE]
    if phase == P.RESERVE:
        _want(st, po, i)
    elif phase == P.ACTIVATE:
        _activate(decode, inp, st, po, i, now)
    elif phase == P.WITHDRAW:
        _withdraw(decode, inp, st, po, i, now)
    if phase != P.DROPPED:
        try_to_reserve(decode, inp, st, po, st.q[i, S.RANK], now)


@kernel
def obey(prefill, decode, inp, st, po, now):
    """Idle workers apply their commands in the order in which they were given, whoever they are for: who gives blocks
    back first is who loses its cached ones first. What that brings about at this instant is applied as well."""
    at = 0
    while at < po.g[P.N_OBEY]:
        worker = po.obey[at]
        at += 1
        if st.w[worker, S.GROUP_END] >= 0:
            continue
        if worker < po.prefill_workers:
            i = next_command(po, worker, P.NEXT_RELEASE)
            if i >= 0:
                _release_source(prefill, inp, st, po, i, now)
                mark_dirty(st, worker)
        else:
            i = next_command(po, worker, P.NEXT_COMMAND)
            if i >= 0:
                _obey_decode(decode, inp, st, po, i, now)
                mark_dirty(st, worker)
    po.g[P.N_OBEY] = 0
