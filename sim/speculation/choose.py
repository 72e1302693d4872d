"""One scheduling choice of one rank where drafts are about (sections 4 and 8)."""

from __future__ import annotations

import sim.speculation.columns as D
import sim.state as S
from sim.choose import begin_choice
from sim.jit import inlined, kernel
from sim.speculation.admission import admit_drafting
from sim.speculation.plain import plan_or_walk, serve_plans
from sim.speculation.reserve import reserve
from sim.speculation.running import run_drafting
from sim.speculation.settle import settle_drafting


@inlined
def choose_drafting(cfg, inp, st, dr, prices, k, slot, now, wave):
    """Choose what rank k computes next, into batch `slot`. Returns a status; the batch is empty if B_HAS_ITEMS is 0."""
    rank, b = st.r, st.b
    begin_choice(cfg, st, k, slot, now)
    throttled = (
        cfg.dp > 1
        and cfg.interval > 1
        and wave % cfg.interval != 0
        and rank[k, S.SATURATED] == 0
        and _anyone_past_prompt(cfg, st, dr, k)
    )
    drafting = rank[k, S.RUN_N] <= dr.batch
    served, budget = 0, cfg.budget
    first = plan_or_walk(cfg, st, dr, k, slot, drafting)
    if dr.ranks[k, D.N_PLANNED] > 0:
        served, budget = serve_plans(cfg, st, dr, k, budget)
    n, continued = 0, False
    if first >= 0:
        budget, n, continued = run_drafting(cfg, inp, st, dr, k, slot, now, throttled, drafting, first, budget)
    if b[k, slot, S.B_OWN_PREEMPTED] == 0:
        if rank[k, S.WAIT_N] > 0:
            pads = dr.native and drafting and n + served > 0 and not continued
            n = admit_drafting(cfg, inp, st, dr, k, slot, now, budget, n, throttled, pads)
        if not throttled:
            rank[k, S.SATURATED] = rank[k, S.WAIT_N] > 0
    if not dr.native:
        n = reserve(cfg, inp, st, dr, k, slot, now, n, drafting)
    dr.n_items[k, slot] = n
    return settle_drafting(cfg, inp, st, dr, prices, k, slot, n)


@kernel
def _anyone_past_prompt(cfg, st, dr, k):
    """4.5: is some running request no unfinished prefill?"""
    q = st.q
    r = st.r[k, S.RUN_HEAD]
    while r >= 0:
        if dr.d[q[r, D.SLOT], D.PREFILLING] == 0 if cfg.vllm else q[r, S.COMPUTED] >= q[r, S.PROMPT]:
            return True
        r = q[r, S.QNEXT]
    return False
