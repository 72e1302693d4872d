"""Requests whose rounds are worked out ahead: a pass finds the sums over them in a ring, and visits none of them.

Acceptance is a function of (seed, request, round), so all that a decoding request will do is known when it begins, as
long as nobody takes its drafts or its blocks away: how many tokens each pass makes, when a block is taken, when it
ends. A plan puts this into the ring's rows of the passes to come, and the request into the calendar bucket of its last
one. When running order begins to matter the plans of a rank are taken back, and its requests stand as if they had been
served one by one all along.
"""

from __future__ import annotations

import sim.speculation.columns as D
import sim.state as S
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
def _step(cfg, dr, r, end, length, before, round_no, ready, blocks):
    """One pass of a planned request that has `length` tokens before it, and `end` at most.

    Returns (drafts, accepted, tokens made, blocks taken, blocks given back; then as the next pass finds them: before,
    round, ready, blocks).
    """
    if dr.native:
        drafts = ready
    else:
        drafts = dr.drafts
        if not triggers(dr, r, round_no):
            drafts = 0
            round_no += 1
    hits = 0
    if drafts > 0:
        hits = accepted(dr, r, round_no, drafts)
        round_no += 1
    made = min(1 + hits, end - length)
    if dr.native:
        taken = _more(cfg.bs, blocks, before + 1 + drafts + dr.lookahead) - blocks
        back = 0
        blocks += taken
        ready = dr.drafts
        if not triggers(dr, r, round_no):
            ready = 0
            round_no += 1
    else:
        kept = _more(cfg.bs, blocks, length + made)
        most = _more(cfg.bs, kept, min(length + 1 + drafts, end))
        taken, back = most - blocks, most - kept
        blocks = kept
    before = length + drafts if cfg.depth == 2 else length + made - 1
    return drafts, hits, made, taken, back, before, round_no, ready, blocks


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
    d = dr.d
    d[r, D.PLAN_PASS] = pass_no
    d[r, D.PLAN_LENGTH] = length
    d[r, D.PLAN_BEFORE] = before
    d[r, D.NEXT_LENGTH] = length
    d[r, D.NEXT_BEFORE] = before
    d[r, D.NEXT_ROUND] = d[r, D.ROUND]
    d[r, D.NEXT_READY] = d[r, D.READY]
    d[r, D.NEXT_BLOCKS] = d[r, D.BLOCKS]
    st.q[r, S.STATE] = S.DECODE
    dr.ranks[k, D.N_PLANNED] += 1
    plan_on(cfg, st, dr, k, r, pass_no)


@kernel
def plan_on(cfg, st, dr, k, r, pass_no):
    """Work the plan of r out from pass `pass_no` on, as far as the ring reaches."""
    q, d, ring, mask = st.q, dr.d, dr.ring[k], dr.ring.shape[1] - 1
    end, last = q[r, S.PROMPT] + q[r, S.OUTPUT], pass_no + mask - 2
    length, before, round_no = d[r, D.NEXT_LENGTH], d[r, D.NEXT_BEFORE], d[r, D.NEXT_ROUND]
    ready, blocks = d[r, D.NEXT_READY], d[r, D.NEXT_BLOCKS]
    while True:
        was, at = before, length
        drafts, hits, made, taken, back, before, round_no, ready, blocks = _step(
            cfg, dr, r, end, length, before, round_no, ready, blocks
        )
        _add(ring[pass_no & mask], 1, was, drafts, hits, made, taken, back)
        length += made
        if length >= end or pass_no == last:
            break
        pass_no += 1
    if length >= end and runs_over(cfg, at, end):
        more = _more(cfg.bs, blocks, before + 1 + dr.drafts + dr.lookahead)
        _add_surplus(ring[(pass_no + 1) & mask], 1, before, more - blocks)
        blocks = more
    d[r, D.LAST_PASS] = pass_no
    d[r, D.NEXT_LENGTH] = length
    d[r, D.NEXT_BEFORE] = before
    d[r, D.NEXT_ROUND] = round_no
    d[r, D.NEXT_READY] = ready
    d[r, D.NEXT_BLOCKS] = blocks
    link_in_order(q, st.calendar[k, pass_no & cfg.mask], r, S.CPREV, S.CNEXT)


@kernel
def happened(cfg, st, dr, k, r, upto):
    """The passes of r's plan before pass `upto` are over: its tokens are made, and written down."""
    q, d = st.q, dr.d
    pass_no, end = d[r, D.PLAN_PASS], q[r, S.PROMPT] + q[r, S.OUTPUT]
    length, before, round_no = d[r, D.PLAN_LENGTH], d[r, D.PLAN_BEFORE], d[r, D.ROUND]
    ready, blocks = d[r, D.READY], d[r, D.BLOCKS]
    while pass_no < upto and length < end:
        drafts, hits, made, _, _, before, round_no, ready, blocks = _step(
            cfg, dr, r, end, length, before, round_no, ready, blocks
        )
        extend_span(st, dr, r, made, drafts if dr.native else 0)
        if drafts > 0:
            d[r, D.ACCEPTED + hits] += 1
            d[r, D.DRAFTS] += drafts
        d[r, D.PLAN_WAS] = length
        q[r, S.RECEIVED] += made
        length += made
        pass_no += 1
    d[r, D.PLAN_PASS] = pass_no
    d[r, D.PLAN_LENGTH] = length
    d[r, D.PLAN_BEFORE] = before
    d[r, D.ROUND] = round_no
    d[r, D.READY] = ready
    d[r, D.BLOCKS] = blocks


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
    dr.ranks[k, D.N_PLANNED] = 0


@kernel
def _make_way(st, dr, k, slot):
    """Move the items of a batch in flight behind places for the planned requests that are computed in it."""
    q, first, r = st.q, 0, st.r[k, S.RUN_HEAD]
    while r >= 0:
        first += is_planned(st, r) and dr.d[r, D.PLAN_PASS] < st.r[k, S.NEXT_PASS]
        r = q[r, S.QNEXT]
    make_places(dr, k, slot, dr.n_items[k, slot], first)
    dr.n_items[k, slot] += first


@kernel
def make_places(dr, k, slot, n, first):
    """Move the `n` items of a batch `first` places up."""
    items = dr.items[k, slot]
    for i in range(n - 1, -1, -1):
        for column in range(D.I_WIDTH):
            items[i + first, column] = items[i, column]
        if dr.d[items[i, D.I_REQUEST], D.ITEM] == i:
            dr.d[items[i, D.I_REQUEST], D.ITEM] = i + first


@kernel
def _take_back(cfg, st, dr, k, r, slot, place, in_flight):
    """Take the plan of r out of the ring. Returns 1 if it fills `place` of the batch in flight."""
    q, d, number = st.q, dr.d, st.r[k, S.NEXT_PASS]
    ring, mask = dr.ring[k], dr.ring.shape[1] - 1
    end, last = q[r, S.PROMPT] + q[r, S.OUTPUT], d[r, D.LAST_PASS]
    unlink(q, st.calendar[k, last & cfg.mask], 0, 1, r, S.CPREV, S.CNEXT)
    q[r, S.STATE] = S.PREFILL
    fresh = d[r, D.PLAN_PASS] == number
    if not fresh:
        happened(cfg, st, dr, k, r, number - in_flight)
    length, before, round_no = d[r, D.PLAN_LENGTH], d[r, D.PLAN_BEFORE], d[r, D.ROUND]
    ready, blocks, pass_no, filled = d[r, D.READY], d[r, D.BLOCKS], d[r, D.PLAN_PASS], 0
    if not fresh:
        _hashed(cfg, dr, r)
        q[r, S.COMPUTED] = before
        d[r, D.OWED] = 0
    while pass_no <= last:
        was, at = before, length
        drafts, hits, made, taken, back, before, round_no, ready, blocks = _step(
            cfg, dr, r, end, length, before, round_no, ready, blocks
        )
        if pass_no < number:
            _add(dr.sums[k, slot], -1, was, drafts, hits, made, taken, back)
            _fill(dr, k, slot, place, r, was, drafts, hits)
            q[r, S.COMPUTED] = at + drafts  # what its pass before refused has gone back
            d[r, D.OWED] = 1 + drafts
            d[r, D.ROUND] = round_no
            d[r, D.READY] = ready
            d[r, D.BLOCKS] = blocks
            filled = 1
        else:
            _add(ring[pass_no & mask], -1, was, drafts, hits, made, taken, back)
        length += made
        pass_no += 1
    if length >= end and runs_over(cfg, at, end):
        more = _more(cfg.bs, blocks, before + 1 + dr.drafts + dr.lookahead)
        _add_surplus(ring[pass_no & mask], -1, before, more - blocks)
    return filled


@kernel
def _hashed(cfg, dr, r):
    """Full blocks of known tokens are hashed; synchronous vLLM does so only when it schedules the next (5.6)."""
    d = dr.d
    tokens = d[r, D.PLAN_WAS] if dr.native and cfg.depth == 1 else d[r, D.PLAN_LENGTH] - 1
    if cfg.caching:
        d[r, D.HASHED] = max(d[r, D.HASHED], tokens // cfg.bs)


@kernel
def plan_ends(cfg, st, dr, k, r):
    """The last pass of a plan is over. Returns tokens computed before the next one, or -1 if it has no part in that."""
    q, d = st.q, dr.d
    happened(cfg, st, dr, k, r, d[r, D.LAST_PASS] + 1)
    _hashed(cfg, dr, r)
    q[r, S.STATE] = S.PREFILL
    dr.ranks[k, D.N_PLANNED] -= 1
    if not runs_over(cfg, d[r, D.PLAN_WAS], d[r, D.PLAN_LENGTH]):
        return -1
    d[r, D.BLOCKS] = d[r, D.NEXT_BLOCKS]
    return d[r, D.PLAN_BEFORE]


@kernel
def plans_go_on(cfg, st, dr, k, number):
    """Plans that reach only to pass `number` are worked out further."""
    q, d = st.q, dr.d
    r = st.calendar[k, number & cfg.mask, 0]
    while r >= 0:
        after = q[r, S.CNEXT]
        if is_planned(st, r) and d[r, D.NEXT_LENGTH] < q[r, S.PROMPT] + q[r, S.OUTPUT]:
            unlink(q, st.calendar[k, number & cfg.mask], 0, 1, r, S.CPREV, S.CNEXT)
            happened(cfg, st, dr, k, r, min(number, st.r[k, S.DELIVERED] + 1))
            plan_on(cfg, st, dr, k, r, number + 1)
        r = after


@inlined
def _fill(dr, k, slot, place, r, before, drafts, hits):
    item = dr.items[k, slot, place]
    item[D.I_REQUEST] = r
    item[D.I_TOKENS] = 1 + drafts
    item[D.I_BEFORE] = before
    item[D.I_KIND] = KIND_RUNNING
    item[D.I_CACHED] = -1
    item[D.I_DRAFTS] = drafts
    item[D.I_VERIFIED] = drafts
    item[D.I_ACCEPTED] = hits
    item[D.I_SAMPLES] = 1
    item[D.I_EPOCH] = dr.d[r, D.EPOCH]
    item[D.I_STRETCH] = dr.d[r, D.STRETCH]
    item[D.I_LIVE] = 1
    item[D.I_MADE] = 0
    dr.d[r, D.ITEM] = place
