"""The compiled twin of `sim.speculation.draws`: the same bits."""

from __future__ import annotations

import numpy as np

import sim.speculation.columns as D
import sim.state as S
from sim.jit import inlined
from sim.speculation.draws import BITS, GOLDEN

_GOLDEN = np.uint64(GOLDEN)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
ALWAYS = 1 << BITS
_30, _27, _31, _KEPT = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(64 - BITS)


@inlined
def draw(key, round_no):
    """A whole number below 2^53; `key` holds seed, stream and request."""
    z = key + _GOLDEN * np.uint64(round_no + 1)
    z = (z ^ (z >> _30)) * _FIRST
    z = (z ^ (z >> _27)) * _SECOND
    return np.int64((z ^ (z >> _31)) >> _KEPT)


@inlined
def accepted(dr, r, round_no, drafts):
    """How many of `drafts` are accepted in round `round_no` of r."""
    found = 0
    if len(dr.script) > 0:
        at, end = dr.script_at[r], dr.script_at[r + 1]
        return min(dr.script[at + round_no % (end - at)], drafts)
    u = draw(dr.keys[r], round_no)
    for j in range(drafts):  # thresholds fall, so those above the draw come first
        found += u < dr.thresholds[j]
    return found


@inlined
def triggers(dr, r, round_no):
    """Whether the drafter finds anything to propose in round `round_no` of r."""
    return dr.trigger >= ALWAYS or draw(dr.trigger_keys[r], round_no) < dr.trigger


@inlined
def propose(st, dr, r):
    """Drafts of r's next round. A round without a trigger is spent at once."""
    if st.q[r, S.OUTPUT] == 0:
        return 0
    if not triggers(dr, r, dr.d[st.q[r, D.SLOT], D.ROUND]):
        dr.d[st.q[r, D.SLOT], D.ROUND] += 1
        return 0
    return dr.drafts
