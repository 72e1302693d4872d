"""Forward-pass metrics of a running engine (Dynamo's JSON lines) as observations of iterations.

A line is one record of one attention-DP rank, or a list of the records of all ranks of one iteration. Records of
several ranks on lines of their own are one iteration when `worker_id` and `counter_id` say so. Counts stand in
`scheduled_requests`, or directly in the record.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from perf_db.gpu.errors import PerfDataError

COUNTS = (
    "num_prefill_requests", "sum_prefill_tokens", "sum_prefill_kv_tokens", "num_decode_requests",
    "sum_decode_kv_tokens",
)  # fmt: skip
MOST = 1 << 53  # beyond it a count is damage
LONGEST_S = 1e9  # as is a longer wall time
Unusable = Literal["idle", "untimed"]  # nothing was computed; no rank has a finite wall time above 0
WALL_TIMES = ("wall_time", "wall_time_secs")


@dataclass(frozen=True, slots=True)
class RankWork:
    """What one attention-DP rank computed in an iteration; tokens."""

    num_prefill_requests: int = 0
    sum_prefill_tokens: int = 0
    sum_prefill_kv_tokens: int = 0
    num_decode_requests: int = 0
    sum_decode_kv_tokens: int = 0

    @property
    def is_empty(self) -> bool:
        return self.num_prefill_requests == 0 and self.num_decode_requests == 0


@dataclass(frozen=True, slots=True)
class Observation:
    """One measured iteration: the work of every rank, and the slowest rank's wall time, ms."""

    ranks: tuple[RankWork, ...]
    wall_time_ms: float


def read_forward_jsonl(path: Path, left_out: Counter[Unusable] | None = None) -> list[Observation]:
    """Every iteration of a file that did something and took time; the others are left out.

    Args:
        left_out: counts those, by reason.

    Raises:
        PerfDataError: `bad_file`, naming the line and the field.
    """
    try:
        with path.open(encoding="utf-8") as lines:
            return list(observations(lines, source=str(path), left_out=left_out))
    except UnicodeDecodeError as error:
        raise PerfDataError("bad_file", f"{path}: not UTF-8 text ({error.reason}); give JSON lines") from None
    except OSError as error:
        raise PerfDataError("bad_file", f"{path}: {error.strerror}") from None


def observations(
    lines: Iterable[str], *, source: str, left_out: Counter[Unusable] | None = None
) -> Iterator[Observation]:
    """Iterations in the order in which they begin in the file."""
    lost = Counter[Unusable]() if left_out is None else left_out
    open_: dict[tuple[Any, Any], list[tuple[RankWork, float]]] = {}
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            found = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise PerfDataError("bad_file", f"{source}:{number}: not JSON ({error})") from None
        where = f"{source}:{number}"
        if isinstance(found, list):
            yield from _joined([_record(each, where) for each in found], lost)
            continue
        record = _record(found, where)
        key = (found.get("worker_id"), found.get("counter_id"))
        if found.get("counter_id") is None:
            yield from _joined([record], lost)
        else:
            open_.setdefault(key, []).append(record)
    for records in open_.values():
        yield from _joined(records, lost)


def _joined(records: Sequence[tuple[RankWork, float]], left_out: Counter[Unusable]) -> Iterator[Observation]:
    times = [seconds for _, seconds in records if math.isfinite(seconds) and seconds > 0]
    ranks = tuple(work for work, _ in records)
    if all(work.is_empty for work in ranks):
        left_out["idle"] += 1
    elif not times:
        left_out["untimed"] += 1
    else:
        yield Observation(ranks, max(times) * 1e3)


def _record(found: Any, where: str) -> tuple[RankWork, float]:
    if not isinstance(found, Mapping):
        raise PerfDataError("bad_file", f"{where}: a record is an object, not {type(found).__name__}")
    counts = found.get("scheduled_requests", found)
    if not isinstance(counts, Mapping):
        raise PerfDataError("bad_file", f"{where}: scheduled_requests is no object")
    values = {}
    for name in COUNTS:
        value = counts.get(name, 0)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < MOST:
            raise PerfDataError("bad_file", f"{where}: {name}={value!r}: a count is a whole number, 0 or more")
        values[name] = value
    if counts is found and not any(name in counts for name in COUNTS):
        raise PerfDataError("bad_file", f"{where}: none of {', '.join(COUNTS)}; these are no forward-pass metrics")
    work = RankWork(**values)
    for n, tokens in (
        (work.num_prefill_requests, work.sum_prefill_tokens + work.sum_prefill_kv_tokens),
        (work.num_decode_requests, work.sum_decode_kv_tokens),
    ):
        if n == 0 and tokens > 0:
            raise PerfDataError("bad_file", f"{where}: {tokens} token(s) of no request; counts and sums contradict")
    seconds = next((found[name] for name in WALL_TIMES if found.get(name) is not None), 0.0)
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)):
        raise PerfDataError("bad_file", f"{where}: wall_time={seconds!r}: a number of seconds is due")
    return work, float(seconds) if abs(seconds) < LONGEST_S else math.nan


def table_rows(found: Iterable[Observation], identity: Mapping[str, Any], *, cell: str) -> list[dict[str, Any]]:
    """Pure prefill and pure decode iterations of one rank as rows of a whole-forward table, the median of repeats.

    Mixed iterations have no place in such a table, nor have those of several ranks, whose cost is not one rank's.
    """
    seen: dict[tuple[str, int, int, int], list[float]] = {}
    for each in found:
        if len(each.ranks) != 1:
            continue
        work = each.ranks[0]
        if work.num_prefill_requests and work.num_decode_requests:
            continue
        if work.num_prefill_requests:
            if work.sum_prefill_tokens == 0:
                continue
            key = ("prefill", work.num_prefill_requests, work.sum_prefill_tokens, work.sum_prefill_kv_tokens)
        else:
            key = ("decode", work.num_decode_requests, 0, work.sum_decode_kv_tokens)
        seen.setdefault(key, []).append(each.wall_time_ms)
    rows = []
    for (kind, batch, tokens, kv), times in sorted(seen.items()):
        middle, ordered = len(times) // 2, sorted(times)
        ms = ordered[middle] if len(times) % 2 else (ordered[middle - 1] + ordered[middle]) / 2.0
        rows.append(
            {
                **identity,
                "cell_id": cell,
                "workload_kind": kind,
                "partition_policy": "balanced_v1",
                "batch_size": batch,
                "total_prefill_tokens": tokens,
                "total_kv_read_tokens": kv,
                "latency_ms": ms,
            }
        )
    return rows
