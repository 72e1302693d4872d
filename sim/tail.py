"""What is open when a replay stops at its time cap."""

from __future__ import annotations

from sim.jit import entry
from sim.queues import last_pass
from sim.spans import close_span
from sim.state import DECODE, DELIVERED, G0, LAST, OUTPUT, QNEXT, RUN_HEAD, STATE


@entry
def close_open_spans(st, k):
    """End the spans of running requests of rank k at the last pass whose results were seen."""
    q = st.q
    r = st.r[k, RUN_HEAD]
    while r >= 0:
        if (q[r, STATE] == DECODE or q[r, STATE] == LAST) and q[r, OUTPUT] > 0:
            end = st.r[k, DELIVERED]
            if q[r, STATE] == LAST:
                end = min(end, last_pass(st, r))
            if end >= q[r, G0]:
                close_span(st, r, end - q[r, G0] + 1)
        r = q[r, QNEXT]
