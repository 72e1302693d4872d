"""One command in a fresh process, and what the system charged it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
TRACEMILL = (sys.executable, "-m", "pipelines")


@dataclass(frozen=True)
class Run:
    """A finished process.

    Attributes:
        wall_s: from start to exit.
        cpu_s: user and system time of all its threads.
        rss_mib: peak resident memory.
        answer: what it printed, if that was one JSON object.
    """

    wall_s: float
    cpu_s: float
    rss_mib: float
    answer: dict[str, Any] = field(default_factory=dict)

    def figure(self, key: str) -> float:
        """A figure of the summary it printed."""
        return float(self.answer["summary"][key])


def run(command: Sequence[str], environment: Mapping[str, str] | None = None) -> Run:
    """Run a command from the project's root and wait for it.

    Raises:
        RuntimeError: it failed; the message ends with what it said.
    """
    # Log lines of the other engine would be mixed into its answer.
    full = {**os.environ, "DYN_LOG": "off", **(environment or {})}
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as said:
        began = time.perf_counter()
        child = subprocess.Popen(command, stdout=out, stderr=said, env=full, cwd=ROOT)
        # wait4 and not wait: it alone tells the peak memory of this child.
        _, status, usage = os.wait4(child.pid, 0)
        wall_s = time.perf_counter() - began
        child.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        said.seek(0)
        text = out.read().decode(errors="replace")
        if child.returncode:
            last = said.read().decode(errors="replace")[-2000:]
            raise RuntimeError(f"exit code {child.returncode} of {' '.join(command)}:\n{last}")
    try:
        answer = json.loads(text)
    except ValueError:
        answer = {}
    return Run(
        wall_s=wall_s,
        cpu_s=usage.ru_utime + usage.ru_stime,
        rss_mib=usage.ru_maxrss / 1024,
        answer=answer if isinstance(answer, dict) else {},
    )
