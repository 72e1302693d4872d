"""Requests whose rounds are worked out ahead: a pass finds the sums over them in a ring, and visits none of them.

Acceptance is a function of (seed, request, round), so all that a decoding request will do is known when it begins, as
long as nobody takes its drafts or its blocks away: how many tokens each pass makes, when a block is taken, when it
ends. A plan puts this into the ring's rows of the passes to come, and the request into the calendar bucket of its last
one. When running order begins to matter the plans of a rank are taken back, and its requests stand as if they had been
served one by one all along.
"""

from __future__ import annotations

import numpy as np

import sim.speculation.columns as D
import sim.state as S
from sim.items import cdiv
from sim.jit import inlined, kernel
from sim.queues import link_in_order, unlink
from sim.result import KIND_RUNNING
from sim.speculation.sampling import accepted, triggers
from sim.speculation.spans import extend_span


@inlined
def is_planned(st, r):
    return st.q[r, S.STATE] == S.DECODE


@inlined
def _more(bs, blocks, tokens):
    """Blocks, at least `blocks`, that hold `tokens`; a few more tokens than before, so counting beats dividing."""
    held = blocks * bs
    while held < tokens:
        held += bs
        blocks += 1
    return blocks


@inlined
def _effects(cfg, dr, end, length, before, drafts, hits, blocks):
    """One pass of a request that has `length` tokens before it, and `end` at most.

    Returns (tokens made, blocks taken, blocks given back, blocks held, tokens computed before the next pass).
    """
    made = min(1 + hits, end - length)
    if dr.native:
        held = _more(cfg.bs, blocks, before + 1 + drafts + dr.lookahead)
        taken, back = held - blocks, 0
    else:
        held = _more(cfg.bs, blocks, length + made)
        most = _more(cfg.bs, held, min(length + 1 + drafts, end))
        taken, back = most - blocks, most - held
    before = length + drafts if cfg.depth == 2 else length + made - 1
    return made, taken, back, held, before


@inlined
def _proposed(dr, r, round_no):
    """Drafts that are proposed next, and the round in which they are verified."""
    if triggers(dr, r, round_no):
        return dr.drafts, round_no
    return 0, round_no + 1


@inlined
def planned_tokens(dr, row):
    """Tokens that the requests in a row of the ring compute."""
    if not dr.native:
        return row[D.W_REQUESTS] & D.LOWER_BITS
    late = row[D.W_REQUESTS] >> D.UPPER
    return (row[D.W_REQUESTS] & D.LOWER_BITS) + (row[D.W_DRAFTS] & D.LOWER_BITS) + late * dr.drafts


@inlined
def _add(row, sign, before, drafts, hits, made, taken, back):
    row[D.W_REQUESTS] += sign
    row[D.W_KV] += sign * (before + 1)
    row[D.W_DRAFTS] += sign * (drafts + ((drafts > 0) << D.UPPER))
    row[D.W_BLOCKS] += sign * (taken + (back << D.UPPER))
    row[D.W_MADE] += sign * (made + (hits << D.UPPER))


@inlined
def _add_surplus(row, sign, before, taken):
    """The pass after its last one was chosen before anybody knew: computed in full, for nothing."""
    row[D.W_REQUESTS] += sign * (1 + (1 << D.UPPER))
    row[D.W_KV] += sign * (before + 1)
    row[D.W_BLOCKS] += sign * taken


@inlined
def runs_over(cfg, length, end):
    """Whether a request that ends with a pass it entered with `length` tokens is computed in the next one as well."""
    return cfg.depth == 2 and length + 1 < end


@kernel
def plan(cfg, st, dr, k, r, pass_no, length, before):
    """Plan r from pass `pass_no` on, where it has `length` tokens, `before` of them computed as its choice believes."""
    d, own = dr.d, st.q[r, D.SLOT]
    d[own, D.PLAN_PASS] = pass_no
    d[own, D.PLAN_LENGTH] = length
    d[own, D.PLAN_BEFORE] = before
    d[own, D.NEXT_LENGTH] = length
    d[own, D.NEXT_BEFORE] = before
    d[own, D.NEXT_ROUND] = d[own, D.ROUND]
    d[own, D.NEXT_READY] = d[own, D.READY]
    d[own, D.NEXT_BLOCKS] = d[own, D.BLOCKS]
    st.q[r, S.STATE] = S.DECODE
    dr.ranks[k, D.N_PLANNED] += 1
    plan_on(cfg, st, dr, k, r, pass_no)


@inlined
def _unplan(st, dr, k, r):
    st.q[r, S.STATE] = S.PREFILL
    dr.ranks[k, D.N_PLANNED] -= 1


@kernel
def plan_on(cfg, st, dr, k, r, pass_no):
    """Work the plan of r out from pass `pass_no` on, as far as the ring reaches."""
    q, d, ring, mask, own = st.q, dr.d, dr.ring[k], dr.ring.shape[1] - 1, st.q[r, D.SLOT]
    end, last, rounds = q[r, S.PROMPT] + q[r, S.OUTPUT], pass_no + mask - 2, dr.rounds[own]
    length, before, round_no = d[own, D.NEXT_LENGTH], d[own, D.NEXT_BEFORE], d[own, D.NEXT_ROUND]
    drafts, blocks, at = d[own, D.NEXT_READY], d[own, D.NEXT_BLOCKS], length
    while True:
        was, at, hits = before, length, 0
        if not dr.native:
            drafts, round_no = _proposed(dr, r, round_no)
        if drafts > 0:
            hits = accepted(dr, r, round_no, drafts)
            round_no += 1
        rounds[pass_no & mask] = hits | drafts << 4
        made, taken, back, blocks, before = _effects(cfg, dr, end, length, before, drafts, hits, blocks)
        _add(ring[pass_no & mask], 1, was, drafts, hits, made, taken, back)
        length += made
        if dr.native:
            drafts, round_no = _proposed(dr, r, round_no)
        if length >= end or pass_no == last:
            break
        pass_no += 1
    if length >= end and runs_over(cfg, at, end):
        more = _more(cfg.bs, blocks, before + 1 + dr.drafts + dr.lookahead)
        _add_surplus(ring[(pass_no + 1) & mask], 1, before, more - blocks)
        blocks = more
    d[own, D.LAST_PASS] = pass_no
    d[own, D.NEXT_LENGTH] = length
    d[own, D.NEXT_BEFORE] = before
    d[own, D.NEXT_ROUND] = round_no
    d[own, D.NEXT_READY] = drafts
    d[own, D.NEXT_BLOCKS] = blocks
    link_in_order(q, st.calendar[k, pass_no & cfg.mask], r, S.CPREV, S.CNEXT)


@kernel
def happened(cfg, st, dr, k, r, upto):
    """The passes of r's plan before pass `upto` are over: its tokens are made, and written down."""
    q, d, mask, own = st.q, dr.d, dr.ring.shape[1] - 1, st.q[r, D.SLOT]
    low, high = d[own, D.PLAN_PASS], min(upto, d[own, D.LAST_PASS] + 1)
    if low >= high:
        return
    rounds, end = dr.rounds[own], q[r, S.PROMPT] + q[r, S.OUTPUT]
    length, before, was, computed, verified = d[own, D.PLAN_LENGTH], d[own, D.PLAN_BEFORE], 0, 0, 0
    for pass_no in range(low, high):
        packed = np.int64(rounds[pass_no & mask])
        hits, drafts = packed & 15, packed >> 4
        made = min(1 + hits, end - length)
        extend_span(st, dr, r, made, drafts if dr.native else 0)
        d[own, D.ACCEPTED + hits] += drafts > 0
        verified += int(drafts)
        was = length
        length += made
        computed = max(computed, before + 1 + drafts)
        before = was + drafts if cfg.depth == 2 else length - 1
    d[own, D.DRAFTS] += verified
    q[r, S.RECEIVED] += length - d[own, D.PLAN_LENGTH]
    _pass_rounds(dr, own, low, high)
    held = cdiv(computed + dr.lookahead if dr.native else length, cfg.bs)
    d[own, D.BLOCKS] = max(d[own, D.BLOCKS], held)
    d[own, D.PLAN_PASS] = high
    d[own, D.PLAN_LENGTH] = length
    d[own, D.PLAN_BEFORE] = before
    d[own, D.PLAN_WAS] = was


@inlined
def _pass_rounds(dr, own, low, high):
    """Move READY and ROUND of a request from pass `low` of its plan to `high`. Every pass spends a round: verified, or
    without a trigger; that of READY, if it is nothing, is spent already."""
    d = dr.d
    d[own, D.ROUND] += high - low - (dr.native == 1 and d[own, D.READY] == 0)
    if dr.native:
        if high > d[own, D.LAST_PASS]:
            d[own, D.ROUND], d[own, D.READY] = d[own, D.NEXT_ROUND], d[own, D.NEXT_READY]
        else:
            d[own, D.READY] = dr.rounds[own, high & (dr.ring.shape[1] - 1)] >> 4
            d[own, D.ROUND] += d[own, D.READY] == 0


@kernel
def take_back_plans(cfg, st, dr, k, slot):
    """Every planned request of rank k stands from now on as if it had been served one by one."""
    q, in_flight = st.q, st.r[k, S.NEXT_PASS] - 1 > st.r[k, S.DELIVERED]
    other, r, n = slot ^ 1, st.r[k, S.RUN_HEAD], 0
    if in_flight:
        _make_way(st, dr, k, other)
    while r >= 0:
        if is_planned(st, r):
            n += _take_back(cfg, st, dr, k, r, other, n, in_flight)
        r = q[r, S.QNEXT]


@kernel
def _make_way(st, dr, k, slot):
    """Move the items of a batch in flight behind places for the planned requests that are computed in it."""
    q, first, r = st.q, 0, st.r[k, S.RUN_HEAD]
    while r >= 0:
        first += is_planned(st, r) and dr.d[q[r, D.SLOT], D.PLAN_PASS] < st.r[k, S.NEXT_PASS]
        r = q[r, S.QNEXT]
    make_places(st, dr, k, slot, dr.n_items[k, slot], first)
    dr.n_items[k, slot] += first


@kernel
def make_places(st, dr, k, slot, n, first):
    """Move the `n` items of a batch `first` places up."""
    items = dr.items[k, slot]
    for i in range(n - 1, -1, -1):
        for column in range(D.I_WIDTH):
            items[i + first, column] = items[i, column]
        own = st.q[items[i, D.I_REQUEST], D.SLOT]
        if own >= 0 and dr.d[own, D.ITEM] == i:  # otherwise it has ended meanwhile
            dr.d[own, D.ITEM] = i + first


@kernel
def _take_back(cfg, st, dr, k, r, slot, place, in_flight):
    """Take the plan of r out of the ring. Returns 1 if it fills `place` of the batch in flight."""
    q, d, number, own = st.q, dr.d, st.r[k, S.NEXT_PASS], st.q[r, D.SLOT]
    ring, mask, rounds = dr.ring[k], dr.ring.shape[1] - 1, dr.rounds[own]
    end, last, filled = q[r, S.PROMPT] + q[r, S.OUTPUT], d[own, D.LAST_PASS], 0
    unlink(q, st.calendar[k, last & cfg.mask], 0, 1, r, S.CPREV, S.CNEXT)
    if d[own, D.PLAN_PASS] < number:  # otherwise nothing has come of the plan yet
        happened(cfg, st, dr, k, r, number - in_flight)
        _hashed(cfg, dr, own)
        q[r, S.COMPUTED] = d[own, D.PLAN_BEFORE]
        d[own, D.OWED] = 0
    length, before, blocks, at = d[own, D.PLAN_LENGTH], d[own, D.PLAN_BEFORE], d[own, D.BLOCKS], 0
    for pass_no in range(d[own, D.PLAN_PASS], last + 1):
        packed = np.int64(rounds[pass_no & mask])
        hits, drafts, was, at = packed & 15, packed >> 4, before, length
        made, taken, back, blocks, before = _effects(cfg, dr, end, length, before, drafts, hits, blocks)
        if pass_no < number:
            _add(dr.sums[k, slot], -1, was, drafts, hits, made, taken, back)
            _fill(st, dr, k, slot, place, r, was, drafts, hits)
            q[r, S.COMPUTED] = at + drafts  # what its pass before refused has gone back
            d[own, D.OWED] = 1 + drafts
            d[own, D.BLOCKS] = blocks
            _pass_rounds(dr, own, pass_no, pass_no + 1)
            filled = 1
        else:
            _add(ring[pass_no & mask], -1, was, drafts, hits, made, taken, back)
        length += made
    if length >= end and runs_over(cfg, at, end):
        more = _more(cfg.bs, blocks, before + 1 + dr.drafts + dr.lookahead)
        _add_surplus(ring[(last + 1) & mask], -1, before, more - blocks)
    _unplan(st, dr, k, r)
    return filled


@kernel
def _hashed(cfg, dr, own):
    """Full blocks of known tokens are hashed; synchronous vLLM does so only when it schedules the next (5.6)."""
    d = dr.d
    tokens = d[own, D.PLAN_WAS] if dr.native and cfg.depth == 1 else d[own, D.PLAN_LENGTH] - 1
    if cfg.caching:
        d[own, D.HASHED] = max(d[own, D.HASHED], tokens // cfg.bs)


@kernel
def plan_ends(cfg, st, dr, k, r):
    """The last pass of a plan is over. Returns tokens computed before the next one, or -1 if it has no part in that."""
    d, own = dr.d, st.q[r, D.SLOT]
    happened(cfg, st, dr, k, r, d[own, D.LAST_PASS] + 1)
    _hashed(cfg, dr, own)
    _unplan(st, dr, k, r)
    if not runs_over(cfg, d[own, D.PLAN_WAS], d[own, D.PLAN_LENGTH]):
        return -1
    d[own, D.BLOCKS] = d[own, D.NEXT_BLOCKS]
    return d[own, D.PLAN_BEFORE]


@kernel
def plans_go_on(cfg, st, dr, k, number):
    """Plans that reach only to pass `number` are worked out further."""
    q, d = st.q, dr.d
    r = st.calendar[k, number & cfg.mask, 0]
    while r >= 0:
        after = q[r, S.CNEXT]
        if is_planned(st, r) and d[q[r, D.SLOT], D.NEXT_LENGTH] < q[r, S.PROMPT] + q[r, S.OUTPUT]:
            unlink(q, st.calendar[k, number & cfg.mask], 0, 1, r, S.CPREV, S.CNEXT)
            happened(cfg, st, dr, k, r, min(number, st.r[k, S.DELIVERED] + 1))
            plan_on(cfg, st, dr, k, r, number + 1)
        r = after


@inlined
def _fill(st, dr, k, slot, place, r, before, drafts, hits):
    item, own = dr.items[k, slot, place], st.q[r, D.SLOT]
    item[D.I_REQUEST] = r
    item[D.I_TOKENS] = 1 + drafts
    item[D.I_BEFORE] = before
    item[D.I_KIND] = KIND_RUNNING
    item[D.I_CACHED] = -1
    item[D.I_DRAFTS] = drafts
    item[D.I_VERIFIED] = drafts
    item[D.I_ACCEPTED] = hits
    item[D.I_SAMPLES] = 1
    item[D.I_EPOCH] = dr.d[own, D.EPOCH]
    item[D.I_STRETCH] = dr.d[own, D.STRETCH]
    item[D.I_LIVE] = 1
    item[D.I_MADE] = 0
    dr.d[own, D.ITEM] = place
