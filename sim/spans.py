"""Spans: runs of passes in which a request made one token each. Token times are derived from them."""

from __future__ import annotations

import sim.state as S
from sim.jit import kernel


@kernel
def close_span(st, r, tokens):
    """End the open span of r after `tokens` tokens and write its row."""
    q, row = st.q, st.g[S.N_SPANS_LOG]
    log = st.spans
    log[0, row] = r
    log[1, row] = q[r, S.N_SPANS]
    log[2, row] = q[r, S.RANK]
    log[3, row] = q[r, S.G0]
    log[4, row] = tokens
    log[5, row] = q[r, S.RECEIVED]
    log[6, row] = q[r, S.PREV_PASS]
    st.g[S.N_SPANS_LOG] = row + 1
    q[r, S.N_SPANS] += 1
    q[r, S.PREV_PASS] = q[r, S.G0] + tokens - 1
    q[r, S.RECEIVED] += tokens
