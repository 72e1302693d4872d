"""What paired measurements of host performance amount to: ratios with their range, read inside the noise."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from typing import Any

from assets.desk.host import BASE, FORMAT, HEAD, BenchError

# Figure -> (what it is, unit, digits).
FIGURES = {
    "engine_ms": ("engine, requests in memory to results in memory", "ms", 1),
    "total_ms": ("replay with reading and writing", "ms", 1),
    "wall_s": ("whole process", "s", 2),
    "cpu_s": ("processor time", "s", 2),
    "rss_mib": ("peak memory", "MiB", 0),
}
SAME, IN_COMMON, DIFFERENT = "same", "same in the columns that both write", "different"


def summarise(measured: Mapping[str, Any]) -> dict[str, Any]:
    """Follows from the measurements and nothing else.

    Returns:
        `predictions`: whether both arms gave the same rows. `figures`: per figure the median of each arm, `ratio` (head
        over base; median, least and most over the rounds), `noise` (least and most of an arm over itself) and a
        `verdict`: "no difference beyond the noise", "faster" or "slower" ("less" or "more" for memory).

    Raises:
        BenchError: these are no measurements of this format.
    """
    if measured.get("format") != FORMAT or not measured.get("rounds"):
        raise BenchError(f"no measurements of format {FORMAT}: made by tracemill bench CONFIG --vs ... -o FILE")
    return {
        "config": measured["config"],
        "rounds": len(measured["rounds"]),
        "base": measured["arms"][BASE]["called"],
        "head": measured["arms"][HEAD]["called"],
        "same_configuration": measured["same_configuration"],
        "predictions": predictions(measured),
        "differing_tables": differing(measured),
        "figures": {name: _figure(measured["rounds"], name) for name in FIGURES},
    }


def predictions(measured: Mapping[str, Any]) -> str:
    """Whether both arms gave the same rows, by the digests of their columns."""
    base, head = (measured["arms"][name] for name in (BASE, HEAD))
    if base["run"]["result_digest"] == head["run"]["result_digest"]:
        return SAME
    if base["run"]["schema_digest"] == head["run"]["schema_digest"]:
        return DIFFERENT
    return DIFFERENT if differing(measured) else IN_COMMON


def differing(measured: Mapping[str, Any]) -> list[str]:
    """Tables of which the arms hold other rows, in the columns that both write."""
    base, head = (measured["arms"][name]["tables"] for name in (BASE, HEAD))
    return [
        table
        for table in sorted(base.keys() & head.keys())
        if base[table]["rows"] != head[table]["rows"]
        or any(base[table]["digests"][c] != head[table]["digests"][c]
               for c in base[table]["digests"].keys() & head[table]["digests"])
    ]  # fmt: skip


def summary_text(found: Mapping[str, Any]) -> str:
    """As people read it."""
    lines = [
        f"{found['config']}: head {found['head']} over base {found['base']}, {found['rounds']} rounds of two runs each",
        f"predictions   {found['predictions']}{': ' if found['differing_tables'] else ''}"
        + ", ".join(found["differing_tables"]),
    ]
    for name, (title, unit, digits) in FIGURES.items():
        f = found["figures"][name]
        ratio, noise = f["ratio"], f["noise"]
        lines.append(
            f"{name:<12}  × {ratio['median']:.3f} ({ratio['least']:.3f} to {ratio['most']:.3f}); "
            f"noise {noise['least']:.3f} to {noise['most']:.3f}: {f['verdict']}. "
            f"{title}: {f[BASE]:,.{digits}f} → {f[HEAD]:,.{digits}f} {unit}"
        )
    return "\n".join(lines)


def _figure(rounds: list[list[dict[str, Any]]], name: str) -> dict[str, Any]:
    ratios, same = [], []
    for runs in rounds:
        of = {arm: [r[name] for r in runs if r["arm"] == arm] for arm in (BASE, HEAD)}
        ratios.append(_mean(of[HEAD]) / _mean(of[BASE]))
        same += [second / first for first, second in of.values()]
    # Which of two equal runs came first means nothing, so the band is the same on both sides of 1.
    widest = max(max(r, 1 / r) for r in same)
    median = statistics.median(ratios)
    verdict = "no difference beyond the noise"
    if not 1 / widest <= median <= widest:
        less, more = ("less", "more") if name == "rss_mib" else ("faster", "slower")
        verdict = less if median < 1 else more
    return {
        BASE: statistics.median(r[name] for runs in rounds for r in runs if r["arm"] == BASE),
        HEAD: statistics.median(r[name] for runs in rounds for r in runs if r["arm"] == HEAD),
        "ratio": {"median": median, "least": min(ratios), "most": max(ratios)},
        "noise": {"least": 1 / widest, "most": widest},
        "verdict": verdict,
    }


def _mean(values: list[float]) -> float:
    """Geometric: of ratios, no side is favoured."""
    return math.exp(statistics.fmean(math.log(v) for v in values))
