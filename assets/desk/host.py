"""Host performance, measured in pairs: two installations (or two configurations) replay the same thing turn about, so
that a busy moment of the machine meets both.

A round is A B B A or, every second time, B A A B: what grows or falls steadily through a round cancels out. The two
runs of the same arm in a round, whose ratio ought to be 1, say how much noise there is.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perf_db.layout import StoreError

FORMAT = 1
BASE, HEAD = "base", "head"
ORDERS = ((BASE, HEAD, HEAD, BASE), (HEAD, BASE, BASE, HEAD))
Say = Callable[[str], None]


class BenchError(StoreError):
    """The measurement cannot be made as asked."""


@dataclass(frozen=True)
class Arm:
    """One side.

    Attributes:
        python: interpreter that runs it.
        sources: folder put in front of what that interpreter has installed; None: its own.
        overrides: `key=value` each, of this side only.
        called: how a report names it.
    """

    python: Path
    sources: Path | None
    overrides: tuple[str, ...]
    called: str


def own_arm(overrides: Sequence[str] = (), called: str = "this installation") -> Arm:
    """The installation that runs this."""
    return Arm(Path(sys.executable), Path(__file__).parents[2], tuple(overrides), called)


def other_arm(path: Path, overrides: Sequence[str] = ()) -> Arm:
    """Another one: a checkout, a virtual environment, or an interpreter.

    Raises:
        BenchError: it is none of these.
    """
    if (path / "pipelines" / "__main__.py").exists():
        return Arm(Path(sys.executable), path.absolute(), tuple(overrides), f"checkout {path.name}")
    for candidate in (path / "bin" / "python", path):
        if candidate.is_file() and os.access(candidate, os.X_OK):
            return Arm(candidate.absolute(), None, tuple(overrides), f"environment {path.name}")
    raise BenchError(
        f"--vs {path}: neither a checkout (with pipelines/), nor a virtual environment, nor an interpreter"
    )


def measure(config: Path, base: Arm, head: Arm, *, rounds: int, say: Say | None = None) -> dict[str, Any]:
    """Run both arms `2 * rounds` times each, after one run each that does not count.

    Returns:
        Everything that was measured, in plain values; `assets.desk.host_summary` says what it amounts to.

    Raises:
        BenchError: an arm failed; the message ends with what it said.
    """
    arms = {BASE: base, HEAD: head}
    first: dict[str, dict[str, Any]] = {}
    measured: list[list[dict[str, Any]]] = []
    with tempfile.TemporaryDirectory(prefix="tracemill-bench-") as scratch:
        for name, arm in arms.items():
            # Compiles, and brings files into the system's cache.
            first[name] = _run(config, arm, Path(scratch) / f"warm-{name}")
            if say is not None:
                say(f"warm    {name} ({arm.called}): {first[name]['engine_ms']:,.1f} ms")
        for number in range(rounds):
            runs = []
            for place, name in enumerate(ORDERS[number % 2]):
                done = _run(config, arms[name], Path(scratch) / f"{number}-{place}")
                runs.append({"arm": name} | {k: v for k, v in done.items() if k not in ("tables", "run")})
                if done["digests"] != first[name]["digests"]:
                    raise BenchError(
                        f"{name} ({arms[name].called}) gives other rows than before: it is not reproducible"
                    )
            measured.append(runs)
            if say is not None:
                say(f"round {number + 1:<2} " + ", ".join(f"{r['arm']} {r['engine_ms']:,.1f} ms" for r in runs))
    return {
        "format": FORMAT,
        "config": config.name,
        "same_configuration": base.overrides == head.overrides,
        "arms": {
            name: {
                "called": arm.called,
                "overrides": list(arm.overrides),
                "run": first[name]["run"],
                "tables": first[name]["tables"],
            }
            for name, arm in arms.items()
        },
        "machine": {
            "system": platform.system(),
            "machine": platform.machine(),
            "python": platform.python_version(),
            "cores": len(os.sched_getaffinity(0)),
        },
        "rounds": [[{k: v for k, v in r.items() if k != "digests"} for r in runs] for runs in measured],
    }


_ABOUT = ("replay_id", "config_digest", "trace_digest", "performance_digest", "engine_digest", "schema_digest",
          "result_digest", "tracemill_version", "python_version", "numpy_version", "numba_version")  # fmt: skip


def _run(config: Path, arm: Arm, folder: Path) -> dict[str, Any]:
    """One replay in a fresh process, and what the system charged it."""
    folder.mkdir()
    command = [str(arm.python), "-m", "pipelines", "replay", str(config.absolute()), "--json", "-o", str(folder / "w")]
    for text in arm.overrides:
        command += ["--set", text]
    environment = dict(os.environ)
    environment.pop("PYTHONPATH", None)
    if arm.sources is not None:
        environment["PYTHONPATH"] = str(arm.sources)
    with tempfile.TemporaryFile() as said:
        began = time.perf_counter()
        # A folder of its own: with -m, Python would import from wherever it was started.
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=said, env=environment, cwd=folder)
        # wait4 and not wait: it alone tells the peak memory of this child.
        _, status, usage = os.wait4(child.pid, 0)
        wall_s = time.perf_counter() - began
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode:
            said.seek(0)
            last = said.read().decode(errors="replace")[-2000:]
            raise BenchError(f"{arm.called}: exit code {child.returncode} of a replay of {config.name}:\n{last}")
    records = list((folder / "w" / "commits").glob("*.json"))
    if len(records) != 1:
        raise BenchError(f"{arm.called}: a replay of {config.name} left {len(records)} commit records")
    record = json.loads(records[0].read_text(encoding="utf-8"))
    tables = {t["table"]: {"rows": t["n_rows"], "digests": t["digests"]} for t in record["tables"]}
    return {
        "engine_ms": record["run"]["engine_ms"],
        "total_ms": record["run"]["total_ms"],
        "wall_s": wall_s,
        "cpu_s": usage.ru_utime + usage.ru_stime,
        "rss_mib": usage.ru_maxrss / 1024,
        "digests": record["run"]["result_digest"],
        "run": {name: record["run"].get(name) for name in _ABOUT},
        "tables": tables,
    }
