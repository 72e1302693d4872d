"""State that only replays with speculative decoding have: which column means what. See `sim.state` for the rest."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

import sim.state as S

# Column of sim.state.State.q: row of Drafting.d of a request under way. Nothing is in a growth wheel here.
SLOT = S.GNEXT

# ------------------------------------------------------------ requests under way: Drafting.d, int64 (slots, D_WIDTH)
(
    OWED,  # tokens in flight that will be sampled, as far as the scheduler knows: drafts count as accepted
    READY,  # drafts proposed for its next pass
    BLOCKS,  # blocks held
    HASHED,  # leading ones that are hashed
    EPOCH,  # preemptions so far: results of older passes no longer count for OWED
    STRETCH,  # raised when a choice leaves it out or preempts it: its next token opens a new span
    PREFILLING,  # its last scheduling did not reach the end of the sequence
    ROUND,  # rounds so far; which draw comes next
    MARK,  # number of the choice that scheduled it
    ITEM,  # where in that choice's batch
    SPAN_FIRST,  # pass of the open span's first token
    SPAN_PASSES,  # 0: no span is open
    SPAN_TOKENS,
    SPAN_STRETCH,
    SPAN_TOKEN_NO,  # ordinal of its first token
    SPAN_BURST,  # tokens of its first pass
    PART_PASSES,  # the part of the span that has no row in `bursts` yet
    PART_TOKENS,
    PART_MADE,  # four bits per pass
    PART_DRAFTS,
    DRAFTS,  # drafts verified
    ACCEPTED,  # rounds by accepted drafts: six columns
) = range(22)
(
    # A planned request: where its plan begins ...
    PLAN_PASS,
    PLAN_LENGTH,  # prompt and tokens made before that pass
    PLAN_BEFORE,  # tokens computed, as the choice of that pass believes
    PLAN_WAS,  # PLAN_LENGTH one pass earlier
    # ... and how far it is worked out.
    LAST_PASS,  # its calendar bucket
    NEXT_LENGTH,
    NEXT_BEFORE,
    NEXT_ROUND,
    NEXT_READY,
    NEXT_BLOCKS,
) = range(ACCEPTED + 6, ACCEPTED + 16)
D_WIDTH = ACCEPTED + 16

# ------------------------------------------------------------ batches: Drafting.items, int32 (ranks, 2, cap, I_WIDTH)
(
    I_REQUEST,
    I_TOKENS,
    I_BEFORE,
    I_KIND,
    I_CACHED,
    I_DRAFTS,  # of its tokens, those beyond the known sequence: drafts, or their padding
    I_VERIFIED,  # drafts whose verification counts: not the padding; in policy mode those beside its tokens
    I_ACCEPTED,  # of these
    I_MOST,  # policy mode: tokens it can make, for which blocks are reserved
    I_MADE,  # tokens, once delivered
    I_SAMPLES,
    I_EPOCH,
    I_STRETCH,
    I_LIVE,  # 0: taken back by a preemption of the same choice
) = range(14)
I_WIDTH = 14

# ---------------------------------------------------------------- Drafting.counts, int64
N_BURSTS_LOG, N_ACCEPTANCE_LOG, MOST_SLOTS = range(3)  # the last: most slots in use on any rank so far

# -------------------------------------- sums over planned requests: Drafting.ring, int64 (ranks, passes, 5)
# Pairs share a word, the second in the upper half.
(
    W_REQUESTS,  # requests that compute; and those whose pass before brings their last token
    W_KV,
    W_DRAFTS,  # drafts verified, and in how many rounds
    W_BLOCKS,  # blocks taken, and how many of them go back at the end of the pass
    W_MADE,  # tokens made, and drafts accepted
) = range(5)
W_WIDTH = 5
UPPER = 32
LOWER_BITS = (1 << UPPER) - 1

# ------------------------------------------------------------ ranks: Drafting.ranks, int64 (ranks, K_WIDTH)
(
    N_PLANNED,
    N_SLOTS,  # in use
    WALK_UNTIL,  # pass before which nothing is planned
    N_LEFT,  # requests that have left with their blocks; those preempted not counted
) = range(4)
K_WIDTH = 4

# Additional columns of the logs of `sim.state.State`, behind those that every replay has.
PASS_ROUNDS, PASS_DRAFTS, PASS_ACCEPTED, PASS_BURSTS = range(28, 32)
SPAN_PASSES_LOG, SPAN_BURST_LOG = 7, 8
CHUNK_DRAFTS = 8
PRESSURE_RESERVING = 10


class Drafting(NamedTuple):
    """A replay's drafter and what the engine keeps for it. A replay without speculative decoding has None instead."""

    drafts: int  # K
    native: int  # drafts are scheduled as tokens
    lookahead: int  # slots beyond the scheduled tokens
    cut: int  # blocks that a prefix hit gives up
    batch: int  # most running requests with drafts
    trigger: int  # of 2**53: how often the drafter proposes anything
    longest: int  # max_model_len, or beyond any length
    burst_rows: int  # rows of `bursts` that one worker may write between two looks at the log
    thresholds: np.ndarray  # int64 (K,), of 2**53
    keys: np.ndarray  # uint64 (n,): of the requests' acceptance streams
    trigger_keys: np.ndarray  # uint64 (n,) or (1,)
    script_at: np.ndarray  # int64 (n + 1,) or (1,): recorded acceptance instead of a drawn one
    script: np.ndarray  # int64
    d: np.ndarray
    items: np.ndarray
    n_items: np.ndarray  # int64 (ranks, 2)
    ring: np.ndarray
    rounds: np.ndarray  # uint8 (slots, passes): of a planned request and pass, drafts << 4 | accepted
    slots: np.ndarray  # int32 (ranks, seqs): slots of each rank; behind the first N_SLOTS places stand the free ones
    sums: np.ndarray  # int64 (ranks, 2, W_WIDTH): the ring's row of a batch
    ranks: np.ndarray
    counts: np.ndarray
    bursts: np.ndarray  # logs, int64 (columns, capacity)
    acceptance: np.ndarray
