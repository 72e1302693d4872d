"""Spans: runs of passes in which a request made one token each. Token times are derived from them."""

from __future__ import annotations

from sim.jit import kernel
from sim.state import G0, N_SPANS, N_SPANS_LOG, PREV_PASS, RANK, RECEIVED


@kernel
def close_span(st, r, tokens):
    """End the open span of r after `tokens` tokens and write its row."""
    q, row = st.q, st.g[N_SPANS_LOG]
    log = st.spans
    log[0, row] = r
    log[1, row] = q[r, N_SPANS]
    log[2, row] = q[r, RANK]
    log[3, row] = q[r, G0]
    log[4, row] = tokens
    log[5, row] = q[r, RECEIVED]
    log[6, row] = q[r, PREV_PASS]
    st.g[N_SPANS_LOG] = row + 1
    q[r, N_SPANS] += 1
    q[r, PREV_PASS] = q[r, G0] + tokens - 1
    q[r, RECEIVED] += tokens
