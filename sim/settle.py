"""A complete choice becomes a pass: numbered, priced, described; new decoders enter the calendar (section 7)."""

from __future__ import annotations

import sim.state as S
from sim.jit import inlined
from sim.queues import enter_calendar, enter_decode, leave_decode
from sim.result import KIND_RUNNING
from sim.timing.compiled import price

LIVELOCK_CHOICES = 1_000  # of one rank, all preempting, without a token in between


@inlined
def _write_chunk(st, k, number, i, part):
    s, row, log = st.s, st.g[S.N_CHUNKS_LOG], st.chunks
    log[0, row] = s[i, S.S_REQUEST]
    log[1, row] = k
    log[2, row] = number
    log[3, row] = s[i, S.S_TOKENS]
    log[4, row] = s[i, S.S_BEFORE]
    log[5, row] = part
    log[6, row] = s[i, S.S_KIND]
    log[7, row] = s[i, S.S_CACHED]
    st.g[S.N_CHUNKS_LOG] = row + 1


@inlined
def count_preemptions(st, k, slot):
    """Add up what choices threw out since the last pass. True if too many of them made nothing."""
    rank, own = st.r, st.b[k, slot, S.B_OWN_PREEMPTED]
    if own == 0:
        return False
    rank[k, S.CARRIED] += own
    rank[k, S.BARREN] += 1
    if rank[k, S.BARREN] > LIVELOCK_CHOICES:
        st.g[S.BLAME_RANK] = k
        return True
    return False


@inlined
def settle(cfg, inp, st, prices, k, slot, n, plain):
    """Number, price and describe the choice; requests that reach the end of their sequence begin to decode."""
    q, rank, b, s = st.q, st.r, st.b, st.s
    if count_preemptions(st, k, slot):
        return S.LIVELOCK
    decoders, number = rank[k, S.N_DECODE], rank[k, S.NEXT_PASS]
    live = decoders > 0
    for i in range(n):
        live = live or s[i, S.S_LIVE] > 0
    if not live:
        return S.FINISHED
    np_, tp, kvp, nb, kv = 0, 0, 0, decoders, rank[k, S.KV_BASE] + decoders * number
    tokens, chunk, made, admitted = decoders, 0, decoders, 0
    new_head, new_tail, adm_head, adm_tail = -1, -1, -1, -1
    for i in range(n):
        if s[i, S.S_LIVE] == 0:
            continue
        r, count, before = s[i, S.S_REQUEST], s[i, S.S_TOKENS], s[i, S.S_BEFORE]
        prompt = q[r, S.PROMPT]
        part = min(max(0, prompt - before), count)
        samples = before + count >= prompt + q[r, S.RECEIVED]
        tokens += count
        # A decode pool's passes pay for no prompt that was handed over, not even for one computed again (7.1). Without
        # a bootstrap anywhere it is computed here, and paid.
        handed = cfg.role == S.DECODES and q[cfg.n + r, S.RANK] >= 0
        if part > 0 and not handed:
            np_, tp, kvp = np_ + 1, tp + part, kvp + before
        if samples and (count > part or ((count == 0 or handed) and q[r, S.OUTPUT] > 0)):
            # A resumed chunk that reaches the end is a decode as well; one that does not never is. A full hit that
            # stays full (TensorRT-LLM) computes nothing, and gets its first token from a decode.
            nb, kv = nb + 1, kv + before + count
        if s[i, S.S_KIND] != KIND_RUNNING:
            admitted += 1
            q[r, S.ANEXT] = -1
            if adm_tail >= 0:
                q[adm_tail, S.ANEXT] = r
            else:
                adm_head = r
            adm_tail = r
        if s[i, S.S_KIND] != KIND_RUNNING or count != 1 or part > 0 or not samples:
            chunk += count
            _write_chunk(st, k, number, i, part)
        old = q[r, S.STATE]
        if not samples:
            if old != S.PREFILL:
                q[r, S.STATE] = S.PREFILL
                rank[k, S.N_PREFILL] += 1
            rank[k, S.PREFILL_AT] = r
            q[r, S.COMPUTED] = before + count
            continue
        if s[i, S.S_KIND] == KIND_RUNNING:
            if old == S.PREFILL:
                rank[k, S.N_PREFILL] -= 1
            else:
                rank[k, S.N_PAUSED] -= 1
        q[r, S.NNEXT] = -1
        if new_tail >= 0:
            q[new_tail, S.NNEXT] = r
        else:
            new_head = r
        new_tail = r
        made += q[r, S.OUTPUT] > 0
        q[r, S.G0] = number
        enter_calendar(cfg, st, k, r)
        if q[r, S.OUTPUT] - q[r, S.RECEIVED] > 1:
            q[r, S.STATE] = S.DECODE
            enter_decode(cfg, st, k, r)
        else:
            q[r, S.STATE] = S.LAST
    if not plain and rank[k, S.N_PREFILL] > 0:
        r = rank[k, S.RUN_HEAD]
        while r >= 0:
            if q[r, S.STATE] == S.PREFILL:
                rank[k, S.PREFILL_AT] = r
            r = q[r, S.QNEXT]
    # Requests whose last token this pass makes take no part in later choices.
    r = st.calendar[k, number & cfg.mask, 0]
    while r >= 0:
        if q[r, S.STATE] == S.DECODE:
            leave_decode(cfg, st, k, r)
            q[r, S.STATE] = S.LAST
        r = q[r, S.CNEXT]
    if cfg.role == S.PREFILLS:
        nb, kv, made = 0, 0, 0  # its passes pay for no decode, and their tokens are seen by nobody (7.1)
    row = b[k, slot]
    row[S.B_TOKENS] = tokens
    row[S.B_CHUNK] = chunk
    row[S.B_MADE] = made
    row[S.B_CONTINUING] = decoders
    row[S.B_ADMITTED] = admitted
    row[S.B_NEW_HEAD] = new_head
    row[S.B_NEW_TAIL] = new_tail
    row[S.B_ADM_HEAD] = adm_head
    row[S.B_ADM_TAIL] = adm_tail
    return describe(cfg, st, prices, k, slot, np_, tp, kvp, nb, kv)


@inlined
def describe(cfg, st, prices, k, slot, np_, tp, kvp, nb, kv):
    """Number and price a batch that has work, and note how it leaves the rank. Returns a status."""
    rank, row = st.r, st.b[k, slot]
    row[S.B_PASS] = rank[k, S.NEXT_PASS]
    rank[k, S.NEXT_PASS] += 1
    prefill_ns, decode_ns, prefill_cell, decode_cell = price(prices, np_, tp, kvp, nb, kv)
    row[S.B_PREFILL_NS] = prefill_ns
    row[S.B_DECODE_NS] = decode_ns
    row[S.B_NP] = np_
    row[S.B_TP] = tp
    row[S.B_KVP] = kvp
    row[S.B_B] = nb
    row[S.B_KV] = kv
    row[S.B_PREEMPTED] = rank[k, S.CARRIED]
    row[S.B_RUNNING] = rank[k, S.RUN_N]
    row[S.B_WAITING] = rank[k, S.WAIT_N] - rank[k, S.PREEMPTED_N]
    row[S.B_WAITING_PREEMPTED] = rank[k, S.PREEMPTED_N]
    row[S.B_CACHED] = rank[k, S.INACTIVE]
    row[S.B_FREE] = rank[k, S.FREE]
    row[S.B_ACTIVE] = cfg.blocks - rank[k, S.INACTIVE] - rank[k, S.FREE]
    row[S.B_PREFILL_CELL] = prefill_cell
    row[S.B_DECODE_CELL] = decode_cell
    row[S.B_HAS_ITEMS] = 1
    rank[k, S.CARRIED] = 0
    if prefill_ns < 0 or decode_ns < 0:
        st.g[S.BLAME_RANK] = k
        return S.BAD_PRICE
    return S.FINISHED
