"""Forward-pass telemetry, JSON lines: what a pass held and how long it took, one line per attention-DP rank.

Dynamo writes the amounts under `scheduled_requests`; flat records are read as well. `wall_time` is seconds. Lines of
one iteration (same worker and counter) are one pass: the longest finite time counts, and the amounts of the rank with
the most work. Passes without work or without a time are set aside.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from assets.accuracy.importers.about import About
from assets.accuracy.importers.jsonish import count, objects
from assets.accuracy.truth import PASS, TruthError, TruthSet, truth_row

AMOUNTS = {
    "n_prefill": "num_prefill_requests",
    "prefill_tokens": "sum_prefill_tokens",
    "prefill_kv_tokens": "sum_prefill_kv_tokens",
    "n_decode": "num_decode_requests",
    "decode_kv_tokens": "sum_decode_kv_tokens",
}


def recognise(path: Path, head: bytes) -> bool:
    lines = head.splitlines()
    if not lines or b"wall_time" not in lines[0]:
        return False
    try:
        row = json.loads(lines[0])
    except ValueError:
        return False
    return isinstance(row, dict) and AMOUNTS["n_prefill"] in (row.get("scheduled_requests") or row)


def read(path: Path, about: About) -> TruthSet:
    """
    Raises:
        TruthError: an amount is missing or negative, or there are tokens without requests.
    """
    passes: dict[tuple[Any, Any], list[tuple[int, dict[str, int], float | None]]] = {}
    for line, row in objects(path):
        where = f"{path}:{line}"
        held = row.get("scheduled_requests", row)
        amounts = {name: count(held, field, where) for name, field in AMOUNTS.items()}
        for requests, tokens in (("n_prefill", "prefill_tokens"), ("n_decode", "decode_kv_tokens")):
            if amounts[tokens] and not amounts[requests]:
                raise TruthError(f"{where}: {AMOUNTS[tokens]}={amounts[tokens]} without {AMOUNTS[requests]}")
        wall = row.get("wall_time")
        timed = None
        if isinstance(wall, int | float) and not isinstance(wall, bool) and math.isfinite(wall) and wall > 0:
            timed = float(wall)
        key = (row.get("worker_id"), row.get("counter_id", f"line {line}"))
        passes.setdefault(key, []).append((line, amounts, timed))
    rows: list[dict[str, Any]] = []
    aside: dict[str, int] = {}
    columns = {k: v for k, v in about.columns().items() if v is not None}
    for (worker, counter), ranks in passes.items():
        times = [wall for _, _, wall in ranks if wall is not None]
        line, amounts, _ = max(ranks, key=lambda each: sum(each[1].values()))
        why = "without_work" if not sum(amounts.values()) else "without_time" if not times else None
        if why:
            aside[why] = aside.get(why, 0) + 1
            continue
        rows.append(
            truth_row(
                about.truth_set,
                f"{worker}/{counter}",
                "pass",
                max(times) * 1e3,
                grain=PASS,
                statistic="value",
                clock="engine",
                source=path.name,
                source_line=line,
                **{**amounts, **columns},  # type: ignore[arg-type]
            )
        )
    return TruthSet(about.truth_set, rows, "fpm", set_aside=aside)
