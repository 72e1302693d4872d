"""What single requests do in the pass being chosen; plain continuing decodes are not noted."""

from __future__ import annotations

import sim.state as S
from sim.jit import inlined


@inlined
def cdiv(a, b):
    return (a + b - 1) // b


@inlined
def put(st, n, r, tokens, before, kind, cached):
    """Note as item `n` that request r computes `tokens` over `before`."""
    s = st.s
    s[n, S.S_REQUEST] = r
    s[n, S.S_TOKENS] = tokens
    s[n, S.S_BEFORE] = before
    s[n, S.S_KIND] = kind
    s[n, S.S_CACHED] = cached
    s[n, S.S_LIVE] = 1
