"""Any other log of requests, as CSV with a header or JSON lines, in columns of our own names.

`prompt_tokens` and `output_tokens` are needed; of `ttft_ms`, `tpot_ms`, `itl_ms`, `e2e_ms` at least one. `arrival_ms`
counts from any moment; `request_id` names the row. Other columns are ignored.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from assets.accuracy.importers.about import About
from assets.accuracy.importers.jsonish import count, maybe_number, objects
from assets.accuracy.truth import TruthError, TruthSet, request_rows

FIGURES = ("ttft", "tpot", "itl", "e2e")
LENGTHS = ("prompt_tokens", "output_tokens")


def recognise(path: Path, head: bytes) -> bool:
    first = head.splitlines()[0] if head.strip() else b""
    try:
        names = set(json.loads(first)) if first.lstrip().startswith(b"{") else set(first.decode().strip().split(","))
    except (ValueError, TypeError):
        return False
    return names >= set(LENGTHS) and any(f"{name}_ms" in names for name in FIGURES)


def read(path: Path, about: About) -> TruthSet:
    """
    Raises:
        TruthError: a field is missing or no number.
    """
    logged = []
    for line, row in _rows(path):
        where = f"{path}:{line}"
        lengths = {name: count(row, name, where, least=1) for name in LENGTHS}
        figures = {name: maybe_number(row, f"{name}_ms", where) for name in FIGURES}
        arrival = maybe_number(row, "arrival_ms", where, least=-1e18)
        if not any(figures.values()):
            raise TruthError(f"{where}: none of {', '.join(f'{name}_ms' for name in FIGURES)} is above 0")
        logged.append((line, str(row.get("request_id") or f"line-{line}"), lengths, figures, arrival))
    first = min((each[4] for each in logged if each[4] is not None), default=0.0)
    rows: list[dict[str, Any]] = []
    columns = {k: v for k, v in about.columns().items() if v is not None}
    for line, name, lengths, figures, arrival in logged:
        rows += request_rows(
            about.truth_set,
            name,
            {k: v for k, v in figures.items() if v},
            clock="unstated",
            source=path.name,
            source_line=line,
            arrival_ns=None if arrival is None else round((arrival - first) * 1e6),
            **lengths,
            **columns,
        )
    return TruthSet(about.truth_set, rows, "requests")


def _rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    with open(path, "rb") as probe:
        is_json = probe.read(1 << 12).lstrip().startswith(b"{")
    if is_json:
        yield from objects(path)
        return
    with open(path, encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        for row in reader:
            yield reader.line_num, {k: _number(v) for k, v in row.items() if k is not None and v not in (None, "")}


def _number(text: Any) -> Any:
    try:
        value = float(text)
    except (TypeError, ValueError):
        return text
    return int(value) if value.is_integer() else value
