"""AIPerf's per-request records (`profile_export.jsonl`): `metadata` with times in ns, `metrics` with value and unit.

Warm-up, cancelled and failed requests are set aside. AIPerf's inter-token latency is (latency - TTFT) / (tokens - 1),
which is our TPOT.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from assets.accuracy.importers.about import About
from assets.accuracy.importers.jsonish import first_object, number, objects
from assets.accuracy.truth import TruthError, TruthSet, request_rows

MS = {"ms": 1.0, "s": 1e3, "sec": 1e3, "seconds": 1e3, "us": 1e-3, "ns": 1e-6}
LATENCIES = {"ttft": "time_to_first_token", "tpot": "inter_token_latency", "e2e": "request_latency"}
LENGTHS = {"prompt_tokens": "input_sequence_length", "output_tokens": "output_sequence_length"}


def recognise(path: Path, head: bytes) -> bool:
    row = first_object(head)
    return isinstance(row.get("metadata"), dict) and isinstance(row.get("metrics"), dict)


def read(path: Path, about: About) -> TruthSet:
    """
    Raises:
        TruthError: a record without metrics, or a unit that is not known.
    """
    kept: list[tuple[int, dict[str, Any], Mapping[str, Any]]] = []
    aside: dict[str, int] = {}
    for line, row in objects(path):
        meta, metrics = row.get("metadata"), row.get("metrics")
        if not isinstance(meta, dict) or not isinstance(metrics, dict):
            raise TruthError(f"{path}:{line}: metadata and metrics are needed; is this profile_export.jsonl?")
        why = _set_aside(row, meta)
        if why:
            aside[why] = aside.get(why, 0) + 1
            continue
        kept.append((line, meta, metrics))
    starts = [number(meta, "request_start_ns", f"{path}:{line}") for line, meta, _ in kept]
    first = min(starts, default=0.0)
    rows: list[dict[str, Any]] = []
    columns = {k: v for k, v in about.columns().items() if v is not None}
    for (line, meta, metrics), start in zip(kept, starts):
        where = f"{path}:{line}"
        figures = {name: _milliseconds(metrics, field, where) for name, field in LATENCIES.items()}
        rows += request_rows(
            about.truth_set,
            str(meta.get("x_request_id") or f"line-{line}"),
            {k: v for k, v in figures.items() if v is not None and v > 0},
            clock="client",
            source=path.name,
            source_line=line,
            arrival_ns=round(start - first),
            **{name: _tokens(metrics, field, where) for name, field in LENGTHS.items()},
            **columns,
        )
    return TruthSet(about.truth_set, rows, "aiperf", set_aside=aside)


def _set_aside(row: Mapping[str, Any], meta: Mapping[str, Any]) -> str | None:
    if meta.get("benchmark_phase") not in (None, "profiling"):
        return "warm_up"
    if meta.get("was_cancelled"):
        return "canceled"
    return "failed_at_source" if row.get("error") else None


def _metric(metrics: Mapping[str, Any], field: str, where: str) -> tuple[float, str] | None:
    found = metrics.get(field)
    if found is None:
        return None
    if not isinstance(found, dict):
        raise TruthError(f"{where}: metrics.{field}={found!r}: value and unit are needed")
    return number(found, "value", f"{where}: metrics.{field}"), str(found.get("unit", ""))


def _milliseconds(metrics: Mapping[str, Any], field: str, where: str) -> float | None:
    found = _metric(metrics, field, where)
    if found is None:
        return None
    if found[1] not in MS:
        raise TruthError(f"{where}: metrics.{field} is in {found[1]!r}; known units: {', '.join(MS)}")
    return found[0] * MS[found[1]]


def _tokens(metrics: Mapping[str, Any], field: str, where: str) -> int | None:
    found = _metric(metrics, field, where)
    return None if found is None else int(found[0])
