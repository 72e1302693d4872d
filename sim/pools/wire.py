"""KV transfers that share links, fail, come too late, or begin while their prompt is computed (PD-10, PD-15, PD-17 to
PD-19): `sim.reference_transfers` compiled.

Transfers that do none of this never come here: their ends are known as they begin (`sim.pools.handoff`).
"""

from __future__ import annotations

import numpy as np

import sim.pools.state as P
import sim.state as S
from sim.items import cdiv
from sim.jit import inlined, kernel
from sim.pools.commands import command
from sim.result import FAILED, TRANSFER_FAILED
from sim.source import FAR, end_request, heap_pop, heap_push
from sim.speculation.sampling import draw
from sim.timing.plain import PAST_CLOCK_NS


@kernel
def _link_of(st, po, i):
    """Row of the link that handoff i goes over."""
    links = po.g[P.LINKS]
    if links == P.PER_SOURCE:
        return po.n + po.worker_of[po.h[i, P.SOURCE]]
    if links == P.PER_DESTINATION:
        return po.n + po.worker_of[st.q[i, S.RANK]]
    return po.n


@kernel
def _foresee(po, link):
    """When the next transfer on this link is over, as things stand."""
    h, g = po.h, po.g
    first, n = h[link, P.MEMBERS_HEAD], h[link, P.MEMBERS_N]
    end = FAR
    if n > 0 and g[P.FAIR]:
        need, seen = h[first, P.DUE] - h[link, P.SERVED], h[link, P.SEEN]
        end = PAST_CLOCK_NS
        if need <= (PAST_CLOCK_NS - seen) // n + 1:
            end = min(seen + max(need * n - h[link, P.REST], 0), PAST_CLOCK_NS)
    elif n > 0:
        end = h[first, P.DUE]
    h[link, P.LINK_END] = end
    earliest = FAR
    for each in range(po.n, po.n + g[P.N_LINKS]):
        earliest = min(earliest, h[each, P.LINK_END])
    g[P.LINKS_END] = earliest


@kernel
def _advance(po, link, now):
    """Fair shares up to now."""
    h = po.h
    n = h[link, P.MEMBERS_N]
    if n > 0:
        had = now - h[link, P.SEEN] + h[link, P.REST]
        h[link, P.SERVED] += had // n
        h[link, P.REST] = had % n
    h[link, P.SEEN] = now


@inlined
def _resize(po, link, change):
    h = po.h
    n = h[link, P.MEMBERS_N]
    h[link, P.MEMBERS_N] = n + change
    h[link, P.REST] = h[link, P.REST] * (n + change) // n if n > 0 else 0
    if n + change == 0:
        h[link, P.SERVED] = 0


@kernel
def _insert(po, link, i, before):
    """Handoff i becomes a member of the link, behind `before`; -1: as the first."""
    h = po.h
    after = h[before, P.NEXT_MEMBER] if before >= 0 else h[link, P.MEMBERS_HEAD]
    h[i, P.NEXT_MEMBER] = after
    if before >= 0:
        h[before, P.NEXT_MEMBER] = i
    else:
        h[link, P.MEMBERS_HEAD] = i
    if after < 0:
        h[link, P.MEMBERS_TAIL] = i


@inlined
def _begin_first(po, link, now):
    """FIFO: the first member has the link."""
    h = po.h
    first = h[link, P.MEMBERS_HEAD]
    if first >= 0 and h[first, P.BEGAN] < 0:
        h[first, P.BEGAN] = now
        end = min(now, PAST_CLOCK_NS - h[first, P.WORK]) + h[first, P.WORK]
        h[first, P.DUE] = max(end, h[first, P.FLOOR])


@kernel
def _wait(po, i, when):
    """Something happens to the transfer of i at that instant."""
    g = po.g
    heap_push(po.transfers, g[P.N_TRANSFERS], when, g[P.SEQUENCE] << 32 | i)
    g[P.N_TRANSFERS] += 1
    g[P.SEQUENCE] += 1


@kernel
def _join(st, po, i, now):
    """The first byte is there. True if the transfer is over at this very instant."""
    h, g = po.h, po.g
    work = h[i, P.WORK]
    if g[P.LINKS] == P.NO_LINKS:
        h[i, P.BEGAN] = h[i, P.QUEUED]
        end = max(min(h[i, P.QUEUED], PAST_CLOCK_NS - work) + work, h[i, P.FLOOR])
        if end == now:
            return True
        _wait(po, i, end)
        return False
    link = _link_of(st, po, i)
    if work == 0 and (g[P.FAIR] or h[link, P.MEMBERS_N] == 0):
        h[i, P.BEGAN] = now
        if h[i, P.FLOOR] <= now:
            return True
        _wait(po, i, h[i, P.FLOOR])
        return False
    if g[P.FAIR]:
        _advance(po, link, now)
        h[i, P.BEGAN] = now
        h[i, P.DUE] = min(h[link, P.SERVED], PAST_CLOCK_NS - work) + work
        before, after = -1, h[link, P.MEMBERS_HEAD]
        while after >= 0 and h[after, P.DUE] <= h[i, P.DUE]:
            before, after = after, h[after, P.NEXT_MEMBER]
        _insert(po, link, i, before)
        _resize(po, link, 1)
    else:
        _insert(po, link, i, h[link, P.MEMBERS_TAIL])
        h[link, P.MEMBERS_N] += 1
        _begin_first(po, link, now)
    _foresee(po, link)
    return False


@kernel
def _leave(po, link, i, now):
    """A transfer on a link is over or given up."""
    h = po.h
    before, at = -1, h[link, P.MEMBERS_HEAD]
    while at != i:
        before, at = at, h[at, P.NEXT_MEMBER]
    after = h[i, P.NEXT_MEMBER]
    if before >= 0:
        h[before, P.NEXT_MEMBER] = after
    else:
        h[link, P.MEMBERS_HEAD] = after
    if after < 0:
        h[link, P.MEMBERS_TAIL] = before
    if po.g[P.FAIR]:
        _advance(po, link, now)
        _resize(po, link, -1)
    else:
        h[link, P.MEMBERS_N] -= 1
        _begin_first(po, link, now)
    _foresee(po, link)


@kernel
def call_off(cfg, inp, st, po, i, status, reason, now):
    """The request of a handoff with a destination ends now. Both workers learn of it between passes (PD-5, PD-15)."""
    h = po.h
    h[i, P.OFF] = 1
    end_request(cfg, inp, st, i, status, reason, now)
    command(st, po, po.worker_of[h[i, P.SOURCE]], i, P.NEXT_RELEASE)
    if h[i, P.TRANSFERRED_AT] < 0:
        command(st, po, po.worker_of[st.q[i, S.RANK]], i, P.NEXT_COMMAND)
    h[i, P.PHASE] = P.WITHDRAW  # its activation, if that was asked for already, is obeyed as this


@kernel
def _settled(cfg, inp, st, po, i, now):
    """An attempt is over; False asks for another one."""
    h, g = po.h, po.g
    if g[P.FAILURES] == 0 or draw(np.uint64(h[i, P.KEY]), h[i, P.ATTEMPTS] - 1) >= g[P.FAILURES]:
        h[i, P.TRANSFERRED_AT] = now
        command(st, po, po.worker_of[st.q[i, S.RANK]], i, P.NEXT_COMMAND)
    elif h[i, P.ATTEMPTS] <= g[P.RETRIES]:
        return False
    else:
        call_off(cfg, inp, st, po, i, FAILED, TRANSFER_FAILED, now)
    return True


@kernel
def _attempt(cfg, inp, st, po, i, now):
    """Attempts begin, until one takes time or the last of them is over."""
    h, g = po.h, po.g
    while True:
        h[i, P.ATTEMPTS] += 1
        h[i, P.QUEUED] = max(min(now + g[P.FIRST_BYTE], PAST_CLOCK_NS), h[i, P.FIRST_LAYER])
        h[i, P.BEGAN] = -1
        if h[i, P.QUEUED] > now and g[P.LINKS] != P.NO_LINKS:
            _wait(po, i, h[i, P.QUEUED])
            return
        if not _join(st, po, i, now) or _settled(cfg, inp, st, po, i, now):
            return


@kernel
def send(cfg, inp, st, po, i, work, now):
    """The destination is reserved."""
    h, layers = po.h, po.g[P.LAYERS]
    h[i, P.WORK] = work
    if layers > 0:
        share = cdiv(work, layers)  # of the last layer, which goes when that is computed
        h[i, P.FLOOR] = min(h[i, P.FLOOR], PAST_CLOCK_NS - share) + share
    _attempt(cfg, inp, st, po, i, now)


@kernel
def next_event(po):
    """When next a transfer ends, joins its link or comes too late; FAR if none does. Forgets what is called off."""
    h, g = po.h, po.g
    when = g[P.LINKS_END]
    while g[P.N_TRANSFERS] > 0 and h[po.transfers[0, 1] & 0xFFFFFFFF, P.OFF]:
        heap_pop(po.transfers, g[P.N_TRANSFERS])
        g[P.N_TRANSFERS] -= 1
    if g[P.N_TRANSFERS] > 0:
        when = min(when, po.transfers[0, 0])
    i = g[P.DEADLINE_HEAD]
    while i >= 0 and (h[i, P.OFF] or h[i, P.ACTIVATED] >= 0):
        i = h[i, P.NEXT_DEADLINE]
    g[P.DEADLINE_HEAD] = i
    if i >= 0:
        when = min(when, h[i, P.HELD] + g[P.TIMEOUT])
    else:
        g[P.DEADLINE_TAIL] = -1
    return when


@kernel
def land_wired(cfg, inp, st, po, now):
    """Transfers end, link by link; then others join or have their last layer; until there is nothing due at `now`."""
    h, g, moved = po.h, po.g, True
    while moved:
        moved = False
        if g[P.LINKS_END] <= now:
            for link in range(po.n, po.n + g[P.N_LINKS]):
                while h[link, P.LINK_END] <= now:
                    moved = True
                    i = h[link, P.MEMBERS_HEAD]
                    _leave(po, link, i, now)
                    if h[i, P.FLOOR] > now:
                        _wait(po, i, h[i, P.FLOOR])  # fair shares: what it had was there before the last layer
                    elif not _settled(cfg, inp, st, po, i, now):
                        _attempt(cfg, inp, st, po, i, now)
        while g[P.N_TRANSFERS] > 0 and po.transfers[0, 0] <= now:
            i = po.transfers[0, 1] & 0xFFFFFFFF
            heap_pop(po.transfers, g[P.N_TRANSFERS])
            g[P.N_TRANSFERS] -= 1
            moved = True
            if h[i, P.OFF]:
                continue
            over = h[i, P.BEGAN] >= 0 or _join(st, po, i, now)
            if over and not _settled(cfg, inp, st, po, i, now):
                _attempt(cfg, inp, st, po, i, now)


@kernel
def give_up(st, po, i, now):
    """What is under way of a handoff's transfer is dropped at once."""
    if po.g[P.LINKS] == P.NO_LINKS or po.h[i, P.TRANSFERRED_AT] >= 0:
        return
    # What waits for an instant is skipped there; it is no member.
    link = _link_of(st, po, i)
    at = po.h[link, P.MEMBERS_HEAD]
    while at >= 0 and at != i:
        at = po.h[at, P.NEXT_MEMBER]
    if at == i:
        _leave(po, link, i, now)
