"""The event loop of separate pools: passes end, transfers land, commands are obeyed, passes start, requests arrive."""

from __future__ import annotations

import sim.pools.state as P
import sim.speculation.columns as D
import sim.state as S
from sim.deliver import deliver, write_pass
from sim.items import cdiv
from sim.jit import entry, inlined, kernel
from sim.loop import begin, fill, has_work, is_full
from sim.pools.commands import listen
from sim.pools.deadlines import expire
from sim.pools.handoff import ask_early, catch_up, hold, land, obey, try_to_reserve
from sim.pools.wire import land_wired, next_event
from sim.queues import append, drop_running
from sim.result import NO_REASON, REJECTED
from sim.routing import least_cost, leave_books, look, publish
from sim.source import (
    FAR,
    due_request,
    end_request,
    enter_inbox,
    heap_pop,
    heap_push,
    mark_dirty,
    next_arrival,
    refused,
)
from sim.speculation.deliver import deliver_drafting, write_row
from sim.speculation.spans import leave_slot
from sim.timing.plain import CLOCK_END_NS


@inlined
def _leave_batch(cfg, st, k):
    """The oldest batch of rank k is over. Returns its slot."""
    rank = st.r
    rank[k, S.ACTING] = 0
    slot = rank[k, S.QUEUE_HEAD]
    rank[k, S.QUEUE_HEAD] = slot ^ 1 if cfg.depth == 2 else 0
    rank[k, S.QUEUE_N] -= 1
    return slot


@inlined
def _group_pass(st, worker, low, high):
    """A group pass is over. Returns its number, -1 if nobody computed anything."""
    rank, w = st.r, st.w
    w[worker, S.GROUP_END] = -1
    w[worker, S.WAVE] += 1
    number = -1
    for k in range(low, high):
        if rank[k, S.ACTING] and st.b[k, rank[k, S.QUEUE_HEAD], S.B_HAS_ITEMS]:
            number = w[worker, S.GROUP_PASSES]
    w[worker, S.GROUP_PASSES] += number >= 0
    return number


@inlined
def _drained(cfg, st, worker, low, high):
    if cfg.interval > 1 and not cfg.vllm and not has_work(st, low, high):
        st.w[worker, S.WAVE] = 0


@inlined
def _note_held(cfg, inp, st, po, k, r, blocks):
    """A prompt that a pass completed leaves the running list and keeps its blocks (PD-4)."""
    q = st.q
    leave_books(cfg, inp, st, st.route, r)
    drop_running(st, k, r)
    q[r, S.STATE] = S.DONE
    if cfg.promises:
        st.r[k, S.PROMISED] -= cdiv(q[r, S.PROMPT] + q[r, S.OUTPUT], cfg.bs) - blocks
    append(po.h, P.NEXT_HELD, po.g, P.HELD_HEAD, P.HELD_TAIL, r - po.n)


@inlined
def _hand_out_bucket(cfg, inp, st, po, k, bucket, tokenless):
    """Hand out what a pass completed. Returns how many."""
    q, n = st.q, 0
    r = st.calendar[k, bucket, 0]
    while r >= 0:
        if (q[r, S.OUTPUT] == 0) == tokenless:
            n += 1
            _note_held(cfg, inp, st, po, k, r, cdiv(q[r, S.PROMPT], cfg.bs))
        r = q[r, S.CNEXT]
    return n


@inlined
def _hand_out_items(cfg, inp, st, po, pre, k, slot, tokenless):
    """The same where drafts are about, whose kernels keep items instead of buckets."""
    q, n = st.q, 0
    for i in range(pre.n_items[k, slot]):
        item = pre.items[k, slot, i]
        r = item[D.I_REQUEST]
        if item[D.I_LIVE] == 0 or item[D.I_SAMPLES] == 0 or (q[r, S.OUTPUT] == 0) != tokenless:
            continue
        if item[D.I_EPOCH] == pre.d[q[r, D.SLOT], D.EPOCH]:  # otherwise it was thrown out meanwhile
            n += 1
            _note_held(cfg, inp, st, po, k, r, pre.d[q[r, D.SLOT], D.BLOCKS])
            leave_slot(st, pre, k, r)
    return n


@kernel
def _write_items(st, pre, k, slot, number):
    """What a prefill worker computed in a pass. Returns its tokens."""
    tokens = 0
    for i in range(pre.n_items[k, slot]):
        item = pre.items[k, slot, i]
        if item[D.I_LIVE]:
            r, count, before = item[D.I_REQUEST], item[D.I_TOKENS], item[D.I_BEFORE]
            part = min(max(0, st.q[r, S.PROMPT] - before), count)
            write_row(st, k, number, r, count, before, part, item[D.I_KIND], item[D.I_CACHED], 0)
            tokens += count
    return tokens


@inlined
def _hand_out(cfg, inp, st, po, pre, worker, now):
    """A prefill worker's pass ends: finished prompts are noted, those of tokenless requests first on each rank."""
    low = po.w[worker, P.FIRST_RANK]
    number = _group_pass(st, worker, low, low + cfg.dp)
    for k in range(low, low + cfg.dp):
        if not st.r[k, S.ACTING]:
            continue
        slot = _leave_batch(cfg, st, k)
        batch = st.b[k, slot]
        r = batch[S.B_REJ_HEAD]
        while r >= 0:
            after = st.q[r, S.QNEXT]
            leave_books(cfg, inp, st, st.route, r)
            end_request(cfg, inp, st, r - po.n, REJECTED, st.q[r, S.REASON], now)
            r = after
        mine = batch[S.B_PASS]
        if mine < 0:
            continue
        st.r[k, S.DELIVERED] = mine
        if pre is None:
            bucket = mine & cfg.mask
            done = _hand_out_bucket(cfg, inp, st, po, k, bucket, True)
            done += _hand_out_bucket(cfg, inp, st, po, k, bucket, False)
            st.calendar[k, bucket, 0] = -1
            st.calendar[k, bucket, 1] = -1
        else:
            batch[S.B_CHUNK] = _write_items(st, pre, k, slot, mine)
            batch[S.B_MADE] = batch[S.B_CONTINUING] = 0
            done = _hand_out_items(cfg, inp, st, po, pre, k, slot, True)
            done += _hand_out_items(cfg, inp, st, po, pre, k, slot, False)
            for column in (D.PASS_ROUNDS, D.PASS_DRAFTS, D.PASS_ACCEPTED, D.PASS_BURSTS):
                st.passes[column, st.g[S.N_PASSES]] = 0
        if done > 0:
            st.r[k, S.ENDED] = 1
            st.r[k, S.BARREN] = 0
        write_pass(cfg, st, k, batch, now, number, 0)
    _drained(cfg, st, worker, low, low + cfg.dp)
    publish(st.route, low, low + cfg.dp)
    i = po.w[worker, P.COMMAND_HEAD]
    while i >= 0:
        listen(po, worker)
        i = po.h[i, P.NEXT_RELEASE]
    mark_dirty(st, worker)


@inlined
def _deliver(cfg, inp, st, po, dr, k, slot, now, number):
    """The results of a decode worker's pass. What reservations want to know is whether anybody gave up all its blocks;
    what was reserved for drafts and goes back does not count."""
    if dr is None:
        running = st.r[k, S.RUN_N]
        deliver(cfg, inp, st, k, slot, now, number)
        po.k[k, P.GIVEN_BACK] += running - st.r[k, S.RUN_N]
    else:
        left = dr.ranks[k, D.N_LEFT]
        deliver_drafting(cfg, inp, st, dr, k, slot, now, number)
        po.k[k, P.GIVEN_BACK] += dr.ranks[k, D.N_LEFT] - left


@inlined
def _finish(cfg, inp, st, po, dr, worker, now):
    """A decode worker's pass ends."""
    low = po.w[worker, P.FIRST_RANK]
    number = _group_pass(st, worker, low, low + cfg.dp)
    for k in range(low, low + cfg.dp):
        if st.r[k, S.ACTING]:
            _deliver(cfg, inp, st, po, dr, k, _leave_batch(cfg, st, k), now, number)
    _drained(cfg, st, worker, low, low + cfg.dp)
    publish(st.route, low, low + cfg.dp)
    po.w[worker, P.PASS_ENDED] = 1
    mark_dirty(st, worker)


@inlined
def _anyone_wants(cfg, st, po, worker):
    low = po.w[worker, P.FIRST_RANK]
    for k in range(low, low + cfg.dp):  # noqa: SIM110 - kernels know no generators
        if st.r[k, S.WANTED_N] > 0:
            return True
    return False


@inlined
def _complete(prefill, decode, inp, st, po, pre, dr, now):
    """All passes that end at `now`; then backlogs are looked at; then finished prompts look for a destination."""
    g, heap = st.g, st.heap
    while g[S.N_HEAP] > 0 and heap[0, 0] == now:
        worker = heap[0, 1]
        heap_pop(heap, g[S.N_HEAP])
        g[S.N_HEAP] -= 1
        if worker < po.prefill_workers:
            _hand_out(prefill, inp, st, po, pre, worker, now)
        else:
            _finish(decode, inp, st, po, dr, worker, now)
    for i in range(g[S.N_DIRTY]):
        worker = st.dirty[i]
        if po.w[worker, P.PASS_ENDED]:
            po.w[worker, P.PASS_ENDED] = 0
            if po.w[worker, P.COMMAND_HEAD] >= 0 or _anyone_wants(decode, st, po, worker):
                catch_up(decode, inp, st, po, worker, now)
    i = po.g[P.HELD_HEAD]
    po.g[P.HELD_HEAD] = po.g[P.HELD_TAIL] = -1
    while i >= 0:
        after = po.h[i, P.NEXT_HELD]
        hold(decode, inp, st, po, i, now)
        i = after


@inlined
def _fill(cfg, inp, st, po, dr, prices, k, now, wave):
    """`fill`, and a note of whether its choices gave blocks back."""
    thrown_out = st.g[S.N_PRESSURE_LOG]
    if dr is None:
        status, ready = fill(cfg, inp, st, None, prices, k, now, wave)
    else:
        left = dr.ranks[k, D.N_LEFT]
        status, ready = fill(cfg, inp, st, dr, prices, k, now, wave)
        po.k[k, P.GIVEN_BACK] += dr.ranks[k, D.N_LEFT] - left
    po.k[k, P.GIVEN_BACK] += st.g[S.N_PRESSURE_LOG] - thrown_out
    return status, ready


@inlined
def _start_worker(cfg, inp, st, po, dr, prices, worker, decodes, now):
    """Let every rank of an idle worker choose; begin a group pass if any has work. Returns (status, begun, empty).

    `empty`: nothing has begun, but the choices threw requests out.
    """
    rank, w = st.r, st.w
    low = po.w[worker, P.FIRST_RANK]
    high, end, acting, empty = low + cfg.dp, now, False, decodes
    if has_work(st, low, high):
        for k in range(low, high):
            status, ready = _fill(cfg, inp, st, po, dr, prices, k, now, w[worker, S.WAVE])
            if status != S.FINISHED:
                return status, False, False
            rank[k, S.ACTING] = ready
            acting = acting or ready
            if ready:
                slot = rank[k, S.QUEUE_HEAD]
                empty = empty and st.b[k, slot, S.B_HAS_ITEMS] == 0 and st.b[k, slot, S.B_REJ_HEAD] < 0
    if not acting:
        if not has_work(st, low, high):
            w[worker, S.WAVE] = 0
        return S.FINISHED, False, False
    if empty:
        _group_pass(st, worker, low, high)
        for k in range(low, high):
            if rank[k, S.ACTING]:
                _leave_batch(cfg, st, k)
        _drained(cfg, st, worker, low, high)
        publish(st.route, low, high)
        return S.FINISHED, False, True
    for k in range(low, high):
        if rank[k, S.ACTING]:
            slot = rank[k, S.QUEUE_HEAD]
            begin(st, k, slot, now)
            if st.b[k, slot, S.B_HAS_ITEMS]:
                end = max(end, now + st.b[k, slot, S.B_PREFILL_NS] + st.b[k, slot, S.B_DECODE_NS])
    w[worker, S.GROUP_END] = end
    heap_push(st.heap, st.g[S.N_HEAP], end, worker)
    st.g[S.N_HEAP] += 1
    return S.FINISHED, True, False


@inlined
def _start(prefill, decode, inp, st, po, pre, dr, for_prefill, for_decode, now):
    """Idle workers begin passes, in order."""
    g = st.g
    place = 0
    while place < g[S.N_DIRTY]:
        worker = st.dirty[place]
        place += 1
        st.w[worker, S.DIRTY] = 0
        decodes = worker >= po.prefill_workers
        cfg = decode if decodes else prefill
        prices = for_decode if decodes else for_prefill
        drafter = dr if decodes else pre
        while st.w[worker, S.GROUP_END] < 0:
            status, begun, empty = _start_worker(cfg, inp, st, po, drafter, prices, worker, decodes, now)
            if status != S.FINISHED:
                return status
            if begun and not decodes and po.wired and po.g[P.LAYERS] > 0:
                ask_early(prefill, decode, inp, st, po, pre, worker, now)
            if begun or not decodes:
                break
            # A rank that could let nobody in tries its first reservation, and then chooses again, before anything that
            # was reserved now is activated.
            low, found = po.w[worker, P.FIRST_RANK], empty
            for k in range(low, low + cfg.dp):
                if st.r[k, S.WAIT_N] > 0 and try_to_reserve(cfg, inp, st, po, k, now):
                    found = True
            if not found:
                break
    g[S.N_DIRTY] = 0
    return S.FINISHED


@inlined
def _local_rank(cfg, inp, st, po, route, i):
    """The decode rank that computes the prompt of request i itself, since it lacks little of it (CD-1); -1 none."""
    found = -1
    if route is not None:  # noqa: SIM102 - alone, so that it is decided when compiling
        if po.local_tokens >= 0:
            found = _rank_that_lacks_little(cfg, inp, st, po, route, i)
    return found


@kernel
def _rank_that_lacks_little(cfg, inp, st, po, route, i):
    k = inp.pinned[i] if cfg.pinned else -1
    if k >= 0:
        k += po.prefill_ranks
    else:
        k = least_cost(cfg, inp, st, route, i, po.prefill_ranks, po.ranks, 1)
    in_turn = k < 0
    if in_turn:
        k = po.g[P.NEXT_TARGET]
    hit, _ = look(cfg, inp, st, route, i, k)
    if st.q[i, S.PROMPT] - hit * cfg.bs > po.local_tokens:
        return -1
    if in_turn:
        po.g[P.NEXT_TARGET] = k + 1 if k + 1 < po.ranks else po.prefill_ranks
    return k


@inlined
def _submit(cfg, inp, st, po, k, r):
    """Request r, or bootstrap r, waits in front of rank k."""
    enter_inbox(cfg, inp, st, r, k)
    if st.w[po.worker_of[k], S.GROUP_END] < 0:
        mark_dirty(st, po.worker_of[k])


@kernel
def _keep_local(cfg, inp, st, po, i, k, now):
    """Request i is an ordinary request of decode rank k."""
    st.q[i, S.RANK] = k
    po.h[i, P.NUMBER] = P.LAST_OF_ALL
    reason = refused(cfg, st, i) if cfg.vllm else NO_REASON
    if reason != NO_REASON:
        end_request(cfg, inp, st, i, REJECTED, reason, now)
    else:
        _submit(cfg, inp, st, po, k, i)


@kernel
def _arrive(prefill, decode, inp, st, po, now):
    """Requests due at `now` go to the prefill ranks in turn, or where pin or router say (RT-1, RT-2, RT-4)."""
    q = st.q
    i = due_request(prefill, inp, st, now)
    while i >= 0:
        local = _local_rank(decode, inp, st, po, st.route, i)
        if local >= 0:
            _keep_local(decode, inp, st, po, i, local, now)
            i = due_request(prefill, inp, st, now)
            continue
        r = po.n + i
        st.t[r, S.ARRIVAL] = st.t[i, S.ARRIVAL]
        k = inp.pinned[r] if prefill.pinned else -1  # a pin does not move the cursor (RT-1)
        if k < 0:
            k = least_cost(prefill, inp, st, st.route, r, 0, po.prefill_ranks, 1)
        if k < 0:
            k = po.g[P.NEXT_SOURCE]
            po.g[P.NEXT_SOURCE] = k + 1 if k + 1 < po.prefill_ranks else 0
        q[i, S.RANK] = q[r, S.RANK] = k
        po.h[i, P.SOURCE] = k
        reason = NO_REASON
        if prefill.vllm:
            reason = refused(prefill, st, r)
            if reason == NO_REASON:
                reason = refused(decode, st, i)
        if reason != NO_REASON:
            end_request(prefill, inp, st, i, REJECTED, reason, now)
        else:
            _submit(prefill, inp, st, po, k, r)
        i = due_request(prefill, inp, st, now)


@inlined
def _anyone_due(cfg, inp, st, now):
    g = st.g
    if g[S.N_SENT] == cfg.sends:
        return False
    if g[S.N_TURNS] > 0 and st.turns[0, 0] <= now:
        return True
    if g[S.NEXT_FIRST] >= len(inp.firsts):
        return False
    if cfg.concurrency > 0:
        return g[S.IN_FLIGHT] < cfg.concurrency
    return inp.arrival[inp.firsts[g[S.NEXT_FIRST]]] <= now


@inlined
def _blocked(st, po):
    """Whether somebody waits for what will never come."""
    for k in range(po.ranks):
        if st.r[k, S.RUN_N] > 0 or st.r[k, S.WAIT_N] > 0 or st.r[k, S.INBOX_HEAD] >= 0 or st.r[k, S.WANTED_N] > 0:
            return True
    return False


@inlined
def _slots_run_out(cfg, dr):
    """Whether the requests that one look may admit could want more slots than there are (sim.pools.drafting)."""
    if dr is None:
        return False
    return dr.counts[D.MOST_SLOTS] + 2 * cfg.seqs > dr.slots.shape[1]


@entry
def run_pools(prefill, decode, inp, st, po, pre, dr, for_prefill, for_decode, rows, patience):
    """Run until a log may overflow, `patience` passes have ended, or the replay is over. Call again to go on.

    Args:
        prefill, decode: the two pools' constants; `for_prefill`, `for_decode`: their prices.
        pre, dr: the two pools' drafters, or None, None: another signature, and other machine code.
        rows: most rows that one look at all workers may write.

    Returns:
        A status of `sim.state`; DRAIN and PAUSE ask for another call.
    """
    g, heap = st.g, st.heap
    until = g[S.N_PASSES] + patience
    while True:
        now = g[S.NOW]
        while True:
            if is_full(st, dr, rows) or _slots_run_out(decode, dr):
                return S.DRAIN
            _complete(prefill, decode, inp, st, po, pre, dr, now)
            # Mostly there is nothing to do for some of these, and calls are what a pass costs.
            if po.wired:
                if next_event(po) <= now:
                    land_wired(decode, inp, st, po, now)
            elif po.g[P.N_TRANSFERS] > 0 and po.transfers[0, 0] <= now:
                land(st, po, now)
            if po.g[P.N_OBEY] > 0:
                obey(prefill, decode, inp, st, po, now)
            if po.wired and po.g[P.DEADLINE_HEAD] >= 0:
                expire(decode, inp, st, po, now)
                if po.g[P.N_OBEY] > 0:
                    obey(prefill, decode, inp, st, po, now)
            arrivals = _anyone_due(prefill, inp, st, now)
            while g[S.N_DIRTY] > 0 or arrivals:
                if g[S.N_DIRTY] > 0:
                    status = _start(prefill, decode, inp, st, po, pre, dr, for_prefill, for_decode, now)
                    if status != S.FINISHED:
                        return status
                if arrivals:
                    _arrive(prefill, decode, inp, st, po, now)
                    arrivals = False
            if (g[S.N_HEAP] == 0 or heap[0, 0] > now) and po.g[P.N_OBEY] == 0:
                break
        upcoming = next_arrival(prefill, inp, st)
        if g[S.N_HEAP] > 0:
            upcoming = min(upcoming, heap[0, 0])
        if po.wired:
            upcoming = min(upcoming, next_event(po))
        elif po.g[P.N_TRANSFERS] > 0:
            upcoming = min(upcoming, po.transfers[0, 0])
        if upcoming == FAR:
            return S.DEADLOCK if _blocked(st, po) else S.FINISHED
        if prefill.stop >= 0 and upcoming > prefill.stop:
            return S.STOPPED_AT_CAP
        if upcoming > CLOCK_END_NS:
            return S.BAD_PRICE
        g[S.NOW] = upcoming
        if g[S.N_PASSES] >= until:
            return S.PAUSE
