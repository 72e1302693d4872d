"""The results of a pass: tokens become visible, requests end, the pass is written down (1.6)."""

from __future__ import annotations

import sim.state as S
from sim.jit import inlined, kernel
from sim.kv.pool import release
from sim.queues import drop_running, drop_waiting
from sim.result import COMPLETED, REJECTED
from sim.routing import prefilled
from sim.source import end_request, request_ended
from sim.spans import close_span


@inlined
def deliver_rejected(cfg, inp, st, k, slot, now):
    """Requests that this batch's choice found impossible are told so."""
    q = st.q
    r = st.b[k, slot, S.B_REJ_HEAD]
    while r >= 0:
        after = q[r, S.QNEXT]
        end_request(cfg, inp, st, r, REJECTED, q[r, S.REASON], now)
        r = after


@inlined
def deliver(cfg, inp, st, k, slot, now, group_pass):
    """Apply the results of batch `slot` of rank k at `now`."""
    q, t, batch = st.q, st.t, st.b[k, slot]
    deliver_rejected(cfg, inp, st, k, slot, now)
    number = batch[S.B_PASS]
    if number < 0:
        return
    st.r[k, S.DELIVERED] = number
    r = batch[S.B_NEW_HEAD]
    while r >= 0:
        if t[r, S.FIRST_TOKEN] < 0 and q[r, S.OUTPUT] > 0:
            t[r, S.FIRST_TOKEN] = now
            prefilled(st.route, r, k)
        r = q[r, S.NNEXT]
    bucket = number & cfg.mask
    r = st.calendar[k, bucket, 0]
    st.calendar[k, bucket, 0] = -1
    st.calendar[k, bucket, 1] = -1
    completed = 0
    while r >= 0:
        after = q[r, S.CNEXT]
        _complete(cfg, inp, st, k, r, now)
        completed += 1
        r = after
    if completed > 0:
        st.r[k, S.ENDED] = 1
    if batch[S.B_MADE] > 0:
        st.r[k, S.BARREN] = 0
    write_pass(cfg, st, k, batch, now, group_pass, completed)


@kernel
def _complete(cfg, inp, st, k, r, now):
    q, output = st.q, st.q[r, S.OUTPUT]
    if q[r, S.STATE] == S.LAST:
        drop_running(st, k, r)
        computed = q[r, S.PROMPT] + max(output - 1, 0)  # the newest token is never computed (5.8)
        if output > 0:
            close_span(st, r, output - q[r, S.RECEIVED])
        held = (computed + cfg.bs - 1) // cfg.bs
        release(inp, st, r, held, computed // cfg.bs if cfg.caching else 0, True)
        if cfg.promises:
            st.r[k, S.PROMISED] -= (q[r, S.PROMPT] + output + cfg.bs - 1) // cfg.bs - held
    else:
        # Preempted while its last token was in flight: it ends in the queue, and its cached blocks become anonymous.
        drop_waiting(st, k, r, True)
        release(inp, st, r, 0, 0, True)
    q[r, S.STATE] = S.DONE
    q[r, S.STATUS] = COMPLETED
    if output > 0:
        st.t[r, S.LAST_TOKEN] = now
    st.t[r, S.END] = now
    st.g[S.N_DONE] += 1
    request_ended(cfg, inp, st, r, now)


@inlined
def write_pass(cfg, st, k, batch, now, group_pass, completed):
    row, log = st.g[S.N_PASSES], st.passes
    log[0, row] = k
    log[1, row] = batch[S.B_PASS]
    log[2, row] = group_pass
    log[3, row] = batch[S.B_CHOSEN]
    log[4, row] = batch[S.B_START]
    log[5, row] = batch[S.B_PREFILL_NS]
    log[6, row] = batch[S.B_DECODE_NS]
    log[7, row] = now
    log[8, row] = batch[S.B_NP]
    log[9, row] = batch[S.B_TP]
    log[10, row] = batch[S.B_KVP]
    log[11, row] = batch[S.B_B]
    log[12, row] = batch[S.B_KV]
    log[13, row] = batch[S.B_TOKENS]
    log[14, row] = batch[S.B_CHUNK]
    log[15, row] = batch[S.B_MADE]
    log[16, row] = batch[S.B_CONTINUING]
    log[17, row] = batch[S.B_ADMITTED]
    log[18, row] = batch[S.B_PREEMPTED]
    log[19, row] = completed
    log[20, row] = batch[S.B_RUNNING]
    log[21, row] = batch[S.B_WAITING]
    log[22, row] = batch[S.B_WAITING_PREEMPTED]
    log[23, row] = batch[S.B_ACTIVE]
    log[24, row] = batch[S.B_CACHED]
    log[25, row] = batch[S.B_FREE]
    log[26, row] = batch[S.B_PREFILL_CELL]
    log[27, row] = batch[S.B_DECODE_CELL]
    st.g[S.N_PASSES] = row + 1
    st.g[S.TOTAL_PASSES] += 1
    st.g[S.PEAK_ACTIVE] = max(st.g[S.PEAK_ACTIVE], batch[S.B_ACTIVE])
