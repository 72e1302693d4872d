"""Both engines turn about, so that a busy moment of the machine meets both: ours, tables, theirs, ours again."""

from __future__ import annotations

import math
import statistics
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from benchmarks.process import ROOT, TRACEMILL, Run, run
from benchmarks.workloads import Workload

SAME = ("duration_ms", "completed_requests", "mean_ttft_ms")
CHANCE = 0.02  # seeds alone move the mean TTFT of workload f by 1.3 % from least to most
Say = Callable[[str], None]


def compare(workload: Workload, *, rounds: int, peer_python: Path | None, say: Say) -> dict[str, Any]:
    """All figures of one workload.

    Every round runs our engine twice: the first run is paired with the other engine's, the second with the first. The
    spread of that second ratio, which ought to be 1, is the noise in which every other ratio must be read.

    Raises:
        RuntimeError: a run failed.
    """
    with tempfile.TemporaryDirectory(prefix="tracemill-bench-") as scratch:
        folder = Path(scratch)
        case, config = workload.write(folder)
        ours = [*TRACEMILL, "replay", "--case", str(case), "--json", "--summary-only"]
        commands = {"ours": ours, "tables": [*TRACEMILL, "replay", str(config), "--json"]}
        if peer_python is not None:
            commands["peer"] = [str(peer_python), str(ROOT / "benchmarks" / "peer_driver.py"), str(case)]
        commands["again"] = ours
        runs: dict[str, list[Run]] = {who: [] for who in commands}
        for number in range(rounds):
            for who, command in commands.items():
                # A warehouse of its own each time: the first commit makes the database.
                fresh = ["-o", str(folder / f"warehouse-{number}")] if who == "tables" else []
                runs[who].append(run([*command, *fresh]))
            say(f"{workload.key} round {number + 1}: " + ", ".join(_line(who, of[-1]) for who, of in runs.items()))
    return {
        "title": workload.title,
        "rounds": rounds,
        "runs": {who: condense(of) for who, of in runs.items()},
        "ratios": ratios(runs),
        "differences": differences(runs, draws=workload.draws),
        "draws": workload.draws,
    }


def _line(who: str, done: Run) -> str:
    return f"{who} {done.figure('wall_time_ms'):,.0f} ms"


def condense(runs: list[Run]) -> dict[str, Any]:
    """Median and fastest of a column of runs, the largest memory, the answers."""
    engine = [r.figure("wall_time_ms") for r in runs]
    return {
        "engine_ms": statistics.median(engine),
        "fastest_ms": min(engine),
        "wall_s": statistics.median(r.wall_s for r in runs),
        "cpu_s": statistics.median(r.cpu_s for r in runs),
        "rss_mib": max(r.rss_mib for r in runs),
        "answers": {key: runs[0].figure(key) for key in SAME},
        "call_ms": statistics.median(r.answer["call_ms"] for r in runs) if "call_ms" in runs[0].answer else None,
        "version": runs[0].answer.get("version"),
        "every": [
            {"engine_ms": r.figure("wall_time_ms"), "wall_s": r.wall_s, "cpu_s": r.cpu_s, "rss_mib": r.rss_mib}
            for r in runs
        ],
    }


def ratios(runs: dict[str, list[Run]]) -> dict[str, dict[str, float]]:
    """Ratios of neighbouring runs: median, least and most over the rounds."""
    paired = {"noise": _spread((b.figure("wall_time_ms") / a.figure("wall_time_ms")) for a, b in _pairs(runs, "again"))}
    paired["noise_wall"] = _spread(b.wall_s / a.wall_s for a, b in _pairs(runs, "again"))
    if "peer" in runs:
        paired["engine"] = _spread(b.figure("wall_time_ms") / a.figure("wall_time_ms") for a, b in _pairs(runs, "peer"))
        paired["summary_only"] = _spread(b.wall_s / a.wall_s for a, b in _pairs(runs, "peer"))
        paired["summary_only_cpu"] = _spread(b.cpu_s / a.cpu_s for a, b in _pairs(runs, "peer"))
        tables = list(zip(runs["tables"], runs["peer"], strict=True))
        paired["with_tables"] = _spread(b.wall_s / a.wall_s for a, b in tables)
        paired["with_tables_cpu"] = _spread(b.cpu_s / a.cpu_s for a, b in tables)
    return paired


def _pairs(runs: dict[str, list[Run]], who: str) -> Iterable[tuple[Run, Run]]:
    return zip(runs["ours"], runs[who], strict=True)


def _spread(values: Iterable[float]) -> dict[str, float]:
    listed = list(values)
    return {"median": statistics.median(listed), "least": min(listed), "most": max(listed)}


def differences(runs: dict[str, list[Run]], *, draws: bool = False) -> list[str]:
    """Where any run gave another answer than our first: times must agree to 1e-8, counts exactly.

    Args:
        draws: chance has a part in it, so that the other engine's times need only be within CHANCE.
    """
    first, found = runs["ours"][0], []
    for who, of in runs.items():
        for key in SAME:
            for r in of:
                mine, theirs = first.figure(key), r.figure(key)
                # The other engine adds doubles of milliseconds, we add whole nanoseconds.
                near = CHANCE if draws and who == "peer" and key != "completed_requests" else 1e-8
                if not math.isclose(mine, theirs, rel_tol=near, abs_tol=1e-5):
                    found.append(f"{who}: {key} {theirs!r} instead of {mine!r}")
    return sorted(set(found))
