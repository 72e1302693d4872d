"""Drafts in separate pools: two drafters, that of the decode pool and one that never proposes anything.

A prefill worker verifies nothing, but a drafter with a model of its own gives up a block of a hit there as well (5.5),
and policy mode reserves room for the token that nobody sees (8.4). So its ranks run the kernels that know of drafts,
with a drafter that has none. `sim.reference_pools` is the
specification.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

import sim.speculation.columns as D
from sim.result import BURST_PASSES
from sim.setup import log_rows
from sim.spec import PoolsSpec
from sim.speculation.columns import Drafting
from sim.speculation.draws import BITS
from sim.speculation.setup import BURST_LOG_ROWS, NO_LIMIT, drafting_of
from sim.state import Config


def drafters_of(
    spec: PoolsSpec, requests: int, prefill: Config, decode: Config, rows: int
) -> tuple[Drafting | None, Drafting | None]:
    """Drafters of the prefill and of the decode pool; None, None where nothing is drafted.

    Args:
        rows: most rows of one kind that one look at all workers may write.
    """
    # One worker per rank is at least as many as there are.
    wide = replace(spec.decode, workers=spec.ranks, dp=1)
    seqs = max(prefill.seqs, decode.seqs)
    found = drafting_of(wide, requests, 4 * decode.seqs, log_rows(rows), decode.mask)
    if found is None:
        return None, None
    ring_rows = found.ring.shape[1]
    burst_rows = 3 * spec.decode.ranks * decode.seqs * (ring_rows // BURST_PASSES + 4)
    verifier = found._replace(
        burst_rows=burst_rows,
        bursts=np.empty((len(found.bursts), BURST_LOG_ROWS + burst_rows), np.int64),
        acceptance=np.empty((len(found.acceptance), log_rows(rows) + 2 * spec.ranks * seqs), np.int64),
    )
    slots = spec.ranks * prefill.seqs
    reserves = spec.prefill.speculation is not None and not spec.prefill.native_drafts
    return verifier._replace(
        drafts=0,
        native=int(not reserves),
        lookahead=0,
        cut=int(spec.prefill.gives_up_a_block),
        batch=-1,
        trigger=1 << BITS,
        longest=NO_LIMIT,
        burst_rows=0,
        d=np.zeros((slots, D.D_WIDTH), np.int64),
        items=np.zeros((spec.ranks, 2, 2 * prefill.seqs + 8, D.I_WIDTH), np.int32),
        n_items=np.zeros((spec.ranks, 2), np.int64),
        ring=np.zeros((spec.ranks, 8, D.W_WIDTH), np.int64),
        rounds=np.zeros((slots, 8), np.uint8),
        slots=np.arange(slots, dtype=np.int32).reshape(spec.ranks, prefill.seqs),
        sums=np.zeros((spec.ranks, 2, D.W_WIDTH), np.int64),
        ranks=np.zeros((spec.ranks, D.K_WIDTH), np.int64),
        counts=np.zeros(3, np.int64),
        bursts=np.empty((len(found.bursts), 1), np.int64),
        acceptance=np.empty((len(found.acceptance), 1), np.int64),
    ), verifier


def with_room(dr: Drafting, seqs: int) -> Drafting:
    """The same with slots for whoever the next look at all workers may admit.

    Whoever is preempted keeps its slot, and on a decode worker others may overtake it.
    """
    ranks, here = dr.slots.shape
    if dr.counts[D.MOST_SLOTS] + 2 * seqs <= here:
        return dr
    total = len(dr.d)
    return dr._replace(
        d=np.concatenate([dr.d, np.zeros_like(dr.d)]),
        rounds=np.concatenate([dr.rounds, np.zeros_like(dr.rounds)]),
        slots=np.concatenate([dr.slots, np.arange(total, 2 * total, dtype=np.int32).reshape(ranks, here)], axis=1),
    )
