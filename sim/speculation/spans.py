"""Spans of requests that make several tokens in a pass, and how many in which."""

from __future__ import annotations

import sim.speculation.columns as D
import sim.state as S
from sim.jit import inlined, kernel
from sim.result import BURST_PASSES, MOST_DRAFTS


@inlined
def add_burst(st, dr, r, number, stretch, made, drafts):
    """Request r made tokens in pass `number`. Returns whether the pass before made some as well, in the same span."""
    d, own = dr.d, st.q[r, D.SLOT]
    goes_on = d[own, D.SPAN_PASSES] > 0 and d[own, D.SPAN_FIRST] + d[own, D.SPAN_PASSES] == number
    goes_on = goes_on and d[own, D.SPAN_STRETCH] == stretch
    if not goes_on:
        close_span(st, dr, r)
        d[own, D.SPAN_FIRST] = number
        d[own, D.SPAN_STRETCH] = stretch
        d[own, D.SPAN_BURST] = made
    extend_span(st, dr, r, made, drafts)
    return goes_on


@inlined
def extend_span(st, dr, r, made, drafts):
    """Request r made tokens in the pass after the last one of its span."""
    d, own = dr.d, st.q[r, D.SLOT]
    if d[own, D.PART_PASSES] == BURST_PASSES:
        _write_part(st, dr, r)
    at = 4 * d[own, D.PART_PASSES]
    d[own, D.PART_MADE] |= made << at
    d[own, D.PART_DRAFTS] |= drafts << at
    d[own, D.PART_PASSES] += 1
    d[own, D.PART_TOKENS] += made
    d[own, D.SPAN_PASSES] += 1
    d[own, D.SPAN_TOKENS] += made


@kernel
def _write_part(st, dr, r):
    d, q, row, log = dr.d, st.q, dr.counts[D.N_BURSTS_LOG], dr.bursts
    own = q[r, D.SLOT]
    log[0, row] = r
    log[1, row] = q[r, S.N_SPANS]
    log[2, row] = q[r, S.RANK]
    log[3, row] = d[own, D.SPAN_FIRST] + d[own, D.SPAN_PASSES] - d[own, D.PART_PASSES]
    log[4, row] = d[own, D.PART_PASSES]
    log[5, row] = d[own, D.PART_TOKENS]
    log[6, row] = d[own, D.SPAN_TOKEN_NO] + d[own, D.SPAN_TOKENS] - d[own, D.PART_TOKENS]
    log[7, row] = d[own, D.PART_MADE]
    log[8, row] = d[own, D.PART_DRAFTS]
    dr.counts[D.N_BURSTS_LOG] = row + 1
    d[own, D.PART_PASSES] = 0
    d[own, D.PART_TOKENS] = 0
    d[own, D.PART_MADE] = 0
    d[own, D.PART_DRAFTS] = 0


@kernel
def close_span(st, dr, r):
    """End the open span of r, if there is one, and write its row."""
    d, q, row, log = dr.d, st.q, st.g[S.N_SPANS_LOG], st.spans
    own = q[r, D.SLOT]
    if d[own, D.SPAN_PASSES] == 0:
        return
    _write_part(st, dr, r)
    log[0, row] = r
    log[1, row] = q[r, S.N_SPANS]
    log[2, row] = q[r, S.RANK]
    log[3, row] = d[own, D.SPAN_FIRST]
    log[4, row] = d[own, D.SPAN_TOKENS]
    log[5, row] = d[own, D.SPAN_TOKEN_NO]
    log[6, row] = q[r, S.PREV_PASS]
    log[D.SPAN_PASSES_LOG, row] = d[own, D.SPAN_PASSES]
    log[D.SPAN_BURST_LOG, row] = d[own, D.SPAN_BURST]
    st.g[S.N_SPANS_LOG] = row + 1
    q[r, S.N_SPANS] += 1
    q[r, S.PREV_PASS] = d[own, D.SPAN_FIRST] + d[own, D.SPAN_PASSES] - 1
    d[own, D.SPAN_TOKEN_NO] += d[own, D.SPAN_TOKENS]
    d[own, D.SPAN_PASSES] = 0
    d[own, D.SPAN_TOKENS] = 0


@kernel
def leave_slot(st, dr, k, r):
    """r has ended: its row of the acceptance table is written, and its slot is free."""
    q, d, rounds, own = st.q, dr.d, 0, st.q[r, D.SLOT]
    for j in range(MOST_DRAFTS + 1):
        rounds += d[own, D.ACCEPTED + j]
    if rounds > 0:
        row, log = dr.counts[D.N_ACCEPTANCE_LOG], dr.acceptance
        log[0, row] = r
        log[1, row] = rounds
        log[2, row] = d[own, D.DRAFTS]
        for j in range(MOST_DRAFTS + 1):
            log[3 + j, row] = d[own, D.ACCEPTED + j]
        dr.counts[D.N_ACCEPTANCE_LOG] = row + 1
    q[r, D.SLOT] = -1
    dr.ranks[k, D.N_SLOTS] -= 1
    dr.slots[k, dr.ranks[k, D.N_SLOTS]] = own
