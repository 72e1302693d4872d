"""Who waits for whom: what is wrong with it, and whether it comes to no more than sessions."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Wait(NamedTuple):
    """One thing a request waits for: another's end (or its dispatch), and then a delay."""

    request_id: str
    delay_ns: int
    on_dispatch: bool


Waits = Mapping[str, Sequence[Wait]]


def faulty(waits: Waits, plays: Mapping[str, str]) -> dict[str, str]:
    """Requests that can never become ready, and for what: one that is not there, of another play, or in a circle."""
    bad: dict[str, str] = {}
    for request_id, found in waits.items():
        for wait in found:
            if wait.request_id not in waits or plays[wait.request_id] != plays[request_id]:
                bad[request_id] = wait.request_id
    reached = set(in_order(waits))
    for request_id, found in waits.items():
        if request_id not in reached and request_id not in bad:
            bad[request_id] = next(wait.request_id for wait in found if wait.request_id not in reached)
    return _and_followers(bad, _followers(waits))


def in_order(waits: Waits) -> list[str]:
    """Requests so that each comes after all it waits for, otherwise as given; without those in or behind a circle."""
    followers = _followers(waits)
    open_ = {each: len({wait.request_id for wait in found}) for each, found in waits.items()}
    found, ready = [], deque(each for each, count in open_.items() if count == 0)
    while ready:
        done = ready.popleft()
        found.append(done)
        for follower in followers.get(done, []):
            open_[follower] -= 1
            if open_[follower] == 0:
                ready.append(follower)
    return found


def _followers(waits: Waits) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for request_id, all_ in waits.items():
        for target in dict.fromkeys(wait.request_id for wait in all_):
            found.setdefault(target, []).append(request_id)
    return found


def _and_followers(bad: dict[str, str], followers: Mapping[str, list[str]]) -> dict[str, str]:
    todo = list(bad)
    while todo:
        each = todo.pop()
        for follower in followers.get(each, []):
            if follower not in bad:
                bad[follower] = each
                todo.append(follower)
    return bad


def features(waits: Waits, not_before_ns: Mapping[str, int], starts: Mapping[str, int]) -> tuple[str, ...]:
    """What a replay would need beyond sessions, by name; nothing if the graph is made of chains."""
    found = []
    followed: set[str] = set()
    several = split = dispatch = floor = False
    least = min(starts.values(), default=0)
    for request_id, all_ in waits.items():
        several |= len(all_) > 1
        for wait in all_:
            dispatch |= wait.on_dispatch
            split |= wait.request_id in followed
            followed.add(wait.request_id)
        # A start that is never after the play's own holds nobody back.
        floor |= bool(all_) and not_before_ns[request_id] > least
    for needed, what in (
        (several, "requests that wait for several others"),
        (split, "several requests that wait for one"),
        (dispatch, "waits for the dispatch of a request"),
        (floor, "an earliest start of requests that wait (not_before_ms)"),
    ):
        if needed:
            found.append(what)
    return tuple(found)


def chains(waits: Waits) -> dict[str, str]:
    """Name of the chain of every request that waits or is waited for: its first request."""
    before = {request_id: all_[0].request_id for request_id, all_ in waits.items() if all_}
    after = {target: request_id for request_id, target in before.items()}
    found = {}
    for first in waits:
        if first in before or first not in after:
            continue
        here: str | None = first
        while here is not None:
            found[here] = first
            here = after.get(here)
    return found
