"""The results of a pass with drafts: accepted tokens become visible, refused ones go back (1.6, 8.3, 8.4)."""

from __future__ import annotations

import sim.speculation.columns as D
import sim.state as S
from sim.deliver import deliver_rejected, write_pass
from sim.items import cdiv
from sim.jit import inlined, kernel
from sim.kv.pool import release
from sim.queues import drop_waiting
from sim.result import COMPLETED, KIND_RUNNING
from sim.routing import prefilled
from sim.source import request_ended
from sim.speculation.blocks import hash_upto, leave
from sim.speculation.plan import is_planned, plan_ends
from sim.speculation.spans import add_burst, close_span, leave_slot


@inlined
def deliver_drafting(cfg, inp, st, dr, k, slot, now, group_pass):
    """Apply the results of batch `slot` of rank k at `now`."""
    q, d, batch = st.q, dr.d, st.b[k, slot]
    deliver_rejected(cfg, inp, st, k, slot, now)
    number = batch[S.B_PASS]
    if number < 0:
        return
    st.r[k, S.DELIVERED] = number
    sums = dr.sums[k, slot]
    late = sums[D.W_REQUESTS] >> D.UPPER  # planned requests that the pass before has ended
    bursts = (sums[D.W_REQUESTS] & D.LOWER_BITS) - late
    continuing, chunk = bursts, late * (1 + dr.drafts)
    rounds, drafts = sums[D.W_DRAFTS] >> D.UPPER, sums[D.W_DRAFTS] & D.LOWER_BITS
    hits, made = sums[D.W_MADE] >> D.UPPER, sums[D.W_MADE] & D.LOWER_BITS
    surplus = sums[D.W_BLOCKS] >> D.UPPER
    st.r[k, S.FREE] += surplus
    if cfg.promises:
        st.r[k, S.PROMISED] += surplus
    completed = _end_plans(cfg, inp, st, dr, k, number, now)
    for i in range(dr.n_items[k, slot]):
        item = dr.items[k, slot, i]
        if item[D.I_LIVE] == 0:
            continue
        r = item[D.I_REQUEST]
        part = min(max(0, q[r, S.PROMPT] - item[D.I_BEFORE]), item[D.I_TOKENS])
        if item[D.I_SAMPLES] and q[r, S.STATE] != S.DONE:
            # A request that is planned already has this pass behind it.
            own = q[r, D.SLOT]
            running = item[D.I_EPOCH] == d[own, D.EPOCH] and not is_planned(st, r)
            taken = _take_tokens(st, dr, r, item, running)
            if taken > 0:
                continuing += add_burst(st, dr, r, number, item[D.I_STRETCH], taken, item[D.I_DRAFTS])
                made += taken
                bursts += 1
                if st.t[r, S.FIRST_TOKEN] < 0:
                    st.t[r, S.FIRST_TOKEN] = now
                    prefilled(st.route, r, k)
                st.t[r, S.LAST_TOKEN] = now
                if item[D.I_VERIFIED] > 0:
                    rounds += 1
                    drafts += item[D.I_VERIFIED]
                    hits += item[D.I_ACCEPTED]
                    if dr.native or part == 0:
                        d[own, D.ACCEPTED + item[D.I_ACCEPTED]] += 1
                        d[own, D.DRAFTS] += item[D.I_VERIFIED]
            if running:
                _give_back(cfg, inp, st, dr, k, r)
            if q[r, S.RECEIVED] >= q[r, S.OUTPUT]:
                _complete(cfg, inp, st, dr, k, r, running, now)
                completed += 1
        plain = item[D.I_KIND] == KIND_RUNNING and part == 0 and item[D.I_SAMPLES] == 1
        if not plain or item[D.I_TOKENS] != 1 + item[D.I_DRAFTS] or item[D.I_MADE] == 0:
            chunk += item[D.I_TOKENS]
            kind, cached = item[D.I_KIND], item[D.I_CACHED]
            write_row(st, k, number, r, item[D.I_TOKENS], item[D.I_BEFORE], part, kind, cached, item[D.I_DRAFTS])
    if completed > 0:
        st.r[k, S.ENDED] = 1
    if made > 0:
        st.r[k, S.BARREN] = 0
    batch[S.B_MADE] = made
    batch[S.B_CONTINUING] = continuing
    batch[S.B_CHUNK] = chunk
    row, log = st.g[S.N_PASSES], st.passes
    write_pass(cfg, st, k, batch, now, group_pass, completed)
    log[D.PASS_ROUNDS, row] = rounds
    log[D.PASS_DRAFTS, row] = drafts
    log[D.PASS_ACCEPTED, row] = hits
    log[D.PASS_BURSTS, row] = bursts


@inlined
def _end_plans(cfg, inp, st, dr, k, number, now):
    """Planned requests that end with pass `number`. Returns how many."""
    q, completed = st.q, 0
    bucket = st.calendar[k, number & cfg.mask]
    r = bucket[0]
    bucket[0] = -1
    bucket[1] = -1
    while r >= 0:
        after = q[r, S.CNEXT]
        before = plan_ends(cfg, st, dr, k, r)
        if before >= 0:
            # Its next pass was chosen before anybody knew.
            write_row(st, k, number + 1, r, 1 + dr.drafts, before, 0, KIND_RUNNING, -1, dr.drafts)
        st.t[r, S.LAST_TOKEN] = now
        _complete(cfg, inp, st, dr, k, r, True, now)
        completed += 1
        r = after
    return completed


@inlined
def _take_tokens(st, dr, r, item, running):
    """The tokens that an item made join its request; what the scheduler took for granted beyond them goes back."""
    q, d, taken, own = st.q, dr.d, 0, st.q[r, D.SLOT]
    if q[r, S.OUTPUT] > 0:
        taken = min(1 + item[D.I_ACCEPTED], q[r, S.OUTPUT] - q[r, S.RECEIVED])
    if running and dr.native and taken > 0:
        refused = item[D.I_DRAFTS] - item[D.I_ACCEPTED]
        q[r, S.COMPUTED] -= refused
        d[own, D.OWED] -= refused + taken
    elif running:
        d[own, D.OWED] -= 1
    item[D.I_MADE] = taken
    q[r, S.RECEIVED] += taken
    return taken


@inlined
def _give_back(cfg, inp, st, dr, k, r):
    """Hash what is known now; policy mode: return reserved blocks beyond the newest token, whose slot stays (8.4)."""
    q, d, own = st.q, dr.d, st.q[r, D.SLOT]
    if not dr.native and q[r, S.OUTPUT] > 0:
        known = q[r, S.PROMPT] + q[r, S.RECEIVED]
        q[r, S.COMPUTED] = known - 1
        surplus = d[own, D.BLOCKS] - cdiv(known, cfg.bs)
        st.r[k, S.FREE] += surplus
        d[own, D.BLOCKS] -= surplus
        if cfg.promises:
            st.r[k, S.PROMISED] += surplus
    if not dr.native or cfg.depth == 2:
        # Synchronous vLLM hashes when it schedules, and only then.
        hash_upto(cfg, inp, st, dr, r, q[r, S.COMPUTED] - d[own, D.OWED])


@kernel
def _complete(cfg, inp, st, dr, k, r, running, now):
    q = st.q
    close_span(st, dr, r)
    if running:
        if dr.native or q[r, S.OUTPUT] > 0:  # otherwise it left before the bursts of its pass were reserved
            leave(cfg, inp, st, dr, k, r)
    else:
        drop_waiting(st, k, r, True)  # its last tokens were in flight when it was preempted
        release(inp, st, r, 0, 0, True)
    leave_slot(st, dr, k, r)
    q[r, S.STATE] = S.DONE
    q[r, S.STATUS] = COMPLETED
    st.t[r, S.END] = now
    st.g[S.N_DONE] += 1
    request_ended(cfg, inp, st, r, now)


@inlined
def write_row(st, k, number, r, tokens, before, part, kind, cached, drafts):
    """What one request computed in a pass, where that is not a plain round."""
    row, log = st.g[S.N_CHUNKS_LOG], st.chunks
    log[0, row] = r
    log[1, row] = k
    log[2, row] = number
    log[3, row] = tokens
    log[4, row] = before
    log[5, row] = part
    log[6, row] = kind
    log[7, row] = cached
    log[D.CHUNK_DRAFTS, row] = drafts
    st.g[S.N_CHUNKS_LOG] = row + 1
