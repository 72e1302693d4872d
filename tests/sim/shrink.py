"""A failing world made small: drop requests, drop columns, put options back to their defaults, lower numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, replace

import numpy as np

from sim.inputs import Workload
from sim.spec import EngineSpec, FlatTiming
from tests.sim.worlds import World


def shrink(world: World, fails: Callable[[World], object], *, tries: int = 3_000) -> World:
    """The smallest world found that still fails. `fails` gives something true for it."""
    smaller = True
    while smaller and tries > 0:
        smaller = False
        for candidate in _smaller(world):
            tries -= 1
            if tries <= 0:
                break
            try:
                failing = bool(fails(candidate))
            except ValueError:
                continue  # not a world: a row refers to what was dropped
            if failing:
                world, smaller = candidate, True
                break
    return world


def _smaller(world: World) -> Iterator[World]:
    spec, load = world.spec, world.load
    for i in reversed(range(len(load))):
        if len(load) > 1:
            yield World(spec, drop(load, i))
    pins = ("pinned_rank", "pinned_prefill_rank")
    for name in ("session", "delay_ns", *pins, "hashed_tokens", "concurrency", "not_before_ns", "send_limit"):
        if getattr(load, name) is not None:
            yield World(spec, replace(load, **{name: None}))
    if load.warmup:
        yield World(spec, replace(load, warmup=0))
    if load.wait_offsets is not None:
        yield World(spec, replace(load, wait_offsets=None))
    if load.hash_offsets is not None:
        yield World(spec, replace(load, hash_offsets=None, hash_ids=None))
    plain = EngineSpec(profile=spec.profile, timing=FlatTiming(1.0), async_scheduling=False)
    for field in fields(EngineSpec):
        if field.name in ("blocks", "block_tokens", "max_num_seqs", "max_batched_tokens", "profile"):
            continue
        value = getattr(plain, field.name)
        if getattr(spec, field.name) != value and not (field.name == "timing" and spec.timing.kind == "flat"):
            yield World(replace(spec, **{field.name: value}), load)
    for name in ("workers", "dp", "max_num_seqs", "max_batched_tokens", "blocks", "block_tokens"):
        for value in {1, getattr(spec, name) // 2, getattr(spec, name) - 1}:
            if 0 < value < getattr(spec, name):
                yield World(replace(spec, **{name: value}), load)
    for name in ("output_tokens", "prompt_tokens", "arrival_ns"):
        values = getattr(load, name)
        least = 1 if name == "prompt_tokens" else 0
        for i in range(len(load)):
            for value in {least, int(values[i]) // 2, int(values[i]) - 1}:
                if least <= value < values[i]:
                    changed = values.copy()
                    changed[i] = value
                    if name != "arrival_ns" or (np.diff(changed) >= 0).all():
                        yield World(spec, replace(load, **{name: changed}))


def drop(load: Workload, i: int) -> Workload:
    """The workload without request i."""
    keep = np.arange(len(load)) != i
    columns = {}
    names = ("arrival_ns", "prompt_tokens", "output_tokens", "hashed_tokens", "session", "delay_ns", "pinned_rank")
    for name in (*names, "pinned_prefill_rank", "not_before_ns"):
        values = getattr(load, name)
        columns[name] = None if values is None else values[keep]
    if load.hash_offsets is not None and load.hash_ids is not None:
        counts = np.diff(load.hash_offsets)
        columns["hash_ids"] = load.hash_ids[np.repeat(keep, counts)]
        columns["hash_offsets"] = np.concatenate([[0], np.cumsum(counts[keep])])
    if load.wait_offsets is not None:
        columns |= _waits_without(load, i)
    return replace(load, **columns)


def _waits_without(load: Workload, i: int) -> dict[str, np.ndarray]:
    """The waits when request i is gone, and with it those for it."""
    assert load.wait_offsets is not None and load.wait_on is not None
    who = np.repeat(np.arange(len(load)), np.diff(load.wait_offsets))
    keep = (who != i) & (load.wait_on != i)
    counts = np.delete(np.bincount(who[keep], minlength=len(load)), i)
    return {
        "wait_offsets": np.concatenate([[0], np.cumsum(counts)]),
        "wait_on": load.wait_on[keep] - (load.wait_on[keep] > i),
        "wait_delay_ns": np.asarray(load.wait_delay_ns)[keep],
        "wait_on_dispatch": np.asarray(load.wait_on_dispatch)[keep],
    }
