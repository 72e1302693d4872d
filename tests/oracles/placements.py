"""Does the reference simulator's `kv_router` place requests where we say that they cost least?

    python -m tests.oracles.placements --python PEER_PYTHON --script peer_replay.py --count 500

The simulator draws among ranks of equal cost. So we follow it, and ask at every placement whether its rank was one of
the cheapest in our books; afterwards all first tokens have to have come at the same time.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import sim.reference
from assets.golden import peer_case
from sim.reference import Rank, Request
from sim.reference_routing import PrefillRouter, Router
from sim.result import MemorySink
from sim.spec import Routing
from tests.oracles.routed_cases import routed_case

HERE = Path(__file__).parent
WITHIN_MS = 1e-3


def follow(seed: int, seen: list[list[Any]], *, pools: bool, tally: Counter[str]) -> str:
    """What is wrong with a case; empty if nothing is."""
    case = routed_case(seed, pools=pools)
    case["topology"]["router_mode"] = "round_robin"  # which is all that case files have
    asked = peer_case.load(case, Path())
    if len(seen) != len(asked.workload):
        return "not all requests were answered"
    wrong = list[str]()

    def choose(self: Router, request: Request, ranks: Sequence[Rank]) -> int:
        costs = [self.cost(request, rank) for rank in ranks]
        theirs = seen[request.index][1 if isinstance(self, PrefillRouter) else 2]
        tally["placements"] += 1
        tally["placements without a tie"] += costs.count(min(costs)) == 1
        if theirs is None:  # rejected or failed: nobody says where
            return costs.index(min(costs))
        if costs[theirs] != min(costs):
            wrong.append(f"request {request.index} went to {theirs} of {costs} ({type(self).__name__})")
        return int(theirs)

    before, Router.choose = Router.choose, choose  # type: ignore[method-assign]
    sink = MemorySink()
    try:
        sim.reference.replay(replace(asked.spec, routing=Routing()), asked.workload, sink)
    finally:
        Router.choose = before  # type: ignore[method-assign]
    if wrong:
        return wrong[0]
    first = sink.table("requests")["first_token_ns"] / 1e6
    for i, (ours, row) in enumerate(zip(first, seen, strict=True)):
        if abs(max(ours, 0) - (row[3] or 0)) > WITHIN_MS:
            return f"request {i} has its first token at {ours} ms, not at {row[3]}"
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", required=True, help="interpreter of the simulator's venv")
    parser.add_argument("--script", type=Path, required=True, help="the script that drives the simulator")
    parser.add_argument("--count", type=int, default=200, help="cases of each kind")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    failed = 0
    for pools in (False, True):
        command = [args.python, str(HERE / "routed_cases.py"), "--script", str(args.script.resolve())]
        command += ["--seed", str(args.seed), "--count", str(args.count), *(["--pools"] if pools else [])]
        tally: Counter[str] = Counter()
        environment = {**os.environ, "DYN_LOG": "off", "PYTHONWARNINGS": "ignore"}
        with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as process:
            assert process.stdout
            for line in process.stdout:
                seed, seen = json.loads(line)
                if seen is None:
                    tally["skipped"] += 1
                    continue
                said = follow(seed, seen, pools=pools, tally=tally)
                tally["failed" if said else "passed"] += 1
                if said:
                    print(f"{'pools' if pools else 'aggregated'} {seed}: {said}", flush=True)
        failed += tally["failed"]
        print(f"{'pools' if pools else 'aggregated'}: {tally['placements']} placements, ", end="")
        print(f"{tally['placements without a tie']} without a tie; ", end="")
        print(f"{tally['passed']} passed, {tally['failed']} failed, {tally['skipped']} skipped", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
