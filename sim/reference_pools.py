"""The executable specification of prefill and decode in separate pools: `sim.reference` with two roles and a handoff.

Rules 6 and 7 of `docs/correctness.md` (PD-1 to PD-16); what they leave open was settled by asking the recorded
simulator, and is marked [asked]. A request is computed twice: its *bootstrap* on a prefill worker, whose token nobody
sees, and the request itself on a decode worker, which computes no prompt.

A handoff goes: prefill done, source blocks held -> destination reserved -> KV transferred -> activated -> source
released. Workers apply commands between passes only (PD-5), so each of these waits for a pass that runs. What happens
on the wire is in `sim.reference_transfers`.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass

import numpy as np

from sim.errors import Deadlock, TimingError
from sim.explain import CLOCK_MESSAGE, blocked_message
from sim.inputs import Workload
from sim.reference import (
    Batch,
    Block,
    Group,
    Rank,
    Request,
    Source,
    Tables,
    cdiv,
    finish,
    never_fits,
)
from sim.reference_routing import Books, DecodeRouter, PrefillRouter
from sim.reference_transfers import Wire
from sim.result import (
    ACTIVATED,
    CANCELED,
    EXCEEDS_POOL,
    FAILED,
    GAVE_UP,
    HANDOFF_TIMEOUT,
    NEVER_FITS,
    NO_REASON,
    PROMPT_AT_LIMIT,
    REJECTED,
    TIMED_OUT,
    TRANSFER_FAILED,
    UNDER_WAY,
    Outcome,
    Sink,
)
from sim.spec import EngineSpec, PoolsSpec, Routing
from sim.timing.evidence import PoolsEvidence
from sim.timing.plain import CLOCK_END_NS, Work


@dataclass(eq=False)
class Handoff:
    """One request between the pools. Instants in ns, -1 while they lie ahead."""

    request: Request  # of the decode pool
    bootstrap: Request
    source: Worker
    target: Worker | None = None
    rank: DecodeRank | None = None
    missing: int = 0  # tokens of whole blocks that the destination did not hold
    sent: int = -1  # tokens whose KV was sent
    number: int = -1  # order of reservation
    held: int = -1
    reserved: int = -1
    transferred: int = -1
    activated: int = -1
    released: int = -1
    withdrawn: int = -1
    called_off: bool = False  # it failed, or came too late
    # Of its transfer: attempts begun; of the last one, when it joined the link and when it had it.
    attempts: int = 0
    queued: int = -1
    began: int = -1
    work: int = 0  # duration, when the link is its own, ns
    ends: int = -1  # on a FIFO link, once it has it
    due: int = 0  # on a link with fair shares: work of a member that was there all the time
    # PD-19, when the prompt is not computed yet: end of its last pass, and of that pass's first layer. The transfer
    # cannot end before `floor`.
    until: int = -1
    first_layer: int = -1
    floor: int = -1

    @property
    def outcome(self) -> int:
        if self.activated >= 0:
            return ACTIVATED
        if self.target is None:
            return NEVER_FITS
        return {TRANSFER_FAILED: GAVE_UP, HANDOFF_TIMEOUT: TIMED_OUT}.get(self.request.reason, UNDER_WAY)


class PrefillRank(Rank):
    """Computes prompts and holds their blocks until they have been handed over."""

    # Nothing is proposed, verified or padded here, so no slots are wanted ahead. A drafter with a model still gives up
    # a block of a hit (5.5), and policy mode still reserves room for what a pass may bring (8.4): for the token that
    # nobody sees, so a held prompt has a block for it [asked].
    @property
    def drafting(self) -> bool:
        return False

    def propose(self, request: Request) -> int:
        return 0

    def let_go(self, request: Request) -> None:
        """What it holds is to be handed over."""

    def blocks_for(self, computed: int) -> int:
        return cdiv(computed, self.spec.block_tokens)

    def work(self, batch: Batch) -> Work:
        """On a prefill worker no pass pays for decodes (7.1)."""
        work = super().work(batch)
        return Work(work.n_prefill, work.prefill_tokens, work.prefill_kv, 0, 0)

    def hand_out(self, now: int) -> tuple[list[Request], list[Request]]:
        """Apply the results of the pass that ended: (rejected, computed to the end of their prompts).

        Prompts of requests that ask for no token come first [asked]. All leave the running list and keep their blocks
        (PD-4).
        """
        batch = self.queue.popleft()
        done = []
        for item in batch.items:
            request = item.request
            if item.epoch != request.epoch or not item.samples:
                continue
            request.owed = 0
            self.running.remove(request)
            done.append(request)
            self.barren = 0
            self.ended_since_choice = True
        for request in batch.rejected:
            request.status, request.end = REJECTED, now
        if self.books is not None:
            for request in (*batch.rejected, *done):
                self.books.ended(request)
        if batch.pass_no >= 0:
            self.out.log_pass(self, batch, now, 0, 0)
        return batch.rejected, sorted(done, key=lambda request: request.output > 0)


class DecodeRank(Rank):
    """Takes over prompts computed elsewhere."""

    def __init__(self, spec: EngineSpec, worker: int, dp_rank: int, out: Tables) -> None:
        super().__init__(spec, worker, dp_rank, out)
        self.wanted: deque[Handoff] = deque()  # reservations to be made, in order
        self.incoming: list[Handoff] = []  # reserved, not yet activated
        self.refused_at = -1  # blocks given back when the head of `wanted` was refused for want of room
        self.numbers: dict[int, int] = {}  # request -> order of its reservation
        self.keeps_local = False  # computes prompts of its own, too

    def work(self, batch: Batch) -> Work:
        """On a decode worker no pass pays for prompts that were handed over, not even for those computed again (7.1).
        Prompts of its own are paid as anywhere (CD-3)."""
        own = super().work(Batch(batch.chosen, [item for item in batch.items if item.request.local]))
        handed = [i for i in batch.items if not i.request.local and i.samples and i.request.output > 0]
        kv = sum(i.before + i.tokens - i.drafts for i in handed)
        return Work(own.n_prefill, own.prefill_tokens, own.prefill_kv, own.n_decode + len(handed), own.decode_kv + kv)

    @property
    def head(self) -> Request | None:
        """While a reservation is wanted, only requests that have been handed over get in (section 10). Beside local
        prompts they go first at any time: others might wait for the blocks that they hold (CD-2)."""
        handed = next((request for request in self.waiting if request.transferred), None)
        if self.wanted or (self.keeps_local and handed is not None):
            return handed
        return super().head

    @property
    def holders(self) -> list[Request]:
        return [*self.running, *(h.request for h in self.incoming), *(r for r in self.waiting if r.transferred)]

    def lookup_whole(self, request: Request) -> list[Block]:
        """The longest resident run of full blocks, a full hit uncut: nothing is left to compute here."""
        hit: list[Block] = []
        bs = self.spec.block_tokens
        while self.spec.prefix_caching and (len(hit) + 1) * bs <= request.prompt:
            copies = self.pool.copies.get(self.out.identity(request, len(hit)))
            if not copies:
                break
            hit.append(copies[0])
        return hit

    def reserve_head(self) -> Handoff | None:
        """Room for the first handoff that wants it, or None.

        A head that was refused for want of room is asked again only when blocks have been given back, and nobody is
        asked while all places are taken [asked].
        """
        spec, bs = self.spec, self.spec.block_tokens
        if not self.wanted or len(self.running) >= spec.max_num_seqs or self.refused_at == self.pool.given_back:
            return None
        handoff = self.wanted[0]
        request = handoff.request
        need = cdiv(request.prompt, bs)
        hit: list[Block] = []
        if spec.reserves_to_end:
            # guaranteed_no_evict protects the rest of everybody's sequence, and nothing resident is reused.
            room = cdiv(request.prompt + request.output, bs)
            room += sum(cdiv(r.prompt + r.output, bs) - len(r.blocks) for r in self.holders)
        elif spec.profile == "trtllm":
            room = need  # max_utilization: what is needed now; nothing resident is reused either
        else:
            hit = self.lookup_whole(request)
            room = need - sum(1 for block in hit if block.users > 0)
        if room > self.pool.available:
            self.refused_at = self.pool.given_back
            return None
        self.wanted.popleft()
        for block in hit:
            self.pool.pin(block)
        request.blocks, request.closed = hit + self.pool.take(need - len(hit)), len(hit)
        handoff.missing = (need - len(hit)) * bs
        handoff.number = len(self.numbers)
        self.numbers[request.index] = handoff.number
        self.incoming.append(handoff)
        return handoff

    def unreserve(self, handoff: Handoff) -> None:
        """What was reserved for it is given back; nothing of it was ever hashed here."""
        self.incoming.remove(handoff)
        self.pool.release(handoff.request.blocks)
        handoff.request.blocks = []

    def drop(self, handoff: Handoff) -> None:
        """It wants no room any more."""
        if handoff is self.wanted[0]:
            self.refused_at = -1
        self.wanted.remove(handoff)

    def activate(self, handoff: Handoff) -> None:
        """Its KV is here: full blocks can be hit, and it queues by order of reservation.

        Who was preempted stands in front, but keeps its number, so that one reserved earlier goes ahead of it [asked].
        """
        request = handoff.request
        self.incoming.remove(handoff)
        request.computed, request.prefilling, request.transferred = request.prompt, False, True
        self.close(request, request.computed)
        # A local prompt has no number: whoever was handed over goes ahead of it.
        known, last = self.numbers, handoff.number + 1
        behind = (p for p, r in enumerate(self.waiting) if known.get(r.index, last) > handoff.number)
        place = next(behind, len(self.waiting))
        self.waiting.insert(place, request)


class Worker(Group):
    """A worker of either pool, and the commands it has not applied yet."""

    rank_class: type[Rank] = Rank

    def __init__(self, spec: EngineSpec, number: int, out: Tables) -> None:
        super().__init__(spec, number, out)
        self.ranks = [self.rank_class(spec, number, k, out) for k in range(spec.dp)]
        self.commands: deque[tuple[str, Handoff]] = deque()


class PrefillWorker(Worker):
    rank_class = PrefillRank

    def hand_out(self, now: int) -> tuple[list[Request], list[Request]]:
        self.end = None
        self.wave += 1
        number = self.passes if any(rank.queue[0].pass_no >= 0 for rank in self.acting) else -1
        self.passes += number >= 0
        rejected: list[Request] = []
        done: list[Request] = []
        for rank in self.acting:
            assert isinstance(rank, PrefillRank)
            rank.in_flight = False
            rank.out.group_pass = number
            refused, computed = rank.hand_out(now)
            rejected += refused
            done += computed
        for rank in self.ranks:
            rank.publish()
        if self.spec.profile != "vllm" and not self.has_work:
            self.wave = 0
        return rejected, done


class DecodeWorker(Worker):
    rank_class = DecodeRank

    @property
    def computes_nothing(self) -> bool:
        """Whether the pass that has begun has neither requests nor refusals to report."""
        return all(rank.queue[0].is_empty for rank in self.acting)


class Pools:
    """Both pools and what happens between them."""

    def __init__(self, spec: PoolsSpec, load: Workload, requests: list[Request], source: Source, out: Tables) -> None:
        self.spec, self.load, self.requests, self.source, self.out = spec, load, requests, source, out
        first = spec.prefill.workers
        self.prefill = [PrefillWorker(spec.prefill, w, out) for w in range(first)]
        self.decode = [DecodeWorker(spec.decode, first + w, out) for w in range(spec.decode.workers)]
        self.sources = [(worker, rank) for worker in self.prefill for rank in worker.ranks]
        self.targets = [(worker, rank) for worker in self.decode for rank in worker.ranks]
        self.next_source = self.next_target = 0
        self.wire = Wire(spec, self.order_activation, self.give_up)
        self.deadlines: deque[Handoff] = deque()  # in order: all have the same time
        self.prefill_router = self.decode_router = None
        if spec.routing is not None:
            self.prefill_router = PrefillRouter(spec.routing, spec.prefill, out)
            self.decode_router = DecodeRouter(spec.routing, spec.decode, out)
        self.look = DecodeRouter(Routing(), spec.decode, out)  # at what decode ranks are known to hold
        if spec.local_prefill_tokens is not None:
            for _, rank in self.targets:
                assert isinstance(rank, DecodeRank)
                rank.books, rank.keeps_local = Books(), True
        self.handoffs: dict[int, Handoff] = {}
        self.just_ended: list[DecodeWorker] = []
        self.listening: deque[Worker] = deque()  # idle workers, once per command, in the order they were given

    # ------------------------------------------------------------------ one instant
    def settle(self, now: int) -> None:
        """K-2, K-3: completions, transfers, commands, deadlines, starts, then arrivals, until nothing moves at this
        instant.

        Arrivals come after the starts: a worker that ends a pass at this very instant begins the next without them.
        """
        moved = True
        while moved:
            moved = self.complete(now)
            moved |= self.wire.land(now)
            moved |= self.obey(now)
            moved |= self.expire(now)
            moved |= self.start(now)
            moved |= self.arrive(now)
            moved |= self.start(now)

    def complete(self, now: int) -> bool:
        moved, held = False, []
        for source in self.prefill:
            if source.end == now:
                moved = True
                rejected, done = source.hand_out(now)
                for bootstrap in rejected:
                    self.end(self.requests[bootstrap.index], REJECTED, bootstrap.reason, now)
                held += [(source, bootstrap) for bootstrap in done]
                self.listening += [source] * len(source.commands)
        for target in self.decode:
            if target.end == now:
                moved = True
                for request in target.finish(now):
                    self.source.ended(request, now)
                self.just_ended.append(target)
        for target in self.just_ended:
            self.catch_up(target, now)
        self.just_ended.clear()
        for source, bootstrap in held:
            self.hold(source, bootstrap, now)
        return moved

    def hold(self, source: Worker, bootstrap: Request, now: int) -> None:
        """PD-12: the destination is asked once the prompt is computed; targets take turns in that order (RT-2),
        but for pins (RT-1) and where a router says (RT-4)."""
        if not self.spec.transfer.layers:
            self.ask(source, bootstrap)
        handoff = self.handoffs[bootstrap.index]
        handoff.held = now
        if handoff.target is None:
            self.end(handoff.request, FAILED, self.never_held(handoff.request), now)  # PD-14a
            self.tell(source, "release", handoff)
        elif self.spec.transfer.timeout_ns is not None:
            self.deadlines.append(handoff)

    def ask_early(self, source: PrefillWorker, now: int) -> None:
        """PD-19: a pass begins; who will be computed by it to the end of the prompt has its destination asked now."""
        assert source.end is not None
        for rank in source.acting:
            items = [item for item in rank.queue[0].items if item.samples and item.epoch == item.request.epoch]
            for item in sorted(items, key=lambda item: item.request.output > 0):
                handoff = self.ask(source, item.request)
                handoff.until = source.end
                handoff.first_layer = now + cdiv(source.end - now, self.spec.transfer.layers)

    def ask(self, source: Worker, bootstrap: Request) -> Handoff:
        """The next target in turn is asked for room, if it could ever have it."""
        request = self.requests[bootstrap.index]
        handoff = self.handoffs[request.index] = Handoff(request, bootstrap, source)
        place = pin_of(self.load.pinned_rank, request)
        if place < 0 and self.decode_router is not None:
            place = self.decode_router.choose(request, [rank for _, rank in self.targets])
        if place < 0:
            place = self.next_target
            self.next_target = (place + 1) % len(self.targets)
        worker, rank = self.targets[place]
        if self.never_held(request):
            return handoff
        assert isinstance(worker, DecodeWorker) and isinstance(rank, DecodeRank)
        handoff.target, handoff.rank = worker, rank
        request.worker, request.dp_rank = rank.worker, rank.dp_rank
        if self.decode_router is not None:
            self.decode_router.place(request, rank)
        self.tell(worker, "reserve", handoff)
        return handoff

    def never_held(self, request: Request) -> int:
        """Why no decode worker can ever take this prompt over, or NO_REASON."""
        spec = self.spec.decode
        if spec.max_model_len is not None and request.prompt >= spec.max_model_len:
            return PROMPT_AT_LIMIT
        least = request.prompt + 1 if spec.profile == "trtllm" else request.prompt
        return EXCEEDS_POOL if cdiv(least, spec.block_tokens) > spec.blocks else NO_REASON

    def end(self, request: Request, status: int, reason: int, now: int) -> None:
        request.status, request.reason, request.end = status, reason, now
        for _, rank in self.targets:
            if rank.books is not None:
                rank.books.ended(request)
        self.source.ended(request, now)

    # ------------------------------------------------------------------ what goes wrong (PD-15)
    def next_deadline(self) -> int | None:
        while self.deadlines and (self.deadlines[0].activated >= 0 or self.deadlines[0].called_off):
            self.deadlines.popleft()
        timeout = self.spec.transfer.timeout_ns
        return self.deadlines[0].held + timeout if self.deadlines and timeout is not None else None

    def expire(self, now: int) -> bool:
        """Handoffs that are not activated by their deadline are canceled."""
        moved = False
        while (deadline := self.next_deadline()) is not None and deadline <= now:
            moved = True
            handoff = self.deadlines.popleft()
            if handoff.reserved >= 0:
                self.wire.give_up(handoff, now)
            self.call_off(handoff, CANCELED, HANDOFF_TIMEOUT, now)
        if moved:
            self.obey(now)
        return moved

    def give_up(self, handoff: Handoff, now: int) -> None:
        """The last attempt to transfer its KV has failed."""
        self.call_off(handoff, FAILED, TRANSFER_FAILED, now)

    def call_off(self, handoff: Handoff, status: int, reason: int, now: int) -> None:
        """The request ends now; workers give back what they hold for it between passes, as with any command."""
        worker, rank = handoff.target, handoff.rank
        assert worker is not None and rank is not None
        handoff.called_off = True
        self.end(handoff.request, status, reason, now)
        self.tell(handoff.source, "release", handoff)
        if ("reserve", handoff) in worker.commands:
            worker.commands.remove(("reserve", handoff))
        elif handoff in rank.wanted:
            # A worker that computes does not look at its list, so this may as well happen now.
            rank.drop(handoff)
            if worker.end is None:
                self.try_to_reserve(worker, rank, now)
        elif ("activate", handoff) not in worker.commands:  # which is obeyed as a withdrawal
            self.tell(worker, "withdraw", handoff)

    # ------------------------------------------------------------------ commands (PD-5)
    def catch_up(self, worker: DecodeWorker, now: int) -> None:
        """A pass ended: reservations asked for while it ran queue up, and each rank's first is tried once [asked]."""
        for command, handoff in list(worker.commands):
            if command == "reserve":
                worker.commands.remove((command, handoff))
                self.want(handoff)
        self.listening += [worker] * len(worker.commands)
        for rank in worker.ranks:
            self.try_to_reserve(worker, rank, now)

    def want(self, handoff: Handoff) -> None:
        assert handoff.rank is not None
        handoff.rank.wanted.append(handoff)

    def tell(self, worker: Worker, command: str, handoff: Handoff) -> None:
        worker.commands.append((command, handoff))
        if worker.end is None:
            self.listening.append(worker)

    def obey(self, now: int) -> bool:
        """Idle workers apply their commands in the order in which they were given, whoever they are for; what that
        brings about at this instant is applied as well. Those that waited for a pass are given when it ends [asked]."""
        moved = False
        while self.listening:
            worker = self.listening.popleft()
            if worker.end is not None or not worker.commands:
                continue
            moved = True
            command, handoff = worker.commands.popleft()
            if command == "release":
                self.release(handoff, now)
                continue
            assert handoff.rank is not None
            if command == "reserve":
                self.want(handoff)
            elif handoff.called_off:
                handoff.rank.unreserve(handoff)
                handoff.withdrawn = now
            else:
                handoff.rank.activate(handoff)
                handoff.activated = now
                self.tell(handoff.source, "release", handoff)
            self.try_to_reserve(worker, handoff.rank, now)
        return moved

    def try_to_reserve(self, worker: Worker, rank: Rank, now: int) -> bool:
        assert isinstance(rank, DecodeRank)
        handoff = rank.reserve_head()
        if handoff is None:
            return False
        transfer = self.spec.transfer
        handoff.reserved = now
        handoff.sent = handoff.missing if transfer.missing_only else handoff.request.prompt
        self.wire.send(handoff, now)
        return True

    def order_activation(self, handoff: Handoff, now: int) -> None:
        assert handoff.target is not None
        self.tell(handoff.target, "activate", handoff)

    def release(self, handoff: Handoff, now: int) -> None:
        bootstrap = handoff.bootstrap
        rank = handoff.source.ranks[bootstrap.dp_rank]
        rank.pool.release(bootstrap.blocks)
        bootstrap.blocks = []
        handoff.released = now

    # ------------------------------------------------------------------ passes and arrivals
    def start(self, now: int) -> bool:
        moved = False
        for source in self.prefill:
            if source.end is None and source.start(now):
                moved = True
                if self.spec.transfer.layers:
                    self.ask_early(source, now)
        for target in self.decode:
            while target.end is None:
                chosen = target.start(now)
                moved |= chosen
                if chosen and not target.computes_nothing:
                    break
                if chosen:
                    target.finish(now)  # its choices did nothing but throw requests out
                # A rank that could let nobody in tries its first reservation, and then chooses again, before anything
                # that was reserved now is activated [asked].
                found = [self.try_to_reserve(target, rank, now) for rank in target.ranks if rank.waiting]
                if not chosen and not any(found):
                    break
                moved = True
        return moved

    def arrive(self, now: int) -> bool:
        moved = False
        while (request := self.source.due(now)) is not None:
            moved = True
            if self.keep_local(request, now):
                continue
            bootstrap = Request(request.index, self.load, min(1, int(self.load.output_tokens[request.index])))
            place = pin_of(self.load.pinned_prefill_rank, request)
            if place < 0 and self.prefill_router is not None:
                place = self.prefill_router.choose(bootstrap, [rank for _, rank in self.sources])
            if place < 0:
                place = self.next_source
                self.next_source = (place + 1) % len(self.sources)
            worker, rank = self.sources[place]
            bootstrap.arrival = now
            bootstrap.worker, bootstrap.dp_rank = request.worker, request.dp_rank = rank.worker, rank.dp_rank
            request.bootstrap = bootstrap
            reason = NO_REASON
            if self.spec.prefill.profile == "vllm":
                reason = never_fits(self.spec.prefill, bootstrap) or never_fits(self.spec.decode, request)
            if reason:
                self.end(request, REJECTED, reason, now)
            else:
                if self.prefill_router is not None:
                    self.prefill_router.place(bootstrap, rank)
                rank.submit(bootstrap, worker.end is not None)
        return moved

    def keep_local(self, request: Request, now: int) -> bool:
        """CD-1: a prompt that the decode rank whose turn it is lacks little of is computed there. A look that comes to
        nothing moves no cursor."""
        if self.spec.local_prefill_tokens is None:
            return False
        place = pin_of(self.load.pinned_rank, request)
        if place < 0 and self.decode_router is not None:
            place = self.decode_router.choose(request, [rank for _, rank in self.targets])
        worker, rank = self.targets[self.next_target if place < 0 else place]
        lacking = request.prompt - self.look.overlap(request, rank) * self.spec.block_tokens
        if lacking > self.spec.local_prefill_tokens:
            return False
        if place < 0:
            self.next_target = (self.next_target + 1) % len(self.targets)
        request.local = True
        request.worker, request.dp_rank = rank.worker, rank.dp_rank
        reason = never_fits(self.spec.decode, request) if self.spec.decode.profile == "vllm" else NO_REASON
        if reason:
            self.end(request, REJECTED, reason, now)
            return True
        if self.decode_router is not None:
            self.decode_router.place(request, rank)
        rank.submit(request, worker.end is not None)
        return True

    def next_time(self, now: int) -> int | None:
        times = [worker.end for worker in (*self.prefill, *self.decode) if worker.end is not None]
        others = (self.wire.next_time(), self.next_deadline(), self.source.next_time(now))
        return min([*times, *(when for when in others if when is not None)], default=None)


def pin_of(pins: np.ndarray | None, request: Request) -> int:
    """RT-1: the rank a request is pinned to, -1 for none. A pin moves no cursor."""
    return -1 if pins is None else int(pins[request.index])


def replay(spec: PoolsSpec, workload: Workload, sink: Sink) -> Outcome:
    """Replay `workload` on two pools, literally.

    Raises:
        Deadlock, Livelock, TimingError: the replay cannot be completed; nothing reached the sink.
    """
    began = time.perf_counter()
    out = Tables(workload, spec.decode)
    outputs = spec.decode.outputs(workload.prompt_tokens, workload.output_tokens)
    requests = [Request(i, workload, int(outputs[i])) for i in range(len(workload))]
    source = Source(workload, requests)
    pools = Pools(spec, workload, requests, source, out)
    now = 0
    while True:
        pools.settle(now)
        upcoming = pools.next_time(now)
        if upcoming is None:
            ranks = [rank for worker in (*pools.prefill, *pools.decode) for rank in worker.ranks]
            blocked = [(k, r) for k in ranks for r in (*k.waiting, *k.running, *k.inbox)]
            blocked += [(k, h.request) for k in ranks if isinstance(k, DecodeRank) for h in k.wanted]
            if blocked:
                rank, r = blocked[0]
                pool = "decode" if isinstance(rank, DecodeRank) else "prefill"
                raise Deadlock(blocked_message(rank.spec, r.index, r.prompt, r.known, now, pool=pool))
            break
        if spec.decode.stop_ns is not None and upcoming > spec.decode.stop_ns:
            break  # 1.5: the cap is soft
        if upcoming > CLOCK_END_NS:
            raise TimingError(CLOCK_MESSAGE)
        now = upcoming
    for _, handoff in sorted(pools.handoffs.items()):
        if handoff.held >= 0:
            out.log_handoff(handoff, spec.transfer)
    return finish(PoolsEvidence(spec, compiled=False), out, requests, sink, now, began)
