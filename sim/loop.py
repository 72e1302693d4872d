"""The event loop: completions, arrivals, starts at one instant; then the next instant (1.3, 1.7)."""

from __future__ import annotations

import sim.state as S
from sim.choose import choose
from sim.deliver import deliver
from sim.jit import entry, inlined
from sim.queues import push_waiting
from sim.routing import publish
from sim.source import FAR, heap_pop, heap_push, mark_dirty, next_arrival, release_arrivals
from sim.speculation.choose import choose_drafting
from sim.speculation.columns import N_BURSTS_LOG
from sim.speculation.deliver import deliver_drafting
from sim.timing.plain import CLOCK_END_NS


@inlined
def _read_inbox(st, k, now, ties):
    """Requests that have arrived join the waiting queue; a tie with the clock counts only if `ties`."""
    rank, q, read = st.r, st.q, False
    r = rank[k, S.INBOX_HEAD]
    while r >= 0 and (st.t[r, S.ARRIVAL] < now or (st.t[r, S.ARRIVAL] == now and ties)):
        after = q[r, S.QNEXT]
        push_waiting(st, k, r)
        read = True
        r = after
    rank[k, S.INBOX_HEAD] = r
    if r < 0:
        rank[k, S.INBOX_TAIL] = -1
    return read


@inlined
def _is_empty(st, k, slot):
    return st.b[k, slot, S.B_HAS_ITEMS] == 0 and st.b[k, slot, S.B_REJ_HEAD] < 0


@inlined
def fill(cfg, inp, st, dr, prices, k, now, wave):
    """Choose until a batch is ready to run, or nothing can be. Returns (status, ready)."""
    rank = st.r
    choices, idle_choices = 0, 0
    while True:
        # A request that just ended keeps the engine awake for one empty step.
        ended = rank[k, S.ENDED] > 0
        busy = rank[k, S.RUN_N] > 0 or rank[k, S.WAIT_N] > 0 or rank[k, S.QUEUE_N] > 0 or ended
        # Rule 9 of the asynchronous rules: a tie is read unless this is the first choice after a pass end.
        read = _read_inbox(st, k, now, cfg.reads_ties or choices > 0 or not busy)
        if cfg.depth == 1 and choices > 0 and not read:
            return S.FINISHED, False
        has = rank[k, S.RUN_N] > 0 or rank[k, S.WAIT_N] > 0 or (cfg.depth == 2 and ended)
        choices += 1
        if not has and rank[k, S.QUEUE_N] == 0:
            if not ended:
                return S.FINISHED, False
            rank[k, S.ENDED] = 0
            continue
        if has:
            slot, ahead = rank[k, S.QUEUE_HEAD], 0
            if rank[k, S.QUEUE_N] > 0:
                ahead = not _is_empty(st, k, slot)
                slot ^= 1
            # The branch that a replay does not take is not even compiled: `dr` is None in its signature.
            if dr is None:
                status = choose(cfg, inp, st, prices, k, slot, now, wave + ahead)
            else:
                status = choose_drafting(cfg, inp, st, dr, prices, k, slot, now, wave + ahead)
            if status != S.FINISHED:
                return status, False
            empty = _is_empty(st, k, slot)
            preempted = st.b[k, slot, S.B_OWN_PREEMPTED] > 0
            if cfg.depth == 1:
                if empty and not preempted:
                    continue
                rank[k, S.QUEUE_N] = 1
                return S.FINISHED, True
            rank[k, S.QUEUE_N] += 1
            idle_choices = 0 if read or not empty or preempted else idle_choices + 1
            has = rank[k, S.RUN_N] > 0 or rank[k, S.WAIT_N] > 0 or rank[k, S.ENDED] > 0
            if rank[k, S.QUEUE_N] < 2 and (not empty or has):
                continue
        if not _is_empty(st, k, rank[k, S.QUEUE_HEAD]):
            return S.FINISHED, True
        rank[k, S.QUEUE_HEAD] ^= 1  # an empty batch takes no time and is no pass
        rank[k, S.QUEUE_N] -= 1
        if idle_choices > 3 and (rank[k, S.QUEUE_N] == 0 or _is_empty(st, k, rank[k, S.QUEUE_HEAD])):
            rank[k, S.QUEUE_N] = 0
            return S.FINISHED, False


@inlined
def begin(st, k, slot, now):
    """A batch starts to run: its admissions are facts now."""
    q, t, b = st.q, st.t, st.b
    b[k, slot, S.B_START] = now
    r = b[k, slot, S.B_ADM_HEAD] if b[k, slot, S.B_HAS_ITEMS] else -1
    while r >= 0:
        cached, nth = q[r, S.CACHED_NOW], q[r, S.N_ADMITTED]
        if nth == 0:
            t[r, S.ADMITTED] = now
            q[r, S.CACHED_FIRST] = cached
        q[r, S.CACHED_MAX] = max(q[r, S.CACHED_MAX], cached)
        q[r, S.N_ADMITTED] = nth + 1
        row, log = st.g[S.N_ADMISSIONS_LOG], st.admissions
        log[0, row] = r
        log[1, row] = nth
        log[2, row] = k
        log[3, row] = b[k, slot, S.B_PASS]
        log[4, row] = b[k, slot, S.B_CHOSEN]
        log[5, row] = now
        log[6, row] = cached
        log[7, row] = nth > 0
        log[8, row] = st.r[k, S.ADMISSIONS]
        st.r[k, S.ADMISSIONS] += 1
        st.g[S.N_ADMISSIONS_LOG] = row + 1
        r = q[r, S.ANEXT]


@inlined
def has_work(st, low, high):
    rank = st.r
    for k in range(low, high):
        if rank[k, S.RUN_N] > 0 or rank[k, S.WAIT_N] > 0 or rank[k, S.INBOX_HEAD] >= 0 or rank[k, S.QUEUE_N] > 0:
            return True
    return False


@inlined
def _start(cfg, inp, st, dr, prices, worker, now):
    """Let every rank of an idle worker choose; begin a group pass if any has something to run."""
    rank, w = st.r, st.w
    low, high = worker * cfg.dp, (worker + 1) * cfg.dp
    end, acting = now, False
    if has_work(st, low, high):
        for k in range(low, high):
            status, ready = fill(cfg, inp, st, dr, prices, k, now, w[worker, S.WAVE])
            if status != S.FINISHED:
                return status
            rank[k, S.ACTING] = ready
            acting = acting or ready
    if not acting:
        if not has_work(st, low, high):
            w[worker, S.WAVE] = 0  # the group has drained (4.5)
        return S.FINISHED
    for k in range(low, high):
        if rank[k, S.ACTING]:
            slot = rank[k, S.QUEUE_HEAD]
            begin(st, k, slot, now)
            if st.b[k, slot, S.B_HAS_ITEMS]:
                end = max(end, now + st.b[k, slot, S.B_PREFILL_NS] + st.b[k, slot, S.B_DECODE_NS])
    w[worker, S.GROUP_END] = end
    heap_push(st.heap, st.g[S.N_HEAP], end, worker)
    st.g[S.N_HEAP] += 1
    return S.FINISHED


@inlined
def _deliver_bursts(cfg, inp, st, dr, k, slot, now, group_pass):
    """What only replays with drafts on one pool compile, and are known by (`sim.jit.is_cached`)."""
    deliver_drafting(cfg, inp, st, dr, k, slot, now, group_pass)


@inlined
def _finish(cfg, inp, st, dr, worker, now):
    """A group pass ends: its results are applied rank by rank."""
    rank, w = st.r, st.w
    w[worker, S.GROUP_END] = -1
    w[worker, S.WAVE] += 1
    number = -1
    for k in range(worker * cfg.dp, (worker + 1) * cfg.dp):
        if rank[k, S.ACTING] and st.b[k, rank[k, S.QUEUE_HEAD], S.B_HAS_ITEMS]:
            number = w[worker, S.GROUP_PASSES]
    w[worker, S.GROUP_PASSES] += number >= 0
    for k in range(worker * cfg.dp, (worker + 1) * cfg.dp):
        if rank[k, S.ACTING]:
            rank[k, S.ACTING] = 0
            slot = rank[k, S.QUEUE_HEAD]
            rank[k, S.QUEUE_HEAD] = slot ^ 1 if cfg.depth == 2 else 0
            rank[k, S.QUEUE_N] -= 1
            if dr is None:
                deliver(cfg, inp, st, k, slot, now, number)
            else:
                _deliver_bursts(cfg, inp, st, dr, k, slot, now, number)
    publish(st.route, worker * cfg.dp, (worker + 1) * cfg.dp)
    if cfg.interval > 1 and not cfg.vllm and not has_work(st, worker * cfg.dp, (worker + 1) * cfg.dp):
        w[worker, S.WAVE] = 0  # drained, even if somebody arrives at this very instant
    mark_dirty(st, worker)


@entry
def run(cfg, inp, st, dr, prices, rows, patience):
    """Run until a log may overflow, `patience` passes have ended, or the replay is over. Call again to go on.

    Args:
        dr: the drafter's state, or None: another signature, and other machine code.
        rows: most rows one worker may write between two looks at the logs.
        patience: passes after which control returns, for progress and interrupts.

    Returns:
        A status of `sim.state`; DRAIN and PAUSE ask for another call.
    """
    g, heap = st.g, st.heap
    until = g[S.N_PASSES] + patience
    while True:
        now = g[S.NOW]
        while True:
            if g[S.STARTING] == 0:
                while g[S.N_HEAP] > 0 and heap[0, 0] == now:
                    if is_full(st, dr, rows):
                        return S.DRAIN
                    worker = heap[0, 1]
                    heap_pop(heap, g[S.N_HEAP])
                    g[S.N_HEAP] -= 1
                    _finish(cfg, inp, st, dr, worker, now)
                release_arrivals(cfg, inp, st, now)
            # A call that was interrupted among the starts of this instant must not end passes before they are all made.
            g[S.STARTING] = 1
            for i in range(g[S.N_STARTED], g[S.N_DIRTY]):
                if is_full(st, dr, rows):
                    g[S.N_STARTED] = i
                    return S.DRAIN
                worker = st.dirty[i]
                st.w[worker, S.DIRTY] = 0
                if st.w[worker, S.GROUP_END] < 0:
                    status = _start(cfg, inp, st, dr, prices, worker, now)
                    if status != S.FINISHED:
                        return status
            g[S.STARTING] = g[S.N_STARTED] = g[S.N_DIRTY] = 0
            if g[S.N_HEAP] == 0 or heap[0, 0] > now:
                break
        upcoming = next_arrival(cfg, inp, st)
        if g[S.N_HEAP] > 0:
            upcoming = min(upcoming, heap[0, 0])
        if upcoming == FAR:
            for k in range(cfg.workers * cfg.dp):
                if st.r[k, S.RUN_N] > 0 or st.r[k, S.WAIT_N] > 0 or st.r[k, S.INBOX_HEAD] >= 0:
                    return S.DEADLOCK
            return S.FINISHED
        if cfg.stop >= 0 and upcoming > cfg.stop:
            return S.STOPPED_AT_CAP
        if upcoming > CLOCK_END_NS:
            return S.BAD_PRICE
        g[S.NOW] = upcoming
        if g[S.N_PASSES] >= until:
            return S.PAUSE


@inlined
def is_full(st, dr, rows):
    g = st.g
    if dr is not None:  # noqa: SIM102 - alone, so that it is decided when compiling
        if dr.counts[N_BURSTS_LOG] + dr.burst_rows > dr.bursts.shape[1]:
            return True
    return (
        g[S.N_PASSES] + rows > st.passes.shape[1]
        or g[S.N_SPANS_LOG] + rows > st.spans.shape[1]
        or g[S.N_ADMISSIONS_LOG] + rows > st.admissions.shape[1]
        or g[S.N_CHUNKS_LOG] + rows > st.chunks.shape[1]
        or g[S.N_PRESSURE_LOG] + rows > st.pressure.shape[1]
    )
