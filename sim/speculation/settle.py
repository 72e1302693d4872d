"""A complete choice becomes a pass: numbered, priced, described; drafts are proposed for the next (sections 7, 8.4)."""

from __future__ import annotations

import sim.speculation.columns as D
import sim.state as S
from sim.jit import inlined
from sim.settle import count_preemptions, describe
from sim.speculation.plan import planned_tokens, plans_go_on
from sim.speculation.sampling import propose


@inlined
def settle_drafting(cfg, inp, st, dr, prices, k, slot, n):
    """Number, price and describe the choice."""
    q, d = st.q, dr.d
    if count_preemptions(st, k, slot):
        return S.LIVELOCK
    number, mask = st.r[k, S.NEXT_PASS], dr.ring.shape[1] - 1
    planned, sums = dr.ring[k, number & mask], dr.sums[k, slot]
    nb, kv = planned[D.W_REQUESTS] & D.LOWER_BITS, planned[D.W_KV]
    np_, tp, kvp = 0, 0, 0
    tokens, admitted, live = planned_tokens(dr, planned), 0, nb > 0
    adm_head, adm_tail = -1, -1
    for i in range(n):
        item = dr.items[k, slot, i]
        if item[D.I_LIVE] == 0:
            continue
        live = True
        r, count, before, drafts = item[D.I_REQUEST], item[D.I_TOKENS], item[D.I_BEFORE], item[D.I_DRAFTS]
        part = min(max(0, q[r, S.PROMPT] - before), count)
        tokens += count
        if part > 0:
            np_, tp, kvp = np_ + 1, tp + part, kvp + before
        if item[D.I_CACHED] >= 0:
            admitted += 1
            q[r, S.ANEXT] = -1
            if adm_tail >= 0:
                q[adm_tail, S.ANEXT] = r
            else:
                adm_head = r
            adm_tail = r
        if item[D.I_SAMPLES] == 0:
            continue
        # Policy mode: whoever makes tokens in this pass is charged a decode, survivors only. So is, on a decode worker,
        # whoever has to be computed again.
        if count - drafts > part or (q[r, S.OUTPUT] > 0 and (count == 0 or not dr.native or cfg.role == S.DECODES)):
            nb, kv = nb + 1, kv + before + count - drafts
        d[q[r, D.SLOT], D.OWED] += 1 + drafts
        if dr.native:
            d[q[r, D.SLOT], D.READY] = propose(st, dr, r)
    if not live:
        return S.FINISHED
    for i in range(D.W_WIDTH):
        sums[i] = planned[i]
        planned[i] = 0
    if dr.ranks[k, D.N_PLANNED] > 0 and st.calendar[k, number & cfg.mask, 0] >= 0:
        plans_go_on(cfg, st, dr, k, number)
    if cfg.role == S.PREFILLS:
        nb, kv = 0, 0  # its passes pay for no decode (7.1)
    elif cfg.role == S.DECODES:
        np_, tp, kvp = 0, 0, 0  # its passes pay for no prompt, not even for those computed again
    row = st.b[k, slot]
    row[S.B_TOKENS] = tokens
    row[S.B_ADMITTED] = admitted
    row[S.B_ADM_HEAD] = adm_head
    row[S.B_ADM_TAIL] = adm_tail
    return describe(cfg, st, prices, k, slot, np_, tp, kvp, nb, kv)
