"""What is open when a replay stops at its time cap."""

from __future__ import annotations

import sim.state as S
from sim.jit import entry
from sim.queues import last_pass
from sim.spans import close_span


@entry
def close_open_spans(st, k):
    """End the spans of running requests of rank k at the last pass whose results were seen."""
    q = st.q
    r = st.r[k, S.RUN_HEAD]
    while r >= 0:
        if (q[r, S.STATE] == S.DECODE or q[r, S.STATE] == S.LAST) and q[r, S.OUTPUT] > 0:
            end = st.r[k, S.DELIVERED]
            if q[r, S.STATE] == S.LAST:
                end = min(end, last_pass(st, r))
            if end >= q[r, S.G0]:
                close_span(st, r, end - q[r, S.G0] + 1)
        r = q[r, S.QNEXT]
