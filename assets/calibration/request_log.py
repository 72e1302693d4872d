"""A per-request log as something to replay and to compare with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from assets.accuracy.truth import TruthError, TruthSet
from sim.inputs import Workload

NEEDED = ("ttft", "e2e")
# What a log of our own columns calls what the rows hold.
_COLUMN = {"ttft": "ttft_ms", "e2e": "e2e_ms", "arrival_ns": "arrival_ms"}


@dataclass(frozen=True, slots=True, eq=False)
class RequestLog:
    """Requests in order of arrival; times in seconds since the first arrival, shape (n,).

    Attributes:
        row_id: names in the truth set.
        first_s, last_s: when the first and the last token were there.
        noted_at_boundary: arrivals were noted between two passes, when the engine looked, not when they came.
    """

    row_id: tuple[str, ...]
    arrival_s: np.ndarray
    first_s: np.ndarray
    last_s: np.ndarray
    prompt_tokens: np.ndarray
    output_tokens: np.ndarray
    noted_at_boundary: bool = False

    def __len__(self) -> int:
        return len(self.row_id)

    @property
    def ttft_s(self) -> np.ndarray:
        return self.first_s - self.arrival_s

    @property
    def e2e_s(self) -> np.ndarray:
        return self.last_s - self.arrival_s

    @property
    def tpot_s(self) -> np.ndarray:
        """NaN for requests of one token."""
        later = np.maximum(self.output_tokens - 1, 1)
        return np.where(self.output_tokens > 1, (self.last_s - self.first_s) / later, np.nan)

    def pass_s(self, rows: np.ndarray) -> float:
        """Time of a usual pass: the median time per output token of these rows."""
        return float(np.nanmedian(self.tpot_s[rows]))


def from_truth(truth: TruthSet) -> RequestLog:
    """
    Raises:
        TruthError: requests have no arrival, TTFT or end-to-end latency; a replay needs all three.
    """
    figures: dict[str, dict[str, Mapping[str, Any]]] = {}
    for row in truth.rows:
        if row["grain"] == "request":
            figures.setdefault(row["row_id"], {})[row["metric"]] = row
    if not figures:
        raise TruthError(f"{truth.name}: no rows of single requests; a replay needs a per-request log")
    for name, known in figures.items():
        one = next(iter(known.values()))
        missing = [m for m in NEEDED if m not in known] + [
            c for c in ("arrival_ns", "prompt_tokens", "output_tokens") if one[c] is None
        ]
        if missing:
            columns = ", ".join(_COLUMN.get(each, each) for each in missing)
            how = "add" if truth.form == "requests" else f"{truth.form} files may leave them out: write a log with"
            raise TruthError(
                f"{one['source']}:{one['source_line']}: request {name} has no {columns}; {how} column(s) {columns}: a "
                "replay needs arrivals, lengths, TTFT and end-to-end latency of every request"
            )
    ranked = sorted(figures.items(), key=lambda item: (item[1]["ttft"]["arrival_ns"], item[1]["ttft"]["source_line"]))
    column = lambda metric, name: np.array([known[metric][name] for _, known in ranked])  # noqa: E731
    arrival = column("ttft", "arrival_ns") / 1e9
    return RequestLog(
        row_id=tuple(name for name, _ in ranked),
        arrival_s=arrival,
        first_s=arrival + column("ttft", "value") / 1e3,
        last_s=arrival + column("e2e", "value") / 1e3,
        prompt_tokens=column("ttft", "prompt_tokens").astype(np.int64),
        output_tokens=column("ttft", "output_tokens").astype(np.int64),
        noted_at_boundary=truth.form == "vllm_log",
    )


@dataclass(frozen=True, slots=True, eq=False)
class Prefixes:
    """Prefix identity of the requests, by name: block ids of `block_tokens` tokens each."""

    ids: Mapping[str, Sequence[int]]
    block_tokens: int


def workload_of(log: RequestLog, *, earlier_s: float = 0.0, prefixes: Prefixes | None = None) -> Workload:
    """The log as requests to replay.

    Args:
        earlier_s: an engine notes an arrival when it empties its input queue, between two passes; the request itself
            came up to a pass earlier. Handing it over this much earlier keeps a boundary that the replay puts a
            little before the recorded one from missing it.
    """
    arrival = np.maximum(np.rint((log.arrival_s - earlier_s) * 1e9), 0).astype(np.int64)
    found = Workload(np.sort(arrival), log.prompt_tokens, log.output_tokens)
    if prefixes is None:
        return found
    lists = [list(prefixes.ids.get(name, ())) for name in log.row_id]
    offsets = np.concatenate([[0], np.cumsum([len(ids) for ids in lists])]).astype(np.int64)
    flat = np.array([i for ids in lists for i in ids], np.int64)
    return replace(found, hash_offsets=offsets, hash_ids=flat, hash_block_tokens=prefixes.block_tokens)
