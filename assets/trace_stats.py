"""What is in a trace, before any replay: counts, load over time, lengths, ties, and the best prefix reuse."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from assets.ingest import Trace
from assets.trace_table import described

BUCKETS = 24  # of the time axis
QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}


def trace_stats(trace: Trace) -> dict[str, Any]:
    """Everything `tracemill trace show` says, ready for JSON. Unknown things are None."""
    counts = trace.counts
    sessions = None
    if trace.session is not None:
        named = trace.session[trace.session >= 0]
        turns = np.bincount(named, minlength=len(trace.session_names))
        sessions = {
            "sessions": int((turns > 0).sum()),
            "turns": len(named),
            "most_turns": int(turns.max(initial=0)),
        }
    return {
        "path": trace.path,
        "format": trace.format,
        "why_this_format": trace.why,
        "digest": trace.digest,
        "counts": {name: getattr(counts, name) for name in counts.__dataclass_fields__},
        "quarantine": _quarantine(trace),
        "sessions": sessions,
        "waits": _waits(trace),
        "prompt_tokens": lengths(trace.prompt_tokens),
        "output_tokens": lengths(trace.output_tokens),
        "arrivals": arrivals(trace) if trace.has_timestamps else None,
        "prefix": best_reuse(trace),
        "notes": trace.notes,
        "warnings": list(trace.warnings),
    }


def conditions(trace: Trace) -> list[str]:
    """What a configuration has to say for this trace to be replayed."""
    found = []
    if not trace.has_timestamps:
        found.append(
            "not every row has an arrival time: use a traffic.load of another type than trace_timestamps, which sets "
            "the rows without one aside"
        )
    empty = int((trace.output_tokens == 0).sum())
    if empty:
        found.append(
            f"{empty:,} row(s) ask for no output, which vLLM refuses: with profile vllm, replay will refuse this whole "
            "trace until traffic.zero_output is prefill_only or quarantine"
        )
    if trace.pinned_rank is not None:
        ranks = int(trace.pinned_rank.max()) + 1
        found.append(
            f"rows are pinned to attention-DP ranks up to {ranks - 1}: attention_data has to be {ranks} or more"
        )
    return found


def _waits(trace: Trace) -> dict[str, int] | None:
    """Requests that wait for others of their play; None where sessions are turns or there are none."""
    if trace.waits is None:
        return None
    counts = np.diff(trace.waits.offsets)
    return {
        "requests_that_wait": int((counts > 0).sum()),
        "waits": len(trace.waits.on),
        "on_dispatch": int(trace.waits.on_dispatch.sum()),
        "requests_that_wait_for_several": int((counts > 1).sum()),
    }


def _quarantine(trace: Trace) -> list[dict[str, Any]]:
    found = trace.quarantine
    first = {reason: i for i, reason in reversed(list(enumerate(found.reason)))}
    return [
        {
            "reason": reason,
            "rows": n,
            "first_line": found.source_line[first[reason]],
            "example": found.raw[first[reason]],
        }
        for reason, n in found.reasons().items()
    ]


def lengths(tokens: np.ndarray) -> dict[str, Any]:
    """Summary and a histogram in powers of two: `below` is the upper edge of each bin, not in it."""
    ordered = np.sort(tokens)
    n = len(ordered)
    places = {name: int(ordered[int((n - 1) * q + 0.5)]) for name, q in QUANTILES.items()}
    top = int(ordered[-1]).bit_length()
    edges = [0, *(2**i for i in range(top + 1))]
    bins = np.searchsorted(ordered, edges)
    histogram = [{"below": edges[i + 1], "requests": int(bins[i + 1] - bins[i])} for i in range(len(edges) - 1)]
    while len(histogram) > 1 and histogram[0]["requests"] == 0:
        histogram.pop(0)
    return {
        "total": int(tokens.sum()),
        "mean": float(tokens.mean()),
        "min": int(ordered[0]),
        **places,
        "max": int(ordered[-1]),
        "histogram": histogram,
    }


def arrivals(trace: Trace) -> dict[str, Any]:
    """Load over time and ties. Later turns have no times of their own and are left out."""
    times = trace.arrival_ns if trace.turn is None else trace.arrival_ns[trace.turn <= 0]
    span_ns = int(times[-1]) - int(times[0])
    bucket_ns = max(1, -(-(span_ns + 1) // BUCKETS))
    per_bucket = np.bincount((times - times[0]) // bucket_ns, minlength=BUCKETS)[:BUCKETS]
    _, same = np.unique(times, return_counts=True)
    return {
        "requests": len(times),
        "span_s": span_ns / 1e9,
        "mean_per_s": (len(times) - 1) / (span_ns / 1e9) if span_ns else None,
        "bucket_s": bucket_ns / 1e9,
        "per_bucket": per_bucket.tolist(),
        "distinct_times": len(same),
        "requests_in_ties": int(same[same > 1].sum()),
        "largest_tie": int(same.max()),
    }


def best_reuse(trace: Trace) -> dict[str, Any] | None:
    """Blocks that an infinite cache would find, request after request; None where nothing is known of prefixes.

    A block counts if an earlier request has the same ids up to and including it.
    """
    found = reusable(trace)
    if found is None:
        return None
    total = int(trace.prompt_tokens.sum())
    return {
        "block_tokens": trace.hash_block_tokens,
        "blocks": found.blocks,
        "reusable_blocks": found.reusable_blocks,
        "reusable_tokens": int(found.tokens.sum()),
        "share_of_blocks": found.reusable_blocks / found.blocks if found.blocks else 0.0,
        "share_of_prompt_tokens": int(found.tokens.sum()) / total,
        "fully_cached_requests": int((found.tokens == trace.prompt_tokens).sum()),
    }


class Reusable(NamedTuple):
    """What an infinite cache would find; `tokens` per request. Shape (n,)."""

    blocks: int
    reusable_blocks: int
    tokens: np.ndarray


def reusable(trace: Trace) -> Reusable | None:
    """What of each prompt earlier requests have had, in whole blocks; None where nothing is known of prefixes."""
    if trace.hash_offsets is None or trace.hash_ids is None:
        return None
    block, offsets = trace.hash_block_tokens, trace.hash_offsets
    reach = described(trace)
    assert reach is not None
    # Where ids go on into generated tokens, only those of the prompt can be found.
    prompts = np.minimum(reach, trace.prompt_tokens)
    ends = -(-reach // block)
    _, dense = np.unique(trace.hash_ids, return_inverse=True)
    node = np.full(len(trace), -1, np.int64)
    active = np.flatnonzero(ends > 0)
    tokens = np.zeros(len(trace), np.int64)
    blocks = reused = n_nodes = depth = 0
    while len(active):
        key = ((node[active] + 1) << 32) | dense[offsets[active] + depth]
        _, first, number = np.unique(key, return_index=True, return_inverse=True)
        node[active] = n_nodes + number
        n_nodes += len(first)
        size = np.clip(prompts[active] - depth * block, 0, block)
        seen = np.ones(len(active), bool)
        seen[first] = False
        blocks += int((size > 0).sum())
        reused += int((seen & (size > 0)).sum())
        tokens[active] += np.where(seen, size, 0)
        depth += 1
        active = active[ends[active] > depth]
    return Reusable(blocks, reused, tokens)
