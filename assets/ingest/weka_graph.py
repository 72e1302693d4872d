"""Who waits for whom in a recorded agent session (rules WL-18 to WL-20).

A recording says when calls started and ended, not why. What is taken from it:

* A call waits for every call of its own agent that had ended when it started (those that others of them had waited for
  already are left out). For the one whose conversation it goes on with, the recorded pause between them is kept; for
  the others the end is enough. The conversation it goes on with is the one that shares the longest prompt with it; if
  none shares any, the only one there is.
* A subagent's first calls wait for the last call its launcher had made: for its end and the recorded pause if it had
  ended, else as long after its start as recorded.
* What a subagent was waited for (it is not launched asynchronously) holds back the launcher's first call after it had
  ended, its last calls' ends and the recorded pauses from them.
* No call starts before its recorded time in the session.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from operator import itemgetter
from typing import NamedTuple

from assets.ingest.rows import Row

SLACK_NS = 1_000  # a call that starts a microsecond before the end of another follows it


@dataclass(slots=True)
class Call:
    """One call; times from the start of the recording. `end_ns` is None where the file does not say."""

    start_ns: int
    end_ns: int | None
    model: str
    row: Row
    text: bytes
    ordinal: int = -1

    @property
    def over_ns(self) -> int:
        """When it had ended, for all that is known."""
        return self.start_ns if self.end_ns is None else self.end_ns

    def follows(self, other: Call) -> bool:
        """Whether the other one had ended when this one started."""
        return other.over_ns <= self.start_ns + SLACK_NS

    def pause_ns(self, other: Call) -> int:
        """From the other's end to this one's start."""
        return max(0, self.start_ns - other.over_ns)


class Agent(NamedTuple):
    """The calls of an agent in file order, and the subagents it launched."""

    calls: list[Call]
    launched: list[Launch]

    def all_calls(self) -> list[Call]:
        """With those of its subagents, in the order of the document."""
        found: list[Call] = []
        at = 0
        for launch in self.launched:
            found += self.calls[at : launch.at]
            found += launch.agent.all_calls()
            at = launch.at
        return found + self.calls[at:]


class Launch(NamedTuple):
    """A subagent: `at` calls of its launcher stand before it in the file."""

    at: int
    end_ns: int
    blocks: bool
    agent: Agent

    @property
    def over_ns(self) -> int:
        """When it had ended: its own word, or its last call."""
        return max([self.end_ns, *(call.over_ns for call in self.agent.all_calls())])


def overlaps(agent: Agent) -> int:
    """Calls of an agent that started before the one before them had ended."""
    calls = sorted(agent.calls, key=lambda call: call.start_ns)
    return sum(not call.follows(before) for before, call in pairwise(calls)) + sum(
        overlaps(launch.agent) for launch in agent.launched
    )


def turns(agent: Agent) -> Iterator[tuple[Call, Row]]:
    """One call after another, as the turns of a session."""
    before: Call | None = None
    for call in sorted(agent.calls, key=lambda call: call.start_ns):
        row = call.row
        if before is None:
            opened_ns = call.start_ns
        else:
            row = row._replace(delay_ns=call.pause_ns(before), not_before_ns=call.start_ns - opened_ns)
        yield call, row
        before = call


def calls_that_wait(agent: Agent) -> Iterator[tuple[Call, Row]]:
    """Calls in an order in which each comes after those it waits for."""
    waits: dict[int, dict[tuple[int, bool], int]] = {}
    ordered: list[Call] = []
    _visit(agent, None, ordered, waits)
    places: dict[int, int] = {}
    for call in ordered:
        places[call.ordinal] = max([call.start_ns, *(places[other] for other, _ in waits[call.ordinal])])
    ordered.sort(key=lambda call: places[call.ordinal])
    opened_ns = ordered[0].start_ns
    for call in ordered:
        found = tuple((other, delay_ns, kind) for (other, kind), delay_ns in waits[call.ordinal].items())
        floor_ns = max(0, call.start_ns - opened_ns)
        yield call, call.row._replace(arrival_ns=places[call.ordinal], not_before_ns=floor_ns, waits=found)


def _visit(
    agent: Agent, launcher: Call | None, ordered: list[Call], waits: dict[int, dict[tuple[int, bool], int]]
) -> None:
    """Add the calls of an agent and of its subagents, and what they wait for."""
    joining = sorted(((one.over_ns, i, one) for i, one in enumerate(agent.launched) if one.blocks), key=itemgetter(0))
    launches: dict[int, list[Launch]] = {}
    for launch in agent.launched:
        launches.setdefault(launch.at, []).append(launch)
    talks = _Talks()
    order = sorted(range(len(agent.calls)), key=lambda i: agent.calls[i].start_ns)
    # Subagents launched before the first call have their launcher's launcher to wait for, if there is one.
    for launch in launches.get(0, []):
        _visit(launch.agent, launcher, ordered, waits)
    for i in order:
        call = agent.calls[i]
        mine = waits[call.ordinal] = talks.ended_before(call)
        if not mine and launcher is not None:
            if call.follows(launcher):
                mine[launcher.ordinal, False] = call.pause_ns(launcher)
            else:
                mine[launcher.ordinal, True] = max(0, call.start_ns - launcher.start_ns)
        while joining and joining[0][0] <= call.start_ns + SLACK_NS and _is_visited(joining[0][2], waits):
            for last in _last_calls(joining.pop(0)[2].agent):
                mine[last.ordinal, False] = call.pause_ns(last)
        ordered.append(call)
        talks.add(call)
        for launch in launches.get(i + 1, []):
            _visit(launch.agent, call, ordered, waits)


def _is_visited(launch: Launch, waits: dict[int, dict[tuple[int, bool], int]]) -> bool:
    return all(call.ordinal in waits for call in launch.agent.all_calls())


def _last_calls(agent: Agent) -> list[Call]:
    """Calls of an agent after whose end it started no other."""
    latest_ns = max((call.start_ns for call in agent.calls), default=0)
    found = [call for call in agent.calls if call.over_ns > latest_ns or call.start_ns == latest_ns]
    return found + [call for launch in agent.launched if launch.blocks for call in _last_calls(launch.agent)]


class _Talks:
    """The calls of one agent so far: which had ended, and which conversations they are of."""

    def __init__(self) -> None:
        self._running: list[Call] = []
        self._edge: list[Call] = []  # have ended, and no other call has waited for all of them
        self._tails: list[list[Call]] = []  # conversations, by their calls

    def add(self, call: Call) -> None:
        self._running.append(call)

    def ended_before(self, call: Call) -> dict[tuple[int, bool], int]:
        """What the call waits for. Remembers which conversation it goes on with."""
        fresh = [other for other in self._running if call.follows(other)]
        self._running = [other for other in self._running if not call.follows(other)]
        self._edge += fresh
        latest_ns = max((other.start_ns for other in self._edge), default=0)
        self._edge = [other for other in self._edge if other.over_ns > latest_ns or other.start_ns == latest_ns]
        found: dict[tuple[int, bool], int] = {(other.ordinal, False): 0 for other in self._edge}
        before = self._before(call)
        if before is not None:
            found[before.ordinal, False] = call.pause_ns(before)
        return found

    def _before(self, call: Call) -> Call | None:
        """The call whose conversation this one goes on with."""
        best, best_shared, best_talk = None, 0, None
        for talk in self._tails:
            ended = next((other for other in reversed(talk) if call.follows(other)), None)
            if ended is None or ended.model != call.model:
                continue
            shared = _shared(ended, call)
            if shared > best_shared or (shared == best_shared > 0 and best and ended.over_ns > best.over_ns):
                best, best_shared, best_talk = ended, shared, talk
        if best is None and len(self._tails) == 1 and call.follows(self._tails[0][-1]):
            best, best_talk = self._tails[0][-1], self._tails[0]
        if best_talk is not None and best_talk[-1] is best:
            best_talk.append(call)
        else:
            self._tails.append([call])
        return best


def _shared(one: Call, other: Call) -> int:
    """Leading blocks that two prompts have in common."""
    a: array[int] = one.row.hash_ids or array("q")
    b: array[int] = other.row.hash_ids or array("q")
    n = min(len(a), len(b))
    if a[:n] == b[:n]:
        return n
    return next(i for i in range(n) if a[i] != b[i])
