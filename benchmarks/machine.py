"""Where and with what figures were taken. No host name, no paths."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.process import ROOT

PACKAGES = ("numba", "numpy", "pyarrow", "duckdb", "pydantic")


def describe() -> dict[str, Any]:
    """Date, machine, versions, and how busy the machine was."""
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "processor": _first("/proc/cpuinfo", "model name") or platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "system": f"{platform.system()} {platform.machine()}",
        "load_average": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
        "packages": {name: version(name) for name in PACKAGES},
        "tracemill": version("tracemill"),
        "commit": commit(),
    }


def commit() -> str:
    """The commit that was measured; "+" when files differed from it."""
    said = subprocess.run(
        ["git", "describe", "--always", "--dirty=+", "--abbrev=12"], cwd=ROOT, capture_output=True, text=True
    )
    return said.stdout.strip() or "unknown"


def _first(path: str, key: str) -> str | None:
    file = Path(path)
    if file.exists():
        for line in file.read_text().splitlines():
            name, _, value = line.partition(":")
            if name.strip() == key:
                return value.strip()
    return None
