"""Strict mode: a run that rests too much, or too far, on extrapolation is refused before anything is written."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from sim.config.timing import Strict
from sim.errors import ReplayError
from sim.result import PHASE_NAMES

SHOWN = 10


class ExtrapolationError(ReplayError):
    """Prices come from too far outside the measured data."""


def insist(strict: Strict, lookups: Mapping[str, np.ndarray]) -> None:
    """Hold the lookups of a replay against the limits.

    Args:
        lookups: `Outcome.lookups`.

    Raises:
        ExtrapolationError: naming the limit, the cells outside and how far each is from measured data.
    """
    if strict.max_extrapolated_share is None and strict.max_octaves is None:
        return
    outside = lookups["extrapolated"] != 0
    total = float(lookups["total_ns"].sum())
    share = float(lookups["total_ns"][outside].sum()) / total if total else 0.0
    octaves = float(lookups["max_millioctaves"].max(initial=0)) / 1000.0
    said = []
    if strict.max_extrapolated_share is not None and share > strict.max_extrapolated_share:
        said.append(f"{share:.1%} of pass time is extrapolated, {strict.max_extrapolated_share:.1%} is allowed")
    if strict.max_octaves is not None and octaves > strict.max_octaves:
        said.append(
            f"the farthest lookup lies {octaves:.2f} octaves outside the data, {strict.max_octaves:g} are allowed"
        )
    if said:
        raise ExtrapolationError(
            f"timing.strict: {'; '.join(said)}. Cells outside:\n{_cells(lookups, outside, total)}\n"
            "Measure these, keep the traffic nearer to the data, or raise the limits"
        )


def _cells(lookups: Mapping[str, np.ndarray], outside: np.ndarray, total: float) -> str:
    """The costliest cells, one a line, each with the nearest measured coordinates."""
    places = np.flatnonzero(outside)
    places = places[np.argsort(-lookups["total_ns"][places], kind="stable")]
    lines = []
    for i in places[:SHOWN].tolist():
        work = {name: int(lookups[name][i]) for name in _WORK if name in lookups}
        far = int(lookups["max_millioctaves"][i]) / 1000.0
        phase = PHASE_NAMES[int(lookups["phase"][i])]
        lines.append(
            f"  {phase} cell {int(lookups['cell'][i])}: {_words(phase, work, far)}; "
            f"{int(lookups['n_lookups'][i]):,} lookup(s), {float(lookups['total_ns'][i]) / total:.1%} of pass time"
        )
    if len(places) > SHOWN:
        lines.append(f"  and {len(places) - SHOWN} more")
    return "\n".join(lines)


_WORK = ("n_prefill", "prefill_tokens", "prefill_kv_tokens", "n_decode", "decode_kv_tokens")


def _words(phase: str, work: Mapping[str, int], far: float) -> str:
    if not work:
        return f"{far:.2f} octaves outside"
    if phase.endswith("prefill"):
        n = max(work["n_prefill"], 1)
        new, past = work["prefill_tokens"] // n, work["prefill_kv_tokens"] // n
        asked, length = f"{n} request(s) of {new} new and {past} past tokens", new + past
    else:
        n = max(work["n_decode"], 1)
        length = work["decode_kv_tokens"] // n
        asked = f"{n} request(s) at {length} KV tokens"
    nearest = max(math.floor(length / 2.0**far), 1)
    return f"{asked}, {far:.2f} octaves outside: measured up to about {nearest} tokens at this batch"
