"""A few requests through an engine, and the questions rule tests ask of the answer. Times in ms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from assets.golden import rebuild
from assets.golden.run import Replayed, run
from sim.inputs import Workload
from sim.result import REASON_NAMES, STATUS_NAMES
from sim.spec import Deployment, EngineSpec, FixedTiming, FlatTiming

MS = 1_000_000  # ns

in_both_profiles = pytest.mark.parametrize("profile", ["parity", "vllm"])


@dataclass(frozen=True)
class Ask:
    """One request: `prompt` tokens in, `output` tokens out, arriving `at` ms.

    Prompts differ unless `text` gives the first tokens. Where it is longer than the prompt, it fixes the first answers.
    `after` names what a request of a play waits for: (name, ms after its end), or (name, ms, "dispatch") its arrival.
    """

    prompt: int
    output: int
    at: float = 0
    text: Sequence[int] = ()
    session: int = -1
    delay: float = 0
    rank: int = -1
    prefill_rank: int = -1
    not_before: float = 0
    after: Sequence[tuple[Any, ...]] | None = None


def prompt(*, group: int, tokens: int) -> range:
    """The first `tokens` tokens of a text that every request of the group shares."""
    return range(1000 * group, 1000 * group + tokens)


def flat(ms: float = 1.0) -> FlatTiming:
    """Every pass takes the same time."""
    return FlatTiming(ms)


def fixed(prefill_ms: float, decode_ms: float) -> FixedTiming:
    return FixedTiming(prefill_ms, decode_ms)


@dataclass(frozen=True)
class Story:
    """What happened, by the requests' names."""

    names: tuple[str, ...]
    replayed: Replayed

    def row(self, name: str) -> dict[str, Any]:
        """The request's row of the requests table."""
        table, i = self.replayed.tables["requests"], self.names.index(name)
        return {column: int(values[i]) for column, values in table.items()}

    def tokens_at(self, name: str) -> list[float]:
        """When each token became visible."""
        return [t / MS for t in rebuild.token_times(self.replayed.tables)[self.names.index(name)]]

    def admitted(self, name: str) -> float:
        """Start of the pass of its first admission."""
        return self.row(name)["admitted_ns"] / MS

    def reused(self, name: str) -> list[int]:
        """Cached tokens at each admission."""
        table = self.replayed.tables["admissions"]
        return table["cached_tokens"][table["request"] == self.names.index(name)].tolist()

    def status(self, name: str) -> str:
        row = self.row(name)
        return " ".join(filter(None, [STATUS_NAMES[row["status"]], REASON_NAMES[row["reason"]]]))

    def scheduled(self, worker: int = 0, rank: int = 0) -> list[dict[str, int]]:
        """Per pass: tokens computed by each request, in running order."""
        return [{self.names[s.request]: s.tokens for s in p.requests} for p in self.passes(worker, rank)]

    def preempted(self) -> list[list[str]]:
        """Per pass of rank 0: who was preempted when it was chosen, in order."""
        return [[self.names[v] for v in p.preempted] for p in self.passes()]

    def passes(self, worker: int = 0, rank: int = 0) -> list[rebuild.Pass]:
        two = self.replayed.spec.profile == "vllm" and self.replayed.spec.async_scheduling
        return rebuild.passes(self.replayed.tables, worker, rank, in_flight=2 if two else 1)

    def column(self, name: str, worker: int = 0, rank: int = 0) -> list[int]:
        """One column of the passes table, in pass order."""
        return [p.row[name] for p in self.passes(worker, rank)]

    def ends(self, worker: int = 0, rank: int = 0) -> list[float]:
        return [ns / MS for ns in self.column("end_ns", worker, rank)]

    def starts(self, worker: int = 0, rank: int = 0) -> list[float]:
        return [ns / MS for ns in self.column("start_ns", worker, rank)]

    @property
    def duration(self) -> float:
        """The last completion."""
        return int(self.replayed.tables["requests"]["end_ns"].max()) / MS


def replay(
    engine: str,
    asks: Mapping[str, Ask],
    *,
    concurrency: int | None = None,
    send_limit: int | None = None,
    warmup: int = 0,
    **spec: Any,
) -> Story:
    """Replay named requests. Defaults: 4-token blocks, 64 of them, synchronous, 1 ms a pass."""
    spec = {"block_tokens": 4, "blocks": 64, "timing": flat(), "async_scheduling": False, **spec}
    # vLLM refuses more sequences than the budget has tokens.
    spec.setdefault("max_num_seqs", min(64, spec.get("max_batched_tokens", 64)))
    return story_of(engine, asks, EngineSpec(**spec), concurrency=concurrency, send_limit=send_limit, warmup=warmup)


def story_of(
    engine: str,
    asks: Mapping[str, Ask],
    spec: Deployment,
    *,
    concurrency: int | None = None,
    send_limit: int | None = None,
    warmup: int = 0,
) -> Story:
    """Replay named requests on any deployment."""
    listed = list(asks.values())
    offsets = np.concatenate([[0], np.cumsum([len(a.text) for a in listed])]).astype(np.int64)
    sessions = any(a.session >= 0 for a in listed)
    workload = Workload(
        arrival_ns=np.array([round(a.at * MS) for a in listed], np.int64),
        prompt_tokens=np.array([a.prompt for a in listed], np.int64),
        output_tokens=np.array([a.output for a in listed], np.int64),
        hash_offsets=offsets,
        hash_ids=np.array([token for a in listed for token in a.text], np.int64),
        hash_block_tokens=1,
        hashed_tokens=np.array([len(a.text) for a in listed], np.int64),
        session=np.array([a.session for a in listed], np.int64) if sessions else None,
        delay_ns=np.array([round(a.delay * MS) for a in listed], np.int64) if sessions else None,
        pinned_rank=_pins([a.rank for a in listed]),
        pinned_prefill_rank=_pins([a.prefill_rank for a in listed]),
        concurrency=concurrency,
        not_before_ns=np.array([round(a.not_before * MS) for a in listed], np.int64) if sessions else None,
        **(_waits(asks) if any(a.after is not None for a in listed) else {}),
        send_limit=send_limit,
        warmup=warmup,
    )
    return Story(tuple(asks), run(spec, workload, engine))  # type: ignore[arg-type]


def _pins(ranks: Sequence[int]) -> np.ndarray | None:
    return np.array(ranks, np.int64) if max(ranks) >= 0 else None


def _waits(asks: Mapping[str, Ask]) -> dict[str, np.ndarray]:
    """The waits of all requests as columns of a workload."""
    names, found = list(asks), [tuple(wait) for ask in asks.values() for wait in ask.after or ()]
    return {
        "wait_offsets": np.cumsum([0] + [len(ask.after or ()) for ask in asks.values()]),
        "wait_on": np.array([names.index(wait[0]) for wait in found], np.int64),
        "wait_delay_ns": np.array([round(wait[1] * MS) for wait in found], np.int64),
        "wait_on_dispatch": np.array([wait[2:] == ("dispatch",) for wait in found], np.int64),
    }
