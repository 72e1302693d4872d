"""KV-aware routing (RT-4): what the router hears of ranks, the books it keeps, and whom it picks.

All of it is compiled away where requests take turns: `State.route` is None there, and so is every argument `route`.
"""

from __future__ import annotations

import sim.state as S
from sim.jit import inlined, kernel


@inlined
def block_changes(route, k, h, present):
    """The first copy of block h is about to come to rank k, or the last to go. The router hears of it when the group
    pass ends, and until then goes by what was."""
    if route is not None:  # noqa: SIM102 - alone, so that it is decided when compiling
        if route.changed[k, h, 0] != route.books[k, S.EPOCH]:
            route.changed[k, h, 0] = route.books[k, S.EPOCH]
            route.changed[k, h, 1] = present


@inlined
def publish(route, low, high):
    """A group pass of these ranks is over."""
    if route is not None:
        for k in range(low, high):
            route.books[k, S.EPOCH] += 1


@kernel
def look(cfg, inp, st, route, r, k):
    """Leading full blocks of r's prompt that rank k is known to hold, and those that would be new in its books."""
    full = st.q[r, S.PROMPT] // cfg.bs
    at, shared = inp.chain_at[r], min(full, st.q[r, S.SHARED])
    hit, fresh = 0, full - shared
    for i in range(shared):
        h = inp.chain[at + i]
        if route.changed[k, h, 0] == route.books[k, S.EPOCH]:
            known = route.changed[k, h, 1] > 0
        else:
            known = st.copies[k, h, 0] >= 0
        hit += known and hit == i
        fresh += route.users[k, h] == 0
    return hit, fresh


@inlined
def least_cost(cfg, inp, st, route, r, low, high, step):
    """The rank of low, low + step, ... below high that r costs least on; -1 where requests take turns."""
    found = -1
    if route is not None:  # noqa: SIM102
        if route.by_cost:
            found = _least_cost(cfg, inp, st, route, r, low, high, step)
    return found


@kernel
def _least_cost(cfg, inp, st, route, r, low, high, step):
    best, least, fewest = -1, 0.0, 0
    for k in range(low, high, step):
        cost = float(route.books[k, S.BOOK_BLOCKS])
        if cfg.role != S.DECODES:
            hit, fresh = look(cfg, inp, st, route, r, k)
            tokens = route.books[k, S.BOOK_UNCACHED] + st.q[r, S.PROMPT]
            prefill = route.scale * (tokens / cfg.bs - route.credit * hit)
            cost = prefill if cfg.role == S.PREFILLS else prefill + (route.books[k, S.BOOK_BLOCKS] + fresh)
        requests = route.books[k, S.BOOK_REQUESTS]
        if best < 0 or cost < least or (cost == least and requests < fewest):
            best, least, fewest = k, cost, requests
    return best


@inlined
def enter_books(cfg, inp, st, route, r, k):
    """Request r has been placed on rank k."""
    if route is not None:
        _enter_books(cfg, inp, st, route, r, k)


@kernel
def _enter_books(cfg, inp, st, route, r, k):
    books, full = route.books, st.q[r, S.PROMPT] // cfg.bs
    books[k, S.BOOK_REQUESTS] += 1
    route.uncached[r] = 0
    if cfg.role == S.DECODES:
        books[k, S.BOOK_BLOCKS] += full
        return
    hit, fresh = look(cfg, inp, st, route, r, k)
    route.uncached[r] = st.q[r, S.PROMPT] - hit * cfg.bs
    books[k, S.BOOK_UNCACHED] += route.uncached[r]
    books[k, S.BOOK_BLOCKS] += fresh
    at = inp.chain_at[r]
    for i in range(min(full, st.q[r, S.SHARED])):
        route.users[k, inp.chain[at + i]] += 1


@inlined
def prefilled(route, r, k):
    """The first token of r is there."""
    if route is not None:
        route.books[k, S.BOOK_UNCACHED] -= route.uncached[r]
        route.uncached[r] = 0


@inlined
def leave_books(cfg, inp, st, route, r):
    """Request r has ended. It may never have been placed."""
    if route is not None:
        _leave_books(cfg, inp, st, route, r)


@kernel
def _leave_books(cfg, inp, st, route, r):
    if route.uncached[r] < 0:
        return
    books, k, full = route.books, st.q[r, S.RANK], st.q[r, S.PROMPT] // cfg.bs
    books[k, S.BOOK_REQUESTS] -= 1
    books[k, S.BOOK_UNCACHED] -= route.uncached[r]
    route.uncached[r] = -1
    if cfg.role == S.DECODES:
        books[k, S.BOOK_BLOCKS] -= full
        return
    at, shared = inp.chain_at[r], min(full, st.q[r, S.SHARED])
    books[k, S.BOOK_BLOCKS] -= full - shared
    for i in range(shared):
        h = inp.chain[at + i]
        route.users[k, h] -= 1
        books[k, S.BOOK_BLOCKS] -= route.users[k, h] == 0
