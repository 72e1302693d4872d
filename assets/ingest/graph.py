"""Who waits for whom: what is wrong with it, whether it comes to no more than turns, and a place in time for each."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from heapq import heapify, heappop, heappush
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


def are_chains(waits: Waits, plays: Mapping[str, str]) -> bool:
    """Whether each play is one request after another: then its requests are turns of a session."""
    followed: set[str] = set()
    roots: set[str] = set()
    for request_id, all_ in waits.items():
        if not all_:
            if plays[request_id] in roots:
                return False
            roots.add(plays[request_id])
        for wait in all_:
            if len(all_) > 1 or wait.on_dispatch or wait.request_id in followed:
                return False
            followed.add(wait.request_id)
    return True


def components(waits: Waits) -> dict[str, str]:
    """Of every request, the first of those that waiting connects it with, whichever way round."""
    parent = {each: each for each in waits}

    def root(each: str) -> str:
        while parent[each] != each:
            parent[each] = parent[parent[each]]
            each = parent[each]
        return each

    place = {each: i for i, each in enumerate(waits)}
    for request_id, all_ in waits.items():
        for wait in all_:
            if wait.request_id in parent:
                one, other = sorted((root(request_id), root(wait.request_id)), key=place.__getitem__)
                parent[other] = one
    return {each: root(each) for each in waits}


def places_in_time(waits: Waits, start_ns: Mapping[str, int]) -> dict[str, int]:
    """A start for each request that is not before those of the requests it waits for.

    In order of these starts; at equal ones as given, as far as each comes after those it waits for.
    """
    found: dict[str, int] = {}
    for each in in_order(waits):
        found[each] = max([start_ns[each], *(found[wait.request_id] for wait in waits[each])])
    number = {each: i for i, each in enumerate(waits)}
    followers = _followers(waits)
    open_ = {each: len({wait.request_id for wait in all_}) for each, all_ in waits.items()}
    ready = [(found[each], number[each], each) for each, count in open_.items() if count == 0]
    heapify(ready)
    ordered: dict[str, int] = {}
    while ready:
        place, _, each = heappop(ready)
        ordered[each] = place
        for follower in followers.get(each, []):
            open_[follower] -= 1
            if open_[follower] == 0:
                heappush(ready, (found[follower], number[follower], follower))
    return ordered
