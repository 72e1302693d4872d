"""Who follows whom: turns of a session, and requests of a play that wait for one another (section 2)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

import sim.state as S
from sim.inputs import Workload


class Followers(NamedTuple):
    """Every wait, seen from what is waited for; columns as in `sim.state`.

    Attributes:
        firsts: int32, requests that open a session or play, or stand alone, in source order.
        member: int64 (n + 1, M_WIDTH); row n only ends the waits for the last request.
        follow: int64 (waits, F_WIDTH).
        pending: int64 (n, P_WIDTH), before anything has happened.
    """

    firsts: np.ndarray
    member: np.ndarray
    follow: np.ndarray
    pending: np.ndarray


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
        firsts = np.arange(n, dtype=np.int32)
        return Followers(firsts, *(np.zeros((0, width), np.int64) for width in (S.M_WIDTH, S.F_WIDTH, S.P_WIDTH)))
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
    member, pending = np.zeros((n + 1, S.M_WIDTH), np.int64), np.zeros((n, S.P_WIDTH), np.int64)
    member[1:, S.M_FOLLOW] = np.cumsum(np.bincount(source, minlength=n))
    member[:n, S.M_OPENER] = opener
    if load.not_before_ns is not None:
        member[:n, S.M_NOT_BEFORE] = load.not_before_ns
    pending[:, S.P_WAITS] = np.bincount(target, minlength=n)
    pending[:, S.P_LEFT] = np.bincount(opener, minlength=n)
    firsts = np.flatnonzero(opener == np.arange(n)).astype(np.int32)
    return Followers(firsts, member, np.stack([target, delay, on_dispatch], axis=1).astype(np.int64), pending)


def _ranked(session: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """With requests in order of their sessions: which follow the one before, and the request at each place."""
    order = np.argsort(session, kind="stable")
    ranked = session[order]
    follows = np.zeros(len(session), bool)
    follows[1:] = (ranked[1:] == ranked[:-1]) & (ranked[1:] >= 0)
    return follows, order
