"""One scheduling choice of one rank: running requests, then the waiting queue (section 4 of the rules)."""

from __future__ import annotations

import sim.state as S
from sim.admission import admit
from sim.jit import inlined, kernel
from sim.kv.pool import available
from sim.running import run_literally, run_plain
from sim.settle import settle


@inlined
def begin_choice(cfg, st, k, slot, now):
    """Empty batch `slot` for a choice at `now`."""
    rank, b = st.r, st.b
    rank[k, S.ENDED] = 0
    rank[k, S.CHOICES] += 1
    b[k, slot, S.B_PASS] = -1
    b[k, slot, S.B_CHOSEN] = now
    b[k, slot, S.B_START] = -1
    b[k, slot, S.B_HAS_ITEMS] = 0
    b[k, slot, S.B_OWN_PREEMPTED] = 0
    b[k, slot, S.B_REJ_HEAD] = -1
    b[k, slot, S.B_REJ_TAIL] = -1
    head = rank[k, S.WAIT_HEAD]
    if cfg.gated and rank[k, S.RUN_N] == 0 and head >= 0 and st.q[head, S.GATE] > rank[k, S.NEXT_PASS]:
        # 6.2, empty committed batch: the pass would have nothing to do, so the gate of everything queued falls.
        while head >= 0:
            st.q[head, S.GATE] = min(st.q[head, S.GATE], rank[k, S.NEXT_PASS])
            head = st.q[head, S.QNEXT]


@inlined
def choose(cfg, inp, st, prices, k, slot, now, wave):
    """Choose what rank k computes next, into batch `slot`. Returns a status; the batch is empty if B_HAS_ITEMS is 0."""
    rank, b = st.r, st.b
    begin_choice(cfg, st, k, slot, now)
    throttled = (
        cfg.dp > 1
        and cfg.interval > 1
        and wave % cfg.interval != 0
        and rank[k, S.SATURATED] == 0
        and _anyone_past_prompt(cfg, st, k)
    )
    prefills = rank[k, S.N_PREFILL]
    plain = (
        rank[k, S.N_PAUSED] == 0
        and rank[k, S.N_DECODE] <= cfg.budget
        and (prefills == 0 or (prefills == 1 and rank[k, S.RUN_TAIL] == rank[k, S.PREFILL_AT]))
        and (not cfg.fifo or (st.growth[k, rank[k, S.NEXT_PASS] % cfg.bs, 2] <= available(st, k) and prefills == 0))
    )
    if plain:
        budget, n = run_plain(cfg, inp, st, k, slot, now, throttled)
    else:
        budget, n = run_literally(cfg, inp, st, k, slot, now, throttled)
    if b[k, slot, S.B_OWN_PREEMPTED] == 0:
        if rank[k, S.WAIT_N] > 0:
            n = admit(cfg, inp, st, k, slot, budget, n, throttled)
        if not throttled:
            rank[k, S.SATURATED] = rank[k, S.WAIT_N] > 0
    return settle(cfg, inp, st, prices, k, slot, n, plain)


@kernel
def _anyone_past_prompt(cfg, st, k):
    """4.5: is some running request no unfinished prefill? Recomputed output belongs to the prefill in vLLM, only the
    prompt does in parity."""
    rank, q = st.r, st.q
    if rank[k, S.RUN_N] > rank[k, S.N_PREFILL]:
        return True
    if not cfg.vllm:
        r = rank[k, S.RUN_HEAD]
        while r >= 0:
            if q[r, S.COMPUTED] >= q[r, S.PROMPT]:
                return True
            r = q[r, S.QNEXT]
    return False
