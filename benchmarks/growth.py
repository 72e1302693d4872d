"""How cost grows: with concurrency, with the length of a trace, and where nothing happens at all."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

from benchmarks.process import run

CONCURRENCY = tuple(2**k for k in range(4, 14))
LENGTHS = tuple(10**k for k in range(3, 8))
PROFILES = ("vllm", "parity")
POOLS = tuple(2**k for k in range(7))
IN_FLIGHT = 32  # requests per decode worker
# The span over which cost must not grow: time per event at most twice, a pass without events at most 1.3 times.
FROM, TO = 64, 4096
EVENT_LIMIT, QUIET_LIMIT = 2.0, 1.3
Say = Callable[[str], None]


def growth(*, quick: bool, say: Say) -> dict[str, Any]:
    """All curves: over concurrency, with and without events; over the length of a trace; over the size of pools.

    Args:
        quick: a few small points, for trying the benchmark itself.
    """
    concurrency = (16, 64) if quick else CONCURRENCY
    lengths = (1000,) if quick else LENGTHS
    curves: dict[str, Any] = {"concurrency": [], "quiet": [], "length": [], "pools": []}
    for c in concurrency:
        for profile in PROFILES:
            curves["concurrency"].append(busy(c, profile, requests=2_000 if quick else 200_000))
            say(f"concurrency {c}, {profile}: {curves['concurrency'][-1]['ns_per_event']:.0f} ns per event")
            curves["quiet"].append(quiet(c, profile, passes=2_000 if quick else 200_000))
            say(f"concurrency {c}, {profile}: {curves['quiet'][-1]['ns_per_pass']:.0f} ns per pass without events")
    for n in lengths:
        curves["length"].append(length(n))
        say(f"{n:,} requests: {curves['length'][-1]['ns_per_request']:.0f} ns per request")
    for n in (1, 2) if quick else POOLS:
        for shared in (False, True):
            curves["pools"].append(pools(n, shared=shared, requests=1_000 if quick else 100_000))
            said = f"{n} + {n} workers, {'links shared' if shared else 'no links'}"
            say(f"{said}: {curves['pools'][-1]['ns_per_event']:.0f} ns per event")
    return curves


def _measure(point: dict[str, Any]) -> dict[str, Any]:
    done = run([sys.executable, "-m", "benchmarks.point", json.dumps(point)])
    # Disturbances only ever add time.
    return {**done.answer, "best_ms": min(done.answer["engine_ms"])}


def busy(concurrency: int, profile: str, *, requests: int) -> dict[str, Any]:
    """Outputs of different lengths, so that ends and admissions are spread over the passes. Pool and budget stay."""
    got = _measure(
        {
            "profile": profile, "concurrency": concurrency, "requests": requests, "prompt": 128, "output": 256,
            "spread": 128, "block_tokens": 64, "blocks": 81_920, "budget": 16_384, "repeats": 5,
        }
    )  # fmt: skip
    return {
        "concurrency": concurrency,
        "profile": profile,
        "passes": got["passes"],
        "events": got["events"],
        "us_per_pass": got["best_ms"] * 1e3 / got["passes"],
        "ns_per_event": got["best_ms"] * 1e6 / (got["events"] + got["passes"]),
        "ns_per_request": got["best_ms"] * 1e6 / requests,
        "rss_mib": got["rss_mib"],
        "every_ms": got["engine_ms"],
    }


def quiet(concurrency: int, profile: str, *, passes: int) -> dict[str, Any]:
    """Everybody decodes inside one KV block for very long. The difference of two lengths is passes without an event."""
    times = []
    for output in (passes, 4 * passes):
        got = _measure(
            {
                "profile": profile, "concurrency": concurrency, "requests": concurrency, "prompt": 64,
                "output": output, "block_tokens": 1 << 20, "blocks": 8192, "budget": 16_384, "repeats": 5,
            }
        )  # fmt: skip
        times.append(got["best_ms"])
    return {
        "concurrency": concurrency,
        "profile": profile,
        "passes": 3 * passes,
        "ns_per_pass": (times[1] - times[0]) * 1e6 / (3 * passes),
    }


def length(requests: int) -> dict[str, Any]:
    """Workload a at other lengths, in memory, rows thrown away."""
    got = _measure(
        {
            "profile": "parity", "concurrency": 256, "requests": requests, "prompt": 1024, "output": 128,
            "block_tokens": 64, "blocks": 16_384, "budget": 8192, "repeats": max(2, min(20, 2_000_000 // requests)),
        }
    )  # fmt: skip
    return {
        "requests": requests,
        "engine_ms": got["best_ms"],
        "ns_per_request": got["best_ms"] * 1e6 / requests,
        "rss_mib": got["rss_mib"],
    }


def pools(workers: int, *, shared: bool, requests: int) -> dict[str, Any]:
    """So many workers for prefill and as many for decode, with the same load each."""
    got = _measure(
        {
            "profile": "parity", "pools": workers, "shared": shared, "concurrency": IN_FLIGHT * workers,
            "requests": requests, "prompt": 512, "output": 128, "spread": 64, "block_tokens": 64, "blocks": 4096,
            "budget": 8192, "repeats": 5,
        }
    )  # fmt: skip
    return {
        "workers": workers,
        "shared": shared,
        "passes": got["passes"],
        "engine_ms": got["best_ms"],
        "ns_per_event": got["best_ms"] * 1e6 / (got["events"] + got["passes"]),
        "ns_per_request": got["best_ms"] * 1e6 / requests,
        "rss_mib": got["rss_mib"],
        "every_ms": got["engine_ms"],
    }


def grown(points: list[dict[str, Any]], profile: str, key: str) -> float | None:
    """How much a cost grew between the two concurrencies that count; None where one was not measured."""
    cost = {p["concurrency"]: p[key] for p in points if p["profile"] == profile}
    return cost[TO] / cost[FROM] if FROM in cost and TO in cost else None
