"""Drafts accepted by chance: our replays against the reference simulator's, as distributions over seeds.

    python -m tests.oracles.rates --python PEER_PYTHON --script peer_replay.py --seeds 40

Both engines draw from generators of their own, so single runs differ. For every workload and figure the means over the
seeds are compared: the difference with its 99 % confidence interval (Welch), and beside it the spread that the seed
alone makes in either engine. Exit code 1 if an interval leaves out zero or its far end exceeds `--within`.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


def answer(script: Path, seeds: int) -> None:
    """For the simulator's interpreter: one line of figures per workload and seed."""
    sys.path.insert(0, str(HERE))
    from rate_cases import WORKLOADS, case, figures  # type: ignore[import-not-found]

    spec = importlib.util.spec_from_file_location("peer_replay", script)
    assert spec and spec.loader
    peer = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(peer)
    for name in WORKLOADS:
        for seed in range(seeds):
            found = peer.run_case(case(name, seed), per_request=False)
            print(json.dumps([name, figures(name, found["summary"])]), flush=True)


def ours(name: str, seed: int, engine: str) -> dict[str, float]:
    from assets.golden import peer_case
    from assets.golden.run import run
    from sim import metrics
    from tests.oracles.rate_cases import case, figures

    loaded = peer_case.load(case(name, seed), HERE)
    done = run(loaded.spec, loaded.workload, engine)  # type: ignore[arg-type]
    return figures(name, metrics.summary(done.tables["requests"], done.outcome, loaded.spec))


def compare(ours: Any, theirs: Any) -> tuple[float, float, float, float, float]:
    """(our mean, their mean, half width of the 99 % interval of the difference, our spread, theirs)."""
    from scipy import stats

    a, b = ours.var(ddof=1) / len(ours), theirs.var(ddof=1) / len(theirs)
    if a + b == 0:
        return ours.mean(), theirs.mean(), 0.0, 0.0, 0.0
    freedom = (a + b) ** 2 / (a**2 / (len(ours) - 1) + b**2 / (len(theirs) - 1))
    half = stats.t.ppf(0.995, freedom) * (a + b) ** 0.5
    return ours.mean(), theirs.mean(), half, ours.std(ddof=1), theirs.std(ddof=1)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--script", type=Path, required=True, help="the script that drives the simulator")
    parser.add_argument("--python", help="interpreter of the simulator's venv")
    parser.add_argument("--seeds", type=int, default=40)
    parser.add_argument("--engine", choices=["fast", "reference"], default="fast")
    parser.add_argument("--within", type=float, default=0.02, help="largest difference of the means that may hide")
    parser.add_argument("--answer", action="store_true", help="answer as the simulator; for its interpreter")
    args = parser.parse_args()
    if args.answer:
        answer(args.script, args.seeds)
        return 0
    import numpy as np

    from tests.oracles.rate_cases import WORKLOADS

    command = [args.python, __file__, "--answer", "--script", str(args.script.resolve()), "--seeds", str(args.seeds)]
    said = subprocess.run(command, check=True, capture_output=True, text=True, env={**os.environ, "DYN_LOG": "off"})
    theirs: dict[str, list[dict[str, float]]] = {name: [] for name in WORKLOADS}
    for line in said.stdout.splitlines():
        name, found = json.loads(line)
        theirs[name].append(found)
    apart = total = 0
    print("workload | figure | ours | theirs | difference, 99 % interval | spread over seeds, ours and theirs")
    for name in WORKLOADS:
        mine = [ours(name, seed, args.engine) for seed in range(args.seeds)]
        for key in mine[0]:
            columns = (np.array([figures[key] for figures in runs]) for runs in (mine, theirs[name]))
            a, b, half, spread, spread_b = compare(*columns)
            away = (a - b) / b
            out = abs(a - b) > half or (abs(a - b) + half) / b > args.within
            apart, total = apart + out, total + 1
            print(
                f"{name} | {key} | {a:.4f} | {b:.4f} | {away:+.2%} [{away - half / b:+.2%}, {away + half / b:+.2%}] | "
                f"{spread / a:.2%} {spread_b / b:.2%}{'  APART' if out else ''}",
                flush=True,
            )
    print(f"{total - apart} passed, {apart} failed, 0 skipped")
    return 1 if apart else 0


if __name__ == "__main__":
    sys.exit(main())
