"""Another trace from a trace: slices, samples, other speeds and lengths, two traces as one.

Sessions stay whole at their start: a later turn is never kept without the turns before it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from heapq import heapify, heappop, heappush
from itertools import pairwise
from typing import Any

import numpy as np

from assets.ingest.fields import MAX_NS, MAX_TOKENS
from assets.ingest.trace import Counts, Quarantine, Trace, TraceError, Waits, reordered

S = 10**9  # ns
BY_FILE = ("agentic_mooncake", "dynamo")  # their requests tie in the order of the file, those of Weka in that of times


def shaped(trace: Trace, steps: Sequence[Any], read: Callable[[Any], Trace]) -> tuple[Trace, list[dict[str, Any]]]:
    """Apply the steps in order; return the trace and, for its lineage, what each step did.

    Args:
        steps: `sim.config.shape` sections.
        read: reads the other trace of a merge step.

    Raises:
        TraceError: a step leaves nothing, or does not fit the trace.
    """
    lineage = []
    for step in steps:
        before = len(trace)
        trace = STEPS[step.type](trace, step, read)
        if not len(trace):
            raise TraceError(f"{trace.path}: nothing is left after traffic.source.shape step {step.type!r}")
        lineage.append({**step.model_dump(exclude_none=True), "requests_before": before, "requests_after": len(trace)})
    return trace, lineage


def _slice_seconds(trace: Trace, step: Any, read: Callable[[Any], Trace]) -> Trace:
    """Units that arrive from `start` on and before `end`."""
    if not trace.has_timestamps:
        raise TraceError(f"{trace.path}: the trace has no arrival times to slice by; use slice_rows")
    first_ns = trace.arrival_ns[_firsts(trace)]
    end_ns = MAX_NS if step.end is None else round(step.end * S)
    return _kept(trace, (first_ns >= round(step.start * S)) & (first_ns < end_ns))


def _slice_rows(trace: Trace, step: Any, read: Callable[[Any], Trace]) -> Trace:
    """Requests `start` to `end` in order of arrival. Turns whose first one is not among them are left out."""
    place = np.arange(len(trace))
    end = len(trace) if step.end is None else step.end
    return _kept(trace, (_firsts(trace) >= step.start) & (place < end))


def _sample(trace: Trace, step: Any, read: Callable[[Any], Trace]) -> Trace:
    """A share of the units. Whether one is kept depends on its place in the file alone."""
    from assets.synthetic import uniforms

    unit = trace.request_id[_firsts(trace)]
    return _kept(trace, uniforms(step.seed, "sample", int(unit.max()) + 1)[unit] < step.share)


def _speed_up(trace: Trace, step: Any, read: Callable[[Any], Trace]) -> Trace:
    """Times and think times divided."""
    if trace.arrival_ns.max(initial=0) / step.factor >= MAX_NS:
        raise TraceError(f"{trace.path}: with speed_up={step.factor:g} it would not end within {MAX_NS} ns")
    delay_ns, not_before_ns = (
        None if times is None else _divided(times, step.factor) for times in (trace.delay_ns, trace.not_before_ns)
    )
    waits = trace.waits
    if waits is not None:
        waits = waits._replace(delay_ns=_divided(waits.delay_ns, step.factor))
    arrival_ns = _divided(trace.arrival_ns, step.factor)
    return replace(trace, arrival_ns=arrival_ns, delay_ns=delay_ns, not_before_ns=not_before_ns, waits=waits)


def _clip(trace: Trace, step: Any, read: Callable[[Any], Trace]) -> Trace:
    """Longer prompts lose their ends, longer outputs are not generated."""
    prompts = trace.prompt_tokens if step.prompt_tokens is None else np.minimum(trace.prompt_tokens, step.prompt_tokens)
    outputs = trace.output_tokens if step.output_tokens is None else np.minimum(trace.output_tokens, step.output_tokens)
    return _with_lengths(trace, prompts, outputs, trace.hash_block_tokens, step.type)


def _scale(trace: Trace, step: Any, read: Callable[[Any], Trace]) -> Trace:
    """Lengths multiplied, and what an id stands for with them, so that requests share as large a part as before."""
    block = trace.hash_block_tokens * step.prompt
    if trace.hash_ids is not None and (block < 1 or block != int(block)):
        raise TraceError(
            f"{trace.path}: scale prompt={step.prompt:g} would make blocks of {block:g} tokens; choose a factor that "
            f"makes {trace.hash_block_tokens} a whole number"
        )
    prompts = np.maximum(1, np.floor(trace.prompt_tokens * step.prompt + 0.5))
    outputs = np.floor(trace.output_tokens * step.output + 0.5)
    if max(prompts.max(), outputs.max()) > MAX_TOKENS:
        raise TraceError(f"{trace.path}: scale makes lengths beyond {MAX_TOKENS} tokens")
    outputs = np.maximum(outputs, trace.output_tokens > 0)
    new_block = int(block) if trace.hash_ids is not None else trace.hash_block_tokens
    return _with_lengths(trace, prompts.astype(np.int64), outputs.astype(np.int64), new_block, step.type)


def _merge(trace: Trace, step: Any, read: Callable[[Any], Trace]) -> Trace:
    """Both traces at once, the other one `offset_seconds` later. At equal times this one's rows come first."""
    other = read(step)
    if (trace.hash_ids is None) != (other.hash_ids is None):
        knows, not_ = (other, trace) if trace.hash_ids is None else (trace, other)
        raise TraceError(
            f"{not_.path}: says nothing about prefixes, {knows.path} does; merged, they could not be compared"
        )
    if trace.hash_ids is not None and trace.hash_block_tokens != other.hash_block_tokens:
        raise TraceError(
            f"{other.path}: ids of {other.hash_block_tokens} tokens cannot be merged with ids of "
            f"{trace.hash_block_tokens} in {trace.path}"
        )
    if (trace.waits is None) != (other.waits is None) and trace.session is not None and other.session is not None:
        graph, turns = (trace, other) if trace.waits is not None else (other, trace)
        raise TraceError(
            f"{graph.path}: its requests wait for several others, those of {turns.path} follow one another; the two "
            "cannot be merged"
        )
    return _joined(trace, other, round(step.offset_seconds * S), same_ids=step.same_ids)


STEPS = {
    "slice_seconds": _slice_seconds,
    "slice_rows": _slice_rows,
    "sample": _sample,
    "speed_up": _speed_up,
    "clip": _clip,
    "scale": _scale,
    "merge": _merge,
}


def as_queue(trace: Trace, *, file_order: bool) -> Trace:
    """Rows as an engine takes them: whoever is due at the same instant goes in this order.

    Args:
        file_order: sessions and plays one after the other as the file has them, whatever their times; else by their
            starts. Requests of a play that wait for one another are in the order of the file (or of their times, in a
            recording) either way, as far as each comes after those it waits for.
    """
    if trace.waits is None and not file_order:
        return trace
    firsts = _firsts(trace)
    place = firsts
    if file_order:
        play = np.full(len(trace), np.iinfo(np.int64).max)
        np.minimum.at(play, firsts, trace.request_id)
        place = play[firsts]
    order = np.argsort(place, kind="stable")
    if trace.waits is not None:
        order = _waits_first(trace, place)
    return trace if (order[1:] > order[:-1]).all() else _taken(trace, order)


def _waits_first(trace: Trace, place: np.ndarray) -> np.ndarray:
    """Rows by place, then in the order of their format, each after those it waits for."""
    assert trace.waits is not None
    offsets, on = trace.waits.offsets.tolist(), trace.waits.on.tolist()
    row_of = {request: i for i, request in enumerate(trace.request_id.tolist())}
    # The one that opens a play stays its first, wherever it stands in the file.
    rows = np.arange(len(trace))
    number = np.where(_firsts(trace) == rows, -1, trace.request_id if trace.format in BY_FILE else rows)
    keys = list(zip(place.tolist(), number.tolist(), range(len(trace)), strict=True))
    open_ = [len(set(on[a:b])) for a, b in pairwise(offsets)]
    followers: dict[int, list[int]] = {}
    for i, (a, b) in enumerate(pairwise(offsets)):
        for request in set(on[a:b]):
            followers.setdefault(row_of[request], []).append(i)
    ready = [keys[i] for i, count in enumerate(open_) if count == 0]
    heapify(ready)
    order = []
    while ready:
        i = heappop(ready)[2]
        order.append(i)
        for follower in followers.get(i, ()):
            open_[follower] -= 1
            if open_[follower] == 0:
                heappush(ready, keys[follower])
    return np.array(order)


def _firsts(trace: Trace) -> np.ndarray:
    """Row of the first turn of each row's session (or of the row itself)."""
    rows = np.arange(len(trace))
    if trace.session is None or trace.turn is None:
        return rows
    first = np.full(len(trace.session_names), -1)
    starts = trace.turn == 0
    first[trace.session[starts]] = rows[starts]
    return np.where(trace.session >= 0, first[trace.session], rows)


def _kept(trace: Trace, keep: np.ndarray) -> Trace:
    """The rows to keep, times from the earliest of them on."""
    rows = np.flatnonzero(keep)
    found = _taken(trace, rows)
    if not len(rows):
        return found
    return replace(found, arrival_ns=found.arrival_ns - int(found.arrival_ns.min()))


def first_rows(trace: Trace, n: int) -> Trace:
    """The first n rows in order of arrival."""
    return trace if n >= len(trace) else _taken(trace, np.arange(n))


def _taken(trace: Trace, rows: np.ndarray) -> Trace:
    """These rows in this order."""

    def take(column: np.ndarray | None) -> np.ndarray | None:
        return None if column is None else column[rows]

    session, names = take(trace.session), trace.session_names
    if session is not None:
        used, numbers = np.unique(session[session >= 0], return_inverse=True)
        session = session.copy()
        session[session >= 0] = numbers
        names = [names[i] for i in used.tolist()]
    offsets, ids = trace.hash_offsets, trace.hash_ids
    if offsets is not None and ids is not None:
        offsets, ids = reordered(offsets, ids, rows)
    return replace(
        trace,
        request_id=trace.request_id[rows],
        source_line=trace.source_line[rows],
        external_id=None if trace.external_id is None else [trace.external_id[i] for i in rows.tolist()],
        session=session,
        session_names=names,
        turn=take(trace.turn),
        arrival_ns=trace.arrival_ns[rows],
        delay_ns=take(trace.delay_ns),
        not_before_ns=take(trace.not_before_ns),
        waits=None if trace.waits is None else trace.waits.taken(rows),
        prompt_tokens=trace.prompt_tokens[rows],
        output_tokens=trace.output_tokens[rows],
        pinned_rank=take(trace.pinned_rank),
        hash_offsets=offsets,
        hash_ids=ids,
        hashed_tokens=take(trace.hashed_tokens),
    )


def _with_lengths(trace: Trace, prompts: np.ndarray, outputs: np.ndarray, block: int, step: str) -> Trace:
    """Other lengths; ids that no longer describe anything are dropped."""
    changed = replace(trace, prompt_tokens=prompts, output_tokens=outputs, hash_block_tokens=block)
    if trace.hash_offsets is None or trace.hash_ids is None:
        return changed
    if trace.hashed_tokens is not None:
        raise TraceError(
            f"{trace.path}: its prompts are made of earlier turns and their output; {step} cannot change them"
        )
    counts = np.minimum(np.diff(trace.hash_offsets), -(-prompts // block))
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
    at = np.repeat(trace.hash_offsets[:-1] - offsets[:-1], counts) + np.arange(offsets[-1])
    return replace(changed, hash_offsets=offsets, hash_ids=trace.hash_ids[at])


def _joined(one: Trace, other: Trace, offset_ns: int, *, same_ids: bool) -> Trace:
    def both(name: str, none: int) -> np.ndarray | None:
        a, b = getattr(one, name), getattr(other, name)
        if a is None and b is None:
            return None
        sides = zip((a, b), (one, other))
        return np.concatenate([np.full(len(t), none, np.int64) if x is None else x for x, t in sides])

    names = [*one.session_names, *(_other_name(each, set(one.session_names)) for each in other.session_names)]
    session = both("session", -1)
    if session is not None:
        session[len(one) :] = np.where(session[len(one) :] >= 0, session[len(one) :] + len(one.session_names), -1)
    offsets = ids = hashed = None
    if one.hash_ids is not None and other.hash_ids is not None:
        assert one.hash_offsets is not None
        assert other.hash_offsets is not None
        offsets = np.concatenate([one.hash_offsets, other.hash_offsets[1:] + one.hash_offsets[-1]])
        mine, theirs = one.hash_ids, other.hash_ids
        if not same_ids:
            # Equal numbers of two recordings are not the same text.
            mine, theirs = (np.unique(each, return_inverse=True)[1].astype(np.int64) for each in (mine, theirs))
            theirs = theirs + int(mine.max(initial=-1)) + 1
        ids = np.concatenate([mine, theirs])
        if one.hashed_tokens is not None or other.hashed_tokens is not None:
            hashed = np.concatenate(
                [t.prompt_tokens if t.hashed_tokens is None else t.hashed_tokens for t in (one, other)]
            )
    externals = None
    if one.external_id is not None or other.external_id is not None:
        externals = [each for t in (one, other) for each in (t.external_id or [None] * len(t))]
    arrival_ns = np.concatenate([one.arrival_ns, other.arrival_ns + offset_ns])
    whole = replace(
        one,
        request_id=np.concatenate([one.request_id, other.request_id + one.counts.rows_read]),
        source_line=np.concatenate([one.source_line, other.source_line + one.counts.lines]),
        external_id=externals,
        session=session,
        session_names=names,
        turn=both("turn", -1),
        arrival_ns=arrival_ns - int(arrival_ns.min()),
        delay_ns=both("delay_ns", 0),
        not_before_ns=both("not_before_ns", 0),
        waits=_both_waits(one, other),
        prompt_tokens=np.concatenate([one.prompt_tokens, other.prompt_tokens]),
        output_tokens=np.concatenate([one.output_tokens, other.output_tokens]),
        pinned_rank=both("pinned_rank", -1),
        hash_offsets=offsets,
        hash_ids=ids,
        hashed_tokens=hashed,
        has_timestamps=one.has_timestamps and other.has_timestamps,
        quarantine=_both_quarantines(one, other),
        counts=Counts(*(getattr(one.counts, f) + getattr(other.counts, f) for f in Counts.__dataclass_fields__)),
        digest=hashlib.blake2b(f"{one.digest}+{other.digest}".encode(), digest_size=16).hexdigest(),
    )
    return _taken(whole, np.argsort(whole.arrival_ns, kind="stable"))


def _both_waits(one: Trace, other: Trace) -> Waits | None:
    """The other's rows have other numbers now. A trace without sessions has nobody that waits."""
    if one.waits is None and other.waits is None:
        return None
    nobody = np.zeros(0, np.int64)
    mine, theirs = (t.waits or Waits(np.zeros(len(t) + 1, np.int64), nobody, nobody, nobody) for t in (one, other))
    return Waits(
        np.concatenate([mine.offsets, theirs.offsets[1:] + mine.offsets[-1]]),
        np.concatenate([mine.on, theirs.on + one.counts.rows_read]),
        np.concatenate([mine.delay_ns, theirs.delay_ns]),
        np.concatenate([mine.on_dispatch, theirs.on_dispatch]),
    )


def _other_name(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "'"
    return name


def _both_quarantines(one: Trace, other: Trace) -> Quarantine:
    found = Quarantine()
    for trace, lines in ((one, 0), (other, one.counts.lines)):
        each = trace.quarantine
        for row in zip(each.source_line, each.reason, each.field, each.value, each.raw):
            found.add(row[0] + lines, *row[1:])
    return found


def _divided(ns: np.ndarray, factor: float) -> np.ndarray:
    return np.rint(ns / factor).astype(np.int64)
