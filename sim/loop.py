"""The event loop: completions, arrivals, starts at one instant; then the next instant (1.3, 1.7)."""

from __future__ import annotations

from sim.choose import choose
from sim.deliver import deliver
from sim.jit import entry, inlined
from sim.queues import push_waiting
from sim.source import FAR, heap_pop, heap_push, mark_dirty, next_arrival, release_arrivals
from sim.state import (
    ACTING,
    ADMISSIONS,
    ADMITTED,
    ANEXT,
    ARRIVAL,
    B_ADM_HEAD,
    B_CHOSEN,
    B_DECODE_NS,
    B_HAS_ITEMS,
    B_OWN_PREEMPTED,
    B_PASS,
    B_PREFILL_NS,
    B_REJ_HEAD,
    B_START,
    CACHED_FIRST,
    CACHED_MAX,
    CACHED_NOW,
    DEADLOCK,
    DIRTY,
    DRAIN,
    ENDED,
    FINISHED,
    GROUP_END,
    GROUP_PASSES,
    INBOX_HEAD,
    INBOX_TAIL,
    N_ADMISSIONS_LOG,
    N_ADMITTED,
    N_CHUNKS_LOG,
    N_DIRTY,
    N_HEAP,
    N_PASSES,
    N_PRESSURE_LOG,
    N_SPANS_LOG,
    NOW,
    PAUSE,
    QNEXT,
    QUEUE_HEAD,
    QUEUE_N,
    RUN_N,
    STOPPED_AT_CAP,
    WAIT_N,
    WAVE,
)


@inlined
def _read_inbox(st, k, now, ties):
    """Requests that have arrived join the waiting queue; a tie with the clock counts only if `ties`."""
    rank, q, read = st.r, st.q, False
    r = rank[k, INBOX_HEAD]
    while r >= 0 and (st.t[r, ARRIVAL] < now or (st.t[r, ARRIVAL] == now and ties)):
        after = q[r, QNEXT]
        push_waiting(st, k, r)
        read = True
        r = after
    rank[k, INBOX_HEAD] = r
    if r < 0:
        rank[k, INBOX_TAIL] = -1
    return read


@inlined
def _is_empty(st, k, slot):
    return st.b[k, slot, B_HAS_ITEMS] == 0 and st.b[k, slot, B_REJ_HEAD] < 0


@inlined
def _fill(cfg, inp, st, prices, k, now, wave):
    """Choose until a batch is ready to run, or nothing can be. Returns (status, ready)."""
    rank = st.r
    choices, idle_choices = 0, 0
    while True:
        busy = (
            rank[k, RUN_N] > 0 or rank[k, WAIT_N] > 0 or rank[k, QUEUE_N] > 0 or (cfg.depth == 2 and rank[k, ENDED] > 0)
        )
        # Rule 9 of the asynchronous rules: a tie is read unless this is the first choice after a pass end.
        read = _read_inbox(st, k, now, cfg.reads_ties or choices > 0 or not busy)
        if cfg.depth == 1 and choices > 0 and not read:
            return FINISHED, False
        has = rank[k, RUN_N] > 0 or rank[k, WAIT_N] > 0 or (cfg.depth == 2 and rank[k, ENDED] > 0)
        if not has and rank[k, QUEUE_N] == 0:
            return FINISHED, False
        choices += 1
        if has:
            slot, ahead = rank[k, QUEUE_HEAD], 0
            if rank[k, QUEUE_N] > 0:
                ahead = not _is_empty(st, k, slot)
                slot ^= 1
            status = choose(cfg, inp, st, prices, k, slot, now, wave + ahead)
            if status != FINISHED:
                return status, False
            empty = _is_empty(st, k, slot)
            preempted = st.b[k, slot, B_OWN_PREEMPTED] > 0
            if cfg.depth == 1:
                if empty and not preempted:
                    continue
                rank[k, QUEUE_N] = 1
                return FINISHED, True
            rank[k, QUEUE_N] += 1
            idle_choices = 0 if read or not empty or preempted else idle_choices + 1
            has = rank[k, RUN_N] > 0 or rank[k, WAIT_N] > 0 or rank[k, ENDED] > 0
            if rank[k, QUEUE_N] < 2 and (not empty or has):
                continue
        if not _is_empty(st, k, rank[k, QUEUE_HEAD]):
            return FINISHED, True
        rank[k, QUEUE_HEAD] ^= 1  # an empty batch takes no time and is no pass
        rank[k, QUEUE_N] -= 1
        if idle_choices > 3 and (rank[k, QUEUE_N] == 0 or _is_empty(st, k, rank[k, QUEUE_HEAD])):
            rank[k, QUEUE_N] = 0
            return FINISHED, False


@inlined
def _begin(st, k, slot, now):
    """A batch starts to run: its admissions are facts now."""
    q, t, b = st.q, st.t, st.b
    b[k, slot, B_START] = now
    r = b[k, slot, B_ADM_HEAD] if b[k, slot, B_HAS_ITEMS] else -1
    while r >= 0:
        cached, nth = q[r, CACHED_NOW], q[r, N_ADMITTED]
        if nth == 0:
            t[r, ADMITTED] = now
            q[r, CACHED_FIRST] = cached
        q[r, CACHED_MAX] = max(q[r, CACHED_MAX], cached)
        q[r, N_ADMITTED] = nth + 1
        row, log = st.g[N_ADMISSIONS_LOG], st.admissions
        log[0, row] = r
        log[1, row] = nth
        log[2, row] = k
        log[3, row] = b[k, slot, B_PASS]
        log[4, row] = b[k, slot, B_CHOSEN]
        log[5, row] = now
        log[6, row] = cached
        log[7, row] = nth > 0
        log[8, row] = st.r[k, ADMISSIONS]
        st.r[k, ADMISSIONS] += 1
        st.g[N_ADMISSIONS_LOG] = row + 1
        r = q[r, ANEXT]


@inlined
def _has_work(st, low, high):
    rank = st.r
    for k in range(low, high):
        if rank[k, RUN_N] > 0 or rank[k, WAIT_N] > 0 or rank[k, INBOX_HEAD] >= 0 or rank[k, QUEUE_N] > 0:
            return True
    return False


@inlined
def _start(cfg, inp, st, prices, worker, now):
    """Let every rank of an idle worker choose; begin a group pass if any has something to run."""
    rank, w = st.r, st.w
    low, high = worker * cfg.dp, (worker + 1) * cfg.dp
    end, acting = now, False
    if _has_work(st, low, high):
        for k in range(low, high):
            status, ready = _fill(cfg, inp, st, prices, k, now, w[worker, WAVE])
            if status != FINISHED:
                return status
            rank[k, ACTING] = ready
            acting = acting or ready
    if not acting:
        if not _has_work(st, low, high):
            w[worker, WAVE] = 0  # the group has drained (4.5)
        return FINISHED
    for k in range(low, high):
        if rank[k, ACTING]:
            slot = rank[k, QUEUE_HEAD]
            _begin(st, k, slot, now)
            if st.b[k, slot, B_HAS_ITEMS]:
                end = max(end, now + st.b[k, slot, B_PREFILL_NS] + st.b[k, slot, B_DECODE_NS])
    w[worker, GROUP_END] = end
    heap_push(st.heap, st.g[N_HEAP], end, worker)
    st.g[N_HEAP] += 1
    return FINISHED


@inlined
def _finish(cfg, inp, st, worker, now):
    """A group pass ends: its results are applied rank by rank."""
    rank, w = st.r, st.w
    w[worker, GROUP_END] = -1
    w[worker, WAVE] += 1
    number = -1
    for k in range(worker * cfg.dp, (worker + 1) * cfg.dp):
        if rank[k, ACTING] and st.b[k, rank[k, QUEUE_HEAD], B_HAS_ITEMS]:
            number = w[worker, GROUP_PASSES]
    w[worker, GROUP_PASSES] += number >= 0
    for k in range(worker * cfg.dp, (worker + 1) * cfg.dp):
        if rank[k, ACTING]:
            rank[k, ACTING] = 0
            slot = rank[k, QUEUE_HEAD]
            rank[k, QUEUE_HEAD] = slot ^ 1 if cfg.depth == 2 else 0
            rank[k, QUEUE_N] -= 1
            deliver(cfg, inp, st, k, slot, now, number)
    mark_dirty(st, worker)


@entry
def run(cfg, inp, st, prices, rows, patience):
    """Run until a log may overflow, `patience` passes have ended, or the replay is over. Call again to go on.

    Args:
        rows: most rows one worker may write between two looks at the logs.
        patience: passes after which control returns, for progress and interrupts.

    Returns:
        A status of `sim.state`; DRAIN and PAUSE ask for another call.
    """
    g, heap = st.g, st.heap
    until = g[N_PASSES] + patience
    while True:
        now = g[NOW]
        while True:
            moved = False
            while g[N_HEAP] > 0 and heap[0, 0] == now:
                if _is_full(st, rows):
                    return DRAIN
                worker = heap[0, 1]
                heap_pop(heap, g[N_HEAP])
                g[N_HEAP] -= 1
                _finish(cfg, inp, st, worker, now)
                moved = True
            release_arrivals(cfg, inp, st, now)
            while g[N_DIRTY] > 0:
                if _is_full(st, rows):
                    return DRAIN
                g[N_DIRTY] -= 1
                worker = st.dirty[g[N_DIRTY]]
                st.w[worker, DIRTY] = 0
                if st.w[worker, GROUP_END] < 0:
                    status = _start(cfg, inp, st, prices, worker, now)
                    if status != FINISHED:
                        return status
                    moved = True
            if not moved or (g[N_HEAP] == 0 or heap[0, 0] > now):
                break
        upcoming = next_arrival(cfg, inp, st)
        if g[N_HEAP] > 0:
            upcoming = min(upcoming, heap[0, 0])
        if upcoming == FAR:
            for k in range(cfg.workers * cfg.dp):
                if st.r[k, RUN_N] > 0 or st.r[k, WAIT_N] > 0 or st.r[k, INBOX_HEAD] >= 0:
                    return DEADLOCK
            return FINISHED
        if cfg.stop >= 0 and upcoming > cfg.stop:
            return STOPPED_AT_CAP
        g[NOW] = upcoming
        if g[N_PASSES] >= until:
            return PAUSE


@inlined
def _is_full(st, rows):
    g = st.g
    return (
        g[N_PASSES] + rows > st.passes.shape[1]
        or g[N_SPANS_LOG] + rows > st.spans.shape[1]
        or g[N_ADMISSIONS_LOG] + rows > st.admissions.shape[1]
        or g[N_CHUNKS_LOG] + rows > st.chunks.shape[1]
        or g[N_PRESSURE_LOG] + rows > st.pressure.shape[1]
    )
