"""Which raw rows of performance data the cells rest on that a replay has hit: table `cell_ops`, made after the run.

A cell is a place of the grids, so one pass speaks for it: the first of the group of lookups that was asked most.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sim.result import FIRST_LOOKUP, PHASE_NAMES

if TYPE_CHECKING:
    from perf_db.gpu.oplevel import OpLevel

COLUMNS = (
    "role", "phase", "cell", "operator", "file", "file_digest", "row_no", "share", "operator_ms", "operator_share",
    "requests", "length", "prefix",
)  # fmt: skip


def cell_ops(lookups: Mapping[str, np.ndarray], model: Callable[[], OpLevel], kept: Path | None) -> dict[str, Any]:
    """Columns of the table.

    Args:
        lookups: `Outcome.lookups` of a replay at operator-level prices.
        model: makes the operator model the prices were compiled from; reading its tables takes seconds.
        kept: file with the answers of earlier replays at the same prices, brought up to date; None: nowhere.
    """
    said: dict[str, list[list[Any]]] = _read(kept)
    made: OpLevel | None = None
    rows: list[tuple[Any, ...]] = []
    for (role, phase, cell), work in _typical(lookups).items():
        question = " ".join(map(str, (PHASE_NAMES[phase], *work)))
        if question not in said:
            made = made or model()
            said[question] = _answer(made, PHASE_NAMES[phase], work)
        rows += [(role, phase, cell, *each) for each in said[question]]
    if made is not None and kept is not None:
        _write(kept, said)
    columns = list(zip(*rows, strict=True)) or [()] * len(COLUMNS)
    found: dict[str, Any] = dict(zip(COLUMNS, map(list, columns), strict=True))
    for column in ("role", "phase", "cell", "row_no", "requests", "length", "prefix"):
        found[column] = np.array(found[column], np.int64)
    for column in ("share", "operator_ms", "operator_share"):
        found[column] = np.array(found[column], np.float64)
    return found


def _typical(lookups: Mapping[str, np.ndarray]) -> dict[tuple[int, int, int], tuple[int, ...]]:
    """The work that speaks for each (role, phase, cell), in order."""
    most: dict[tuple[int, int, int], tuple[int, tuple[int, ...]]] = {}
    for i in range(len(lookups["cell"])):
        key = (int(lookups["role"][i]), int(lookups["phase"][i]), int(lookups["cell"][i]))
        n, work = int(lookups["n_lookups"][i]), tuple(int(lookups[name][i]) for name in FIRST_LOOKUP)
        if key not in most or n > most[key][0]:
            most[key] = n, work
    return {key: work for key, (_, work) in sorted(most.items())}


def _answer(model: OpLevel, phase: str, work: tuple[int, ...]) -> list[list[Any]]:
    prefill_n, tokens, past, n, kv = work
    if phase.endswith("prefill"):
        costs, place = _prefill(model, prefill_n, tokens, past, n if phase == "mixed_prefill" else 0)
    else:
        costs, place = _decode(model, n, kv, alone=phase == "decode")
    return [[*each, *place] for each in _shares(model, costs)]


def _read(path: Path | None) -> dict[str, list[list[Any]]]:
    """What is kept; nothing where the file is missing or damaged."""
    try:
        found = json.loads(path.read_text()) if path is not None else {}
        return found if isinstance(found, dict) else {}
    except (OSError, ValueError):
        return {}


def _write(path: Path, said: Mapping[str, list[list[Any]]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, part = tempfile.mkstemp(dir=path.parent, suffix=".part")
    with os.fdopen(handle, "w") as stream:
        json.dump(said, stream)
    os.replace(part, path)


# operator, ms, [(file, row, share)]
Costs = list[tuple[str, float, list[tuple[str, int, float]]]]


def _prefill(model: OpLevel, n: int, tokens: int, past: int, decoding: int) -> tuple[Costs, tuple[int, int, int]]:
    s, p = tokens // n, past // n
    if not decoding:
        return _asked(model, "context", n, s, p), (n, s, p)
    # One forward: attention sees the requests that prefill, the rest all tokens, and logits one row.
    batch, x = -(-tokens // s), tokens + decoding * (model.deployment.nextn + 1)
    attention = _attention(model, "context")
    found = [each for each in _asked(model, "context", 1, x, 0) if each[0] not in attention]
    found += [each for each in _asked(model, "context", batch, s, p) if each[0] in attention]
    return found, (batch, s, p)


def _decode(model: OpLevel, n: int, kv: int, *, alone: bool) -> tuple[Costs, tuple[int, int, int]]:
    found = _asked(model, "generation", n, kv // n, 0)
    if not alone:
        attention = _attention(model, "generation")
        found = [each for each in found if each[0] in attention]
    return found, (n, kv // n, 0)


def _asked(model: OpLevel, phase: Any, n: int, length: int, prefix: int) -> Costs:
    rows: dict[str, list[tuple[str, int, float]]] = {}
    for row in model.lineage(phase, n, length, prefix):
        rows.setdefault(row.op, []).append((row.file, row.row, row.share))
    merged: dict[str, float] = {}
    for cost in model.breakdown(phase, n, length, prefix):
        merged[cost.op] = merged.get(cost.op, 0.0) + cost.ms
    # Operators without measured rows follow from the bandwidth in the hardware file.
    hardware = [(f"systems/{model.deployment.system}.yaml", 0, 1.0)]
    return [(op, ms, rows.get(op, hardware)) for op, ms in merged.items()]


def _attention(model: OpLevel, phase: Any) -> set[str]:
    from perf_db.gpu.ops.base import AttentionOperator

    return {op.name for op in model.operators(phase) if isinstance(op, AttentionOperator)}


def _shares(model: OpLevel, costs: Costs) -> list[tuple[Any, ...]]:
    total = sum(ms for _, ms, _ in costs) or 1.0
    found = []
    for operator, ms, rows in costs:
        merged: dict[tuple[str, int], float] = {}
        for file, row, share in rows:
            merged[file, row] = merged.get((file, row), 0.0) + share
        for (file, row), share in sorted(merged.items()):
            digest = model.root.digest(model.root.path / file)
            found.append((operator, file, digest, row, share, ms, ms / total))
    return found
