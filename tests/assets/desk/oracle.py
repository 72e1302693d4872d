"""The first divergent pass, looked for the long way: every pass with everybody in it, rank by rank, in Python."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from assets.desk.divergence import CHOICE, COMPARED, PRICE
from sim.result import Columns

Key = tuple[int, int, int]


def rows(table: Columns) -> list[dict[str, int]]:
    names = list(table)
    return [dict(zip(names, values, strict=True)) for values in zip(*(c.tolist() for c in table.values()), strict=True)]


def passes(tables: dict[str, Columns], ids: dict[int, int]) -> dict[Key, dict[str, Any]]:
    """(worker, dp_rank, pass_no) -> its columns, and under "who" everybody's part in it."""
    found: dict[Key, dict[str, Any]] = {_key(row): row | {"who": []} for row in rows(tables["passes"])}
    who: dict[Key, list[Any]] = defaultdict(list)
    for name in ("admissions", "chunks", "pressure"):
        for row in rows(tables[name]):
            facts = {k: ids[v] if k in ("request", "asker") else v for k, v in row.items()}
            # Redundant with the pass's own row.
            facts.pop("start_ns", None)
            who[_key(row)].append((name, sorted(facts.items())))
    for row in rows(tables["spans"]):
        for i in range(row["n_tokens"]):
            key = (row["worker"], row["dp_rank"], row["first_pass"] + i)
            who[key].append(("token", ids[row["request"]], row["first_token_no"] + i))
    for key, row in found.items():
        row["who"] = sorted(who[key])
    return found


def first_divergence(base: dict[Key, dict[str, Any]], head: dict[Key, dict[str, Any]]) -> Key | None:
    """Per rank the first pass that differs; of those the first in time."""
    firsts: dict[tuple[int, int], tuple[int, Key]] = {}
    for key in sorted(base.keys() | head.keys()):
        b, h = base.get(key), head.get(key)
        if key[:2] in firsts or (b and h and all(b[c] == h[c] for c in (*COMPARED, "who"))):
            continue
        there = [row for row in (b, h) if row]
        at_end = b and h and all(b[c] == h[c] for c in CHOICE + PRICE) and any(b[c] != h[c] for c in COMPARED)
        firsts[key[:2]] = (min(row["end_ns" if at_end else "chosen_ns"] for row in there), key)
    return min(firsts.values())[1] if firsts else None


def _key(row: dict[str, int]) -> Key:
    return row["worker"], row["dp_rank"], row["pass_no"]
