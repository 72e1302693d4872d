"""A drafter as the arrays a kernel runs on."""

from __future__ import annotations

import numpy as np

import sim.speculation.columns as D
from sim.logs import logged
from sim.result import BURST_PASSES
from sim.spec import EngineSpec
from sim.speculation.columns import Drafting
from sim.speculation.draws import ACCEPTANCE, BITS, GOLDEN, TRIGGER, mix

RING_ROWS = 1 << 12
BURST_LOG_ROWS = 1 << 13
NO_LIMIT = 2**31 - 1


def drafting_of(spec: EngineSpec, requests: int, seqs: int, rows: int, longest: int) -> Drafting | None:
    """The drafter of a deployment, or None.

    Args:
        seqs: most running requests on a rank.
        rows: capacity of a log.
        longest: most tokens that a request makes.
    """
    speculation = spec.speculation
    if speculation is None:
        return None
    trigger = speculation.trigger_threshold
    ring_rows = _ring_rows(longest)
    # A request that ends writes all of its plan that is not written yet.
    burst_rows = spec.dp * seqs * (ring_rows // BURST_PASSES + 4)
    script_at, script = np.zeros(1, np.int64), np.zeros(0, np.int64)
    if speculation.scripted is not None:
        script_at = np.cumsum([0, *map(len, speculation.scripted)])
        script = np.array([accepted for plan in speculation.scripted for accepted in plan], np.int64)
    slots = spec.ranks * seqs
    return Drafting(
        drafts=speculation.drafts,
        native=int(spec.native_drafts),
        lookahead=spec.lookahead,
        cut=int(spec.gives_up_a_block),
        batch=NO_LIMIT if speculation.max_batch is None else speculation.max_batch,
        trigger=trigger,
        longest=spec.max_model_len if spec.native_drafts and spec.max_model_len is not None else NO_LIMIT,
        burst_rows=burst_rows,
        thresholds=np.array(speculation.thresholds, np.int64),
        keys=keys_of(speculation.seed, ACCEPTANCE, requests),
        trigger_keys=keys_of(speculation.seed, TRIGGER, requests if trigger < 1 << BITS else 1),
        script_at=script_at,
        script=script,
        d=np.zeros((slots, D.D_WIDTH), np.int64),
        items=np.zeros((spec.ranks, 2, 2 * seqs + 8, D.I_WIDTH), np.int32),
        n_items=np.zeros((spec.ranks, 2), np.int64),
        ring=np.zeros((spec.ranks, ring_rows, D.W_WIDTH), np.int64),
        rounds=np.zeros((slots, ring_rows), np.uint8),
        slots=np.arange(slots, dtype=np.int32).reshape(spec.ranks, seqs),
        sums=np.zeros((spec.ranks, 2, D.W_WIDTH), np.int64),
        ranks=np.zeros((spec.ranks, D.K_WIDTH), np.int64),
        counts=np.zeros(3, np.int64),
        bursts=np.empty((len(logged("bursts", drafting=True)), BURST_LOG_ROWS + burst_rows), np.int64),
        acceptance=np.empty((len(logged("acceptance", drafting=True)), rows + 2 * slots), np.int64),
    )


def _ring_rows(longest: int) -> int:
    """Passes that requests are planned ahead, a power of two."""
    rows = 8
    while rows < min(longest + 4, RING_ROWS):
        rows *= 2
    return rows


def keys_of(seed: int, stream: int, requests: int) -> np.ndarray:
    """Of each request's stream: all of `draws.draw` but the round."""
    z = np.uint64(mix(seed + GOLDEN * (stream + 1))) + np.uint64(GOLDEN) * np.arange(1, requests + 1, dtype=np.uint64)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))
