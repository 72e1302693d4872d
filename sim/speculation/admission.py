"""The waiting queue where drafts are about: `sim.admission` with padding, lookahead and hits cut once more (B2, B3)."""

from __future__ import annotations

import sim.speculation.columns as D
import sim.state as S
from sim.admission import enter_running, next_of_pool, reject
from sim.items import cdiv
from sim.jit import inlined, kernel
from sim.kv.pool import available, lookup, pin
from sim.queues import drop_waiting
from sim.result import EXCEEDS_POOL, KIND_NEW, KIND_RESUMED, PROMPT_AT_LIMIT
from sim.speculation.blocks import blocks_for, give
from sim.speculation.plain import serve_planned
from sim.speculation.preempt import next_victim, preempt, take_back
from sim.speculation.running import schedule


@inlined
def _slot(st, dr, k, r):
    """The row of r in Drafting.d, an empty one at its first admission."""
    q, d = st.q, dr.d
    if q[r, D.SLOT] < 0:
        # Whoever was preempted is admitted again before anybody else is, so running and waiting ones fit. Not so on a
        # decode worker of separate pools, whose slots are added to (sim.pools.drafting).
        own = dr.slots[k, dr.ranks[k, D.N_SLOTS]]
        dr.ranks[k, D.N_SLOTS] += 1
        dr.counts[D.MOST_SLOTS] = max(dr.counts[D.MOST_SLOTS], dr.ranks[k, D.N_SLOTS])
        q[r, D.SLOT] = own
        for column in range(D.D_WIDTH):
            d[own, column] = 0
        d[own, D.PREFILLING] = 1
    return q[r, D.SLOT]


@kernel
def _take_over(cfg, inp, st, dr, k, slot, n, r):
    """Section 10: the blocks of r came with a handoff; it needs no capacity, only a place."""
    prompt = st.q[r, S.PROMPT]
    drop_waiting(st, k, r, False)
    own = _slot(st, dr, k, r)
    dr.d[own, D.BLOCKS] = cdiv(prompt, cfg.bs)
    dr.d[own, D.HASHED] = prompt // cfg.bs if cfg.caching else 0
    enter_running(st, k, r, 0)
    st.q[r, S.STATE] = S.PREFILL
    schedule(cfg, inp, st, dr, k, slot, n, r, 0, prompt, KIND_NEW, 0, 0, 0)


@kernel
def admit_drafting(cfg, inp, st, dr, k, slot, now, budget, n, throttled, pads):
    """Admit in order (4.3). `pads`: an admission of one token is padded to a round. Returns the items of the batch."""
    q, d, rank = st.q, dr.d, st.r
    while rank[k, S.WAIT_N] > 0 and rank[k, S.RUN_N] < cfg.seqs:
        if cfg.vllm and budget <= 0:
            break
        r = rank[k, S.WAIT_HEAD]
        if cfg.role == S.DECODES:
            r = next_of_pool(cfg, st, k)
            if r < 0:
                break
            if q[r, S.STATE] == S.TRANSFERRED:
                _take_over(cfg, inp, st, dr, k, slot, n, r)
                n += 1
                if budget <= 0:
                    break
                continue
        prompt, again = q[r, S.PROMPT], q[r, S.N_PREEMPTED] > 0
        if not cfg.vllm and cfg.limit > 0 and prompt >= cfg.limit:
            reject(st, k, slot, r, PROMPT_AT_LIMIT)
            continue
        if cfg.gated and q[r, S.GATE] > rank[k, S.NEXT_PASS]:
            break
        known = prompt + q[r, S.RECEIVED]
        whole = cdiv(known, cfg.bs)
        least = cdiv(prompt + q[r, S.OUTPUT], cfg.bs) if cfg.trtllm else whole
        if not cfg.vllm and not again and least > cfg.blocks:
            reject(st, k, slot, r, EXCEEDS_POOL)
            continue
        room = available(st, k)
        hit, used = 0, 0
        if cfg.caching and (q[r, S.SHARED] > 0 or again):
            whole_hit = q[r, S.OUTPUT] == 0 or cfg.trtllm
            limit = known // cfg.bs if whole_hit else (known - 1) // cfg.bs
            hit, used = lookup(inp, st, r, limit)
            if dr.cut > 0 and hit > 0 and q[r, S.OUTPUT] > 0:
                in_use = used
                hit, used = lookup(inp, st, r, hit - 1)
                # [parity] What is in use is counted before that cut, up to as many as are left.
                used = used if cfg.vllm else min(in_use, hit)
        cached = hit * cfg.bs
        rest = known - cached
        padding = 0
        if pads and rest == 1:
            padding = dr.drafts
            if rest + padding > budget or cached + rest + padding > dr.longest:
                break
        tokens = min(rest + padding, budget)
        taken = blocks_for(cfg, dr, cached + tokens)
        reach = max(taken, whole) if cfg.reserve_full or not cfg.vllm else taken
        spare = cfg.spare if rank[k, S.RUN_N] > 0 else 0
        if cfg.promises:
            reach = least
            spare = rank[k, S.PROMISED]
        if reach - used + spare > room:
            break
        if throttled and rest > 1:
            break
        if tokens <= 0 and rest > 0:
            break
        if not cfg.chunked and (rest if cfg.vllm else prompt - cached) > budget:
            break
        if dr.cut > 0 and not cfg.vllm and hit > 0:
            while taken - lookup(inp, st, r, hit)[1] > available(st, k):
                # Counted too well, it has no room after all: the next victim makes some.
                if dr.ranks[k, D.N_PLANNED] > 0:
                    n += serve_planned(cfg, inp, st, dr, k, slot, n)
                victim = next_victim(cfg, st, k)
                if victim < 0:
                    return n  # what is in use is held for a handoff
                budget += take_back(st, dr, k, slot, victim)
                preempt(cfg, inp, st, dr, k, slot, now, victim, r, 0)
        drop_waiting(st, k, r, again)
        pin(inp, st, r, hit)
        own = _slot(st, dr, k, r)
        d[own, D.BLOCKS] = hit
        d[own, D.HASHED] = hit
        if cfg.promises:
            rank[k, S.PROMISED] += least - hit
        give(cfg, st, dr, k, r, taken - hit)
        enter_running(st, k, r, cached)
        q[r, S.STATE] = S.PREFILL
        kind = KIND_RESUMED if again else KIND_NEW
        schedule(cfg, inp, st, dr, k, slot, n, r, tokens, cached, kind, cached, padding, 0)
        n += 1
        spent_already = budget <= 0
        budget -= tokens
        if spent_already or st.b[k, slot, S.B_OWN_PREEMPTED] > 0:
            break
    return n
