"""Ten million requests, from configuration to committed tables."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.process import TRACEMILL, run
from benchmarks.workloads import workloads

REQUESTS = 10_000_000
LIMIT_MIB = 8192
# A closed loop as regular as can be, and a random open loop with shared prefixes, which compresses badly.
TRAFFIC = {
    "closed loop, fixed timing": [],
    "Poisson arrivals, polynomial timing, half of each prompt shared by one of ten groups": [
        "traffic.load={type: poisson, requests_per_second: 50}",
        "traffic.source.shared_prefix_ratio=0.5",
        "traffic.source.prefix_groups=10",
        "engine.workers.aggregated.timing={type: polynomial}",
    ],
}
Say = Callable[[str], None]


def large(*, quick: bool, say: Say) -> list[dict[str, Any]]:
    """Time, memory and disk of each kind of traffic."""
    n, found = 10_000 if quick else REQUESTS, []
    for title, overrides in TRAFFIC.items():
        with tempfile.TemporaryDirectory(prefix="tracemill-bench-") as scratch:
            _, config = workloads(None)["a"].write(Path(scratch))
            settings = [f"traffic.stop.requests={n}", *overrides]
            command = [*TRACEMILL, "replay", str(config), "--json", "-o", f"{scratch}/warehouse"]
            done = run([*command, *(part for setting in settings for part in ("--set", setting))])
            disk = sum(p.stat().st_size for p in Path(scratch, "warehouse").rglob("*") if p.is_file())
        say(f"{n:,} requests, {title}: {done.wall_s:.0f} s, {done.rss_mib:,.0f} MiB")
        found.append(
            {
                "title": title,
                "requests": n,
                "engine_ms": done.figure("wall_time_ms"),
                "wall_s": done.wall_s,
                "cpu_s": done.cpu_s,
                "rss_mib": done.rss_mib,
                "disk_mib": disk / 2**20,
                "stages_s": done.answer["seconds"],
            }
        )
    return found
