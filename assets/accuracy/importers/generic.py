"""Any other log of requests, as CSV with a header or JSON lines, in columns of our own names.

`prompt_tokens` and `output_tokens` are needed; of `ttft_ms`, `tpot_ms`, `itl_ms`, `e2e_ms` at least one. `arrival_ms`
counts from any moment; `request_id` names the row. Other columns are ignored, unless they
are one of these mistyped.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from assets.accuracy.importers.about import About
from assets.accuracy.importers.jsonish import count, maybe_number, objects
from assets.accuracy.truth import TruthError, TruthSet, request_rows

FIGURES = ("ttft", "tpot", "itl", "e2e")
LENGTHS = ("prompt_tokens", "output_tokens")


COLUMNS = ("request_id", "arrival_ms", *LENGTHS, *(f"{name}_ms" for name in FIGURES))
# Columns of other logs, which are ignored however much they look like one of ours.
OTHERS = ("ttst_ms", "tbt_ms")
LIKE = 0.8  # share of two names that agrees, from which on one is taken for the other mistyped


def misspelt(names: Iterable[str]) -> dict[str, str]:
    """Column of ours that is absent -> unknown column that was probably meant to be it."""
    names = [name for name in names if isinstance(name, str)]
    strange = [name for name in names if name not in COLUMNS and name not in OTHERS]
    absent = [name for name in COLUMNS if name not in names]
    found = {name: get_close_matches(name, strange, n=1, cutoff=LIKE) for name in absent}
    best: dict[str, str] = {}
    for name, close in found.items():
        # One misspelt column is one of ours, not two.
        if close and get_close_matches(close[0], absent, n=1, cutoff=LIKE) == [name]:
            best[name] = close[0]
    return best


def recognise(path: Path, head: bytes) -> bool:
    first = head.splitlines()[0] if head.strip() else b""
    try:
        names = set(json.loads(first)) if first.lstrip().startswith(b"{") else set(first.decode().strip().split(","))
    except (ValueError, TypeError):
        return False
    names |= set(misspelt(names))  # `read` says so
    return names >= set(LENGTHS) and any(f"{name}_ms" in names for name in FIGURES)


def read(path: Path, about: About) -> TruthSet:
    """
    Raises:
        TruthError: a field is missing or no number.
    """
    logged = []
    _insist_on_spelling(path)
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


def _insist_on_spelling(path: Path) -> None:
    """A column that is mistyped would count as one that nobody measured."""
    with open(path, "rb") as file:
        first = file.readline()
    try:
        found = json.loads(first) if first.lstrip().startswith(b"{") else next(csv.reader([first.decode()]), [])
    except ValueError:
        return  # whoever reads the rows says it better
    said = [f"no column {name}; unknown column {own}; did you mean {name}?" for name, own in misspelt(found).items()]
    if said:
        raise TruthError(f"{path}: {' '.join(said)}")


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
