"""The waiting queue where drafts are about: `sim.admission` with padding, lookahead and hits cut once more (B2, B3)."""

from __future__ import annotations

import sim.speculation.columns as D
import sim.state as S
from sim.admission import reject
from sim.items import cdiv
from sim.jit import kernel
from sim.kv.pool import available, lookup, pin
from sim.queues import drop_waiting, push_running
from sim.result import EXCEEDS_POOL, KIND_NEW, KIND_RESUMED, PROMPT_AT_LIMIT
from sim.speculation.blocks import blocks_for, give
from sim.speculation.running import schedule


@kernel
def admit_drafting(cfg, inp, st, dr, k, slot, budget, n, throttled, pads):
    """Admit in order (4.3). `pads`: an admission of one token is padded to a round. Returns the items of the batch."""
    q, d, rank = st.q, dr.d, st.r
    while rank[k, S.WAIT_N] > 0 and rank[k, S.RUN_N] < cfg.seqs:
        if cfg.vllm and budget <= 0:
            break
        r = rank[k, S.WAIT_HEAD]
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
            if dr.cut > 0 and hit > 0:
                hit, used = lookup(inp, st, r, hit - 1)
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
        drop_waiting(st, k, r, again)
        pin(inp, st, r, hit)
        d[r, D.BLOCKS] = hit
        d[r, D.HASHED] = hit
        if cfg.promises:
            rank[k, S.PROMISED] += least - hit
        give(cfg, st, dr, k, r, taken - hit)
        push_running(st, k, r)
        q[r, S.STATE] = S.PREFILL
        q[r, S.ORDER] = rank[k, S.ORDERS]
        rank[k, S.ORDERS] += 1
        q[r, S.CACHED_NOW] = cached
        kind = KIND_RESUMED if again else KIND_NEW
        schedule(cfg, inp, st, dr, k, slot, n, r, tokens, cached, kind, cached, padding, 0)
        n += 1
        spent_already = budget <= 0
        budget -= tokens
        if spent_already:
            break
    return n
