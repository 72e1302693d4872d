"""What a user waits for before anything is replayed: compilation, `--help`, a small replay."""

from __future__ import annotations

import re
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.process import ROOT, TRACEMILL, run

HELP_LIMIT_S, SMALL_LIMIT_S, COMPILE_LIMIT_S = 0.5, 3.0, 60.0
# Kinds of replays whose kernels are compiled when the first of them comes; only the first has to be quick.
KINDS = {
    "compile": "compiling the engine, once per version",
    "compile_pools": "for separate pools as well, when they are first used",
    "compile_drafting": "for speculative decoding as well, when it is first used",
}
SMALL = ROOT / "examples" / "parity.yaml"
Say = Callable[[str], None]


def startup(*, quick: bool, say: Say) -> dict[str, Any]:
    """Start-up times, each in fresh processes."""
    found: dict[str, Any] = {"help": _several([*TRACEMILL, "--help"], 3 if quick else 15)}
    say(f"--help: {found['help']['wall_s']:.2f} s")
    with tempfile.TemporaryDirectory(prefix="tracemill-bench-") as scratch:
        small = [*TRACEMILL, "replay", str(SMALL), "--json", "-o", f"{scratch}/warehouse"]
        run(small)  # whatever is compiled or made once is made now
        found["small"] = _several(small, 2 if quick else 9)
        say(f"small replay: {found['small']['wall_s']:.2f} s")
        found["imports_ms"] = imports(small)
        if not quick:
            kernels, before = Path(scratch, "kernels"), 0.0
            for kind, title in KINDS.items():
                asked = f"drafting={kind == 'compile_drafting'}, pools={kind == 'compile_pools'}"
                code = f"from pipelines.compiling import compile_kernels; compile_kernels({asked})"
                fresh = run([sys.executable, "-c", code], {"TRACEMILL_CACHE": str(kernels)})
                size = _size_mib(kernels)
                found[kind] = {"wall_s": fresh.wall_s, "cpu_s": fresh.cpu_s, "rss_mib": fresh.rss_mib}
                found[kind]["disk_mib"], before = size - before, size
                say(f"{title}: {fresh.wall_s:.1f} s, {fresh.cpu_s:.1f} s of CPU")
    return found


def _several(command: list[str], times: int) -> dict[str, float]:
    runs = [run(command) for _ in range(times)]
    return {
        "wall_s": statistics.median(r.wall_s for r in runs),
        "worst_s": max(r.wall_s for r in runs),
        "cpu_s": statistics.median(r.cpu_s for r in runs),
        "rss_mib": max(r.rss_mib for r in runs),
    }


def imports(command: list[str]) -> dict[str, float]:
    """Milliseconds that importing takes, by top-level package, largest first. Measuring slows it by a third or so."""
    timed = [command[0], "-X", "importtime", *command[1:]]
    said = subprocess.run(timed, cwd=ROOT, capture_output=True, text=True, check=True).stderr
    spent: dict[str, float] = defaultdict(float)
    for own, name in re.findall(r"import time:\s+(\d+) \|\s+\d+ \|\s+(\S+)", said):
        top = name.split(".")[0]
        spent["standard library" if top.lstrip("_") in _STANDARD else top] += int(own) / 1000
    return dict(sorted(spent.items(), key=lambda item: -item[1])[:10])


_STANDARD = {name.lstrip("_") for name in sys.stdlib_module_names} | {"site", "encodings", "zipimport"}


def _size_mib(folder: Path) -> float:
    return sum(p.stat().st_size for p in folder.rglob("*") if p.is_file()) / 2**20
