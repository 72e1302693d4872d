"""The requests of one replay as columns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True, eq=False)
class Workload:
    """Requests in source order; index in these columns = `request` in every result table.

    Prefix identity: `hash_ids[hash_offsets[r]:hash_offsets[r + 1]]` describe request r in blocks of `hash_block_tokens`
    tokens, from its first token. Equal leading ids mean equal leading tokens; nothing is assumed of an id at different
    positions. They cover the prompt (the last, partly filled block may or may not have an id) and, where
    `hashed_tokens` exceeds `prompt_tokens`, the first generated tokens as well.

    Attributes:
        arrival_ns: shape (n,), int64, non-decreasing for open loads. Ignored in a closed loop, and for later turns.
        prompt_tokens: shape (n,), int64, >= 1.
        output_tokens: shape (n,), int64, >= 0.
        hash_offsets: shape (n + 1,), int64; None when no prefix identity is known.
        hash_ids: shape (total ids,), int64; None with `hash_offsets`.
        hash_block_tokens: tokens per id.
        hashed_tokens: shape (n,), int64, leading tokens that ids describe; None: the prompts, as far as ids reach.
        session: shape (n,), int64, session number or -1; None when no row belongs to a session. Rows of a session are
            turns in source order; a later turn arrives `delay_ns` after the end of the one before.
        delay_ns: shape (n,), int64, think time before a later turn; None: zero.
        pinned_rank: shape (n,), int64, attention-DP rank inside the worker, or -1; None: nobody is pinned.
        concurrency: None for an open load; else the closed loop's slots. A session holds its slot, think time included.
    """

    arrival_ns: np.ndarray
    prompt_tokens: np.ndarray
    output_tokens: np.ndarray
    hash_offsets: np.ndarray | None = None
    hash_ids: np.ndarray | None = None
    hash_block_tokens: int = 512
    hashed_tokens: np.ndarray | None = None
    session: np.ndarray | None = None
    delay_ns: np.ndarray | None = None
    pinned_rank: np.ndarray | None = None
    concurrency: int | None = None

    def __len__(self) -> int:
        return len(self.arrival_ns)
