"""The running list first (4.1, 4.2): decoders make a token, unfinished prefills go on, who does not fit preempts.

The plain way touches no running request but those of one growth bucket. The literal way walks the list, for what needs
running order beyond that: a budget below the batch, first-in victims, throttled prefills with decoders behind them.
"""

from __future__ import annotations

import sim.state as S
from sim.items import cdiv, put
from sim.jit import inlined, kernel
from sim.kv.pool import available, close_shared, take
from sim.preempt import computed_now, preempt
from sim.queues import leave_calendar, leave_decode
from sim.result import KIND_RUNNING
from sim.spans import close_span


@inlined
def run_plain(cfg, inp, st, k, slot, now, throttled):
    """Every decoder makes a token; the one unfinished prefill, last in running order, goes on."""
    rank, q, growth = st.r, st.q, st.growth
    number = rank[k, S.NEXT_PASS]
    res = number % cfg.bs
    demand = growth[k, res, 2]
    if demand <= available(st, k):
        take(st, k, demand)
        if cfg.promises:
            rank[k, S.PROMISED] -= demand
    else:
        _grow_under_pressure(cfg, inp, st, k, slot, now, res)
    _close_generated(cfg, inp, st, k, number)
    budget, n = cfg.budget - rank[k, S.N_DECODE], 0
    if rank[k, S.N_PREFILL] == 0 or budget <= 0:
        return budget, n
    r = rank[k, S.PREFILL_AT]
    before = q[r, S.COMPUTED]
    if throttled and (cfg.vllm or before < q[r, S.PROMPT]):
        return budget, n
    if not cfg.vllm and not cfg.chunked and q[r, S.PROMPT] - before > budget:
        return budget, n
    tokens = min(q[r, S.PROMPT] + q[r, S.RECEIVED] - before, budget)
    need = cdiv(before + tokens, cfg.bs) - cdiv(before, cfg.bs)
    if need > available(st, k):
        preempt(cfg, inp, st, k, slot, now, r, r, 0)  # it is last in running order, so it is its own victim
        return budget, n
    take(st, k, need)
    if cfg.promises:
        rank[k, S.PROMISED] -= need
    put(st, n, r, tokens, before, KIND_RUNNING, -1)
    close_shared(inp, st, r, (before + tokens) // cfg.bs if cfg.caching else 0)
    return budget - tokens, n + 1


@kernel
def _grow_under_pressure(cfg, inp, st, k, slot, now, res):
    """Last-in victims make room for the bucket of decoders that need a block; the bucket is in running order."""
    q, rank = st.q, st.r
    r = st.growth[k, res, 0]
    while r >= 0:
        while available(st, k) < 1:
            victim = rank[k, S.RUN_TAIL]
            preempt(cfg, inp, st, k, slot, now, victim, r, 0)
            if victim == r:
                return
        take(st, k, 1)
        r = q[r, S.GNEXT]


@inlined
def _close_generated(cfg, inp, st, k, number):
    """Hash generated blocks that another prompt repeats: when their last token is scheduled, or, with a token in
    flight, when that token is known, which is one pass later (5.6, A3)."""
    if not cfg.caching:
        return
    res = number % cfg.bs if cfg.depth == 2 else (number + 1) % cfg.bs
    if st.growth[k, res, 3] == 0:
        return
    r = st.growth[k, res, 0]
    while r >= 0:
        tokens = computed_now(st, k, r) + (0 if cfg.depth == 2 else 1)
        close_shared(inp, st, r, tokens // cfg.bs)
        r = st.q[r, S.GNEXT]


@kernel
def run_literally(cfg, inp, st, k, slot, now, throttled):
    """The running list in order, one request at a time (4.1 to 4.4)."""
    q, rank, mark = st.q, st.r, st.r[k, S.CHOICES]
    budget, n = cfg.budget, 0
    r = rank[k, S.RUN_HEAD]
    while r >= 0 and budget > 0:
        state = q[r, S.STATE]
        if state == S.LAST:
            r = q[r, S.QNEXT]
            continue
        before = computed_now(st, k, r)
        if throttled and (state == S.PREFILL if cfg.vllm else before < q[r, S.PROMPT]):
            r = q[r, S.QNEXT]
            continue
        if not cfg.vllm and not cfg.chunked and q[r, S.PROMPT] - before > budget:
            break
        tokens = min(q[r, S.PROMPT] + q[r, S.RECEIVED] - before if state == S.PREFILL else 1, budget)
        need = cdiv(before + tokens, cfg.bs) - cdiv(before, cfg.bs)
        skipped, gone = 0, False
        while need > available(st, k):
            victim = rank[k, S.RUN_HEAD] if cfg.fifo else rank[k, S.RUN_TAIL]
            extra = 0
            if q[victim, S.MARK] == mark:
                given = _take_back(st, n, victim)
                budget += given
                extra = given if q[victim, S.STATE] != S.PREFILL else 0
            q[victim, S.MARK] = 0
            preempt(cfg, inp, st, k, slot, now, victim, r, extra)
            if victim == r:
                gone = True
                break
            skipped += cfg.fifo
        if gone:
            # The last in LIFO order; in FIFO order those behind it still get their turn.
            r = rank[k, S.RUN_HEAD] if cfg.fifo else -1
        else:
            take(st, k, need)
            if cfg.promises:
                rank[k, S.PROMISED] -= need
            q[r, S.MARK] = mark
            budget -= tokens
            known = before if cfg.depth == 2 and state != S.PREFILL else before + tokens
            close_shared(inp, st, r, known // cfg.bs if cfg.caching else 0)
            if state != S.DECODE:
                put(st, n, r, tokens, before, KIND_RUNNING, -1)
                n += 1
                if state == S.PREFILL:
                    q[r, S.COMPUTED] = before + tokens
            r = q[r, S.QNEXT]
        # The reference simulator does not step back when a first-in victim ahead leaves the list (4.4, quirk).
        while skipped > 0 and r >= 0:
            r = q[r, S.QNEXT]
            skipped -= 1
    _pause_the_rest(cfg, st, k, mark)
    return budget, n


@kernel
def _take_back(st, n, victim):
    """A victim loses what this choice gave it. Returns those tokens."""
    for i in range(n):
        if st.s[i, S.S_REQUEST] == victim and st.s[i, S.S_LIVE]:
            st.s[i, S.S_LIVE] = 0
            return st.s[i, S.S_TOKENS]
    return 1  # a continuing decode, which is not noted


@kernel
def _pause_the_rest(cfg, st, k, mark):
    """Decoders that were not given their token end their span here."""
    q, rank = st.q, st.r
    r = rank[k, S.RUN_HEAD]
    while r >= 0:
        if q[r, S.STATE] == S.DECODE and q[r, S.MARK] != mark:
            leave_decode(cfg, st, k, r)
            leave_calendar(cfg, st, k, r)
            close_span(st, r, rank[k, S.NEXT_PASS] - q[r, S.G0])
            q[r, S.STATE] = S.PAUSED
            rank[k, S.N_PAUSED] += 1
        r = q[r, S.QNEXT]
