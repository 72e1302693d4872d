"""Who waits for whom in a recorded agent session (rules WL-18 to WL-20).

A recording says when calls started and ended, not why. What is taken from it:

* A call waits for every call of its own agent that had ended when it started (those that others of them had waited for
  already are left out). For the one that it goes on from, the recorded pause between them is kept; for the others the
  end is enough. It goes on from the latest call of the conversation that shares the longest prompt with it. One that
  shares with none begins a conversation; but the second call of an agent goes on from the first if no other does.
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

    def in_time(self) -> list[Call]:
        """Its own calls by their starts."""
        return sorted(self.calls, key=lambda call: call.start_ns)

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
    return sum(not call.follows(before) for before, call in pairwise(agent.in_time())) + sum(
        overlaps(launch.agent) for launch in agent.launched
    )


def is_chain(agent: Agent) -> bool:
    """Whether its calls are turns: no subagents, no overlaps, each goes on from the one before or from none."""
    calls = agent.in_time()
    return (
        not agent.launched
        and all(call.follows(before) for before, call in pairwise(calls))
        and all(other in (None, before) for other, before in zip(_goes_on_from(calls)[1:], calls, strict=False))
    )


def turns(agent: Agent) -> Iterator[tuple[Call, Row]]:
    """One call after another, as the turns of a session."""
    calls = agent.in_time()
    yield calls[0], calls[0].row
    for call, before, other in zip(calls[1:], calls, _goes_on_from(calls)[1:], strict=False):
        pause_ns = 0 if other is None else call.pause_ns(before)
        yield call, call.row._replace(delay_ns=pause_ns, not_before_ns=call.start_ns - calls[0].start_ns)


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
    ended, in_time = _Ended(), agent.in_time()
    from_ = dict(zip([call.ordinal for call in in_time], _goes_on_from(in_time), strict=True))
    place = {call.ordinal: i for i, call in enumerate(agent.calls)}
    # Subagents launched before the first call have their launcher's launcher to wait for, if there is one.
    for launch in launches.get(0, []):
        _visit(launch.agent, launcher, ordered, waits)
    for call in in_time:
        mine = waits[call.ordinal] = ended.before(call, from_[call.ordinal])
        if not mine and launcher is not None:
            if call.follows(launcher):
                mine[launcher.ordinal, False] = call.pause_ns(launcher)
            else:
                mine[launcher.ordinal, True] = max(0, call.start_ns - launcher.start_ns)
        while joining and joining[0][0] <= call.start_ns + SLACK_NS and _is_visited(joining[0][2], waits):
            for last in _last_calls(joining.pop(0)[2].agent, waits):
                mine[last.ordinal, False] = call.pause_ns(last)
        ordered.append(call)
        for launch in launches.get(place[call.ordinal] + 1, []):
            _visit(launch.agent, call, ordered, waits)


def _is_visited(launch: Launch, waits: dict[int, dict[tuple[int, bool], int]]) -> bool:
    return all(call.ordinal in waits for call in launch.agent.all_calls())


def _last_calls(agent: Agent, waits: dict[int, dict[tuple[int, bool], int]]) -> list[Call]:
    """Calls of an agent, and of the subagents it waited for, that no other call of the agent has waited for."""
    found = [*agent.calls, *(call for one in agent.launched if one.blocks for call in _last_calls(one.agent, waits))]
    covered = {other for call in agent.calls for other, on_dispatch in waits[call.ordinal] if not on_dispatch}
    return [call for call in found if call.ordinal not in covered]


class _Ended:
    """The calls of one agent so far: which had ended when another started."""

    def __init__(self) -> None:
        self._running: list[Call] = []
        self._edge: list[Call] = []  # have ended, and no other that has ended waited for them
        self._waited: dict[int, set[int]] = {}

    def before(self, call: Call, other: Call | None) -> dict[tuple[int, bool], int]:
        """What the call waits for, going on from the other one."""
        fresh = [each for each in self._running if call.follows(each)]
        self._running = [each for each in self._running if not call.follows(each)] + [call]
        covered = {each for one in fresh for each in self._waited[one.ordinal]}
        self._edge = [each for each in [*self._edge, *fresh] if each.ordinal not in covered]
        found: dict[tuple[int, bool], int] = {(each.ordinal, False): 0 for each in self._edge}
        if other is not None:
            found[other.ordinal, False] = call.pause_ns(other)
        self._waited[call.ordinal] = {ordinal for ordinal, _ in found}
        return found


def _goes_on_from(calls: list[Call]) -> list[Call | None]:
    """Of each call (in order of their starts) the one whose conversation it goes on with."""
    found: list[Call | None] = []
    talks: list[list[Call]] = []
    for call in calls:
        best, best_shared, best_talk = None, 0, None
        for talk in talks:
            ended = next((other for other in reversed(talk) if call.follows(other)), None)
            if ended is None or ended.model != call.model:
                continue
            shared = _shared(ended, call)
            if shared > best_shared or (shared == best_shared > 0 and best and ended.over_ns > best.over_ns):
                best, best_shared, best_talk = ended, shared, talk
        if best_talk is not None and best_talk[-1] is best:
            best_talk.append(call)
        else:
            talks.append([call])
        found.append(best)
    if len(calls) > 1 and found[1] is None and all(other is not calls[0] for other in found):
        found[1] = calls[0] if calls[1].follows(calls[0]) else None
    return found


def _shared(one: Call, other: Call) -> int:
    """Leading blocks that two prompts have in common."""
    a: array[int] = one.row.hash_ids or array("q")
    b: array[int] = other.row.hash_ids or array("q")
    n = min(len(a), len(b))
    if a[:n] == b[:n]:
        return n
    return next(i for i in range(n) if a[i] != b[i])
