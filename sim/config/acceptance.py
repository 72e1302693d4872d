"""Measured acceptance of drafts, as engines report it, turned into conditional rates.

Engines count, per position, how many drafts of that position were accepted; a draft counts only if all before it held,
so the counts fall along the positions, and a position's conditional rate is its count over the count before it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from sim.result import MOST_DRAFTS

# Counters of vLLM's /metrics page; position 0 is the first draft. A suffix _total is the exposition format's.
_ROUNDS = re.compile(r"^vllm:spec_decode_num_drafts(?:_total)?(?:\{[^}]*\})?\s+(\S+)", re.M)
_ACCEPTED = re.compile(
    r"^vllm:spec_decode_num_accepted_tokens_per_pos(?:_total)?\{[^}]*\bposition=\"(\d+)\"[^}]*\}\s+(\S+)", re.M
)


def conditional(shares: Sequence[float], *, first: bool = False) -> tuple[float, ...]:
    """Rates given that all drafts before were accepted.

    Args:
        shares: per position, the share of rounds that accepted it and all before it; with `first`, counts behind the
            number of rounds.

    Raises:
        ValueError: they rise along the positions, which acceptance in order cannot.
    """
    values = list(shares) if first else [1.0, *shares]
    rates = []
    for position, (before, here) in enumerate(pairwise(values)):
        if here > before:
            raise ValueError(
                f"position {position} has {here:g} after {before:g}: accepted drafts cannot become more along the "
                "positions; give shares (or counts) of all rounds, not rates given the draft before"
            )
        rates.append(here / before if before > 0 else 0.0)
    return tuple(rates)


def read_measured(base: Path | None, name: str) -> dict[str, Any]:
    """Fields of `measured` from a file: JSON with the same fields, or a saved /metrics page of vLLM.

    Raises:
        ValueError: naming the file and what it lacks.
    """
    path = (base or Path()) / name
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as problem:
        raise ValueError(f"{name}: cannot be read: {problem.strerror}") from None
    except UnicodeDecodeError as problem:
        raise ValueError(f"{name}: cannot be read: {problem}") from None
    if text.lstrip().startswith("{"):
        try:
            found = json.loads(text)
        except ValueError as problem:
            raise ValueError(f"{name}: not JSON: {problem}") from None
        fields = ("per_position", "drafts", "accepted_per_position")
        if unknown := sorted(set(found) - set(fields)):
            raise ValueError(f"{name}: {unknown[0]}: unknown field; use {', '.join(fields)}")
        return dict(found)
    rounds = [_count(name, value) for value in _ROUNDS.findall(text)]
    accepted: dict[int, int] = {}
    for position, value in _ACCEPTED.findall(text):
        accepted[int(position)] = accepted.get(int(position), 0) + _count(name, value)
    if not rounds or not accepted:
        raise ValueError(
            f"{name}: neither JSON nor a metrics page with vllm:spec_decode_num_drafts and "
            "vllm:spec_decode_num_accepted_tokens_per_pos; save /metrics of a server that drafts"
        )
    if sorted(accepted) != list(range(len(accepted))):
        raise ValueError(f"{name}: positions {sorted(accepted)} of accepted tokens are not 0, 1, 2, ...")
    if sum(rounds) == 0:
        raise ValueError(f"{name}: no round was counted; save /metrics after the load has run")
    # Several engines of one server are counted together.
    return {
        "drafts": sum(rounds),
        "accepted_per_position": [accepted[position] for position in sorted(accepted)][:MOST_DRAFTS],
    }


def _count(name: str, text: str) -> int:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 2**53:
        raise ValueError(f"{name}: {text}: a counter must be a finite number of 0 or more")
    return int(value)
