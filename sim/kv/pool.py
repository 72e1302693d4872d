"""Taking, hashing, hitting and releasing KV blocks in O(1) each.

Blocks have no number here: free and active blocks are counts. Only a block that can be hit again is a *node*: one per
shared block (some other request's prompt has it too), and one per *run* of private blocks, which only their own request
can hit again. Cached nodes stand in a list, least recently released first (rule 5.2); a run is evicted from its end
(rule 5.7).
"""

from __future__ import annotations

from sim.jit import inlined, kernel
from sim.state import (
    CLOSED,
    COUNT,
    EXTENTS,
    FIRST,
    FREE,
    HASH,
    INACTIVE,
    LNEXT,
    LPREV,
    N_PREEMPTED,
    NODE_BUMP,
    NODE_FREE,
    OWNER,
    RANK,
    RUN,
    RUN_START,
    SEGMENTS,
    SHARED,
    SNEXT,
    SPREV,
    USERS,
)


@inlined
def available(st, k):
    """Blocks that can be handed out: free ones and cached ones."""
    return st.r[k, FREE] + st.r[k, INACTIVE]


@kernel
def _new_node(st):
    node = st.g[NODE_FREE]
    if node >= 0:
        st.g[NODE_FREE] = st.nd[node, LNEXT]
    else:
        # Every node stands for at least one physical block, so there are always enough.
        node = st.g[NODE_BUMP]
        st.g[NODE_BUMP] = node + 1
    return node


@kernel
def _forget(st, node):
    st.nd[node, LNEXT] = st.g[NODE_FREE]
    st.g[NODE_FREE] = node


@kernel
def _append_cached(st, k, node, count):
    """`node` becomes the most recently released."""
    nd = st.nd
    last = nd[k, LPREV]
    nd[last, LNEXT] = node
    nd[node, LPREV] = last
    nd[node, LNEXT] = k
    nd[k, LPREV] = node
    st.r[k, INACTIVE] += count


@kernel
def _unlink_cached(st, node):
    nd = st.nd
    before, after = nd[node, LPREV], nd[node, LNEXT]
    nd[before, LNEXT] = after
    nd[after, LPREV] = before


@kernel
def _unlink_copy(st, k, node):
    nd, copies, h = st.nd, st.copies, st.nd[node, HASH]
    before, after = nd[node, SPREV], nd[node, SNEXT]
    if before >= 0:
        nd[before, SNEXT] = after
    else:
        copies[k, h, 0] = after
    if after >= 0:
        nd[after, SPREV] = before
    else:
        copies[k, h, 1] = before


@kernel
def _unlink_extent(st, node):
    nd = st.nd
    owner = nd[node, OWNER]
    before, after = nd[node, SPREV], nd[node, SNEXT]
    if before >= 0:
        nd[before, SNEXT] = after
    else:
        st.q[owner, EXTENTS] = after
    if after >= 0:
        nd[after, SPREV] = before


@kernel
def _link_extent(st, node, owner):
    nd = st.nd
    first = st.q[owner, EXTENTS]
    nd[node, OWNER] = owner
    nd[node, SPREV] = -1
    nd[node, SNEXT] = first
    if first >= 0:
        nd[first, SPREV] = node
    st.q[owner, EXTENTS] = node


@kernel
def take(st, k, count):
    """Hand out `count` blocks, count <= available: free ones first, then the cached ones released longest ago (5.2)."""
    r, nd = st.r, st.nd
    free = r[k, FREE]
    if count <= free:
        r[k, FREE] = free - count
        return
    r[k, FREE] = 0
    count -= free
    r[k, INACTIVE] -= count
    while count > 0:
        node = nd[k, LNEXT]
        size = nd[node, COUNT]
        if size > count:
            nd[node, COUNT] = size - count  # a run loses its last blocks first
            return
        count -= size
        _unlink_cached(st, node)
        if nd[node, HASH] >= 0:
            _unlink_copy(st, k, node)
        elif nd[node, OWNER] >= 0:
            _unlink_extent(st, node)
        _forget(st, node)


@kernel
def close_shared(inp, st, r, blocks):
    """Hash the leading blocks of request r up to `blocks`, as far as they are shared (5.3, 5.6)."""
    q, nd = st.q, st.nd
    closed = q[r, CLOSED]
    upto = min(blocks, q[r, SHARED])
    if closed >= upto:
        return
    k, at = q[r, RANK], inp.chain_at[r]
    for i in range(closed, upto):
        h = inp.chain[at + i]
        node = _new_node(st)
        nd[node, HASH] = h
        nd[node, USERS] = 1
        nd[node, OWNER] = -1
        nd[node, COUNT] = 1
        nd[node, SNEXT] = -1
        newest = st.copies[k, h, 1]
        nd[node, SPREV] = newest
        if newest >= 0:
            nd[newest, SNEXT] = node
        else:
            st.copies[k, h, 0] = node
        st.copies[k, h, 1] = node
        st.lease[at + i] = node
    q[r, CLOSED] = upto


@kernel
def _oldest_run(st, r, i):
    """Node of the oldest cached private run of r that holds its block i, or -1."""
    nd = st.nd
    best, node = -1, st.q[r, EXTENTS]
    while node >= 0:
        first = nd[node, FIRST]
        if first <= i < first + nd[node, COUNT] and (best < 0 or nd[node, RUN] < nd[best, RUN]):
            best = node
        node = nd[node, SNEXT]
    return best


@kernel
def lookup(inp, st, r, limit):
    """Longest cached run of full blocks from the start, at most `limit` (5.5).

    Returns (blocks hit, how many of them are in use by somebody).
    """
    q, nd = st.q, st.nd
    k, at, shared = q[r, RANK], inp.chain_at[r], min(limit, q[r, SHARED])
    hit, used = 0, 0
    while hit < shared:
        node = st.copies[k, inp.chain[at + hit], 0]
        if node < 0:
            return hit, used
        if nd[node, USERS] > 0:
            used += 1
        hit += 1
    if hit == q[r, SHARED] and q[r, EXTENTS] >= 0:
        while hit < limit and _oldest_run(st, r, hit) >= 0:
            hit += 1
    return hit, used


@kernel
def pin(inp, st, r, hit):
    """Take the `hit` leading blocks found by `lookup` into the lease of r. Inactive ones leave the cache."""
    q, nd = st.q, st.nd
    k, at, shared = q[r, RANK], inp.chain_at[r], min(hit, q[r, SHARED])
    for i in range(shared):
        node = st.copies[k, inp.chain[at + i], 0]
        if nd[node, USERS] == 0:
            _unlink_cached(st, node)
            st.r[k, INACTIVE] -= 1
        nd[node, USERS] += 1
        st.lease[at + i] = node
    q[r, CLOSED] = shared
    q[r, SEGMENTS] = -1
    i = q[r, SHARED]
    while i < hit:
        node = _oldest_run(st, r, i)
        end = i + 1
        while end < hit and _oldest_run(st, r, end) == node:
            end += 1
        segment = _cut(st, node, i, end)
        st.r[k, INACTIVE] -= end - i
        nd[segment, SNEXT] = q[r, SEGMENTS]
        q[r, SEGMENTS] = segment
        i = end
    q[r, RUN_START] = max(hit, q[r, SHARED])


@kernel
def _cut(st, node, a, b):
    """Take blocks [a, b) out of a cached private run; what is left keeps its place in the cache. Returns their node."""
    nd = st.nd
    first, end = nd[node, FIRST], nd[node, FIRST] + nd[node, COUNT]
    if first == a and end == b:
        _unlink_cached(st, node)
        _unlink_extent(st, node)
        return node
    segment = _new_node(st)
    nd[segment, HASH] = -1
    nd[segment, OWNER] = nd[node, OWNER]
    nd[segment, FIRST] = a
    nd[segment, COUNT] = b - a
    nd[segment, RUN] = nd[node, RUN]
    if first == a:
        nd[node, FIRST] = b
        nd[node, COUNT] = end - b
        return segment
    nd[node, COUNT] = a - first
    if end > b:
        rest = _new_node(st)
        nd[rest, HASH] = -1
        nd[rest, FIRST] = b
        nd[rest, COUNT] = end - b
        nd[rest, RUN] = nd[node, RUN]
        _link_extent(st, rest, nd[node, OWNER])
        before = nd[node, LPREV]  # the later blocks of a run are evicted before the earlier ones
        nd[before, LNEXT] = rest
        nd[rest, LPREV] = before
        nd[rest, LNEXT] = node
        nd[node, LPREV] = rest
    return segment


@kernel
def release(inp, st, r, blocks, closed, ended):
    """Give back the lease of r: `blocks` blocks, the leading `closed` of them hashed; tail first (5.7).

    `ended`: nobody will ask for its private blocks again, so they are cached as one anonymous run.
    """
    q, nd = st.q, st.nd
    k, shared = q[r, RANK], q[r, SHARED]
    st.r[k, FREE] += blocks - closed
    close_shared(inp, st, r, closed)
    if ended:
        _release_anonymous(st, r, k, closed)
    else:
        _release_owned(st, r, k, closed)
    if closed > 0 and shared > 0:
        at = inp.chain_at[r]
        for i in range(min(closed, shared) - 1, -1, -1):
            node = st.lease[at + i]
            nd[node, USERS] -= 1
            if nd[node, USERS] == 0:
                _append_cached(st, k, node, 1)
    q[r, CLOSED] = 0


@kernel
def _release_anonymous(st, r, k, closed):
    q, nd = st.q, st.nd
    shared = q[r, SHARED]
    if closed > shared:
        node = _new_node(st)
        nd[node, HASH] = -1
        nd[node, OWNER] = -1
        nd[node, COUNT] = closed - shared
        _append_cached(st, k, node, closed - shared)
    node = q[r, SEGMENTS]
    while node >= 0:
        after = nd[node, SNEXT]
        _forget(st, node)
        node = after
    q[r, SEGMENTS] = -1
    node = q[r, EXTENTS]
    while node >= 0:
        nd[node, OWNER] = -1
        node = nd[node, SNEXT]
    q[r, EXTENTS] = -1


@kernel
def _release_owned(st, r, k, closed):
    q, nd = st.q, st.nd
    start = q[r, RUN_START]
    if closed > start:
        node = _new_node(st)
        nd[node, HASH] = -1
        nd[node, FIRST] = start
        nd[node, COUNT] = closed - start
        nd[node, RUN] = q[r, N_PREEMPTED]
        _link_extent(st, node, r)
        _append_cached(st, k, node, closed - start)
    node = q[r, SEGMENTS]
    while node >= 0:
        after = nd[node, SNEXT]
        _link_extent(st, node, r)
        _append_cached(st, k, node, nd[node, COUNT])
        node = after
    q[r, SEGMENTS] = -1
