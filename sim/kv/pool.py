"""Taking, hashing, hitting and releasing KV blocks in O(1) each.

Blocks have no number here: free and active blocks are counts. Only a block that can be hit again is a *node*: one per
shared block (some other request's prompt has it too), and one per *run* of private blocks, which only their own request
can hit again. Cached nodes stand in a list, least recently released first (rule 5.2); a run is evicted from its end
(rule 5.7).
"""

from __future__ import annotations

import sim.state as S
from sim.jit import inlined, kernel
from sim.routing import block_changes


@inlined
def available(st, k):
    """Blocks that can be handed out: free ones and cached ones."""
    return st.r[k, S.FREE] + st.r[k, S.INACTIVE]


@kernel
def _new_node(st):
    node = st.g[S.NODE_FREE]
    if node >= 0:
        st.g[S.NODE_FREE] = st.nd[node, S.LNEXT]
    else:
        # Every node stands for at least one physical block, so there are always enough.
        node = st.g[S.NODE_BUMP]
        st.g[S.NODE_BUMP] = node + 1
    return node


@kernel
def _forget(st, node):
    st.nd[node, S.LNEXT] = st.g[S.NODE_FREE]
    st.g[S.NODE_FREE] = node


@kernel
def _append_cached(st, k, node, count):
    """`node` becomes the most recently released."""
    nd = st.nd
    last = nd[k, S.LPREV]
    nd[last, S.LNEXT] = node
    nd[node, S.LPREV] = last
    nd[node, S.LNEXT] = k
    nd[k, S.LPREV] = node
    st.r[k, S.INACTIVE] += count


@kernel
def _unlink_cached(st, node):
    nd = st.nd
    before, after = nd[node, S.LPREV], nd[node, S.LNEXT]
    nd[before, S.LNEXT] = after
    nd[after, S.LPREV] = before


@kernel
def _unlink_copy(st, k, node):
    nd, copies, h = st.nd, st.copies, st.nd[node, S.HASH]
    before, after = nd[node, S.SPREV], nd[node, S.SNEXT]
    if before < 0 and after < 0:
        block_changes(st.route, k, h, 1)
    if before >= 0:
        nd[before, S.SNEXT] = after
    else:
        copies[k, h, 0] = after
    if after >= 0:
        nd[after, S.SPREV] = before
    else:
        copies[k, h, 1] = before


@kernel
def _unlink_extent(st, node):
    nd = st.nd
    owner = nd[node, S.OWNER]
    before, after = nd[node, S.SPREV], nd[node, S.SNEXT]
    if before >= 0:
        nd[before, S.SNEXT] = after
    else:
        st.q[owner, S.EXTENTS] = after
    if after >= 0:
        nd[after, S.SPREV] = before


@kernel
def _link_extent(st, node, owner):
    nd = st.nd
    first = st.q[owner, S.EXTENTS]
    nd[node, S.OWNER] = owner
    nd[node, S.SPREV] = -1
    nd[node, S.SNEXT] = first
    if first >= 0:
        nd[first, S.SPREV] = node
    st.q[owner, S.EXTENTS] = node


@kernel
def take(st, k, count):
    """Hand out `count` blocks, count <= available: free ones first, then the cached ones released longest ago (5.2)."""
    r, nd = st.r, st.nd
    free = r[k, S.FREE]
    if count <= free:
        r[k, S.FREE] = free - count
        return
    r[k, S.FREE] = 0
    count -= free
    r[k, S.INACTIVE] -= count
    while count > 0:
        node = nd[k, S.LNEXT]
        size = nd[node, S.COUNT]
        if size > count:
            nd[node, S.COUNT] = size - count  # a run loses its last blocks first
            return
        count -= size
        _unlink_cached(st, node)
        if nd[node, S.HASH] >= 0:
            _unlink_copy(st, k, node)
        elif nd[node, S.OWNER] >= 0:
            _unlink_extent(st, node)
        _forget(st, node)


@kernel
def close_shared(inp, st, r, blocks):
    """Hash the leading blocks of request r up to `blocks`, as far as they are shared (5.3, 5.6)."""
    q, nd = st.q, st.nd
    closed = q[r, S.CLOSED]
    upto = min(blocks, q[r, S.SHARED])
    if closed >= upto:
        return
    k, at = q[r, S.RANK], inp.chain_at[r]
    for i in range(closed, upto):
        h = inp.chain[at + i]
        node = _new_node(st)
        nd[node, S.HASH] = h
        nd[node, S.USERS] = 1
        nd[node, S.OWNER] = -1
        nd[node, S.COUNT] = 1
        nd[node, S.SNEXT] = -1
        newest = st.copies[k, h, 1]
        nd[node, S.SPREV] = newest
        if newest >= 0:
            nd[newest, S.SNEXT] = node
        else:
            block_changes(st.route, k, h, 0)
            st.copies[k, h, 0] = node
        st.copies[k, h, 1] = node
        st.lease[at + i] = node
    q[r, S.CLOSED] = upto


@kernel
def _oldest_run(st, r, i):
    """Node of the oldest cached private run of r that holds its block i, or -1."""
    nd = st.nd
    best, node = -1, st.q[r, S.EXTENTS]
    while node >= 0:
        first = nd[node, S.FIRST]
        if first <= i < first + nd[node, S.COUNT] and (best < 0 or nd[node, S.RUN] < nd[best, S.RUN]):
            best = node
        node = nd[node, S.SNEXT]
    return best


@kernel
def lookup(inp, st, r, limit):
    """Longest cached run of full blocks from the start, at most `limit` (5.5).

    Returns (blocks hit, how many of them are in use by somebody).
    """
    q, nd = st.q, st.nd
    k, at, shared = q[r, S.RANK], inp.chain_at[r], min(limit, q[r, S.SHARED])
    hit, used = 0, 0
    while hit < shared:
        node = st.copies[k, inp.chain[at + hit], 0]
        if node < 0:
            return hit, used
        if nd[node, S.USERS] > 0:
            used += 1
        hit += 1
    if hit == q[r, S.SHARED] and q[r, S.EXTENTS] >= 0:
        while hit < limit and _oldest_run(st, r, hit) >= 0:
            hit += 1
    return hit, used


@kernel
def pin(inp, st, r, hit):
    """Take the `hit` leading blocks found by `lookup` into the lease of r. Inactive ones leave the cache."""
    q, nd = st.q, st.nd
    k, at, shared = q[r, S.RANK], inp.chain_at[r], min(hit, q[r, S.SHARED])
    for i in range(shared):
        node = st.copies[k, inp.chain[at + i], 0]
        if nd[node, S.USERS] == 0:
            _unlink_cached(st, node)
            st.r[k, S.INACTIVE] -= 1
        nd[node, S.USERS] += 1
        st.lease[at + i] = node
    q[r, S.CLOSED] = shared
    q[r, S.SEGMENTS] = -1
    i = q[r, S.SHARED]
    while i < hit:
        node = _oldest_run(st, r, i)
        end = i + 1
        while end < hit and _oldest_run(st, r, end) == node:
            end += 1
        segment = _cut(st, node, i, end)
        st.r[k, S.INACTIVE] -= end - i
        nd[segment, S.SNEXT] = q[r, S.SEGMENTS]
        q[r, S.SEGMENTS] = segment
        i = end
    q[r, S.RUN_START] = max(hit, q[r, S.SHARED])


@kernel
def _cut(st, node, a, b):
    """Take blocks [a, b) out of a cached private run; what is left keeps its place in the cache. Returns their node."""
    nd = st.nd
    first, end = nd[node, S.FIRST], nd[node, S.FIRST] + nd[node, S.COUNT]
    if first == a and end == b:
        _unlink_cached(st, node)
        _unlink_extent(st, node)
        return node
    segment = _new_node(st)
    nd[segment, S.HASH] = -1
    nd[segment, S.OWNER] = nd[node, S.OWNER]
    nd[segment, S.FIRST] = a
    nd[segment, S.COUNT] = b - a
    nd[segment, S.RUN] = nd[node, S.RUN]
    if first == a:
        nd[node, S.FIRST] = b
        nd[node, S.COUNT] = end - b
        return segment
    nd[node, S.COUNT] = a - first
    if end > b:
        rest = _new_node(st)
        nd[rest, S.HASH] = -1
        nd[rest, S.FIRST] = b
        nd[rest, S.COUNT] = end - b
        nd[rest, S.RUN] = nd[node, S.RUN]
        _link_extent(st, rest, nd[node, S.OWNER])
        before = nd[node, S.LPREV]  # the later blocks of a run are evicted before the earlier ones
        nd[before, S.LNEXT] = rest
        nd[rest, S.LPREV] = before
        nd[rest, S.LNEXT] = node
        nd[node, S.LPREV] = rest
    return segment


@kernel
def release(inp, st, r, blocks, closed, ended):
    """Give back the lease of r: `blocks` blocks, the leading `closed` of them hashed; tail first (5.7).

    `ended`: nobody will ask for its private blocks again, so they are cached as one anonymous run.
    """
    q, nd = st.q, st.nd
    k, shared = q[r, S.RANK], q[r, S.SHARED]
    st.r[k, S.FREE] += blocks - closed
    close_shared(inp, st, r, closed)
    if ended:
        _release_anonymous(st, r, k, closed)
    else:
        _release_owned(st, r, k, closed)
    if closed > 0 and shared > 0:
        at = inp.chain_at[r]
        for i in range(min(closed, shared) - 1, -1, -1):
            node = st.lease[at + i]
            nd[node, S.USERS] -= 1
            if nd[node, S.USERS] == 0:
                _append_cached(st, k, node, 1)
    q[r, S.CLOSED] = 0


@kernel
def _release_anonymous(st, r, k, closed):
    q, nd = st.q, st.nd
    shared = q[r, S.SHARED]
    if closed > shared:
        node = _new_node(st)
        nd[node, S.HASH] = -1
        nd[node, S.OWNER] = -1
        nd[node, S.COUNT] = closed - shared
        _append_cached(st, k, node, closed - shared)
    node = q[r, S.SEGMENTS]
    while node >= 0:
        after = nd[node, S.SNEXT]
        _forget(st, node)
        node = after
    q[r, S.SEGMENTS] = -1
    node = q[r, S.EXTENTS]
    while node >= 0:
        nd[node, S.OWNER] = -1
        node = nd[node, S.SNEXT]
    q[r, S.EXTENTS] = -1


@kernel
def _release_owned(st, r, k, closed):
    q, nd = st.q, st.nd
    start = q[r, S.RUN_START]
    if closed > start:
        node = _new_node(st)
        nd[node, S.HASH] = -1
        nd[node, S.FIRST] = start
        nd[node, S.COUNT] = closed - start
        nd[node, S.RUN] = q[r, S.N_PREEMPTED]
        _link_extent(st, node, r)
        _append_cached(st, k, node, closed - start)
    node = q[r, S.SEGMENTS]
    while node >= 0:
        after = nd[node, S.SNEXT]
        _link_extent(st, node, r)
        _append_cached(st, k, node, nd[node, S.COUNT])
        node = after
    q[r, S.SEGMENTS] = -1
