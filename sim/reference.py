"""The executable specification: every rule of a replay, pass by pass and token by token, in ordinary Python.

Nothing here is clever and nothing is fast. Rule numbers in comments refer to `docs/correctness.md`; a rule marked
[vllm] or [parity] holds in that profile only. The compiled engine (`sim.engine`) must give the same tables for every
input.

Vocabulary: a *choice* decides what a rank computes next; a non-empty choice becomes a *pass*. Synchronous ranks keep
one batch, asynchronous vLLM keeps two: the next is chosen while the current one runs.
"""

from __future__ import annotations

import heapq
import time
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from sim.errors import Deadlock, Livelock, TimingError
from sim.explain import CLOCK_MESSAGE, blocked_message, livelock_message
from sim.inputs import Workload
from sim.reference_routing import Books, Router
from sim.result import (
    BURST_PASSES,
    COMPLETED,
    EXCEEDS_POOL,
    KIND_NEW,
    KIND_RESUMED,
    KIND_RUNNING,
    LOOKAHEAD_EXCEEDS_POOL,
    MOST_DRAFTS,
    NO_REASON,
    PROMPT_AT_LIMIT,
    REJECTED,
    TABLES,
    UNFINISHED,
    Outcome,
    Sink,
)
from sim.spec import Deployment, EngineSpec, FrontEnd, PoolsSpec, Speculation, Transfer
from sim.speculation import draws
from sim.timing.evidence import EvidenceCounter, PoolsEvidence
from sim.timing.plain import CLOCK_END_NS, PlainPricer, Price, Work

if TYPE_CHECKING:
    from sim.reference_pools import Handoff

NO_PRICE, NO_WORK = Price(0, 0, -1, -1), Work(0, 0, 0, 0, 0)
LIVELOCK_CHOICES = 1_000  # choices of one rank that preempt, in a row, without a token in between


def cdiv(a: int, b: int) -> int:
    return -(-a // b)


class Request:
    """One request on its way through the engine. Token counts; `known` = prompt plus tokens received."""

    def __init__(self, index: int, load: Workload, output: int) -> None:
        self.index = index
        self.prompt = int(load.prompt_tokens[index])
        self.asked = int(load.output_tokens[index])
        # Reaching a limit is a normal end, so limits only shorten the output (3.1).
        self.output = output
        self.arrival = -1  # in the engine
        self.sent = -1  # by the client
        self.worker = self.dp_rank = -1
        self.status, self.reason, self.end = UNFINISHED, NO_REASON, -1
        self.known = self.prompt
        self.received = 0
        self.computed = 0
        self.prefilling = True  # its last scheduling did not reach the end of the sequence
        self.owed = 0  # tokens in flight that will be sampled (section 3 of the asynchronous rules)
        self.epoch = 0  # raised by a preemption: results of older passes no longer count for `owed`
        self.blocks: list[Block] = []
        self.closed = 0  # leading blocks of the lease that are hashed
        self.stretch = 0  # raised when a choice leaves it out or preempts it: the next token opens a new span
        self.gate = 0  # first pass that may admit it (6.2) [parity]
        self.preemptions = 0
        self.transferred = False  # its prompt's blocks came from another pool (section 10)
        self.local = False  # of a decode pool: prefilled where it decodes (CD)
        self.bootstrap: Request | None = None  # what the prefill pool computes of it
        self.admissions: list[tuple[int, int]] = []  # (start of the pass, cached tokens)
        self.token_times: list[int] = []
        self.bursts: list[Burst] = []
        self.drafts = 0  # proposed for its next pass, where drafts are scheduled as tokens
        self.round = 0  # of its acceptance stream
        self.accepted = [0] * (MOST_DRAFTS + 1)  # rounds by accepted drafts, those beside its own prompt left out (8.5)
        self.verified = 0  # drafts in those rounds
        self.chain: list[int] = []  # identities of its leading full blocks


@dataclass(frozen=True)
class Burst:
    """Tokens that a request made in one pass. `drafts`: draft tokens it computed there."""

    pass_no: int
    stretch: int
    made: int
    drafts: int


class Block:
    """One physical KV block in use or cached. `identity` is the chained hash once the block is full and hashed."""

    __slots__ = ("identity", "users")

    def __init__(self) -> None:
        self.identity: int | None = None
        self.users = 0


class Pool:
    """Paged KV blocks of one rank: active (in use), cached (unreferenced, can be hit), free (anonymous). Section 5."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.free = size
        self.given_back = 0  # blocks released so far by requests that gave up all of theirs
        self.cached: OrderedDict[Block, None] = OrderedDict()  # least recently released first
        self.copies: dict[int, list[Block]] = {}  # identity -> copies, oldest first (5.3)

    @property
    def available(self) -> int:
        return self.free + len(self.cached)

    @property
    def active(self) -> int:
        return self.size - self.available

    def take(self, count: int) -> list[Block]:
        """5.2: anonymous blocks first, then the cached block released longest ago."""
        taken = []
        for _ in range(count):
            if self.free > 0:
                self.free -= 1
            else:
                gone, _ = self.cached.popitem(last=False)
                assert gone.identity is not None, "only hashed blocks are cached"
                siblings = self.copies[gone.identity]
                siblings.remove(gone)
                if not siblings:
                    del self.copies[gone.identity]
            block = Block()
            block.users = 1
            taken.append(block)
        return taken

    def pin(self, block: Block) -> None:
        if block.users == 0:
            del self.cached[block]
        block.users += 1

    def close(self, block: Block, identity: int) -> None:
        """A block that is full becomes hittable; further copies queue behind the oldest (5.3, 5.6)."""
        block.identity = identity
        self.copies.setdefault(identity, []).append(block)

    def release(self, blocks: list[Block], *, surplus: bool = False) -> None:
        """5.7: from the tail to the head, so that tails are evicted before heads. `surplus`: their request goes on."""
        self.given_back += 0 if surplus else len(blocks)
        for block in reversed(blocks):
            block.users -= 1
            if block.users == 0:
                if block.identity is None:
                    self.free += 1
                else:
                    self.cached[block] = None


@dataclass
class Item:
    """What one request does in one pass."""

    request: Request
    tokens: int
    before: int
    kind: int
    cached: int  # at an admission, else -1
    samples: bool = False  # reaches the end of the sequence, so the pass makes a token (or ends a tokenless request)
    epoch: int = 0
    stretch: int = 0
    drafts: int = 0  # of `tokens`, those beyond the known sequence: drafts, or their padding
    verified: int = 0  # drafts whose verification counts: not the padding; in policy mode those beside the tokens
    accepted: int = 0  # of these
    most: int = 1  # policy mode: tokens it can make, for which blocks are reserved (8.4)
    made: int = 0  # tokens, once delivered

    @property
    def prompt_part(self) -> int:
        """How many of its tokens are prompt."""
        return min(max(0, self.request.prompt - self.before), self.tokens)

    @property
    def decodes(self) -> bool:
        """Whether it is decode work (7.1).

        A resumed chunk that reaches the end is a decode as well; one that does not never is (decisions). A full hit
        that stays full (TensorRT-LLM) computes nothing, and gets its first token from a decode.
        """
        full_hit = self.tokens == 0 and self.request.output > 0
        return (self.tokens - self.drafts > self.prompt_part or full_hit) and self.samples

    @property
    def is_plain(self) -> bool:
        """A running request computes its newest token, and drafts: what `chunks` has no row for."""
        plain = self.kind == KIND_RUNNING and self.prompt_part == 0 and self.samples
        return plain and self.tokens == 1 + self.drafts


@dataclass
class Batch:
    """One choice of one rank."""

    chosen: int
    items: list[Item] = field(default_factory=list)
    rejected: list[Request] = field(default_factory=list)
    preempted: int = 0
    pass_no: int = -1  # -1: empty, never runs as a pass
    start: int = -1
    price: Price = NO_PRICE
    work: Work = NO_WORK
    after: tuple[int, ...] = ()  # running, waiting, preempted waiting, active, cached, free

    @property
    def is_empty(self) -> bool:
        return not (self.items or self.rejected)


class Rank:
    """One attention-DP scheduler: its queues, its pool, its committed batches."""

    def __init__(self, spec: EngineSpec, worker: int, dp_rank: int, out: Tables) -> None:
        self.spec, self.worker, self.dp_rank, self.out = spec, worker, dp_rank, out
        self.depth = 2 if spec.profile == "vllm" and spec.async_scheduling else 1
        self.gated = spec.profile == "parity" and spec.async_scheduling
        ties = spec.boundary_arrivals or ("after" if self.depth == 2 else "before")
        self.reads_ties = ties == "before" or spec.profile != "vllm"
        self.limit = spec.max_model_len if spec.native_drafts and spec.max_model_len is not None else 1 << 62
        self.policy_drafts = spec.speculation if not spec.native_drafts else None
        self.pool = Pool(spec.blocks)
        self.pricer = PlainPricer(spec)
        self.inbox: deque[Request] = deque()  # placed here, not yet read by the scheduler
        self.waiting: deque[Request] = deque()  # preempted ones in front, newest first; then arrivals
        self.running: list[Request] = []
        self.queue: deque[Batch] = deque()
        self.in_flight = False
        self.next_pass = 0
        self.orders = 0
        self.ended_since_choice = False
        self.saturated = False  # the last unthrottled choice left requests waiting (4.5)
        self.carried_preemptions = 0
        self.barren = 0  # preempting choices since the last token
        self.books: Books | None = None  # what a KV-aware router knows of it

    # ------------------------------------------------------------------ arrivals
    def read_inbox(self, now: int, ties: bool) -> bool:
        """Requests that have arrived join the waiting queue. A tie with the clock counts only if `ties`."""
        read = False
        while self.inbox and (self.inbox[0].arrival < now or (self.inbox[0].arrival == now and ties)):
            self.waiting.append(self.inbox.popleft())
            read = True
        return read

    def submit(self, request: Request, group_busy: bool) -> None:
        self.inbox.append(request)
        if not self.gated:
            return
        # 6.2 [parity]: a busy rank has the next pass committed already. An idle rank of a busy group counts as idle.
        if self.in_flight:
            request.gate = self.next_pass + 1
        elif self.running and not group_busy:
            request.gate = self.next_pass + 2
        else:
            request.gate = self.next_pass

    @property
    def has_requests(self) -> bool:
        return bool(self.running or self.waiting) or (self.depth == 2 and self.ended_since_choice)

    # ------------------------------------------------------------------ choosing
    def fill(self, now: int, wave: int) -> bool:
        """Choose until a batch is ready to run, or nothing can be. True if the rank has something to run or to
        report."""
        if self.depth == 1:
            # A request that just ended keeps the engine awake for one empty step, after which ties are read.
            self.read_inbox(now, self.reads_ties or not (self.running or self.waiting or self.ended_since_choice))
            if not (self.running or self.waiting):
                self.ended_since_choice = False
                self.read_inbox(now, True)
            if not (self.running or self.waiting):
                return False
            batch = self.choose(now, wave)
            if batch.is_empty and not batch.preempted and self.read_inbox(now, True):
                batch = self.choose(now, wave)
            if batch.is_empty and not batch.preempted:
                return False
            self.queue.append(batch)
            return True
        choices, idle_choices = 0, 0
        while True:
            busy = self.has_requests or bool(self.queue)
            # Rule 9 of the asynchronous rules: a tie is read unless this is the first choice after a pass end.
            read = self.read_inbox(now, self.reads_ties or not busy or choices > 0)
            if not (self.has_requests or self.queue):
                return False
            choices += 1
            if self.has_requests:
                batch = self.choose(now, wave + len([b for b in self.queue if not b.is_empty]))
                self.queue.append(batch)
                idle_choices = 0 if read or batch.preempted or not batch.is_empty else idle_choices + 1
                if len(self.queue) < 2 and (not batch.is_empty or self.has_requests):
                    continue
            if not self.queue[0].is_empty:
                return True
            self.queue.popleft()  # an empty batch takes no time and is no pass
            if idle_choices > 3 and all(b.is_empty for b in self.queue):
                self.queue.clear()
                return False

    def choose(self, now: int, wave: int) -> Batch:
        """One scheduling decision (section 4)."""
        spec, batch = self.spec, Batch(chosen=now)
        vllm = spec.profile == "vllm"
        self.ended_since_choice = False
        if self.gated and not self.running and self.waiting and self.waiting[0].gate > self.next_pass:
            # 6.2, empty committed batch: nothing else to run, so the gate of everything queued falls. A preempted
            # request at the head is something else to run (6-E).
            for request in self.waiting:
                request.gate = min(request.gate, self.next_pass)
        budget = spec.max_batched_tokens
        throttled = (
            spec.dp > 1
            and spec.prefill_schedule_interval > 1
            and wave % spec.prefill_schedule_interval != 0
            and not self.saturated
            and any(not self.is_prefill(r) for r in self.running)
        )
        drafting = self.drafting
        if self.spec.native_drafts and not drafting:
            for request in self.running:
                request.drafts = 0  # too many run
        continued_prefill = False
        place = 0
        while place < len(self.running) and budget > 0:
            request = self.running[place]
            if request.owed > 0 and request.computed + 2 - request.owed >= request.prompt + request.output:
                place += 1  # the passes in flight bring its last token, whatever they accept
                continue
            if throttled and self.is_prefill(request):
                place += 1
                continue
            if not vllm and not spec.chunked_prefill and request.prompt - request.computed > budget:
                break
            # B4 [vllm]: with drafts the token before the length limit may leave nothing to compute.
            room = self.limit - 1 - request.computed
            tokens = min(request.known + request.owed + request.drafts - request.computed, budget, room)
            if tokens <= 0:
                place += 1
                continue
            item = Item(request, tokens, request.computed, KIND_RUNNING, -1)
            continues = request.prefilling
            survived, budget = self.grow(request, tokens, batch, budget, now)
            if not survived:
                continue  # it was the last in LIFO order; in FIFO order those behind it still get their turn
            # After a FIFO victim ahead left the list, `place` already names the next request, which is then skipped
            # (4.4).
            item.drafts = item.verified = max(0, request.computed + tokens - request.known - request.owed)
            request.drafts = 0
            continued_prefill |= continues
            self.schedule(item, batch)
            budget -= tokens
            place += 1
        served = {id(item.request) for item in batch.items}
        for request in self.running:
            if id(request) not in served:
                request.stretch += 1
        if not batch.preempted:
            pads = drafting and bool(batch.items) and not continued_prefill
            budget = self.admit(batch, budget, throttled, pads, now)
            if not throttled:
                self.saturated = bool(self.waiting)
        if self.policy_drafts is not None:
            self.reserve(self.policy_drafts, drafting, batch, now)
        self.settle(batch)
        return batch

    @property
    def drafting(self) -> bool:
        """Whether a choice that begins now schedules drafts."""
        speculation = self.spec.speculation
        if speculation is None:
            return False
        return speculation.max_batch is None or len(self.running) <= speculation.max_batch

    def propose(self, request: Request) -> int:
        """Drafts of the request's next round. A round without a trigger is spent at once."""
        speculation = self.spec.speculation
        if speculation is None or request.output == 0:
            return 0
        if speculation.trigger_rate < 1 and not draws.triggered(
            speculation.seed, request.index, request.round, speculation.trigger_threshold
        ):
            request.round += 1
            return 0  # nothing found to propose
        return speculation.drafts

    def verify(self, request: Request, drafts: int) -> int:
        """Accepted drafts of one round (8.2): scripted, or as the request's own stream says."""
        speculation = self.spec.speculation
        if speculation is None or drafts == 0:
            return 0
        number, request.round = request.round, request.round + 1
        if speculation.scripted is not None:
            script = speculation.scripted[request.index]
            return min(script[number % len(script)], drafts)
        return draws.accepted(speculation.seed, request.index, number, drafts, speculation.thresholds)

    def is_prefill(self, request: Request) -> bool:
        """4.5: an unfinished prefill. [vllm] recomputed output belongs to it; [parity] only the prompt does."""
        if self.spec.profile == "vllm":
            return request.prefilling
        return request.computed < request.prompt

    def grow(self, request: Request, tokens: int, batch: Batch, budget: int, now: int) -> tuple[bool, int]:
        """Make room for `tokens` more, preempting if need be (4.4). Returns (still running, budget left)."""
        while True:
            need = self.blocks_for(request.computed + tokens) - len(request.blocks)
            if need <= self.pool.available:
                if need > 0:
                    request.blocks += self.pool.take(need)
                return True, budget
            victim = self.victim
            budget += self.take_back(victim, batch)
            self.preempt(victim, request, batch, now)
            if victim is request:
                return False, budget

    def take_back(self, victim: Request, batch: Batch) -> int:
        """A victim loses what this choice gave it. Returns those tokens. If it was admitted just now, that stands."""
        for item in batch.items:
            if item.request is victim:
                given = item.tokens
                if item.cached >= 0:
                    item.tokens, item.samples = 0, False
                else:
                    batch.items.remove(item)
                return given
        return 0

    @property
    def victim(self) -> Request:
        """Who gives way next (4.4)."""
        return self.running[-1] if self.spec.preemption == "lifo" else self.running[0]

    def blocks_for(self, computed: int) -> int:
        """Blocks that a request holds while `computed` tokens are computed. A drafter with a model of its own wants
        slots ahead (8.3) [vllm]."""
        return cdiv(min(computed + self.spec.lookahead, max(self.limit, computed)), self.spec.block_tokens)

    def preempt(self, victim: Request, asker: Request, batch: Batch, now: int, *, reserving: bool = False) -> None:
        self.running.remove(victim)
        self.pool.release(victim.blocks)
        held, lost = len(victim.blocks), victim.computed
        victim.blocks, victim.closed, victim.computed, victim.owed = [], 0, 0, 0
        victim.drafts = 0
        victim.prefilling = True
        victim.epoch += 1
        victim.stretch += 1
        victim.gate = 0  # a preempted request is not an arrival (6.2)
        victim.preemptions += 1
        self.waiting.appendleft(victim)
        batch.preempted += 1
        self.out.pressure.append(
            (victim.index, self.worker, self.dp_rank, self.next_pass, now, asker.index, held, lost)
            + (len(self.running), len(self.waiting), self.pool.active, int(reserving))
        )

    def schedule(self, item: Item, batch: Batch) -> None:
        """Move `computed` at once (4.2) and hash the blocks that are full and whose tokens are known (5.6)."""
        request = item.request
        request.computed = item.before + item.tokens
        self.close(request, min(request.computed, request.known))
        item.samples = request.computed >= request.known + request.owed
        request.prefilling = not item.samples
        item.epoch, item.stretch = request.epoch, request.stretch
        item.accepted = self.verify(request, item.verified)
        batch.items.append(item)

    def close(self, request: Request, upto: int) -> None:
        if not self.spec.prefix_caching:
            return
        for i in range(request.closed, upto // self.spec.block_tokens):
            self.pool.close(request.blocks[i], self.out.identity(request, i))
        request.closed = max(request.closed, upto // self.spec.block_tokens)

    def lookup(self, request: Request) -> list[Block]:
        """5.5: the longest resident run of full blocks, cut so that one token is left to compute if logits are
        needed."""
        hit: list[Block] = []
        bs = self.spec.block_tokens
        while self.spec.prefix_caching and (len(hit) + 1) * bs <= request.known:
            copies = self.pool.copies.get(self.out.identity(request, len(hit)))
            if not copies:
                break
            hit.append(copies[0])
        if len(hit) * bs >= request.known and request.output > 0 and self.spec.profile != "trtllm":
            hit = hit[: (request.known - 1) // bs]
        return hit

    def admit(self, batch: Batch, budget: int, throttled: bool, pads: bool, now: int) -> int:
        """4.3: the waiting queue, strictly in order. `pads`: one-token admissions are padded to a round (B2) [vllm]."""
        spec, bs = self.spec, self.spec.block_tokens
        vllm, trtllm = spec.profile == "vllm", spec.profile == "trtllm"
        while (request := self.head) is not None and len(self.running) < spec.max_num_seqs:
            if vllm and budget <= 0:
                break
            if request.transferred:
                # Section 10: its blocks came with a handoff; it needs no capacity, only a place.
                self.waiting.remove(request)
                request.transferred = False
                self.running.append(request)
                self.schedule(Item(request, 0, request.computed, KIND_NEW, 0), batch)
                if budget <= 0:
                    break
                continue
            if not vllm and spec.max_model_len is not None and request.prompt >= spec.max_model_len:
                self.waiting.remove(request)
                self.reject(request, PROMPT_AT_LIMIT, batch)
                continue
            if self.gated and request.gate > self.next_pass:
                break
            hit = self.lookup(request)
            in_use = [block.users > 0 for block in hit]
            if hit and spec.gives_up_a_block and request.output > 0:
                hit.pop()  # after the cut of a full hit, so that both apply (B3)
            whole = cdiv(request.known, bs)
            # TensorRT-LLM looks at the request to its end.
            least = cdiv(request.prompt + request.output, bs) if trtllm else whole
            if not vllm and request.preemptions == 0 and least > spec.blocks:
                self.waiting.remove(request)
                self.reject(request, EXCEEDS_POOL, batch)
                continue
            cached = len(hit) * bs
            rest = request.known - cached
            padding = 0
            if pads and spec.native_drafts and spec.speculation is not None and rest == 1:
                padding = spec.speculation.drafts
                if rest + padding > budget or cached + rest + padding > self.limit:
                    break
            tokens = min(rest + padding, budget)
            # [parity] What is in use is counted before that last cut, up to as many as are left (asked).
            held_by_others = sum(in_use[: len(hit)]) if vllm else min(sum(in_use), len(hit))
            reach = self.blocks_for(cached + tokens)
            if spec.reserve_full_isl or not vllm:
                reach = max(reach, whole)
            spare = int(spec.watermark * (spec.blocks + 1)) if self.running else 0
            if spec.reserves_to_end:
                # guaranteed_no_evict: the request to its end, beside what the running ones will still take (section 9).
                # Not so with max_utilization: what fits now is admitted, and the latest one goes when it does not.
                reach = least
                spare = sum(cdiv(r.prompt + r.output, bs) - len(r.blocks) for r in self.holders)
            if reach - held_by_others + spare > self.pool.available:
                break
            if throttled and rest > 1:
                break
            if tokens <= 0 and rest > 0:
                break
            if not spec.chunked_prefill and (rest if vllm else request.prompt - cached) > budget:
                break  # C5: vLLM looks at the whole known sequence
            take = self.blocks_for(cached + tokens) - len(hit)
            while take + sum(1 for block in hit if block.users == 0) > self.pool.available:
                # [parity] Counted too well, it has no room after all: the next victim makes some.
                if not self.running:
                    return budget  # what is in use is held for a handoff (section 10)
                victim = self.victim
                budget += self.take_back(victim, batch)  # asked
                self.preempt(victim, asker=request, batch=batch, now=now)
            self.waiting.remove(request)
            for block in hit:
                self.pool.pin(block)
            request.blocks = hit + self.pool.take(take)
            request.closed = len(hit)
            self.running.append(request)
            kind = KIND_RESUMED if request.preemptions else KIND_NEW
            self.schedule(Item(request, tokens, cached, kind, cached, drafts=padding), batch)
            spent_already = budget <= 0
            budget -= tokens
            if batch.preempted:
                break
            if spent_already:
                break  # 4.3: at most one admission that needs no tokens once the budget is spent
        return budget

    @property
    def holders(self) -> list[Request]:
        """Who holds blocks, and is to have all that it still needs [trtllm]."""
        return self.running

    @property
    def head(self) -> Request | None:
        """Who is asked next to enter the running list."""
        return self.waiting[0] if self.waiting else None

    def reject(self, request: Request, reason: int, batch: Batch) -> None:
        request.reason = reason
        batch.rejected.append(request)

    def reserve(self, speculation: Speculation, drafting: bool, batch: Batch, now: int) -> None:
        """8.4, policy mode: every request that reaches the end of its sequence verifies a round in this very pass, the
        completing prefill included. Blocks for all tokens that may come of it are reserved together; while they do not
        fit, the next victim leaves, and what remains is asked again."""
        for item in batch.items:
            if item.samples and item.request.output == 0:
                self.let_go(item.request)
        proposed: dict[int, int] = {}
        while True:
            ready = [item for item in batch.items if item.samples and item.request.output > 0]
            wanted = 0
            for item in ready:
                request = item.request
                if request.index not in proposed:
                    proposed[request.index] = self.propose(request) if drafting else 0
                item.verified = proposed[request.index]
                item.most = min(1 + item.verified, request.output - request.received)
                wanted += cdiv(request.known + item.most, self.spec.block_tokens) - len(request.blocks)
            if wanted <= self.pool.available:
                break
            never = [i for i in ready if cdiv(i.request.known + i.most, self.spec.block_tokens) > self.spec.blocks]
            if never:
                self.refuse(never[0].request, batch)
                continue
            victim = self.victim
            self.withdraw(victim, batch)
            self.preempt(victim, ready[0].request, batch, now, reserving=True)
        for item in ready:
            request = item.request
            more = cdiv(request.known + item.most, self.spec.block_tokens) - len(request.blocks)
            request.blocks += self.pool.take(more)
            item.accepted = self.verify(request, item.verified)

    def let_go(self, request: Request) -> None:
        """A request for no token has ended once it is computed, and what it held serves the bursts (3.2)."""
        self.leave(request)

    def withdraw(self, victim: Request, batch: Batch) -> None:
        """A request leaves a batch that is already chosen: its decode never happens, its prefill is done and paid."""
        for item in batch.items:
            if item.request is victim:
                if item.is_plain:
                    batch.items.remove(item)
                    break
                item.samples = False  # computed, and paid
                break

    def refuse(self, request: Request, batch: Batch) -> None:
        """Tokens that its round may make would not fit into an empty pool (8.4 step 2)."""
        self.withdraw(request, batch)
        self.leave(request)
        self.reject(request, LOOKAHEAD_EXCEEDS_POOL, batch)

    def leave(self, request: Request) -> None:
        """A running request has ended: its place and its blocks are free."""
        self.running.remove(request)
        self.pool.release(request.blocks)
        request.blocks = []

    def settle(self, batch: Batch) -> None:
        """Number, price and describe the choice once it is complete (section 7)."""
        if batch.preempted:
            self.barren += 1
            if self.barren > LIVELOCK_CHOICES:
                where, victim = (self.worker, self.dp_rank), self.waiting[0].index
                raise Livelock(livelock_message(self.spec, victim, *where, LIVELOCK_CHOICES, batch.chosen))
        self.carried_preemptions += batch.preempted
        if not batch.items:
            return
        batch.preempted, self.carried_preemptions = self.carried_preemptions, 0
        batch.pass_no = self.next_pass
        self.next_pass += 1
        for item in batch.items:
            if item.samples:
                item.request.owed += 1 + item.drafts
                if self.spec.native_drafts:
                    item.request.drafts = self.propose(item.request)
        batch.work = self.work(batch)
        batch.price = self.pricer.price(batch.work)
        preempted = sum(1 for r in self.waiting if r.preemptions)
        batch.after = (
            *(len(self.running), len(self.waiting) - preempted, preempted),
            *(self.pool.active, len(self.pool.cached), self.pool.free),
        )

    def work(self, batch: Batch) -> Work:
        """7.1: what the pass is priced by."""
        np_ = tp = kvp = b = kv = 0
        for item in batch.items:
            if item.prompt_part > 0:
                np_, tp, kvp = np_ + 1, tp + item.prompt_part, kvp + item.before
            # Policy mode: whoever makes tokens in this pass is charged a decode, survivors only (8.4 step 4).
            bursting = self.policy_drafts is not None and item.samples and item.request.output > 0
            if item.decodes or bursting:
                b, kv = b + 1, kv + item.before + item.tokens - item.drafts
        return Work(np_, tp, kvp, b, kv)

    # ------------------------------------------------------------------ running
    def deliver(self, now: int) -> list[Request]:
        """Apply the results of the oldest batch at the end of its group pass (1.6). Returns the requests that ended."""
        batch = self.queue.popleft()
        ended = []
        for request in batch.rejected:
            request.status, request.end = REJECTED, now
            ended.append(request)
        continuing = completed = 0
        for item in batch.items:
            request = item.request
            if not item.samples or request.status == COMPLETED:
                continue  # computed for nothing: the pass before ended it
            running = item.epoch == request.epoch
            if self.policy_drafts is None:
                taken = min(1 + item.accepted, request.output - request.received)
            else:
                taken = min(1 + item.accepted, item.most) if request.output > 0 else 0
            if running and self.spec.native_drafts and request.output > 0:
                refused = item.drafts - item.accepted
                request.computed -= refused
                request.owed -= refused + taken
            elif running:
                request.owed -= 1
            if taken > 0:
                if self.books is not None:
                    self.books.prefilled(request)
                item.made = taken
                request.known += taken
                request.received += taken
                last = request.bursts[-1] if request.bursts else None
                if last and last.pass_no == batch.pass_no - 1:
                    continuing += last.stretch == item.stretch
                request.bursts.append(Burst(batch.pass_no, item.stretch, taken, item.drafts))
                request.token_times += [now] * taken
                if item.verified > 0 and (self.spec.native_drafts or item.prompt_part == 0):
                    request.accepted[item.accepted] += 1
                    request.verified += item.verified
                self.barren = 0
            if running and self.policy_drafts is not None and request.output > 0:
                # 8.4 step 6: all but the newest token are computed, and that one has its slot; the rest goes back.
                request.computed = request.known - 1
                kept = cdiv(request.known, self.spec.block_tokens)
                self.pool.release(request.blocks[kept:], surplus=True)
                del request.blocks[kept:]
            if running and (self.depth == 2 or self.policy_drafts is not None):
                self.close(request, request.computed - request.owed)  # what only now is known; else when next scheduled
            if request.received >= request.output:
                request.status, request.end = COMPLETED, now
                completed += 1
                ended.append(request)
                if request in self.running:
                    self.leave(request)
                elif not running:
                    self.waiting.remove(request)  # its last token was in flight when it was preempted
                self.ended_since_choice = True
        if self.books is not None:
            for request in ended:
                self.books.ended(request)
        if batch.pass_no >= 0:
            self.out.log_pass(self, batch, now, continuing, completed)
        return ended

    def publish(self) -> None:
        """A group pass is over: the router hears which blocks can be hit here (DP-2)."""
        if self.books is not None:
            self.books.published = set(self.pool.copies)


class Group:
    """A worker: ranks that start passes together and wait for the slowest (1.7)."""

    def __init__(self, spec: EngineSpec, number: int, out: Tables) -> None:
        self.spec = spec
        self.ranks = [Rank(spec, number, k, out) for k in range(spec.dp)]
        self.end: int | None = None
        self.wave = 0
        self.passes = 0
        self.acting: list[Rank] = []

    def start(self, now: int) -> bool:
        """Let every rank choose; begin a group pass if any has something to run."""
        if not self.has_work:
            self.wave = 0
            return False
        self.acting = [r for r in self.ranks if r.fill(now, self.wave)]
        if not self.acting:
            if not self.has_work:
                self.wave = 0  # drained while choosing (4.5)
            return False
        end = now
        for rank in self.acting:
            batch = rank.queue[0]
            batch.start = now
            rank.in_flight = True
            end = max(end, now + batch.price.prefill_ns + batch.price.decode_ns)
            for item in batch.items:
                if item.cached >= 0:
                    item.request.admissions.append((now, item.cached))
                    rank.out.log_admission(rank, batch, item)
        self.end = end
        return True

    def finish(self, now: int) -> list[Request]:
        self.end = None
        self.wave += 1
        ended = []
        for rank in self.acting:
            rank.in_flight = False
        number = self.passes if any(rank.queue[0].pass_no >= 0 for rank in self.acting) else -1
        self.passes += number >= 0
        for rank in self.acting:
            rank.out.group_pass = number
            ended += rank.deliver(now)
        for rank in self.ranks:
            rank.publish()
        if self.spec.profile != "vllm" and not self.has_work:
            self.wave = 0  # drained (4.5), even if somebody arrives at this very instant
        return ended

    @property
    def has_work(self) -> bool:
        return any(r.running or r.waiting or r.inbox or r.queue for r in self.ranks)


class Tables:
    """Collects rows; knows the identity of every block."""

    def __init__(self, load: Workload, spec: EngineSpec) -> None:
        self.load, self.bs, self.speculative = load, spec.block_tokens, spec.speculation is not None
        self.reply = 0 if spec.front is None else spec.front.reply_ns
        self.rows: dict[str, list[tuple[int, ...]]] = {name: [] for name in TABLES}
        self.pressure = self.rows["pressure"]
        self.group_pass = -1
        self.orders = 0
        self._interned: dict[tuple, int] = {}
        self._last_token: dict[tuple[int, int], int] = {}

    def identity(self, request: Request, i: int) -> int:
        """Chained identity of block i: equal for two requests exactly when all tokens up to its end are equal."""
        while len(request.chain) <= i:
            k = len(request.chain)
            parent = request.chain[-1] if k else -1
            tokens = tuple(self._token(request, p) for p in range(k * self.bs, (k + 1) * self.bs))
            request.chain.append(self._interned.setdefault((parent, tokens), len(self._interned)))
        return request.chain[i]

    def _token(self, request: Request, position: int) -> tuple[int, int]:
        load, r = self.load, request.index
        if load.hash_offsets is not None and load.hash_ids is not None:
            place = position // load.hash_block_tokens
            described = request.prompt if load.hashed_tokens is None else int(load.hashed_tokens[r])
            if position < described and place < load.hash_offsets[r + 1] - load.hash_offsets[r]:
                return (-1, int(load.hash_ids[load.hash_offsets[r] + place]))
        return (r, position)

    def log_admission(self, rank: Rank, batch: Batch, item: Item) -> None:
        r = item.request
        self.rows["admissions"].append(
            (
                r.index,
                len(r.admissions) - 1 + (len(r.bootstrap.admissions) if r.bootstrap else 0),
                rank.worker,
                rank.dp_rank,
                batch.pass_no,
                batch.chosen,
                batch.start,
            )
            + (item.cached, item.kind, rank.orders)
        )
        rank.orders += 1

    def log_pass(self, rank: Rank, batch: Batch, end: int, continuing: int, completed: int) -> None:
        chunk_tokens = 0
        for item in batch.items:
            if item.is_plain and item.made > 0:
                continue
            chunk_tokens += item.tokens
            self.rows["chunks"].append(
                (item.request.index, rank.worker, rank.dp_rank, batch.pass_no, item.tokens, item.before)
                + (item.prompt_part, item.kind, item.cached, item.drafts)
            )
        rounds = [item for item in batch.items if item.verified > 0 and item.made > 0]
        self.rows["passes"].append(
            (rank.worker, rank.dp_rank, batch.pass_no, self.group_pass, batch.chosen, batch.start)
            + (batch.price.prefill_ns, batch.price.decode_ns, end, *batch.work)
            + (sum(i.tokens for i in batch.items), chunk_tokens, sum(i.made for i in batch.items), continuing)
            + (sum(i.cached >= 0 for i in batch.items), batch.preempted, completed)
            + (*batch.after, batch.price.prefill_cell, batch.price.decode_cell)
            + (len(rounds), sum(i.verified for i in rounds), sum(i.accepted for i in rounds))
            + (sum(i.made > 0 for i in batch.items),)
        )

    def log_request(self, r: Request) -> None:
        spans: list[list[Burst]] = []
        for burst in r.bursts:
            last = spans[-1][-1] if spans else None
            if last and last.pass_no + 1 == burst.pass_no and last.stretch == burst.stretch:
                spans[-1].append(burst)
            else:
                spans.append([burst])
        token = 0
        for number, span in enumerate(spans):
            made = sum(burst.made for burst in span)
            place = (r.index, number, r.worker, r.dp_rank)
            self.rows["spans"].append((*place, span[0].pass_no, made, len(span), token))
            if self.speculative:
                self.log_bursts(place, span, token)
            token += made
        admissions = [*(r.bootstrap.admissions if r.bootstrap else []), *r.admissions]
        # Arrivals and tokens are those of the client (2.8).
        seen = [made + self.reply for made in r.token_times]
        end = r.end + self.reply if r.end >= 0 else -1
        preemptions = r.preemptions + (r.bootstrap.preemptions if r.bootstrap else 0)
        cached = [c for _, c in admissions]
        self.rows["requests"].append(
            (r.index, r.worker, r.dp_rank, r.sent, admissions[0][0] if admissions else -1)
            + (seen[0] if seen else -1, seen[1] if len(seen) > 1 else -1, seen[-1] if seen else -1)
            + (end, r.status, r.reason, r.prompt, r.asked, r.received)
            + (cached[0] if cached else -1, max(cached) if cached else -1, len(admissions), preemptions, len(spans))
        )
        if any(r.accepted):
            self.rows["acceptance"].append((r.index, sum(r.accepted), r.verified, *r.accepted))

    def log_handoff(self, handoff: Handoff, transfer: Transfer) -> None:
        """One request between prefill and decode pool (`sim.reference_pools`)."""
        r, source, placed = handoff.request, handoff.bootstrap, handoff.rank is not None
        decode = [start for start, _ in r.admissions]
        self.rows["handoffs"].append(
            (r.index, source.worker, source.dp_rank)
            + ((r.worker, r.dp_rank) if placed else (-1, -1))
            + (source.admissions[0][0], handoff.held, handoff.reserved, handoff.transferred, handoff.activated)
            + (decode[0] if decode else -1, handoff.released, handoff.sent)
            + (transfer.sent_bytes(handoff.sent) if handoff.sent >= 0 else -1, handoff.queued, handoff.began)
            + (handoff.attempts, handoff.withdrawn, handoff.outcome)
        )

    def log_bursts(self, place: tuple[int, int, int, int], span: list[Burst], token: int) -> None:
        for low in range(0, len(span), BURST_PASSES):
            row = span[low : low + BURST_PASSES]
            made = sum(burst.made for burst in row)
            self.rows["bursts"].append(
                (*place, row[0].pass_no, len(row), made, token)
                + (sum(burst.made << 4 * i for i, burst in enumerate(row)),)
                + (sum(burst.drafts << 4 * i for i, burst in enumerate(row)),)
            )
            token += made


class Wait(NamedTuple):
    """An event that a request waits for: another's arrival (`on_dispatch`) or end, and then `delay` ns."""

    on: int
    delay: int
    on_dispatch: bool


class Source:
    """Which request arrives when: open loads by their times, closed loads by free slots, others after those they wait
    for."""

    def __init__(self, load: Workload, requests: list[Request], front: FrontEnd | None = None) -> None:
        self.load, self.requests, self.front = load, requests, front
        n = len(requests)
        session = np.full(n, -1) if load.session is None else load.session
        self.waits: list[list[Wait]] = [[] for _ in range(n)]
        self.opener = list(range(n))  # first request of the session or play
        self.members: dict[int, int] = {}  # of an opener: requests that have not ended
        last: dict[int, int] = {}
        for i in range(n):
            s = int(session[i])
            if s >= 0 and s in last:
                self.opener[i] = self.opener[last[s]]
                self.waits[i] = self.waits_of(i, last[s])
            if s >= 0:
                last[s] = i
            self.members[self.opener[i]] = self.members.get(self.opener[i], 0) + 1
        self.firsts = deque(i for i in range(n) if self.opener[i] == i)
        self.waiting = {i for i in range(n) if self.waits[i]}
        self.watchers: dict[int, list[int]] = {}
        for i in sorted(self.waiting):
            for wait in self.waits[i]:
                self.watchers.setdefault(wait.on, []).append(i)
        self.arrived: dict[int, int] = {}
        self.over: dict[int, int] = {}
        self.turns: list[tuple[int, int, int]] = []  # heap of (ready, opener, request)
        self.in_flight = self.sent = self.opened = self.gone = 0
        self.on_the_way: list[tuple[int, int]] = []  # heap of (arrival in the engine, request)

    def waits_of(self, i: int, before: int) -> list[Wait]:
        """What a request that does not open its session or play waits for (2.5)."""
        load = self.load
        if load.wait_offsets is None:
            return [Wait(before, 0 if load.delay_ns is None else int(load.delay_ns[i]), False)]
        assert load.wait_on is not None and load.wait_delay_ns is not None and load.wait_on_dispatch is not None
        found = [
            Wait(int(load.wait_on[k]), int(load.wait_delay_ns[k]), bool(load.wait_on_dispatch[k]))
            for k in range(int(load.wait_offsets[i]), int(load.wait_offsets[i + 1]))
        ]
        return found or [Wait(self.opener[i], 0, True)]

    @property
    def exhausted(self) -> bool:
        return self.load.send_limit is not None and self.sent >= self.load.send_limit

    def next_time(self, now: int) -> int | None:
        times = [self.on_the_way[0][0]] if self.on_the_way else []
        if self.turns and not self.exhausted:
            times.append(self.turns[0][0])
        if self.firsts and self.load.concurrency is None and not self.exhausted:
            times.append(int(self.load.arrival_ns[self.firsts[0]]))
        return min(times) if times else None

    def due(self, now: int) -> Request | None:
        """The next request that arrives at `now`, stamped; None when nobody is due.

        With a front end, what is sent sets out for the engine, and arrives when it is there (2.8). Of two that are
        there at one instant, the earlier one in the source comes first.
        """
        if self.front is None:
            return self.send(now)
        while (request := self.send(now)) is not None:
            heapq.heappush(self.on_the_way, (request.sent + self.way(self.front, request), request.index))
        if not self.on_the_way or self.on_the_way[0][0] > now:
            return None
        when, index = heapq.heappop(self.on_the_way)
        self.requests[index].arrival = when
        return self.requests[index]

    def way(self, front: FrontEnd, request: Request) -> int:
        """From the client to the engine, ns."""
        open_now = self.load.concurrency or self.sent - self.gone
        return (
            front.request_ns + round(float(request.prompt) * front.tokenization_ns / 1024) + front.client_ns * open_now
        )

    @property
    def reply(self) -> int:
        """What later than the engine a client knows, ns."""
        return 0 if self.front is None else self.front.reply_ns

    def send(self, now: int) -> Request | None:
        """The next request that is sent at `now`; None when nobody is due.

        Of two that are due at one instant, the one whose session began earlier in the source comes first.
        """
        if self.exhausted:
            return None
        load, open_loop = self.load, self.load.concurrency is None
        first = int(load.arrival_ns[self.firsts[0]]) if self.firsts and open_loop else None
        if self.turns and self.turns[0][0] <= now and (first is None or self.turns[0] < (first, self.firsts[0])):
            when, _, index = heapq.heappop(self.turns)
        elif open_loop and first is not None and first <= now:
            when, index = first, self.firsts.popleft()
        elif load.concurrency is not None and self.firsts and self.in_flight < load.concurrency:
            when, index = now, self.firsts.popleft()  # 2.2: the arrival is the moment a slot is free
            self.in_flight += 1
            self.opened += 1
            if self.opened > load.concurrency:
                when += self.reply  # the slot was another's, and its client knows a reply later
        else:
            return None
        request = self.requests[index]
        request.arrival = request.sent = self.arrived[index] = when
        self.sent += 1
        self.look(index)
        return request

    def ended(self, request: Request, now: int) -> None:
        """A request ended: who waits for that may become due; the last one of a session frees its slot."""
        self.over[request.index] = now + self.reply
        self.gone += 1
        self.look(request.index)
        first = self.opener[request.index]
        self.members[first] -= 1
        if self.members[first] == 0:
            self.in_flight -= 1

    def look(self, event: int) -> None:
        """Who waits for this request, and for nothing that has not happened, becomes due."""
        for i in self.watchers.get(event, ()):
            times = [(self.arrived if wait.on_dispatch else self.over).get(wait.on) for wait in self.waits[i]]
            if i not in self.waiting or None in times:
                continue
            self.waiting.remove(i)
            ready = max(when + wait.delay for when, wait in zip(times, self.waits[i], strict=True) if when is not None)
            if self.load.not_before_ns is not None:
                ready = max(ready, self.arrived[self.opener[i]] + int(self.load.not_before_ns[i]))
            heapq.heappush(self.turns, (ready, self.opener[i], i))


def never_fits(spec: EngineSpec, request: Request) -> int:
    """[vllm] What the front end refuses on arrival: a prompt at the limit, or a sequence the pool can never hold."""
    if spec.max_model_len is not None and request.prompt >= spec.max_model_len:
        return PROMPT_AT_LIMIT
    # The newest token is never computed, so the last one needs no slot (5.8).
    if cdiv(request.prompt + max(request.output - 1, 0), spec.block_tokens) > spec.blocks:
        return EXCEEDS_POOL
    return NO_REASON


def replay(spec: Deployment, workload: Workload, sink: Sink) -> Outcome:
    """Replay `workload` on `spec`, literally.

    Rows go to `sink` table by table at the end. Same results as `sim.engine.replay`, thousands of times slower.

    Raises:
        Deadlock, Livelock, TimingError: the replay cannot be completed; nothing reached the sink.
    """
    if isinstance(spec, PoolsSpec):
        from sim import reference_pools

        return reference_pools.replay(spec, workload, sink)
    began = time.perf_counter()
    out = Tables(workload, spec)
    outputs = spec.outputs(workload.prompt_tokens, workload.output_tokens)
    requests = [Request(i, workload, int(outputs[i])) for i in range(len(workload))]
    source = Source(workload, requests, spec.front)
    groups = [Group(spec, w, out) for w in range(spec.workers)]
    router = None if spec.routing is None else Router(spec.routing, spec, out)
    next_worker, next_rank = 0, [0] * spec.workers
    now = 0
    while True:
        moved = True
        while moved:  # 1.3: completions, then arrivals, then starts, until nothing changes at this instant
            moved = False
            for group in groups:
                if group.end == now:
                    moved = True
                    for ended in group.finish(now):
                        source.ended(ended, now)
            while (request := source.due(now)) is not None:
                moved = True
                pinned = -1 if workload.pinned_rank is None else int(workload.pinned_rank[request.index])
                if router is not None:
                    asked = [k for g in groups for k in g.ranks if pinned in (-1, k.dp_rank)]
                    chosen = asked[router.choose(request, asked)]
                    worker, pinned = chosen.worker, chosen.dp_rank
                else:
                    worker = next_worker
                    next_worker = (next_worker + 1) % spec.workers  # 2.4: workers first, then the worker's ranks
                    if pinned < 0:
                        pinned = next_rank[worker]
                        next_rank[worker] = (pinned + 1) % spec.dp
                request.worker, request.dp_rank = worker, pinned
                reason = never_fits(spec, request) if spec.profile == "vllm" else NO_REASON
                if reason:
                    request.status, request.reason, request.end = REJECTED, reason, now
                    source.ended(request, now)
                else:
                    if router is not None:
                        router.place(request, groups[worker].ranks[pinned])
                    groups[worker].ranks[pinned].submit(request, groups[worker].end is not None)
            for group in groups:
                if group.end is None and group.start(now):
                    moved = True
        times = [g.end for g in groups if g.end is not None]
        arrival = source.next_time(now)
        if arrival is not None:
            times.append(arrival)
        if not times:
            blocked = [r for g in groups for k in g.ranks for r in (*k.waiting, *k.running, *k.inbox)]
            if blocked:
                raise Deadlock(blocked_message(spec, blocked[0].index, blocked[0].prompt, blocked[0].known, now))
            break
        upcoming = min(times)
        if spec.stop_ns is not None and upcoming > spec.stop_ns:
            break  # 1.5: the cap is soft
        if upcoming > CLOCK_END_NS:
            raise TimingError(CLOCK_MESSAGE)
        now = upcoming
    counter = EvidenceCounter(spec.timing, spec.profile, compiled=False)
    return finish(counter, out, requests, sink, now, began)


def finish(
    counter: EvidenceCounter | PoolsEvidence,
    out: Tables,
    requests: list[Request],
    sink: Sink,
    now: int,
    began: float,
) -> Outcome:
    for request in requests:
        out.log_request(request)
    tables = {}
    for name, columns in TABLES.items():
        data = np.array(out.rows[name], np.int64).reshape(-1, len(columns))
        tables[name] = {column: np.ascontiguousarray(data[:, i]) for i, column in enumerate(columns)}
    counter.add(tables["passes"])
    tables["evidence"] = counter.columns()
    gaps: list[tuple[int, int]] = []
    for r in requests:
        if r.status == COMPLETED and r.index >= out.load.warmup:
            gaps += [(b - a, b + out.reply) for a, b in zip(r.token_times, r.token_times[1:], strict=False)]
    for name in TABLES:
        sink.rows(name, tables[name])
    data = np.array(gaps, np.int64).reshape(-1, 2)
    passes = tables["passes"]
    return Outcome(
        end_ns=now,
        engine_ms=(time.perf_counter() - began) * 1e3,
        n_passes=len(passes["pass_no"]),
        n_requests=len(requests),
        peak_active_blocks=int(passes["active_blocks"].max(initial=0)),
        latencies={"gap_ns": data[:, 0], "gap_weight": np.ones(len(data), np.int64), "gap_end_ns": data[:, 1]},
        lookups=counter.lookups(),
    )
