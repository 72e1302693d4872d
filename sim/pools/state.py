"""What separate pools add to the engine's state.

Ranks are numbered through, the prefill pool's first. Every request has two rows in `State.q`: row i is the request, on
a decode worker once it is held; row n + i its *bootstrap*, which a prefill worker computes.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

# ---------------------------------------------------------------- handoffs: Pools.h, int64, -1 not yet
# (n, H_WIDTH); where `Pools.wired` (n + links, H_WIDE), links behind the handoffs.
(
    HELD,
    RESERVED,
    TRANSFERRED_AT,
    ACTIVATED,
    RELEASED,
    SENT,  # tokens
    NUMBER,  # order of its reservation on the rank; LAST_OF_ALL: prefilled there
    PHASE,  # what its next command is
    NEXT_COMMAND,  # link of the decode worker's commands
    NEXT_WANTED,  # link of the rank's wanted reservations
    NEXT_RELEASE,  # link of the prefill worker's releases
    NEXT_HELD,
    SOURCE,  # prefill rank
) = range(13)
H_WIDTH = 13
(
    WORK,  # duration of its transfer, when the link is its own, ns
    ATTEMPTS,
    QUEUED,  # of the last attempt: when it joins the link
    BEGAN,  # when it had it
    DUE,  # on a FIFO link, its end; else work of a member that was there all the time, when this one is over
    OFF,  # it failed, or came too late
    NEXT_MEMBER,  # of the same link
    NEXT_DEADLINE,
    WITHDRAWN,
    KEY,  # of its draws, the bits of an unsigned number
    FIRST_LAYER,  # when that is computed, where its destination is asked before the prompt is
    FLOOR,  # its transfer cannot end before this; until it is reserved, when its prompt will be computed
) = range(13, 25)
H_WIDE = 25

# Columns of a link's row.
(
    MEMBERS_HEAD,  # FIFO: in order of joining; else in order of their ends
    MEMBERS_TAIL,
    MEMBERS_N,
    LINK_END,  # next end on it, FAR none
    SERVED,  # fair shares: work that a member has had that was there all the time, ns
    REST,  # and the n-th parts of a ns beyond, with n members
    SEEN,  # when these were true
) = range(7)

# Values of PHASE: what a command asks for; none for the others.
RESERVE, ACTIVATE, WITHDRAW, DROPPED, WANTED, OVER = range(6)

# Values of LINKS.
NO_LINKS, PER_SOURCE, PER_DESTINATION, SHARED_LINK = range(4)
LINK_NAMES = ("none", "per_source", "per_destination", "shared")
LAST_OF_ALL = 1 << 62  # a prompt to be computed lets everybody who was handed over go first

# ---------------------------------------------------------------- ranks of decode workers: Pools.k, int64 (ranks, 5)
WANTED_HEAD, WANTED_TAIL, REFUSED_AT, GIVEN_BACK, RESERVATIONS = range(5)
K_WIDTH = 5

# ---------------------------------------------------------------- workers: Pools.w, int64 (workers, 4)
(
    FIRST_RANK,
    COMMAND_HEAD,  # of handoffs to a decode worker, of releases to a prefill worker
    COMMAND_TAIL,
    PASS_ENDED,  # at this instant, and its backlog is not looked at yet
) = range(4)
W_WIDTH = 4

# ---------------------------------------------------------------- globals: Pools.g, int64 (G_WIDTH,)
(
    NEXT_SOURCE,
    NEXT_TARGET,
    N_TRANSFERS,
    SEQUENCE,  # of transfers, for ties
    HELD_HEAD,  # prompts finished at this instant
    HELD_TAIL,
    N_OBEY,  # entries of Pools.obey
    FIRST_BYTE,  # constants from here on
    LINKS,
    N_LINKS,
    FAIR,
    FAILURES,  # an attempt fails when its draw is below this
    RETRIES,
    TIMEOUT,  # -1 none
    LAYERS,  # 0: destinations are asked when the prompt is computed
    LINKS_END,  # next end on any link, FAR none
    DEADLINE_HEAD,  # handoffs in order of their deadlines
    DEADLINE_TAIL,
) = range(18)
G_WIDTH = 24


class Pools(NamedTuple):
    """Constants and state of the handoffs."""

    n: int
    prefill_workers: int
    prefill_ranks: int
    ranks: int
    local_tokens: int  # most that a decode rank may lack of a prompt it prefills itself; -1 it prefills none
    missing_only: int
    timed: int  # size and rate of transfers are known
    wired: int  # transfers share links, fail, come too late, or begin before their prompt is computed
    fallback_ns: int
    bytes_per_token: float
    fixed_bytes: float
    bytes_per_second: float
    ahead: int  # tokens beyond a held prompt that its source has room for: policy mode reserves that of the bootstrap
    h: np.ndarray
    k: np.ndarray
    w: np.ndarray
    g: np.ndarray
    worker_of: np.ndarray  # int32 (ranks,)
    transfers: np.ndarray  # int64 (n + 1, 2), heap: end, sequence << 32 | request; on links what happens without one
    obey: np.ndarray  # int32: idle workers, once per command, in the order they were given
