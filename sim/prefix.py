"""Which leading blocks do requests share? Trace ids become dense identities of engine blocks, before the run.

Two prompts share an engine block exactly when all tokens up to its end are equal. Trace ids name blocks of another
size, so ids are first laid out as a prefix tree; an engine block that ends inside a tree node is shared by the requests
that pass through that node. Only nodes that two requests or more pass through matter: all other blocks can be hit by
nobody else.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sim.inputs import Workload
from sim.jit import allocating_entry


class Shared(NamedTuple):
    """Shared leading blocks.

    Attributes:
        at: int64 (n + 1,), where a request's identities start in `chain`.
        chain: int32, identities 0 .. n_identities - 1; equal = same block.
        blocks: int32 (n,), how many leading full blocks of each request are shared.
        n_identities: distinct shared blocks.
    """

    at: np.ndarray
    chain: np.ndarray
    blocks: np.ndarray
    n_identities: int


def share(load: Workload, block_tokens: int, *, caching: bool = True) -> Shared:
    """Lay out the prefixes of `load` in engine blocks of `block_tokens` tokens. Without `caching` nothing is shared."""
    n = len(load)
    if load.hash_offsets is None or load.hash_ids is None or not caching:
        return Shared(np.zeros(n + 1, np.int64), np.zeros(0, np.int32), np.zeros(n, np.int32), 0)
    offsets = np.array(load.hash_offsets, np.int64)
    ids = np.array(load.hash_ids, np.int64)
    prompt = np.array(load.prompt_tokens, np.int64)
    described = prompt if load.hashed_tokens is None else np.array(load.hashed_tokens, np.int64)
    described = np.minimum(described, np.diff(offsets) * load.hash_block_tokens)
    # A block that a request never computes to its end cannot be its own.
    full = np.minimum(described, prompt + np.array(load.output_tokens, np.int64)) // block_tokens
    size = 16
    while size < 2 * len(ids):
        size *= 2
    nodes, counts = _plant(offsets, ids, described, load.hash_block_tokens, np.full(size, -1, np.int32))
    at, blocks, base, total = _measure(offsets, nodes, counts, full, load.hash_block_tokens, block_tokens)
    chain = np.empty(int(at[-1]), np.int32)
    _write(offsets, nodes, base, blocks, at, load.hash_block_tokens, block_tokens, chain)
    return Shared(at, chain, blocks, int(total))


@allocating_entry
def _plant(offsets, ids, described, trace_block, table):
    """Tree node of every id, and how many requests pass through each node."""
    nodes = np.full(len(ids), -1, np.int32)
    parents = np.empty(len(ids), np.int32)
    names = np.empty(len(ids), np.int64)
    counts = np.zeros(len(ids), np.int32)
    mask, planted = len(table) - 1, 0
    for r in range(len(offsets) - 1):
        parent = -1
        end = offsets[r] + (described[r] + trace_block - 1) // trace_block
        for j in range(offsets[r], end):
            h = np.uint64(ids[j]) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(parent + 1) * np.uint64(
                0xC2B2AE3D27D4EB4F
            )
            h ^= h >> np.uint64(29)
            h *= np.uint64(0xBF58476D1CE4E5B9)
            place = np.int64((h >> np.uint64(32)) & np.uint64(mask))
            while table[place] >= 0 and (parents[table[place]] != parent or names[table[place]] != ids[j]):
                place = (place + 1) & mask
            node = table[place]
            if node < 0:
                node = planted
                table[place] = node
                parents[node] = parent
                names[node] = ids[j]
                planted += 1
            counts[node] += 1
            nodes[j] = node
            parent = node
    return nodes, counts[:planted]


@allocating_entry
def _measure(offsets, nodes, counts, full, trace_block, block):
    """Shared leading blocks per request, and the first identity of every shared node."""
    n = len(offsets) - 1
    at, blocks = np.zeros(n + 1, np.int64), np.zeros(n, np.int32)
    base = np.full(len(counts), -1, np.int64)
    total = 0
    for r in range(n):
        depth, shared = 0, 0
        length = offsets[r + 1] - offsets[r]
        while depth < length and shared < full[r]:
            node = nodes[offsets[r] + depth]
            if node < 0 or counts[node] < 2:
                break
            end = (depth + 1) * trace_block // block
            if base[node] < 0:
                base[node] = total
                total += end - depth * trace_block // block
            shared = end
            depth += 1
        blocks[r] = min(shared, full[r])
        at[r + 1] = at[r] + blocks[r]
    return at, blocks, base, total


@allocating_entry
def _write(offsets, nodes, base, blocks, at, trace_block, block, chain):
    for r in range(len(offsets) - 1):
        i, depth = 0, 0
        while i < blocks[r]:
            start, end = depth * trace_block // block, (depth + 1) * trace_block // block
            first = base[nodes[offsets[r] + depth]]
            while i < min(end, blocks[r]):
                chain[at[r] + i] = first + i - start
                i += 1
            depth += 1
