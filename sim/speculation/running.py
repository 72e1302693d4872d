"""The running list first, one request at a time: verifications of drafts, unfinished prefills (4.1 to 4.4, 8.3)."""

from __future__ import annotations

import sim.speculation.columns as D
import sim.state as S
from sim.jit import inlined, kernel
from sim.kv.pool import available
from sim.result import KIND_RUNNING
from sim.speculation.blocks import blocks_for, give, hash_upto
from sim.speculation.preempt import next_victim, preempt
from sim.speculation.sampling import accepted


@inlined
def schedule(cfg, inp, st, dr, k, slot, n, r, tokens, before, kind, cached, drafts, verified):
    """Note as item `n` of the batch that r computes `tokens` over `before`; `drafts` of them beyond what is known."""
    q, d, item = st.q, dr.d, dr.items[k, slot, n]
    known = q[r, S.PROMPT] + q[r, S.RECEIVED]
    hash_upto(cfg, inp, st, dr, r, min(before + tokens, known))
    samples = before + tokens >= known + d[r, D.OWED]
    q[r, S.COMPUTED] = before + tokens
    d[r, D.PREFILLING] = not samples
    d[r, D.MARK] = st.r[k, S.CHOICES]
    d[r, D.ITEM] = n
    item[D.I_REQUEST] = r
    item[D.I_TOKENS] = tokens
    item[D.I_BEFORE] = before
    item[D.I_KIND] = kind
    item[D.I_CACHED] = cached
    item[D.I_DRAFTS] = drafts
    item[D.I_VERIFIED] = verified
    item[D.I_ACCEPTED] = 0
    if verified > 0:
        item[D.I_ACCEPTED] = accepted(dr, r, d[r, D.ROUND], verified)
        d[r, D.ROUND] += 1
    item[D.I_SAMPLES] = samples
    item[D.I_EPOCH] = d[r, D.EPOCH]
    item[D.I_STRETCH] = d[r, D.STRETCH]
    item[D.I_LIVE] = 1
    item[D.I_MADE] = 0


@kernel
def run_drafting(cfg, inp, st, dr, k, slot, now, throttled, drafting, r, budget):
    """Serve the running list from r on. Returns (budget left, items, whether an unfinished prompt went on)."""
    q, d, rank, mark = st.q, dr.d, st.r, st.r[k, S.CHOICES]
    n, continued, blocked = 0, False, False
    while r >= 0:
        before, owed, prompt = q[r, S.COMPUTED], d[r, D.OWED], q[r, S.PROMPT]
        if not drafting:
            d[r, D.READY] = 0
        # Without chunks a prompt that exceeds the budget stops those behind it as well.
        blocked = blocked or budget <= 0 or (not cfg.vllm and not cfg.chunked and prompt - before > budget)
        if blocked:
            d[r, D.STRETCH] += 1
            r = q[r, S.QNEXT]
            continue
        # Without drafts a token in flight is certain to come; with them, at least one is (B4).
        ends = owed > 0 and before + 2 - owed >= prompt + q[r, S.OUTPUT]
        waits = throttled and (d[r, D.PREFILLING] == 1 if cfg.vllm else before < prompt)
        tokens = min(prompt + q[r, S.RECEIVED] + owed + d[r, D.READY] - before, budget, dr.longest - 1 - before)
        if ends or waits or tokens <= 0:
            d[r, D.STRETCH] += 1
            r = q[r, S.QNEXT]
            continue
        need = blocks_for(cfg, dr, before + tokens) - d[r, D.BLOCKS]
        skipped, gone = 0, False
        while need > available(st, k):
            victim = next_victim(cfg, st, k)
            if d[victim, D.MARK] == mark:
                item = dr.items[k, slot, d[victim, D.ITEM]]
                budget += item[D.I_TOKENS]
                item[D.I_LIVE] = 0
            preempt(cfg, inp, st, dr, k, slot, now, victim, r, 0)
            if victim == r:
                gone = True
                break
            skipped += cfg.fifo
        if gone:
            # The last in LIFO order; in FIFO order those behind it still get their turn.
            r = rank[k, S.RUN_HEAD] if cfg.fifo else -1
        else:
            if need > 0:
                give(cfg, st, dr, k, r, need)
            drafts = max(0, before + tokens - (prompt + q[r, S.RECEIVED]) - owed)
            d[r, D.READY] = 0
            continued = continued or d[r, D.PREFILLING] == 1
            schedule(cfg, inp, st, dr, k, slot, n, r, tokens, before, KIND_RUNNING, -1, drafts, drafts)
            n += 1
            budget -= tokens
            r = q[r, S.QNEXT]
        # The reference simulator does not step back when a first-in victim ahead leaves the list (4.4, quirk).
        while skipped > 0 and r >= 0:
            d[r, D.STRETCH] += 1
            r = q[r, S.QNEXT]
            skipped -= 1
    return budget, n, continued
