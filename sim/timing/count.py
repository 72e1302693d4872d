"""Lookups of an array timing, counted in compiled code as finished passes are drained.

A row is found by one number that holds phase, cell, source and correction bin, in a table with open addressing.
"""

from __future__ import annotations

import numpy as np

from sim.jit import entry, kernel
from sim.result import FIRST_LOOKUP, LOOKED_UP
from sim.timing.tables import CORRECTION_BINS, EXTRAPOLATED, split_codes
from sim.timing.tabulated import HEAD, answer

PREFILL, DECODE, MIXED_PREFILL, MIXED_DECODE = range(4)
N_LOOKUPS, TOTAL_NS, FIRST_PASS, MIN_X, MAX_X, MIN_Y, MAX_Y, OUTSIDE, SAMPLE = range(9)
WIDTH = SAMPLE + len(FIRST_LOOKUP)
EMPTY = -1


def key_parts(keys: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Phase, cell, source and correction bin (-1 none) of row keys."""
    codes, phase = np.divmod(keys, 4)
    cell, source, bin_ = split_codes(codes)
    return phase, cell, source, bin_


@kernel
def _place(key, mask):
    """Where the search for a key begins."""
    return (key ^ (key >> 17) ^ (key >> 31)) & mask


@kernel
def _add(keys, rows, phase, code, ns, x, y, outside, work, p):
    """Count one lookup. False where no room is left."""
    key = code * 4 + phase
    mask = len(keys) - 1
    at = _place(key, mask)
    tries = 0
    while keys[at] != key:
        if keys[at] == EMPTY:
            keys[at] = key
            row = rows[at]
            row[N_LOOKUPS] = 0
            row[TOTAL_NS] = 0
            row[FIRST_PASS] = work[7, p]
            row[MIN_X] = row[MAX_X] = x
            row[MIN_Y] = row[MAX_Y] = y
            row[OUTSIDE] = 0
            for k in range(5):
                row[SAMPLE + k] = work[k, p]
            break
        at = (at + 1) & mask
        tries += 1
        if tries > mask // 2:
            return False
    row = rows[at]
    row[N_LOOKUPS] += 1
    row[TOTAL_NS] += ns
    row[MIN_X] = min(row[MIN_X], x)
    row[MAX_X] = max(row[MAX_X], x)
    row[MIN_Y] = min(row[MIN_Y], y)
    row[MAX_Y] = max(row[MAX_Y], y)
    row[OUTSIDE] = max(row[OUTSIDE], outside)
    return True


def load() -> None:
    """Load the compiled counter, or compile it."""
    keys, rows = np.full(4, EMPTY, np.int64), np.zeros((4, WIDTH), np.int64)
    count(np.zeros(HEAD, np.int64), np.zeros(2), np.zeros((len(LOOKED_UP), 0), np.int64), 0, keys, rows)
    move(keys, rows, keys.copy(), rows.copy())


@entry
def move(keys, rows, new_keys, new_rows):
    """Put all rows into a larger table."""
    mask = len(new_keys) - 1
    for old in range(len(keys)):
        if keys[old] != EMPTY:
            at = _place(keys[old], mask)
            while new_keys[at] != EMPTY:
                at = (at + 1) & mask
            new_keys[at] = keys[old]
            for k in range(WIDTH):
                new_rows[at, k] = rows[old, k]


@kernel
def _is_outside(code):
    return code >= 0 and (code // CORRECTION_BINS) % 4 == EXTRAPOLATED


@entry
def count(whole, numbers, work, at, keys, rows):
    """Count the lookups of passes from number `2 * at` on: twice a pass, and once more where its decode is due.

    Args:
        work: int64 (len(LOOKED_UP), n).
        at: half-pass to begin with.
        keys: int64, a power of two long; EMPTY where free.
        rows: int64 (len(keys), WIDTH).

    Returns:
        The half-pass for which no room was left; 2 * n when all are counted.
    """
    n = work.shape[1]
    for p in range(at // 2, n):
        np_, tp, kvp, b, kv = work[0, p], work[1, p], work[2, p], work[3, p], work[4, p]
        mixed = np_ > 0 and b > 0
        i, j, far_a, far_d = work[8, p], work[9, p], 0, 0
        if _is_outside(i) or _is_outside(j):
            _, _, _, _, _, _, out_a, out_d, _ = answer(whole, numbers, np_, tp, kvp, b, kv)
            far_a, far_d = int(out_a * 1000.0), int(out_d * 1000.0)
        if np_ > 0 and at <= 2 * p:
            phase = MIXED_PREFILL if mixed else PREFILL
            if not _add(keys, rows, phase, i, work[5, p], tp, kvp, far_a, work, p):
                return 2 * p
        if b > 0:
            phase = MIXED_DECODE if mixed else DECODE
            if not _add(keys, rows, phase, j, work[6, p], kv, kv // b, far_d, work, p):
                return 2 * p + 1
    return 2 * n
