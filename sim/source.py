"""Which request arrives when, and where it is placed: open loads, closed loops, session turns (section 2)."""

from __future__ import annotations

import sim.state as S
from sim.jit import inlined, kernel
from sim.queues import append
from sim.result import EXCEEDS_POOL, NO_REASON, PROMPT_AT_LIMIT, REJECTED
from sim.routing import enter_books, least_cost, leave_books

FAR = 9223372036854775807


@inlined
def mark_dirty(st, worker):
    """The worker may be able to start something at this instant."""
    if st.w[worker, S.DIRTY] == 0:
        st.w[worker, S.DIRTY] = 1
        # Workers start in order. They are mostly marked in order, too, so little is moved here.
        place = st.g[S.N_DIRTY]
        while place > 0 and st.dirty[place - 1] > worker:
            st.dirty[place] = st.dirty[place - 1]
            place -= 1
        st.dirty[place] = worker
        st.g[S.N_DIRTY] += 1


@inlined
def _less(turns, i, j):
    return turns[i, 0] < turns[j, 0] or (turns[i, 0] == turns[j, 0] and turns[i, 1] < turns[j, 1])


@inlined
def _swap(turns, i, j):
    a, b = turns[i, 0], turns[i, 1]
    turns[i, 0], turns[i, 1] = turns[j, 0], turns[j, 1]
    turns[j, 0], turns[j, 1] = a, b


@kernel
def heap_push(heap, n, key, value):
    """Binary heap of (key, value) rows; `n` rows before the call."""
    heap[n, 0] = key
    heap[n, 1] = value
    while n > 0 and _less(heap, n, (n - 1) // 2):
        _swap(heap, n, (n - 1) // 2)
        n = (n - 1) // 2


@kernel
def heap_pop(heap, n):
    """Remove the least row; `n` rows before the call."""
    heap[0, 0], heap[0, 1] = heap[n - 1, 0], heap[n - 1, 1]
    i, n = 0, n - 1
    while True:
        least = i
        for child in (2 * i + 1, 2 * i + 2):
            if child < n and _less(heap, child, least):
                least = child
        if least == i:
            return
        _swap(heap, i, least)
        i = least


@kernel
def request_ended(cfg, inp, st, r, now):
    """A request ended: who waits for that may become due; the last one of a session frees its slot (2.2)."""
    leave_books(cfg, inp, st, st.route, r)
    if cfg.sessions:
        _happened(cfg, inp, st, r, now, 0)
        first = inp.member[r, S.M_OPENER]
        st.pending[first, S.P_LEFT] -= 1
        if st.pending[first, S.P_LEFT] > 0:
            return
    st.g[S.IN_FLIGHT] -= 1


@kernel
def end_request(cfg, inp, st, r, status, reason, now):
    """Request r ends without having been served."""
    q = st.q
    q[r, S.STATE], q[r, S.STATUS], q[r, S.REASON] = S.DONE, status, reason
    st.t[r, S.END] = now
    st.g[S.N_DONE] += 1
    request_ended(cfg, inp, st, r, now)


@kernel
def _happened(cfg, inp, st, r, now, dispatch):
    """Request r arrived (`dispatch`) or ended: who waited for nothing but that becomes due after its delay (2.5)."""
    follow, pending = inp.follow, st.pending
    if dispatch == 0:
        now += cfg.reply  # an end is an end once the client knows of it
    for wait in range(inp.member[r, S.M_FOLLOW], inp.member[r + 1, S.M_FOLLOW]):
        if follow[wait, S.F_ON_DISPATCH] != dispatch:
            continue
        follower = follow[wait, S.F_WHO]
        pending[follower, S.P_READY] = max(pending[follower, S.P_READY], now + follow[wait, S.F_DELAY])
        pending[follower, S.P_WAITS] -= 1
        if pending[follower, S.P_WAITS] == 0:
            opener = inp.member[follower, S.M_OPENER]
            opened = st.sent[opener] if cfg.front else st.t[opener, S.ARRIVAL]
            earliest = opened + inp.member[follower, S.M_NOT_BEFORE]
            ready = max(pending[follower, S.P_READY], earliest)
            # Equal times: the session that began earlier in the source goes first.
            heap_push(st.turns, st.g[S.N_TURNS], ready, opener << 32 | follower)
            st.g[S.N_TURNS] += 1


@inlined
def next_arrival(cfg, inp, st):
    """Time of the next arrival (at the front end, if there is one) that is already certain; FAR if none."""
    when = FAR
    if cfg.front and st.g[S.N_ON_THE_WAY] > 0:
        when = st.on_the_way[0, 0]
    if st.g[S.N_SENT] == cfg.sends:
        return when
    if cfg.concurrency == 0 and st.g[S.NEXT_FIRST] < len(inp.firsts):
        when = min(when, inp.arrival[inp.firsts[st.g[S.NEXT_FIRST]]])
    if st.g[S.N_TURNS] > 0:
        when = min(when, st.turns[0, 0])
    return when


@inlined
def release_arrivals(cfg, inp, st, now):
    """Everything due at `now` is stamped and placed, in source order."""
    r = due_request(cfg, inp, st, now)
    while r >= 0:
        _place(cfg, inp, st, r, now)
        r = due_request(cfg, inp, st, now)


@inlined
def due_request(cfg, inp, st, now):
    """The next request that arrives at `now`, stamped; -1 when nobody is due."""
    if cfg.front:
        return _through_the_front_end(cfg, inp, st, now)
    return _sent_request(cfg, inp, st, now)


@kernel
def _through_the_front_end(cfg, inp, st, now):
    """Requests that are sent at `now` set out; the next one that is there, -1 if none is (2.8)."""
    g = st.g
    r = _sent_request(cfg, inp, st, now)
    while r >= 0:
        st.t[r, S.ARRIVAL] = st.sent[r] + inp.inbound[r] + cfg.client * (g[S.N_SENT] - g[S.N_DONE])
        heap_push(st.on_the_way, g[S.N_ON_THE_WAY], st.t[r, S.ARRIVAL], r)
        g[S.N_ON_THE_WAY] += 1
        r = _sent_request(cfg, inp, st, now)
    if g[S.N_ON_THE_WAY] == 0 or st.on_the_way[0, 0] > now:
        return -1
    r = st.on_the_way[0, 1]
    heap_pop(st.on_the_way, g[S.N_ON_THE_WAY])
    g[S.N_ON_THE_WAY] -= 1
    return r


@inlined
def _sent_request(cfg, inp, st, now):
    """The next request that is sent at `now`; -1 when nobody is due."""
    g = st.g
    if g[S.N_SENT] != cfg.sends:
        first, when = -1, FAR
        if g[S.NEXT_FIRST] < len(inp.firsts):
            if cfg.concurrency == 0:
                first = inp.firsts[g[S.NEXT_FIRST]]
                when = inp.arrival[first]
            elif g[S.IN_FLIGHT] < cfg.concurrency:
                first, when = inp.firsts[g[S.NEXT_FIRST]], now
        if g[S.N_TURNS] > 0 and st.turns[0, 0] <= now:
            turn_when, opener, turn = st.turns[0, 0], st.turns[0, 1] >> 32, st.turns[0, 1] & 0xFFFFFFFF
            # In a closed loop a turn that is due goes before a new request, whose session begins later.
            if cfg.concurrency > 0 or turn_when < when or (turn_when == when and opener < first):
                heap_pop(st.turns, g[S.N_TURNS])
                g[S.N_TURNS] -= 1
                return _stamp(cfg, inp, st, turn, turn_when)
        if first >= 0 and when <= now:
            g[S.NEXT_FIRST] += 1
            if cfg.concurrency > 0:
                g[S.IN_FLIGHT] += 1
                if g[S.NEXT_FIRST] > cfg.concurrency:  # the slot was another's, and its client knows a reply later
                    when += cfg.reply
            return _stamp(cfg, inp, st, first, when)
    return -1


@kernel
def _stamp(cfg, inp, st, r, when):
    st.t[r, S.ARRIVAL] = when
    if cfg.front:
        st.sent[r] = when
    st.g[S.N_SENT] += 1
    if cfg.plays:
        _happened(cfg, inp, st, r, when, 1)
    return r


@kernel
def refused(cfg, st, r):
    """[vllm] What the front end refuses: a prompt at the limit, or a sequence that the pool can never hold."""
    prompt, output = st.q[r, S.PROMPT], st.q[r, S.OUTPUT]
    if cfg.limit > 0 and prompt >= cfg.limit:
        return PROMPT_AT_LIMIT
    if (prompt + max(output - 1, 0) + cfg.bs - 1) // cfg.bs > cfg.blocks:
        return EXCEEDS_POOL
    return NO_REASON


@inlined
def enter_inbox(cfg, inp, st, r, k):
    """Request r waits in front of rank k."""
    enter_books(cfg, inp, st, st.route, r, k)
    append(st.q, S.QNEXT, st.r[k], S.INBOX_HEAD, S.INBOX_TAIL, r)


@kernel
def _place(cfg, inp, st, r, now):
    """Round robin over workers, then over the worker's ranks; or where the router says; a pin names the rank (2.4)."""
    q, rank = st.q, st.r
    at = inp.pinned[r] if cfg.pinned else -1
    k = least_cost(cfg, inp, st, st.route, r, max(at, 0), cfg.workers * cfg.dp, cfg.dp if at >= 0 else 1)
    worker = k // cfg.dp
    if k < 0:
        worker = st.g[S.NEXT_WORKER]
        st.g[S.NEXT_WORKER] = (worker + 1) % cfg.workers
        if at < 0:
            at = st.w[worker, S.NEXT_RANK]
            st.w[worker, S.NEXT_RANK] = (at + 1) % cfg.dp
        k = worker * cfg.dp + at
    q[r, S.RANK] = k
    if cfg.vllm:
        reason = refused(cfg, st, r)
        if reason != NO_REASON:
            end_request(cfg, inp, st, r, REJECTED, reason, now)
            return
    enter_inbox(cfg, inp, st, r, k)
    busy = st.w[worker, S.GROUP_END] >= 0
    if cfg.gated:
        # 6.2: a busy rank has its next pass committed already. An idle rank of a busy group counts as idle.
        q[r, S.GATE] = rank[k, S.NEXT_PASS]
        if rank[k, S.ACTING]:
            q[r, S.GATE] += 1
        elif rank[k, S.RUN_N] > 0 and not busy:
            q[r, S.GATE] += 2
    if not busy:
        mark_dirty(st, worker)
