"""Whether a choice may leave planned requests alone, or has to walk the running list."""

from __future__ import annotations

import sim.speculation.columns as D
import sim.state as S
from sim.jit import inlined, kernel
from sim.kv.pool import available, take
from sim.result import KIND_RUNNING
from sim.speculation.plan import is_planned, make_places, plan, planned_tokens, take_back_plans
from sim.speculation.running import schedule

IDLE, READY, PROMPTS, ODD = range(4)
WALK_PASSES = 32  # planning pays only if plans last


@inlined
def plan_or_walk(cfg, st, dr, k, slot, drafting):
    """Plan what can be planned. Returns the running request from which on the list has to be walked, or -1."""
    rank, q = st.r, st.q
    number, head = rank[k, S.NEXT_PASS], rank[k, S.RUN_HEAD]
    if head < 0:
        return -1
    first, prompts, plain = -1, -1, drafting and number >= dr.ranks[k, D.WALK_UNTIL]
    r, seen = rank[k, S.RUN_TAIL], 0
    # Who is not planned yet stands at the end of the list.
    while plain and r >= 0 and not is_planned(st, r):
        kind = _kind(cfg, st, dr, k, slot, r)
        if kind == PROMPTS:
            plain = r == rank[k, S.RUN_TAIL] and not cfg.fifo
            prompts = r
        elif kind == ODD:
            plain = False
        seen += 1
        first = r
        r = q[r, S.QPREV]
    if plain and seen + dr.ranks[k, D.N_PLANNED] == rank[k, S.RUN_N]:
        while first >= 0:
            if _kind(cfg, st, dr, k, slot, first) == READY:
                length, before = _state(cfg, st, dr, k, slot, first)
                plan(cfg, st, dr, k, first, number, length, before)
            first = q[first, S.QNEXT]
        row = dr.ring[k, number & (dr.ring.shape[1] - 1)]
        fits = not dr.native or row[D.W_BLOCKS] & D.LOWER_BITS <= available(st, k)
        if fits and planned_tokens(dr, row) <= cfg.budget:
            return prompts
    if dr.ranks[k, D.N_PLANNED] > 0:
        walk_for_a_while(cfg, st, dr, k, slot)
    return head


@kernel
def walk_for_a_while(cfg, st, dr, k, slot):
    """Take every plan of rank k back, and make no new ones for some passes."""
    take_back_plans(cfg, st, dr, k, slot)
    dr.ranks[k, D.WALK_UNTIL] = st.r[k, S.NEXT_PASS] + WALK_PASSES


@inlined
def _flies(st, dr, k, slot, r):
    """Whether a pass of r is in flight that its next one follows directly; its item is in the other batch."""
    d, own = dr.d, st.q[r, D.SLOT]
    item = dr.items[k, slot ^ 1, d[own, D.ITEM]]
    flies = d[own, D.OWED] > 0 and st.r[k, S.NEXT_PASS] - 1 > st.r[k, S.DELIVERED]
    flies = flies and item[D.I_REQUEST] == r and item[D.I_LIVE] == 1 and item[D.I_SAMPLES] == 1
    return flies and item[D.I_EPOCH] == d[own, D.EPOCH] and item[D.I_STRETCH] == d[own, D.STRETCH]


@inlined
def _state(cfg, st, dr, k, slot, r):
    """(tokens of r before the pass being chosen, those computed as its choice believes)."""
    q, d, own = st.q, dr.d, st.q[r, D.SLOT]
    length = q[r, S.PROMPT] + q[r, S.RECEIVED]
    if cfg.depth == 2:
        item = dr.items[k, slot ^ 1, d[own, D.ITEM]]
        length += min(1 + item[D.I_ACCEPTED], q[r, S.OUTPUT] - q[r, S.RECEIVED])
    return length, q[r, S.COMPUTED]


@kernel
def _kind(cfg, st, dr, k, slot, r):
    """What a running request that is not planned does in a choice."""
    q, d, own = st.q, dr.d, st.q[r, D.SLOT]
    prompt, end = q[r, S.PROMPT], q[r, S.PROMPT] + q[r, S.OUTPUT]
    if d[own, D.PREFILLING]:
        return PROMPTS
    if d[own, D.OWED] > 0 and q[r, S.COMPUTED] + 2 - d[own, D.OWED] >= end:
        return IDLE
    if q[r, S.SHARED] * cfg.bs > prompt or end + 2 * dr.drafts + 2 + dr.lookahead > dr.longest:
        return ODD  # others may hit blocks of its output; or a limit may cut its drafts
    if cfg.depth == 2:
        if not _flies(st, dr, k, slot, r):
            return ODD
        length, _ = _state(cfg, st, dr, k, slot, r)
        return READY if length < end else ODD
    goes_on = d[own, D.SPAN_FIRST] + d[own, D.SPAN_PASSES] == st.r[k, S.NEXT_PASS]
    goes_on = goes_on and d[own, D.SPAN_PASSES] > 0 and d[own, D.SPAN_STRETCH] == d[own, D.STRETCH]
    return READY if goes_on and d[own, D.OWED] == 0 else ODD


@inlined
def serve_plans(cfg, st, dr, k, budget):
    """Planned requests take the blocks and the budget of this choice. Returns (how many they are, budget left)."""
    row = dr.ring[k, st.r[k, S.NEXT_PASS] & (dr.ring.shape[1] - 1)]
    blocks = row[D.W_BLOCKS] & D.LOWER_BITS
    if dr.native and blocks > 0:
        take(st, k, blocks)
    return row[D.W_REQUESTS] & D.LOWER_BITS, budget - planned_tokens(dr, row)


@kernel
def serve_planned(cfg, inp, st, dr, k, slot, n):
    """Policy mode: planned requests were served, but are to be asked one by one after all. Returns how many items they
    put before the `n` of the batch."""
    q, d, first, place = st.q, dr.d, 0, 0
    walk_for_a_while(cfg, st, dr, k, slot)
    for serving in (False, True):
        if serving:
            make_places(st, dr, k, slot, n, first)
        r = st.r[k, S.RUN_HEAD]
        while r >= 0:
            if d[q[r, D.SLOT], D.MARK] != st.r[k, S.CHOICES] and d[q[r, D.SLOT], D.PREFILLING] == 0:
                if serving:
                    schedule(cfg, inp, st, dr, k, slot, place, r, 1, q[r, S.COMPUTED], KIND_RUNNING, -1, 0, 0)
                    place += 1
                else:
                    first += 1
            r = q[r, S.QNEXT]
    return first
