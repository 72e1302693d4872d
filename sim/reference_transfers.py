"""The executable specification of KV transfers that share links, fail, come too late, or begin while their prompt is
computed (PD-10, PD-15, PD-17 to PD-19).

Plain arithmetic on whole nanoseconds: no instant depends on the order in which floating-point numbers are added.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import TYPE_CHECKING

from sim.reference import cdiv
from sim.spec import PoolsSpec
from sim.speculation import draws
from sim.timing.plain import CLOCK_END_S, PAST_CLOCK_NS, nearest_ns

if TYPE_CHECKING:
    from sim.reference_pools import Handoff


class Link:
    """What several transfers share. `work` of a transfer: its duration when it has the link to itself, ns."""

    def __init__(self) -> None:
        self.members: list[Handoff] = []  # first come, first listed

    def join(self, handoff: Handoff, now: int) -> bool:
        """A transfer comes. True if it is over at this very instant."""
        raise NotImplementedError

    def leave(self, handoff: Handoff, now: int) -> None:
        """A transfer is over or given up."""
        raise NotImplementedError

    def next_end(self) -> tuple[int, Handoff] | None:
        """When, as things stand, the next transfer is over, and which."""
        raise NotImplementedError

    def over_at_once(self, handoff: Handoff, now: int) -> bool:
        """Of a transfer without work. The last layer may still be computed: then the wire waits for that."""
        return handoff.floor <= now


class Fifo(Link):
    """One transfer after the other."""

    def join(self, handoff: Handoff, now: int) -> bool:
        if not self.members and handoff.work == 0:
            handoff.began = now
            return self.over_at_once(handoff, now)
        self.members.append(handoff)
        self.begin(now)
        return False

    def begin(self, now: int) -> None:
        first = self.members[0]
        if first.began < 0:
            first.began, first.ends = now, max(min(now + first.work, PAST_CLOCK_NS), first.floor)

    def leave(self, handoff: Handoff, now: int) -> None:
        self.members.remove(handoff)
        if self.members:
            self.begin(now)

    def next_end(self) -> tuple[int, Handoff] | None:
        return (self.members[0].ends, self.members[0]) if self.members else None


class Fair(Link):
    """All transfers under way, with equal shares.

    `served` ns of work is what each transfer has had that was there all the time, and `rest` the n-th parts of a ns
    that the n transfers have had beyond; what is below one n-th of a ns when n changes is dropped. A transfer is over
    at the first whole ns by which it has had its work.
    """

    def __init__(self) -> None:
        super().__init__()
        self.served = self.rest = self.seen = 0

    def advance(self, now: int) -> None:
        if self.members:
            whole, self.rest = divmod(now - self.seen + self.rest, len(self.members))
            self.served += whole
        self.seen = now

    def resize(self, change: Callable[[], None]) -> None:
        before = len(self.members)
        change()
        self.rest = self.rest * len(self.members) // before if before else 0
        if not self.members:
            self.served = 0

    def join(self, handoff: Handoff, now: int) -> bool:
        handoff.began = now
        if handoff.work == 0:
            return self.over_at_once(handoff, now)
        self.advance(now)
        handoff.due = min(self.served + handoff.work, PAST_CLOCK_NS)
        self.resize(lambda: self.members.append(handoff))
        return False

    def leave(self, handoff: Handoff, now: int) -> None:
        self.advance(now)
        self.resize(lambda: self.members.remove(handoff))

    def next_end(self) -> tuple[int, Handoff] | None:
        if not self.members:
            return None
        first = min(self.members, key=lambda handoff: handoff.due)  # of equals, who came first
        left = max((first.due - self.served) * len(self.members) - self.rest, 0)
        return min(self.seen + left, PAST_CLOCK_NS), first


class Apart(Link):
    """No link at all: every transfer has the whole bandwidth."""

    def __init__(self) -> None:
        super().__init__()
        self.heap: list[tuple[int, int, Handoff]] = []  # (end, order, handoff)
        self.order = 0

    def join(self, handoff: Handoff, now: int) -> bool:
        handoff.began = handoff.queued
        end = max(min(handoff.queued + handoff.work, PAST_CLOCK_NS), handoff.floor)
        if end == now:
            return True
        heapq.heappush(self.heap, (end, self.order, handoff))
        self.order += 1
        return False

    def leave(self, handoff: Handoff, now: int) -> None:
        self.heap = [row for row in self.heap if row[2] is not handoff]
        heapq.heapify(self.heap)

    def next_end(self) -> tuple[int, Handoff] | None:
        return (self.heap[0][0], self.heap[0][2]) if self.heap else None


class Wire:
    """All transfers of a replay.

    Args:
        arrived: called when the KV of a handoff has arrived.
        failed: called when its last attempt has failed.
    """

    def __init__(
        self, spec: PoolsSpec, arrived: Callable[[Handoff, int], None], failed: Callable[[Handoff, int], None]
    ) -> None:
        self.transfer, self.arrived, self.failed = spec.transfer, arrived, failed
        kind = Fifo if spec.transfer.sharing == "fifo" else Fair
        self.links: list[Link] = [kind() for _ in range(spec.workers)]
        if spec.transfer.links == "none":
            self.links = [Apart()]
        self.waiting: list[tuple[int, int, Handoff]] = []  # heap: what happens without a link, and when
        self.order = 0

    def link(self, handoff: Handoff) -> Link:
        place = {"per_source": handoff.bootstrap.worker, "per_destination": handoff.request.worker}
        return self.links[place.get(self.transfer.links, 0)]

    def send(self, handoff: Handoff, now: int) -> None:
        """The destination is reserved: attempts begin, until one takes time or the last of them is over."""
        seconds = self.transfer.seconds(handoff.sent)
        # One longer than the clock may be infinite; all of those end just past it, where the replay stops.
        longest = 2 * CLOCK_END_S
        work = self.transfer.fallback_ns if seconds is None else nearest_ns(min(seconds, longest))
        handoff.work = min(work, PAST_CLOCK_NS)
        if self.transfer.layers:
            # PD-19: the share of the last layer goes when that is computed.
            handoff.floor = min(handoff.until + cdiv(handoff.work, self.transfer.layers), PAST_CLOCK_NS)
        if self.transfer.plain:
            handoff.transferred = min(now + self.transfer.first_byte_ns + handoff.work, PAST_CLOCK_NS)  # foreseen
        self.attempt(handoff, now)

    def attempt(self, handoff: Handoff, now: int) -> None:
        while True:
            handoff.attempts += 1
            ready = min(now + self.transfer.first_byte_ns, PAST_CLOCK_NS)
            handoff.queued, handoff.began = max(ready, handoff.first_layer), -1
            if handoff.queued > now and self.transfer.links != "none":
                self.wait(handoff.queued, handoff)
                return
            if not self.joined(handoff, now) or self.settled(handoff, now):
                return

    def joined(self, handoff: Handoff, now: int) -> bool:
        """It joins its link. True if it is over at this very instant."""
        if self.link(handoff).join(handoff, now):
            return True
        if handoff.work == 0 and self.transfer.links != "none" and handoff not in self.link(handoff).members:
            self.wait(handoff.floor, handoff)
        return False

    def wait(self, when: int, handoff: Handoff) -> None:
        heapq.heappush(self.waiting, (when, self.order, handoff))
        self.order += 1

    def settled(self, handoff: Handoff, now: int) -> bool:
        """An attempt is over; False asks for another one."""
        transfer = self.transfer
        draw = draws.draw(transfer.seed, draws.TRANSFER, handoff.request.index, handoff.attempts - 1)
        if draw >= transfer.failure_threshold:
            handoff.transferred = now
            self.arrived(handoff, now)
        elif handoff.attempts <= transfer.retries:
            return False
        else:
            self.failed(handoff, now)
        return True

    def land(self, now: int) -> bool:
        """What is due at this instant: transfers end, link by link; then others join or have their last layer."""
        moved = False
        while self.land_once(now):
            moved = True
        return moved

    def land_once(self, now: int) -> bool:
        moved = False
        for link in self.links:
            while (following := link.next_end()) is not None and following[0] <= now:
                moved = True
                handoff = following[1]
                link.leave(handoff, now)
                if handoff.floor > now:
                    self.wait(handoff.floor, handoff)  # fair shares: what it had was there before the last layer
                elif not self.settled(handoff, now):
                    self.attempt(handoff, now)
        while self.waiting and self.waiting[0][0] <= now:
            moved = True
            _, _, handoff = heapq.heappop(self.waiting)
            over = handoff.began >= 0 or self.joined(handoff, now)
            if over and not self.settled(handoff, now):
                self.attempt(handoff, now)
        return moved

    def give_up(self, handoff: Handoff, now: int) -> None:
        """Whatever of it is on its way is dropped at once."""
        if any(each is handoff for _, _, each in self.waiting):
            self.waiting = [row for row in self.waiting if row[2] is not handoff]
            heapq.heapify(self.waiting)
        elif handoff.attempts and handoff.transferred < 0:
            self.link(handoff).leave(handoff, now)

    def next_time(self) -> int | None:
        ends = [following[0] for link in self.links if (following := link.next_end()) is not None]
        return min([*ends, *(when for when, _, _ in self.waiting[:1])], default=None)
