"""What is open when a replay with drafts stops at its time cap."""

from __future__ import annotations

import sim.state as S
from sim.jit import entry
from sim.speculation.columns import SLOT
from sim.speculation.plan import happened, is_planned
from sim.speculation.spans import close_span, leave_slot


@entry
def close_open_bursts(cfg, st, dr, k, most):
    """End the spans of requests of rank k that have not ended, `most` of them; results in flight never happened.

    Returns whether there may be more.
    """
    closed = 0
    for head in (S.RUN_HEAD, S.WAIT_HEAD):
        r = st.r[k, head]
        while r >= 0 and closed < most:
            if st.q[r, SLOT] >= 0:
                if is_planned(st, r):
                    happened(cfg, st, dr, k, r, st.r[k, S.DELIVERED] + 1)
                close_span(st, dr, r)
                leave_slot(st, dr, k, r)
                closed += 1
            r = st.q[r, S.QNEXT]
    return closed == most
