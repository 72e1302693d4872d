"""Who follows whom: turns of a session, and requests of a play that wait for one another (section 2)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sim.inputs import Workload


class Followers(NamedTuple):
    """Every wait, seen from what is waited for.

    Attributes:
        firsts: int32, requests that open a session or play, or stand alone, in source order.
        opener: int64 (n,), the one that opens the request's session or play; itself where it stands alone.
        at: int64 (n + 1,), the waits for request r are at[r] up to at[r + 1] in the columns below.
        who: int32, the request that waits.
        delay: int64, ns from the event to when it may arrive.
        on_dispatch: int8, 1: the event is the arrival of what is waited for, 0: its end.
        waits: int32 (n,), how many events each request waits for.
        size: int32 (n,), requests of the session or play of an opener; 1 at all others.
    """

    firsts: np.ndarray
    opener: np.ndarray
    at: np.ndarray
    who: np.ndarray
    delay: np.ndarray
    on_dispatch: np.ndarray
    waits: np.ndarray
    size: np.ndarray


def openers(session: np.ndarray) -> np.ndarray:
    """First request of each request's session. Shape (n,), int64.

    Args:
        session: shape (n,), session number or -1.
    """
    follows, order = _ranked(session)
    opener = np.empty(len(session), np.int64)
    opener[order] = order[np.maximum.accumulate(np.where(follows, 0, np.arange(len(session))))]
    return opener


def followers(load: Workload) -> Followers:
    """What the waits of a workload come to. Without sessions everybody stands alone, and only `firsts` is filled."""
    n = len(load)
    if load.session is None:
        nobody, few, flags = np.zeros(0, np.int64), np.zeros(0, np.int32), np.zeros(0, np.int8)
        return Followers(np.arange(n, dtype=np.int32), nobody, nobody, few, nobody, flags, few, few)
    session = np.asarray(load.session)
    opener = openers(session)
    if load.wait_offsets is None:
        follows, order = _ranked(session)
        places = np.flatnonzero(follows)
        source, target = order[places - 1], order[places]
        delay = np.zeros(n, np.int64) if load.delay_ns is None else np.asarray(load.delay_ns)
        columns = [source, target, delay[target], np.zeros(len(target), np.int8)]
    else:
        counts = np.diff(load.wait_offsets)
        # What waits for nobody and opens no play comes with the one that does.
        others = np.flatnonzero((counts == 0) & (opener != np.arange(n)))
        nothing = np.zeros(len(others), np.int64)
        columns = [
            np.concatenate([np.asarray(load.wait_on), opener[others]]),
            np.concatenate([np.repeat(np.arange(n), counts), others]),
            np.concatenate([np.asarray(load.wait_delay_ns), nothing]),
            np.concatenate([np.asarray(load.wait_on_dispatch), nothing + 1]),
        ]
    by_source = np.argsort(columns[0], kind="stable")
    source, target, delay, on_dispatch = (column[by_source] for column in columns)
    return Followers(
        firsts=np.flatnonzero(opener == np.arange(n)).astype(np.int32),
        opener=opener,
        at=np.concatenate([np.zeros(1, np.int64), np.cumsum(np.bincount(source, minlength=n))]),
        who=target.astype(np.int32),
        delay=delay.astype(np.int64),
        on_dispatch=on_dispatch.astype(np.int8),
        waits=np.bincount(target, minlength=n).astype(np.int32),
        size=np.maximum(np.bincount(opener, minlength=n), 1).astype(np.int32),
    )


def _ranked(session: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """With requests in order of their sessions: which follow the one before, and the request at each place."""
    order = np.argsort(session, kind="stable")
    ranked = session[order]
    follows = np.zeros(len(session), bool)
    follows[1:] = (ranked[1:] == ranked[:-1]) & (ranked[1:] >= 0)
    return follows, order
