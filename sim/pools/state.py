"""What separate pools add to the engine's state.

Ranks are numbered through, the prefill pool's first. Every request has two rows in `State.q`: row i is the request, on
a decode worker once it is held; row n + i its *bootstrap*, which a prefill worker computes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

# ---------------------------------------------------------------- handoffs: Pools.h, int64 (n, H_WIDTH), -1 not yet
(
    HELD,
    RESERVED,
    TRANSFERRED_AT,
    ACTIVATED,
    RELEASED,
    SENT,  # tokens
    NUMBER,  # order of its reservation on the rank
    PHASE,  # what its next command is
    NEXT_COMMAND,  # link of the decode worker's commands
    NEXT_WANTED,  # link of the rank's wanted reservations
    NEXT_RELEASE,  # link of the prefill worker's releases
    NEXT_HELD,
    SOURCE,  # prefill rank
) = range(13)
H_WIDTH = 13

# Values of PHASE.
RESERVE, ACTIVATE, OVER = range(3)

# ---------------------------------------------------------------- ranks of decode workers: Pools.k, int64 (ranks, 5)
WANTED_HEAD, WANTED_TAIL, REFUSED_AT, GIVEN_BACK, RESERVATIONS = range(5)
K_WIDTH = 5

# ---------------------------------------------------------------- workers: Pools.w, int64 (workers, 5)
(
    FIRST_RANK,
    COMMAND_HEAD,  # of handoffs to a decode worker, of releases to a prefill worker
    COMMAND_TAIL,
    IN_OBEY,  # stands in Pools.obey
    PASS_ENDED,  # at this instant, and its backlog is not looked at yet
) = range(5)
W_WIDTH = 5

# ---------------------------------------------------------------- globals: Pools.g, int64 (G_WIDTH,)
(
    NEXT_SOURCE,
    NEXT_TARGET,
    N_TRANSFERS,
    SEQUENCE,  # of transfers, for ties
    HELD_HEAD,  # prompts finished at this instant
    HELD_TAIL,
    N_OBEY,
) = range(7)
G_WIDTH = 8


class Pools(NamedTuple):
    """Constants and state of the handoffs."""

    n: int
    prefill_workers: int
    prefill_ranks: int
    ranks: int
    missing_only: int
    timed: int  # size and rate of transfers are known
    fallback_ns: int
    bytes_per_token: float
    fixed_bytes: float
    bytes_per_second: float
    h: np.ndarray
    k: np.ndarray
    w: np.ndarray
    g: np.ndarray
    worker_of: np.ndarray  # int32 (ranks,)
    transfers: np.ndarray  # int64 (n + 1, 2), heap: end, sequence << 32 | request
    obey: np.ndarray  # int32 (workers,): idle workers with commands
