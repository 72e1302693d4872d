"""Tuned snapshots: how measured passes of a deployment correct its native prices, and the file that keeps it.

Three stores, one per kind of iteration, hold ratios observed / native in a grid over the iteration's coordinates. A
query is multiplied by the median ratio of its bin; 1 outside the grid, in an empty bin, and while the store has seen
too few iterations.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from statistics import median
from typing import Any, Literal

import numpy as np

from perf_db.gpu.errors import PerfDataError
from perf_db.gpu.forward_jsonl import Observation, RankWork

Kind = Literal["prefill", "decode", "mixed"]
KINDS: tuple[Kind, ...] = ("prefill", "decode", "mixed")
TOKENS, REQUESTS, CONTEXT = (0.0, 8192.0), (0.0, 512.0), (0.0, 2_000_000.0)
RANGES: dict[Kind, tuple[tuple[float, float], ...]] = {
    "prefill": (TOKENS,),
    "decode": (REQUESTS, CONTEXT),
    "mixed": (TOKENS, CONTEXT),
}
CAPACITY = 64
FORMAT = 1
SECTIONS = ("identity", "corrections", "host_constants", "provenance")


@dataclass(frozen=True, slots=True)
class Options:
    """How corrections are kept.

    Attributes:
        min_observations: iterations a store needs before it corrects anything.
        bucket_count: bins of a store; as many in one dimension, its square root in each of two.
        min_faster_correction_factor: least ratio one iteration may claim; None: any.
        max_slower_correction_factor: greatest ratio one iteration may claim; None: any.
    """

    min_observations: int = 5
    bucket_count: int = 16
    min_faster_correction_factor: float | None = 0.5
    max_slower_correction_factor: float | None = 2.0

    def __post_init__(self) -> None:
        root = math.isqrt(max(self.bucket_count, 0))
        if self.bucket_count < 1 or root * root != self.bucket_count:
            raise PerfDataError("bad_file", f"bucket_count={self.bucket_count}: a square number, 1 or more, is due")
        if self.min_observations < 1:
            raise PerfDataError("bad_file", f"min_observations={self.min_observations}: at least 1 is due")

    def clamp(self, ratio: float) -> float:
        if self.min_faster_correction_factor is not None:
            ratio = max(ratio, self.min_faster_correction_factor)
        if self.max_slower_correction_factor is not None:
            ratio = min(ratio, self.max_slower_correction_factor)
        return ratio


def coordinates(kind: Kind, work: RankWork) -> tuple[int, ...]:
    """What the store of a kind looks at."""
    if kind == "prefill":
        return (work.sum_prefill_tokens,)
    if kind == "decode":
        return (work.num_decode_requests, work.sum_decode_kv_tokens)
    return (work.sum_prefill_tokens, work.sum_decode_kv_tokens)


def kind_of(work: RankWork) -> Kind | None:
    """None: nothing is computed. A prefill whose prompt is cached to the end counts as nothing."""
    prefills = work.num_prefill_requests > 0 and work.sum_prefill_tokens > 0
    if prefills and work.num_decode_requests > 0:
        return "mixed"
    if prefills:
        return "prefill"
    return "decode" if work.num_decode_requests > 0 else None


def leading_rank(ranks: Sequence[RankWork]) -> RankWork:
    """The rank with the largest sum of coordinates decides which store an iteration belongs to."""
    return max(ranks, key=lambda work: sum(coordinates(kind, work)) if (kind := kind_of(work)) else -1)


@dataclass(slots=True)
class Store:
    """Ratios of one kind of iteration, oldest first."""

    kind: Kind
    options: Options
    entries: list[tuple[int, float, tuple[int, ...]]] = field(default_factory=list)  # bin, ratio, coordinates

    @property
    def bins(self) -> int:
        """In each dimension."""
        count = self.options.bucket_count
        return count if len(RANGES[self.kind]) == 1 else math.isqrt(count)

    def bin_of(self, at: tuple[int, ...]) -> int | None:
        """Number of the bin, None outside the grid."""
        place = 0
        for value, (low, high) in zip(at, RANGES[self.kind], strict=True):
            if value < low or value > high:
                return None
            place = place * self.bins + min(int((value - low) / (high - low) * self.bins), self.bins - 1)
        return place

    def add(self, at: tuple[int, ...], ratio: float) -> bool:
        """Keep a ratio; False outside the grid. A full store gives up the oldest entry of its fullest bin."""
        place = self.bin_of(at)
        if place is None:
            return False
        self.entries.append((place, self.options.clamp(ratio), at))
        if len(self.entries) > CAPACITY:
            sizes: dict[int, int] = {}
            for each, _, _ in self.entries:
                sizes[each] = sizes.get(each, 0) + 1
            most = max(sizes.values())
            fullest = min(each for each, size in sizes.items() if size == most)
            oldest = next(i for i, (each, _, _) in enumerate(self.entries) if each == fullest)
            del self.entries[oldest]
        return True

    @property
    def is_ready(self) -> bool:
        return len(self.entries) >= self.options.min_observations

    def factor(self, at: tuple[int, ...]) -> float | None:
        """Median ratio of the bin; None where nothing is corrected."""
        place = self.bin_of(at)
        if place is None or not self.is_ready:
            return None
        ratios = [ratio for each, ratio, _ in self.entries if each == place]
        return median(ratios) if ratios else None

    def factors(self) -> np.ndarray:
        """Factor per bin, shape (bins,) or (bins, bins); NaN where nothing is corrected."""
        found = np.full(self.bins ** len(RANGES[self.kind]), np.nan)
        if self.is_ready:
            for place in {each for each, _, _ in self.entries}:
                found[place] = median(ratio for each, ratio, _ in self.entries if each == place)
        return found.reshape((self.bins,) * len(RANGES[self.kind]))


class Corrections:
    """The three stores of a deployment."""

    def __init__(self, options: Options | None = None) -> None:
        self.options = options or Options()
        self.stores: dict[Kind, Store] = {kind: Store(kind, self.options) for kind in KINDS}

    def observe(self, work: RankWork, native_ms: float, observed_ms: float) -> bool:
        """Take one iteration in. False when it says nothing: no work, no time, no price, or outside the grid."""
        kind = kind_of(work)
        if kind is None or not all(math.isfinite(ms) and ms > 0 for ms in (native_ms, observed_ms)):
            return False
        return self.stores[kind].add(coordinates(kind, work), observed_ms / native_ms)

    def factor(self, work: RankWork) -> float:
        """What the native price of such an iteration is multiplied by."""
        kind = kind_of(work)
        found = None if kind is None else self.stores[kind].factor(coordinates(kind, work))
        return 1.0 if found is None else found

    def arrays(self) -> dict[str, np.ndarray]:
        """As a timing model takes them."""
        return {f"factor_{kind}": self.stores[kind].factors() for kind in KINDS} | {
            "factor_ranges": np.array([TOKENS, REQUESTS, CONTEXT])
        }


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One file: whom it corrects, by how much, host constants, and what it was made from.

    Attributes:
        identity: the deployment, and `native`, the digest of the prices that the ratios refer to.
        corrections: the stores.
        host_constants: names and values, ms unless the name says otherwise.
        provenance: data files and their digests, how many iterations were used and left out.
    """

    identity: dict[str, Any]
    corrections: Corrections
    host_constants: dict[str, float]
    provenance: dict[str, Any]

    def save(self, path: Path) -> None:
        """Write the file, whole or not at all."""
        text = json.dumps(
            {
                "format": FORMAT,
                "identity": self.identity,
                "corrections": {
                    "options": asdict(self.corrections.options),
                    "stores": {
                        kind: [{"bin": b, "ratio": ratio, "at": list(at)} for b, ratio, at in store.entries]
                        for kind, store in self.corrections.stores.items()
                    },
                },
                "host_constants": self.host_constants,
                "provenance": self.provenance,
            },
            indent=1,
            sort_keys=True,
            allow_nan=False,
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(path.name + ".part")
        part.write_text(text + "\n")
        os.replace(part, path)


_NAME_IT = "name the file `tracemill perf tune` wrote"


def load_snapshot(path: Path, identity: Mapping[str, Any] | None = None) -> Snapshot:
    """Read a snapshot.

    Args:
        identity: whom it must belong to; None: anybody.

    Raises:
        PerfDataError: `bad_file`: unreadable, not a snapshot, or another deployment's.
    """
    try:
        found = json.loads(path.read_text())
    except OSError as error:
        raise PerfDataError("bad_file", f"{path}: {error.strerror or error}; {_NAME_IT}") from None
    except (ValueError, RecursionError) as error:
        raise PerfDataError("bad_file", f"{path}: is no snapshot: not JSON ({error}); {_NAME_IT}") from None
    absent = [name for name in SECTIONS if not isinstance(found, dict) or not isinstance(found.get(name), dict)]
    if absent:
        raise PerfDataError("bad_file", f"{path}: no section {', '.join(absent)}; a snapshot has {', '.join(SECTIONS)}")
    if found.get("format") != FORMAT:
        raise PerfDataError("bad_file", f"{path}: format {found.get('format')!r}; this version reads {FORMAT}")
    if identity is not None:
        _same_identity(path, found["identity"], identity)
    constants = {}
    for name, value in found["host_constants"].items():
        constants[name] = _number(path, f"host_constants.{name}", value)
    return Snapshot(found["identity"], _corrections(path, found["corrections"]), constants, found["provenance"])


def _damaged(path: Path, field_name: str, value: Any, due: str) -> PerfDataError:
    text = repr(value)
    text = text if len(text) <= 80 else text[:77] + "..."
    return PerfDataError("bad_file", f"{path}: {field_name}={text}: {due} is due; make the snapshot again")


def _number(path: Path, field_name: str, value: Any) -> float:
    if not isinstance(value, bool) and isinstance(value, (int, float)):
        try:
            if math.isfinite(number := float(value)):
                return number
        except OverflowError:
            pass
    raise _damaged(path, field_name, value, "a finite number")


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _corrections(path: Path, found: Mapping[str, Any]) -> Corrections:
    given, stores = found.get("options"), found.get("stores")
    for name, value in (("options", given), ("stores", stores)):
        if not isinstance(value, dict):
            raise _damaged(path, f"corrections.{name}", value, "an object")
    assert given is not None and stores is not None
    known = {f.name for f in fields(Options)}
    for name, value in given.items():
        where = f"corrections.options.{name}"
        if name not in known:
            raise PerfDataError("bad_file", f"{path}: {where} is no option; there are {', '.join(sorted(known))}")
        if name.endswith("_factor"):
            if value is not None and not _number(path, where, value) > 0:
                raise _damaged(path, where, value, "a number above 0, or null,")
        elif not _is_count(value):
            raise _damaged(path, where, value, "a whole number")
    try:
        corrections = Corrections(Options(**given))
    except PerfDataError as error:
        raise PerfDataError(error.reason, f"{path}: corrections.options: {error}") from None
    for kind, rows in stores.items():
        where = f"corrections.stores.{kind}"
        if kind not in KINDS:
            raise PerfDataError("bad_file", f"{path}: {where} is no store; there are {', '.join(KINDS)}")
        if not isinstance(rows, list):
            raise _damaged(path, where, rows, "a list")
        store = corrections.stores[kind]
        for i, row in enumerate(rows):
            entry = _entry(path, f"{where}[{i}]", row)
            if len(entry[2]) != len(RANGES[store.kind]) or store.bin_of(entry[2]) != entry[0]:
                raise PerfDataError("bad_file", f"{path}: {where}[{i}]: {row} is no entry of its bin")
            store.entries.append(entry)
    return corrections


def _entry(path: Path, where: str, row: Any) -> tuple[int, float, tuple[int, ...]]:
    if not isinstance(row, dict):
        raise _damaged(path, where, row, "an object with bin, ratio and at")
    place, at = row.get("bin"), row.get("at")
    if not isinstance(place, int) or not _is_count(place):
        raise _damaged(path, f"{where}.bin", place, "a whole number")
    ratio = _number(path, f"{where}.ratio", row.get("ratio"))
    if ratio <= 0:
        raise _damaged(path, f"{where}.ratio", ratio, "a number above 0")
    if not isinstance(at, list) or not all(_is_count(x) for x in at):
        raise _damaged(path, f"{where}.at", at, "a list of whole numbers")
    return place, ratio, tuple(at)


def _same_identity(path: Path, own: Mapping[str, Any], asked: Mapping[str, Any]) -> None:
    apart = [key for key in sorted({*own, *asked}) if own.get(key) != asked.get(key)]
    if apart:
        text = "; ".join(f"{key} is {own.get(key)!r} there, {asked.get(key)!r} here" for key in apart)
        raise PerfDataError(
            "bad_file",
            f"{path}: tuned for another deployment: {text}. Use it with its own, or tune a snapshot for this",
        )


def tune(corrections: Corrections, observed: Sequence[Observation], native: Any) -> dict[str, int]:
    """Feed observations to the stores.

    Args:
        native: called with the work of the leading rank, gives its native price, ms, or NaN where it has none.

    Returns:
        How many were used, and how many were not, by reason.
    """
    counts = {"used": 0, "outside": 0, "unpriced": 0}
    for each in observed:
        work = leading_rank(each.ranks)
        ms = float(native(work))
        if not (math.isfinite(ms) and ms > 0):
            counts["unpriced"] += 1
        elif corrections.observe(work, ms, each.wall_time_ms):
            counts["used"] += 1
        else:
            counts["outside"] += 1
    return counts
