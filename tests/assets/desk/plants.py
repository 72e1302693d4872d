"""Planted changes: what is done to a run, and what a diff must say about it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from sim import reference
from sim.inputs import Workload
from sim.spec import EngineSpec, TableTiming
from tests.assets.desk.worlds import traffic

Patch = pytest.MonkeyPatch
Question = tuple[EngineSpec, Workload, dict[str, Any]]  # deployment, requests, facts for `record`


@dataclass(frozen=True)
class Plant:
    """One kind of change.

    Attributes:
        change: (deployment, requests, seed, patch) -> the head's question; may mutate the engine through `patch`.
        inputs: names of the inputs a diff must report.
        mechanisms: what may happen first as its consequence.
    """

    change: Callable[[EngineSpec, Workload, int, Patch], Question]
    inputs: tuple[str, ...]
    mechanisms: frozenset[str]


def _async(spec: EngineSpec, load: Workload, seed: int, patch: Patch) -> Question:
    return dataclasses.replace(spec, async_scheduling=not spec.async_scheduling), load, {}


def _one_block_less(spec: EngineSpec, load: Workload, seed: int, patch: Patch) -> Question:
    return dataclasses.replace(spec, blocks=spec.blocks - 1), load, {}


def _one_cell(spec: EngineSpec, load: Workload, seed: int, patch: Patch) -> Question:
    assert isinstance(spec.timing, TableTiming)
    dearer = spec.timing.decode_ms.copy()
    dearer[1, 1] *= 1.1
    return dataclasses.replace(spec, timing=dataclasses.replace(spec.timing, decode_ms=dearer)), load, {}


def _seed(spec: EngineSpec, load: Workload, seed: int, patch: Patch) -> Question:
    return spec, traffic(seed + 1000), {}


def _output_length(spec: EngineSpec, load: Workload, seed: int, patch: Patch) -> Question:
    outputs = load.output_tokens.copy()
    outputs[seed % len(load)] += 1 + seed % 2
    return spec, dataclasses.replace(load, output_tokens=outputs), {}


def _prompt_length(spec: EngineSpec, load: Workload, seed: int, patch: Patch) -> Question:
    prompts = load.prompt_tokens.copy()
    prompts[seed % len(load)] -= 1
    return spec, dataclasses.replace(load, prompt_tokens=prompts), {}


def _lost_request(spec: EngineSpec, load: Workload, seed: int, patch: Patch) -> Question:
    keep = np.arange(len(load)) != seed % len(load)
    assert load.hash_offsets is not None and load.hash_ids is not None
    lengths = np.diff(load.hash_offsets)
    return (
        spec,
        dataclasses.replace(
            load,
            arrival_ns=load.arrival_ns[keep],
            prompt_tokens=load.prompt_tokens[keep],
            output_tokens=load.output_tokens[keep],
            hash_ids=load.hash_ids[np.repeat(keep, lengths)],
            hash_offsets=np.concatenate([[0], np.cumsum(lengths[keep])]),
        ),
        # Either its row is gone, and all later ones move up, or it is in quarantine.
        {"ids": np.flatnonzero(keep)} if seed % 2 else {},
    )


def _mutated(change: Callable[[Patch], None]) -> Callable[[EngineSpec, Workload, int, Patch], Question]:
    def mutate(spec: EngineSpec, load: Workload, seed: int, patch: Patch) -> Question:
        change(patch)
        return spec, load, {"engine_digest": "other sources"}

    return mutate


def _evict_newest(patch: Patch) -> None:
    class Newest(reference.OrderedDict):  # type: ignore[name-defined, misc]
        def popitem(self, last: bool = True) -> Any:
            return super().popitem(last=not last)

    pool = reference.Pool.__init__

    def init(self: Any, size: int) -> None:
        pool(self, size)
        self.cached = Newest()

    patch.setattr(reference.Pool, "__init__", init)


def _shorter_hits(patch: Patch) -> None:
    whole = reference.Rank.lookup
    patch.setattr(reference.Rank, "lookup", lambda self, request: whole(self, request)[:-1])


def _one_slot_less(patch: Patch) -> None:
    choose = reference.Rank.choose

    def fewer(self: Any, now: int, wave: int) -> Any:
        self.spec = dataclasses.replace(self.spec, max_num_seqs=2)
        return choose(self, now, wave)

    patch.setattr(reference.Rank, "choose", fewer)


def _dearer(patch: Patch) -> None:
    price = reference.PlainPricer.price

    def more(self: Any, work: Any) -> Any:
        found = price(self, work)
        return found._replace(decode_ns=found.decode_ns + (found.decode_ns > 0))

    patch.setattr(reference.PlainPricer, "price", more)


def _early_end(patch: Patch) -> None:
    init = reference.Request.__init__

    def shorter(self: Any, index: int, load: Workload, limit: int | None) -> None:
        init(self, index, load, limit)
        self.output = min(self.output, 9)

    patch.setattr(reference.Request, "__init__", shorter)


def _other_victim(patch: Patch) -> None:
    """Preempts the oldest instead of the newest."""
    grow = reference.Rank.grow

    def first(self: Any, request: Any, tokens: int, batch: Any, budget: int, now: int) -> Any:
        kept, self.spec = self.spec, dataclasses.replace(self.spec, preemption="fifo")
        try:
            return grow(self, request, tokens, batch, budget, now)
        finally:
            self.spec = kept

    patch.setattr(reference.Rank, "grow", first)


CONFIGURED = {
    "async": Plant(_async, ("configuration: engine.async_scheduling",), frozenset({"admission/gate"})),
    "one block less": Plant(
        _one_block_less,
        ("configuration: engine.workers.aggregated.kv_cache.capacity.blocks",),
        frozenset({"prefix hit/eviction", "preemption", "admission/gate"}),
    ),
    "one cell": Plant(_one_cell, ("performance data: content",), frozenset({"price"})),
    "seed": Plant(
        _seed,
        ("trace: prompt_tokens", "trace: requested_tokens", "trace: arrival_ns"),
        frozenset({"arrival", "length"}),
    ),
    "output length": Plant(_output_length, ("trace: requested_tokens",), frozenset({"length"})),
    "prompt length": Plant(_prompt_length, ("trace: prompt_tokens",), frozenset({"length"})),
    "lost request": Plant(_lost_request, ("trace: rows",), frozenset({"arrival"})),
}
_SOURCES = ("engine: sources",)
MUTATED = {
    "evict the newest": Plant(
        _mutated(_evict_newest), _SOURCES, frozenset({"prefix hit/eviction", "admission/gate", "preemption"})
    ),
    "shorter hits": Plant(_mutated(_shorter_hits), _SOURCES, frozenset({"prefix hit/eviction", "admission/gate"})),
    "two slots": Plant(_mutated(_one_slot_less), _SOURCES, frozenset({"admission/gate"})),
    "a nanosecond more": Plant(_mutated(_dearer), _SOURCES, frozenset({"price"})),
    "nine tokens at most": Plant(_mutated(_early_end), _SOURCES, frozenset({"length"})),
    "preempt the oldest": Plant(_mutated(_other_victim), _SOURCES, frozenset({"preemption"})),
}
PLANTS = CONFIGURED | MUTATED


def plant(name: str, spec: EngineSpec, load: Workload, seed: int, patch: Patch) -> Question:
    return PLANTS[name].change(spec, load, seed, patch)
