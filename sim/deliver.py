"""The results of a pass: tokens become visible, requests end, the pass is written down (1.6)."""

from __future__ import annotations

from sim.jit import inlined, kernel
from sim.kv.pool import release
from sim.queues import drop_running, drop_waiting
from sim.result import COMPLETED, REJECTED
from sim.source import request_ended
from sim.spans import close_span
from sim.state import (
    B_ACTIVE,
    B_ADMITTED,
    B_B,
    B_CACHED,
    B_CHOSEN,
    B_CHUNK,
    B_CONTINUING,
    B_DECODE_CELL,
    B_DECODE_NS,
    B_FREE,
    B_KV,
    B_KVP,
    B_MADE,
    B_NEW_HEAD,
    B_NP,
    B_PASS,
    B_PREEMPTED,
    B_PREFILL_CELL,
    B_PREFILL_NS,
    B_REJ_HEAD,
    B_RUNNING,
    B_START,
    B_TOKENS,
    B_TP,
    B_WAITING,
    B_WAITING_PREEMPTED,
    BARREN,
    CNEXT,
    DELIVERED,
    DONE,
    END,
    ENDED,
    FIRST_TOKEN,
    LAST,
    LAST_TOKEN,
    N_DONE,
    N_PASSES,
    NNEXT,
    OUTPUT,
    PEAK_ACTIVE,
    PROMPT,
    QNEXT,
    RECEIVED,
    STATE,
    STATUS,
    TOTAL_PASSES,
)


@inlined
def deliver(cfg, inp, st, k, slot, now, group_pass):
    """Apply the results of batch `slot` of rank k at `now`."""
    q, t, batch = st.q, st.t, st.b[k, slot]
    r = batch[B_REJ_HEAD]
    while r >= 0:
        after = q[r, QNEXT]
        q[r, STATE] = DONE
        q[r, STATUS] = REJECTED
        t[r, END] = now
        st.g[N_DONE] += 1
        request_ended(cfg, inp, st, r, now)
        r = after
    number = batch[B_PASS]
    if number < 0:
        return
    st.r[k, DELIVERED] = number
    r = batch[B_NEW_HEAD]
    while r >= 0:
        if t[r, FIRST_TOKEN] < 0 and q[r, OUTPUT] > 0:
            t[r, FIRST_TOKEN] = now
        r = q[r, NNEXT]
    bucket = number & cfg.mask
    r = st.calendar[k, bucket, 0]
    st.calendar[k, bucket, 0] = -1
    st.calendar[k, bucket, 1] = -1
    completed = 0
    while r >= 0:
        after = q[r, CNEXT]
        _complete(cfg, inp, st, k, r, now)
        completed += 1
        r = after
    if completed > 0:
        st.r[k, ENDED] = 1
    if batch[B_MADE] > 0:
        st.r[k, BARREN] = 0
    _write(cfg, st, k, batch, now, group_pass, completed)


@kernel
def _complete(cfg, inp, st, k, r, now):
    q, output = st.q, st.q[r, OUTPUT]
    if q[r, STATE] == LAST:
        drop_running(st, k, r)
        computed = q[r, PROMPT] + max(output - 1, 0)  # the newest token is never computed (5.8)
        if output > 0:
            close_span(st, r, output - q[r, RECEIVED])
        release(inp, st, r, (computed + cfg.bs - 1) // cfg.bs, computed // cfg.bs if cfg.caching else 0, True)
    else:
        # Preempted while its last token was in flight: it ends in the queue, and its cached blocks become anonymous.
        drop_waiting(st, k, r, True)
        release(inp, st, r, 0, 0, True)
    q[r, STATE] = DONE
    q[r, STATUS] = COMPLETED
    if output > 0:
        st.t[r, LAST_TOKEN] = now
    st.t[r, END] = now
    st.g[N_DONE] += 1
    request_ended(cfg, inp, st, r, now)


@inlined
def _write(cfg, st, k, batch, now, group_pass, completed):
    row, log = st.g[N_PASSES], st.passes
    log[0, row] = k
    log[1, row] = batch[B_PASS]
    log[2, row] = group_pass
    log[3, row] = batch[B_CHOSEN]
    log[4, row] = batch[B_START]
    log[5, row] = batch[B_PREFILL_NS]
    log[6, row] = batch[B_DECODE_NS]
    log[7, row] = now
    log[8, row] = batch[B_NP]
    log[9, row] = batch[B_TP]
    log[10, row] = batch[B_KVP]
    log[11, row] = batch[B_B]
    log[12, row] = batch[B_KV]
    log[13, row] = batch[B_TOKENS]
    log[14, row] = batch[B_CHUNK]
    log[15, row] = batch[B_MADE]
    log[16, row] = batch[B_CONTINUING]
    log[17, row] = batch[B_ADMITTED]
    log[18, row] = batch[B_PREEMPTED]
    log[19, row] = completed
    log[20, row] = batch[B_RUNNING]
    log[21, row] = batch[B_WAITING]
    log[22, row] = batch[B_WAITING_PREEMPTED]
    log[23, row] = batch[B_ACTIVE]
    log[24, row] = batch[B_CACHED]
    log[25, row] = batch[B_FREE]
    log[26, row] = batch[B_PREFILL_CELL]
    log[27, row] = batch[B_DECODE_CELL]
    st.g[N_PASSES] = row + 1
    st.g[TOTAL_PASSES] += 1
    st.g[PEAK_ACTIVE] = max(st.g[PEAK_ACTIVE], batch[B_ACTIVE])
