"""What is known of a request's drafts when the replay is over."""

from __future__ import annotations

import numpy as np

import sim.speculation.columns as D
from sim.result import ACCEPTANCE, MOST_DRAFTS, Columns
from sim.speculation.columns import Drafting


def acceptance(drafting: Drafting) -> Columns:
    """The acceptance table: a row per request that verified drafts."""
    by_accepted = drafting.d[:, D.ACCEPTED : D.ACCEPTED + MOST_DRAFTS + 1]
    rounds = by_accepted.sum(axis=1)
    some = np.flatnonzero(rounds)
    columns = [some, rounds[some], drafting.d[some, D.DRAFTS], *by_accepted[some].T]
    return {name: np.ascontiguousarray(column) for name, column in zip(ACCEPTANCE, columns, strict=True)}
