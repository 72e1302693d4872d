"""Planted changes of separate pools: what is done to a run, and what a diff must say about it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from sim import reference_pools, reference_transfers
from sim.inputs import Workload
from sim.spec import PoolsSpec, TableTiming
from tests.assets.desk import plants

Patch = pytest.MonkeyPatch
Question = tuple[PoolsSpec, Workload, dict[str, Any]]


@dataclass(frozen=True)
class Plant:
    """One kind of change; as in `plants`, and `first` is what must be told at least once."""

    change: Callable[[PoolsSpec, Workload, int, Patch], Question]
    inputs: tuple[str, ...]
    mechanisms: frozenset[str]

    @property
    def first(self) -> frozenset[str]:
        return self.mechanisms & {"transfer", "destination"}


def _transfer(**changes: Any) -> Callable[[PoolsSpec, Workload, int, Patch], Question]:
    def change(spec: PoolsSpec, load: Workload, seed: int, patch: Patch) -> Question:
        return dataclasses.replace(spec, transfer=dataclasses.replace(spec.transfer, **changes)), load, {}

    return change


def _side(side: str, **changes: Callable[[Any], Any]) -> Callable[[PoolsSpec, Workload, int, Patch], Question]:
    def change(spec: PoolsSpec, load: Workload, seed: int, patch: Patch) -> Question:
        old = getattr(spec, side)
        new = dataclasses.replace(old, **{name: of(getattr(old, name)) for name, of in changes.items()})
        return dataclasses.replace(spec, **{side: new}), load, {}

    return change


def _dearer(timing: Any) -> TableTiming:
    assert isinstance(timing, TableTiming)
    return dataclasses.replace(timing, decode_ms=timing.decode_ms * 1.1, prefill_ms=timing.prefill_ms * 1.1)


def _of_traffic(change: Callable[[Any, Workload, int, Patch], Any]) -> Callable[..., Question]:
    def apply(spec: PoolsSpec, load: Workload, seed: int, patch: Patch) -> Question:
        _, load, facts = change(spec, load, seed, patch)
        return spec, load, facts

    return apply


def _mutated(change: Callable[[Patch], None]) -> Callable[[PoolsSpec, Workload, int, Patch], Question]:
    def mutate(spec: PoolsSpec, load: Workload, seed: int, patch: Patch) -> Question:
        change(patch)
        return spec, load, {"engine_digest": "other sources"}

    return mutate


def _last_wanted_first(patch: Patch) -> None:
    reserve = reference_pools.DecodeRank.reserve_head

    def last(self: Any) -> Any:
        self.wanted.rotate(1)
        found = reserve(self)
        if found is None:
            self.wanted.rotate(-1)
        return found

    patch.setattr(reference_pools.DecodeRank, "reserve_head", last)


def _a_nanosecond_longer(patch: Patch) -> None:
    patch.setattr(reference_transfers, "nearest_ns", lambda seconds: round(seconds * 1e9) + 1)


def _same_target(patch: Patch) -> None:
    hold = reference_pools.Pools.hold

    def first(self: Any, source: Any, bootstrap: Any, now: int) -> None:
        self.next_target = 0
        hold(self, source, bootstrap, now)

    patch.setattr(reference_pools.Pools, "hold", first)


PLANTS = {
    "bandwidth": Plant(
        _transfer(bytes_per_second=7e6),
        ("configuration: engine.kv_transfer.bytes_per_second",),
        frozenset({"transfer"}),
    ),
    "fixed bytes": Plant(
        _transfer(fixed_bytes=3000.0), ("configuration: engine.kv_transfer.fixed_bytes",), frozenset({"transfer"})
    ),
    "what is sent": Plant(
        lambda s, *rest: _transfer(missing_only=not s.transfer.missing_only)(s, *rest),
        ("configuration: engine.kv_transfer.missing_only",),
        frozenset({"transfer"}),
    ),
    "a shared link": Plant(
        _transfer(links="shared"), ("configuration: engine.kv_transfer.links",), frozenset({"transfer"})
    ),
    "a late first byte": Plant(
        _transfer(first_byte_ns=300_000),
        ("configuration: engine.kv_transfer.first_byte_ns",),
        frozenset({"transfer"}),
    ),
    "failures": Plant(
        _transfer(failure_rate=0.3, retries=1),
        ("configuration: engine.kv_transfer.failure_rate", "configuration: engine.kv_transfer.retries"),
        frozenset({"transfer"}),
    ),
    # Whoever is given up while it waits for room waited for the destination.
    "patience": Plant(
        _transfer(timeout_ns=12_000_000),
        ("configuration: engine.kv_transfer.timeout_ns",),
        frozenset({"transfer", "destination"}),
    ),
    "fewer decode blocks": Plant(
        _side("decode", blocks=lambda n: n - 2),
        ("configuration: engine.workers.decode.kv_cache.capacity.blocks",),
        frozenset({"destination", "preemption", "prefix hit/eviction"}),
    ),
    "fewer decode places": Plant(
        _side("decode", max_num_seqs=lambda n: n - 2),
        ("configuration: engine.workers.decode.max_num_seqs",),
        frozenset({"destination", "admission/gate"}),
    ),
    "dearer decode pool": Plant(_side("decode", timing=_dearer), ("performance data: content",), frozenset({"price"})),
    "dearer prefill pool": Plant(
        _side("prefill", timing=_dearer), ("performance data: content",), frozenset({"price"})
    ),
    "fewer prefill blocks": Plant(
        _side("prefill", blocks=lambda n: n - 6),
        ("configuration: engine.workers.prefill.kv_cache.capacity.blocks",),
        frozenset({"prefix hit/eviction", "preemption", "admission/gate"}),
    ),
    "output length": Plant(_of_traffic(plants._output_length), ("trace: requested_tokens",), frozenset({"length"})),
    "prompt length": Plant(_of_traffic(plants._prompt_length), ("trace: prompt_tokens",), frozenset({"length"})),
    "lost request": Plant(_of_traffic(plants._lost_request), ("trace: rows",), frozenset({"arrival"})),
    # Within one instant, another order shows in nothing but what follows.
    "the last is first": Plant(
        _mutated(_last_wanted_first),
        ("engine: sources",),
        frozenset({"destination", "prefix hit/eviction", "admission/gate"}),
    ),
    "a nanosecond longer": Plant(_mutated(_a_nanosecond_longer), ("engine: sources",), frozenset({"transfer"})),
    "always the same": Plant(_mutated(_same_target), ("engine: sources",), frozenset({"destination"})),
}
