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
            turns in source order; a later turn arrives `delay_ns` after the end of the one before. With
            `wait_offsets` they are the requests of one play instead.
        delay_ns: shape (n,), int64, think time before a later turn; None: zero. Not read with `wait_offsets`.
        not_before_ns: shape (n,), int64, earliest arrival of a request that does not open its session or play, counted
            from the arrival of the one that does; None: zero.
        wait_offsets: shape (n + 1,), int64; None where sessions say all. Request r of a play arrives when everything in
            wait_on[wait_offsets[r]:wait_offsets[r + 1]] has happened, each followed by its delay. The first request of
            a play waits for nobody; others that do not, arrive with it (or at their `not_before_ns`).
        wait_on: shape (waits,), int64, an earlier request of the same play; None with `wait_offsets`.
        wait_delay_ns: shape (waits,), int64, from the event to the earliest arrival.
        wait_on_dispatch: shape (waits,), 1: the event is that request's arrival, 0: its end.
        pinned_rank: shape (n,), int64, attention-DP rank inside the worker, or -1; None: nobody is pinned. With
            separate pools the rank of the decode pool, counted through its workers.
        pinned_prefill_rank: shape (n,), int64, rank of the prefill pool, counted through its workers, or -1; None:
            nobody is pinned there. With separate pools only.
        concurrency: None for an open load; else the closed loop's slots. A session or play holds its slot until its
            last request has ended, think time included.
        send_limit: requests after whose arrival no more are sent, in whatever sessions they are; None: all are.
        warmup: this many leading requests run like the others, and do not count: they leave no inter-token gaps, and
            metrics leave them out.
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
    pinned_prefill_rank: np.ndarray | None = None
    concurrency: int | None = None
    not_before_ns: np.ndarray | None = None
    wait_offsets: np.ndarray | None = None
    wait_on: np.ndarray | None = None
    wait_delay_ns: np.ndarray | None = None
    wait_on_dispatch: np.ndarray | None = None
    send_limit: int | None = None
    warmup: int = 0

    def __len__(self) -> int:
        return len(self.arrival_ns)
