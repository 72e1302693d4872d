"""The waiting queue, first come first served (4.3): budget, slots, gates, prefix hits, room for the whole sequence."""

from __future__ import annotations

import sim.state as S
from sim.items import cdiv, put
from sim.jit import inlined, kernel
from sim.kv.pool import available, close_shared, lookup, pin, take
from sim.queues import drop_waiting, push_running
from sim.result import EXCEEDS_POOL, KIND_NEW, KIND_RESUMED, PROMPT_AT_LIMIT


@kernel
def reject(st, k, slot, r, reason):
    """A waiting request that can never run leaves the queue; the end of the pass says so."""
    drop_waiting(st, k, r, st.q[r, S.N_PREEMPTED] > 0)
    note_rejected(st, k, slot, r, reason)


@kernel
def note_rejected(st, k, slot, r, reason):
    q, b = st.q, st.b
    q[r, S.REASON] = reason
    q[r, S.QNEXT] = -1
    tail = b[k, slot, S.B_REJ_TAIL]
    if tail >= 0:
        q[tail, S.QNEXT] = r
    else:
        b[k, slot, S.B_REJ_HEAD] = r
    b[k, slot, S.B_REJ_TAIL] = r


@inlined
def enter_running(st, k, r, cached):
    """An admission: r goes to the end of the running list."""
    push_running(st, k, r)
    st.q[r, S.ORDER] = st.r[k, S.ORDERS]
    st.r[k, S.ORDERS] += 1
    st.q[r, S.CACHED_NOW] = cached


@kernel
def next_of_pool(cfg, st, k):
    """Who is asked next on a decode worker: while a reservation is wanted, only who has been handed over; -1 nobody.
    Beside local prompts they go first at any time: others might wait for the blocks that they hold (CD-2)."""
    r = st.r[k, S.WAIT_HEAD]
    while (st.r[k, S.WANTED_N] > 0 or cfg.keeps_local) and r >= 0 and st.q[r, S.STATE] != S.TRANSFERRED:
        r = st.q[r, S.QNEXT]
    return r if r >= 0 or st.r[k, S.WANTED_N] > 0 else st.r[k, S.WAIT_HEAD]


@kernel
def admit(cfg, inp, st, k, slot, budget, n, throttled):
    """The waiting queue, strictly in order (4.3)."""
    q, rank = st.q, st.r
    while rank[k, S.WAIT_N] > 0 and rank[k, S.RUN_N] < cfg.seqs:
        if cfg.vllm and budget <= 0:
            break
        r = rank[k, S.WAIT_HEAD]
        if cfg.role == S.DECODES:
            r = next_of_pool(cfg, st, k)
            if r < 0:
                break
            if q[r, S.STATE] == S.TRANSFERRED:
                # Section 10: its blocks came with a handoff; it needs no capacity, only a place.
                drop_waiting(st, k, r, False)
                enter_running(st, k, r, 0)
                put(st, n, r, 0, q[r, S.PROMPT], KIND_NEW, 0)
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
        least = cdiv(prompt + q[r, S.OUTPUT], cfg.bs) if cfg.trtllm else whole  # TensorRT-LLM looks at it to its end
        if not cfg.vllm and not again and least > cfg.blocks:
            reject(st, k, slot, r, EXCEEDS_POOL)
            continue
        room = available(st, k)
        hit, used = 0, 0
        if cfg.caching and (q[r, S.SHARED] > 0 or again):
            # One token is left to compute if logits are needed: a full hit gives up its last block (5.5). TensorRT-LLM
            # keeps it whole.
            whole_hit = q[r, S.OUTPUT] == 0 or cfg.trtllm
            hit, used = lookup(inp, st, r, known // cfg.bs if whole_hit else (known - 1) // cfg.bs)
        cached = hit * cfg.bs
        rest = known - cached
        tokens = min(rest, budget)
        reach = whole if cfg.reserve_full or not cfg.vllm else cdiv(cached + tokens, cfg.bs)
        spare = cfg.spare if rank[k, S.RUN_N] > 0 else 0
        if cfg.promises:
            # guaranteed_no_evict: the request to its end, beside what the running ones will still take (section 9).
            reach = least
            spare = rank[k, S.PROMISED]
        if reach - used + spare > room:
            break
        if throttled and rest > 1:
            break
        if tokens <= 0 and rest > 0:
            break
        if not cfg.chunked and (rest if cfg.vllm else prompt - cached) > budget:
            break  # C5: vLLM looks at the whole known sequence
        drop_waiting(st, k, r, again)
        pin(inp, st, r, hit)
        take(st, k, cdiv(cached + tokens, cfg.bs) - hit)
        if cfg.promises:
            rank[k, S.PROMISED] += reach - cdiv(cached + tokens, cfg.bs)
        enter_running(st, k, r, cached)
        close_shared(inp, st, r, (cached + tokens) // cfg.bs if cfg.caching else 0)
        put(st, n, r, tokens, cached, KIND_RESUMED if again else KIND_NEW, cached)
        n += 1
        spent_already = budget <= 0
        budget -= tokens
        if spent_already:
            break  # 4.3: at most one admission that needs no tokens once the budget is spent
    return n
