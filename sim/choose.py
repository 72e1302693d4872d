"""One scheduling choice of one rank: running requests, then the waiting queue (section 4 of the rules).

The usual choice touches no running request: it takes the blocks of one growth bucket, continues at most one unfinished
prefill and admits. Whatever needs running order beyond that (a budget below the batch, first-in victims, throttled
prefills with decoders behind them) walks the running list literally.
"""

from __future__ import annotations

from sim.jit import inlined, kernel
from sim.kv.pool import available, close_shared, lookup, pin, take
from sim.preempt import computed_now, preempt
from sim.queues import drop_waiting, enter_calendar, enter_decode, leave_calendar, leave_decode, push_running
from sim.result import EXCEEDS_POOL, KIND_NEW, KIND_RESUMED, KIND_RUNNING, PROMPT_AT_LIMIT
from sim.spans import close_span
from sim.state import (
    ANEXT,
    B_ACTIVE,
    B_ADM_HEAD,
    B_ADM_TAIL,
    B_ADMITTED,
    B_B,
    B_CACHED,
    B_CHOSEN,
    B_CHUNK,
    B_CONTINUING,
    B_DECODE_CELL,
    B_DECODE_NS,
    B_FREE,
    B_HAS_ITEMS,
    B_KV,
    B_KVP,
    B_MADE,
    B_NEW_HEAD,
    B_NEW_TAIL,
    B_NP,
    B_OWN_PREEMPTED,
    B_PASS,
    B_PREEMPTED,
    B_PREFILL_CELL,
    B_PREFILL_NS,
    B_REJ_HEAD,
    B_REJ_TAIL,
    B_RUNNING,
    B_START,
    B_TOKENS,
    B_TP,
    B_WAITING,
    B_WAITING_PREEMPTED,
    BAD_PRICE,
    BARREN,
    BLAME_RANK,
    CACHED_NOW,
    CARRIED,
    CHOICES,
    CNEXT,
    COMPUTED,
    DECODE,
    ENDED,
    FINISHED,
    FREE,
    G0,
    GATE,
    GNEXT,
    INACTIVE,
    KV_BASE,
    LAST,
    LIVELOCK,
    MARK,
    N_CHUNKS_LOG,
    N_DECODE,
    N_PAUSED,
    N_PREEMPTED,
    N_PREFILL,
    NEXT_PASS,
    NNEXT,
    ORDER,
    ORDERS,
    OUTPUT,
    PAUSED,
    PREEMPTED_N,
    PREFILL,
    PREFILL_AT,
    PROMPT,
    QNEXT,
    REASON,
    RECEIVED,
    RUN_HEAD,
    RUN_N,
    RUN_TAIL,
    S_BEFORE,
    S_CACHED,
    S_KIND,
    S_LIVE,
    S_REQUEST,
    S_TOKENS,
    SATURATED,
    SHARED,
    STATE,
    WAIT_HEAD,
    WAIT_N,
)
from sim.timing.compiled import price

LIVELOCK_CHOICES = 1_000


@inlined
def _cdiv(a, b):
    return (a + b - 1) // b


@inlined
def _put(st, n, r, tokens, before, kind, cached):
    """Note what request r does in this pass; plain continuing decodes are not noted."""
    s = st.s
    s[n, S_REQUEST] = r
    s[n, S_TOKENS] = tokens
    s[n, S_BEFORE] = before
    s[n, S_KIND] = kind
    s[n, S_CACHED] = cached
    s[n, S_LIVE] = 1


@inlined
def choose(cfg, inp, st, prices, k, slot, now, wave):
    """Choose what rank k computes next, into batch `slot`. Returns a status; the batch is empty if B_HAS_ITEMS is 0."""
    rank, b = st.r, st.b
    rank[k, ENDED] = 0
    rank[k, CHOICES] += 1
    b[k, slot, B_PASS] = -1
    b[k, slot, B_CHOSEN] = now
    b[k, slot, B_START] = -1
    b[k, slot, B_HAS_ITEMS] = 0
    b[k, slot, B_OWN_PREEMPTED] = 0
    b[k, slot, B_REJ_HEAD] = -1
    b[k, slot, B_REJ_TAIL] = -1
    head = rank[k, WAIT_HEAD]
    if cfg.gated and rank[k, RUN_N] == 0 and head >= 0 and st.q[head, GATE] > rank[k, NEXT_PASS]:
        # 6.2, empty committed batch: the pass would have nothing to do, so the gate of everything queued falls.
        while head >= 0:
            st.q[head, GATE] = min(st.q[head, GATE], rank[k, NEXT_PASS])
            head = st.q[head, QNEXT]
    throttled = (
        cfg.dp > 1
        and cfg.interval > 1
        and wave % cfg.interval != 0
        and rank[k, SATURATED] == 0
        and _anyone_past_prompt(cfg, st, k)
    )
    prefills = rank[k, N_PREFILL]
    plain = (
        rank[k, N_PAUSED] == 0
        and rank[k, N_DECODE] <= cfg.budget
        and (prefills == 0 or (prefills == 1 and rank[k, RUN_TAIL] == rank[k, PREFILL_AT]))
        and (not cfg.fifo or (st.growth[k, rank[k, NEXT_PASS] % cfg.bs, 2] <= available(st, k) and prefills == 0))
    )
    if plain:
        budget, n = _run_plain(cfg, inp, st, k, slot, now, throttled)
    else:
        budget, n = _run_literally(cfg, inp, st, k, slot, now, throttled)
    running_items = n
    if b[k, slot, B_OWN_PREEMPTED] == 0:
        if rank[k, WAIT_N] > 0:
            n = _admit(cfg, inp, st, k, slot, budget, n, throttled)
        if not throttled:
            rank[k, SATURATED] = rank[k, WAIT_N] > 0
    return _settle(cfg, inp, st, prices, k, slot, n, running_items, plain)


@kernel
def _anyone_past_prompt(cfg, st, k):
    """4.5: is some running request past its prompt? Recomputed output counts as prefill in vLLM, as decode in
    parity."""
    rank, q = st.r, st.q
    if rank[k, RUN_N] > rank[k, N_PREFILL]:
        return True
    if not cfg.vllm:
        r = rank[k, RUN_HEAD]
        while r >= 0:
            if q[r, COMPUTED] >= q[r, PROMPT] or q[r, RECEIVED] > 0:
                return True
            r = q[r, QNEXT]
    return False


@inlined
def _run_plain(cfg, inp, st, k, slot, now, throttled):
    """Every decoder makes a token; the one unfinished prefill, last in running order, goes on."""
    rank, q, growth = st.r, st.q, st.growth
    number = rank[k, NEXT_PASS]
    res = number % cfg.bs
    demand = growth[k, res, 2]
    if demand <= available(st, k):
        take(st, k, demand)
    else:
        _grow_under_pressure(cfg, inp, st, k, slot, now, res)
    _close_generated(cfg, inp, st, k, number)
    budget, n = cfg.budget - rank[k, N_DECODE], 0
    if rank[k, N_PREFILL] == 0 or budget <= 0:
        return budget, n
    r = rank[k, PREFILL_AT]
    before = q[r, COMPUTED]
    if throttled and (cfg.vllm or before < q[r, PROMPT]):
        return budget, n
    if not cfg.vllm and not cfg.chunked and q[r, PROMPT] - before > budget:
        return budget, n
    tokens = min(q[r, PROMPT] + q[r, RECEIVED] - before, budget)
    need = _cdiv(before + tokens, cfg.bs) - _cdiv(before, cfg.bs)
    if need > available(st, k):
        preempt(cfg, inp, st, k, slot, now, r, r, 0)  # it is last in running order, so it is its own victim
        return budget, n
    take(st, k, need)
    _put(st, n, r, tokens, before, KIND_RUNNING, -1)
    close_shared(inp, st, r, (before + tokens) // cfg.bs if cfg.caching else 0)
    return budget - tokens, n + 1


@kernel
def _grow_under_pressure(cfg, inp, st, k, slot, now, res):
    """Last-in victims make room for the bucket of decoders that need a block; the bucket is in running order."""
    q, rank = st.q, st.r
    r = st.growth[k, res, 0]
    while r >= 0:
        while available(st, k) < 1:
            victim = rank[k, RUN_TAIL]
            preempt(cfg, inp, st, k, slot, now, victim, r, 0)
            if victim == r:
                return
        take(st, k, 1)
        r = q[r, GNEXT]


@inlined
def _close_generated(cfg, inp, st, k, number):
    """Hash generated blocks that another prompt repeats: when their last token is scheduled, or, with a token in
    flight, when that token is known, which is one pass later (5.6, A3)."""
    if not cfg.caching:
        return
    res = number % cfg.bs if cfg.depth == 2 else (number + 1) % cfg.bs
    if st.growth[k, res, 3] == 0:
        return
    r = st.growth[k, res, 0]
    while r >= 0:
        tokens = computed_now(st, k, r) + (0 if cfg.depth == 2 else 1)
        close_shared(inp, st, r, tokens // cfg.bs)
        r = st.q[r, GNEXT]


@kernel
def _run_literally(cfg, inp, st, k, slot, now, throttled):
    """The running list in order, one request at a time (4.1 to 4.4)."""
    q, rank, mark = st.q, st.r, st.r[k, CHOICES]
    budget, n = cfg.budget, 0
    r = rank[k, RUN_HEAD]
    while r >= 0 and budget > 0:
        state = q[r, STATE]
        if state == LAST:
            r = q[r, QNEXT]
            continue
        before = computed_now(st, k, r)
        if throttled and (state == PREFILL if cfg.vllm else before < q[r, PROMPT]):
            r = q[r, QNEXT]
            continue
        if not cfg.vllm and not cfg.chunked and q[r, PROMPT] - before > budget:
            break
        tokens = min(q[r, PROMPT] + q[r, RECEIVED] - before if state == PREFILL else 1, budget)
        need = _cdiv(before + tokens, cfg.bs) - _cdiv(before, cfg.bs)
        skipped, gone = 0, False
        while need > available(st, k):
            victim = rank[k, RUN_HEAD] if cfg.fifo else rank[k, RUN_TAIL]
            extra = 0
            if q[victim, MARK] == mark:
                given = _take_back(st, n, victim)
                budget += given
                extra = given if q[victim, STATE] != PREFILL else 0
            q[victim, MARK] = 0
            preempt(cfg, inp, st, k, slot, now, victim, r, extra)
            if victim == r:
                gone = True
                break
            skipped += cfg.fifo
        if gone:
            # The last in LIFO order; in FIFO order those behind it still get their turn.
            r = rank[k, RUN_HEAD] if cfg.fifo else -1
        else:
            take(st, k, need)
            q[r, MARK] = mark
            budget -= tokens
            known = before if cfg.depth == 2 and state != PREFILL else before + tokens
            close_shared(inp, st, r, known // cfg.bs if cfg.caching else 0)
            if state != DECODE:
                _put(st, n, r, tokens, before, KIND_RUNNING, -1)
                n += 1
                if state == PREFILL:
                    q[r, COMPUTED] = before + tokens
            r = q[r, QNEXT]
        # The reference simulator does not step back when a first-in victim ahead leaves the list (4.4, quirk).
        while skipped > 0 and r >= 0:
            r = q[r, QNEXT]
            skipped -= 1
    _pause_the_rest(cfg, st, k, mark)
    return budget, n


@kernel
def _take_back(st, n, victim):
    """A victim loses what this choice gave it. Returns those tokens."""
    for i in range(n):
        if st.s[i, S_REQUEST] == victim and st.s[i, S_LIVE]:
            st.s[i, S_LIVE] = 0
            return st.s[i, S_TOKENS]
    return 1  # a continuing decode, which is not noted


@kernel
def _pause_the_rest(cfg, st, k, mark):
    """Decoders that were not given their token end their span here."""
    q, rank = st.q, st.r
    r = rank[k, RUN_HEAD]
    while r >= 0:
        if q[r, STATE] == DECODE and q[r, MARK] != mark:
            leave_decode(cfg, st, k, r)
            leave_calendar(cfg, st, k, r)
            close_span(st, r, rank[k, NEXT_PASS] - q[r, G0])
            q[r, STATE] = PAUSED
            rank[k, N_PAUSED] += 1
        r = q[r, QNEXT]


@kernel
def _reject(st, k, slot, r, reason):
    q, b = st.q, st.b
    drop_waiting(st, k, r, q[r, N_PREEMPTED] > 0)
    q[r, REASON] = reason
    q[r, QNEXT] = -1
    tail = b[k, slot, B_REJ_TAIL]
    if tail >= 0:
        q[tail, QNEXT] = r
    else:
        b[k, slot, B_REJ_HEAD] = r
    b[k, slot, B_REJ_TAIL] = r


@kernel
def _admit(cfg, inp, st, k, slot, budget, n, throttled):
    """The waiting queue, strictly in order (4.3)."""
    q, rank = st.q, st.r
    while rank[k, WAIT_N] > 0 and rank[k, RUN_N] < cfg.seqs:
        if cfg.vllm and budget <= 0:
            break
        r = rank[k, WAIT_HEAD]
        prompt, again = q[r, PROMPT], q[r, N_PREEMPTED] > 0
        if not cfg.vllm and cfg.limit > 0 and prompt >= cfg.limit:
            _reject(st, k, slot, r, PROMPT_AT_LIMIT)
            continue
        if cfg.gated and q[r, GATE] > rank[k, NEXT_PASS]:
            break
        known = prompt + q[r, RECEIVED]
        whole = _cdiv(known, cfg.bs)
        if not cfg.vllm and not again and whole > cfg.blocks:
            _reject(st, k, slot, r, EXCEEDS_POOL)
            continue
        room = available(st, k)
        hit, used = 0, 0
        if cfg.caching and (q[r, SHARED] > 0 or again):
            # One token is left to compute if logits are needed: a full hit gives up its last block (5.5).
            hit, used = lookup(inp, st, r, (known - 1) // cfg.bs if q[r, OUTPUT] > 0 else known // cfg.bs)
        cached = hit * cfg.bs
        rest = known - cached
        tokens = min(rest, budget)
        reach = whole if cfg.reserve_full or not cfg.vllm else _cdiv(cached + tokens, cfg.bs)
        if reach - used + (cfg.spare if rank[k, RUN_N] > 0 else 0) > room:
            break
        if throttled and rest > 1:
            break
        if tokens <= 0 and rest > 0:
            break
        if not cfg.chunked and (rest if cfg.vllm else prompt - cached) > budget:
            break  # C5: vLLM looks at the whole known sequence
        drop_waiting(st, k, r, again)
        pin(inp, st, r, hit)
        take(st, k, _cdiv(cached + tokens, cfg.bs) - hit)
        push_running(st, k, r)
        q[r, ORDER] = rank[k, ORDERS]
        rank[k, ORDERS] += 1
        q[r, CACHED_NOW] = cached
        close_shared(inp, st, r, (cached + tokens) // cfg.bs if cfg.caching else 0)
        _put(st, n, r, tokens, cached, KIND_RESUMED if again else KIND_NEW, cached)
        n += 1
        spent_already = budget <= 0
        budget -= tokens
        if spent_already:
            break  # 4.3: at most one admission that needs no tokens once the budget is spent
    return n


@inlined
def _settle(cfg, inp, st, prices, k, slot, n, running_items, plain):
    """Number, price and describe the choice; requests that reach the end of their sequence begin to decode."""
    q, rank, b, s = st.q, st.r, st.b, st.s
    own = b[k, slot, B_OWN_PREEMPTED]
    if own > 0:
        rank[k, CARRIED] += own
        rank[k, BARREN] += 1
        if rank[k, BARREN] > LIVELOCK_CHOICES:
            st.g[BLAME_RANK] = k
            return LIVELOCK
    decoders, number = rank[k, N_DECODE], rank[k, NEXT_PASS]
    live = decoders > 0
    for i in range(n):
        live = live or s[i, S_LIVE] > 0
    if not live:
        return FINISHED
    np_, tp, kvp, nb, kv = 0, 0, 0, decoders, rank[k, KV_BASE] + decoders * number
    tokens, chunk, made, admitted = decoders, 0, decoders, 0
    new_head, new_tail, adm_head, adm_tail = -1, -1, -1, -1
    for i in range(n):
        if s[i, S_LIVE] == 0:
            continue
        r, count, before = s[i, S_REQUEST], s[i, S_TOKENS], s[i, S_BEFORE]
        prompt = q[r, PROMPT]
        part = min(max(0, prompt - before), count)
        samples = before + count >= prompt + q[r, RECEIVED]
        tokens += count
        if part > 0:
            np_, tp, kvp = np_ + 1, tp + part, kvp + before
        if count > part and samples:
            # A resumed chunk that reaches the end is a decode as well; one that does not never is.
            nb, kv = nb + 1, kv + before + count
        if s[i, S_KIND] != KIND_RUNNING:
            admitted += 1
            q[r, ANEXT] = -1
            if adm_tail >= 0:
                q[adm_tail, ANEXT] = r
            else:
                adm_head = r
            adm_tail = r
        if s[i, S_KIND] != KIND_RUNNING or count != 1 or part > 0 or not samples:
            chunk += count
            row, log = st.g[N_CHUNKS_LOG], st.chunks
            log[0, row] = r
            log[1, row] = k
            log[2, row] = number
            log[3, row] = count
            log[4, row] = before
            log[5, row] = part
            log[6, row] = s[i, S_KIND]
            log[7, row] = s[i, S_CACHED]
            st.g[N_CHUNKS_LOG] = row + 1
        old = q[r, STATE]
        if not samples:
            if old != PREFILL or s[i, S_KIND] != KIND_RUNNING:
                q[r, STATE] = PREFILL
                rank[k, N_PREFILL] += 1
            rank[k, PREFILL_AT] = r
            q[r, COMPUTED] = before + count
            continue
        if s[i, S_KIND] == KIND_RUNNING:
            if old == PREFILL:
                rank[k, N_PREFILL] -= 1
            else:
                rank[k, N_PAUSED] -= 1
        q[r, NNEXT] = -1
        if new_tail >= 0:
            q[new_tail, NNEXT] = r
        else:
            new_head = r
        new_tail = r
        made += q[r, OUTPUT] > 0
        q[r, G0] = number
        enter_calendar(cfg, st, k, r)
        if q[r, OUTPUT] - q[r, RECEIVED] > 1:
            q[r, STATE] = DECODE
            enter_decode(cfg, st, k, r)
        else:
            q[r, STATE] = LAST
    if not plain and rank[k, N_PREFILL] > 0:
        r = rank[k, RUN_HEAD]
        while r >= 0:
            if q[r, STATE] == PREFILL:
                rank[k, PREFILL_AT] = r
            r = q[r, QNEXT]
    # Requests whose last token this pass makes take no part in later choices.
    r = st.calendar[k, number & cfg.mask, 0]
    while r >= 0:
        if q[r, STATE] == DECODE:
            leave_decode(cfg, st, k, r)
            q[r, STATE] = LAST
        r = q[r, CNEXT]
    rank[k, NEXT_PASS] = number + 1
    prefill_ns, decode_ns, prefill_cell, decode_cell = price(prices, np_, tp, kvp, nb, kv)
    row = b[k, slot]
    row[B_PASS] = number
    row[B_PREFILL_NS] = prefill_ns
    row[B_DECODE_NS] = decode_ns
    row[B_NP] = np_
    row[B_TP] = tp
    row[B_KVP] = kvp
    row[B_B] = nb
    row[B_KV] = kv
    row[B_TOKENS] = tokens
    row[B_CHUNK] = chunk
    row[B_MADE] = made
    row[B_CONTINUING] = decoders
    row[B_ADMITTED] = admitted
    row[B_PREEMPTED] = rank[k, CARRIED]
    row[B_RUNNING] = rank[k, RUN_N]
    row[B_WAITING] = rank[k, WAIT_N] - rank[k, PREEMPTED_N]
    row[B_WAITING_PREEMPTED] = rank[k, PREEMPTED_N]
    row[B_CACHED] = rank[k, INACTIVE]
    row[B_FREE] = rank[k, FREE]
    row[B_ACTIVE] = cfg.blocks - rank[k, INACTIVE] - rank[k, FREE]
    row[B_PREFILL_CELL] = prefill_cell
    row[B_DECODE_CELL] = decode_cell
    row[B_NEW_HEAD] = new_head
    row[B_NEW_TAIL] = new_tail
    row[B_ADM_HEAD] = adm_head
    row[B_ADM_TAIL] = adm_tail
    row[B_HAS_ITEMS] = 1
    rank[k, CARRIED] = 0
    if prefill_ns < 0 or decode_ns < 0:
        st.g[BLAME_RANK] = k
        return BAD_PRICE
    return FINISHED
