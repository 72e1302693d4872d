"""Compare our engine with another one on fresh random cases.

    python -m tests.oracles.compare vllm --python ORACLE_PYTHON --script vllm_scheduler_oracle.py --count 5000
    python -m tests.oracles.compare peer --python PEER_PYTHON --script peer_replay.py --count 5000

The other engine lives in a venv of its own (see docs/correctness.md). Its answers are compared as they arrive; cases
that differ are kept in `--keep DIR` and can be looked at with `tracemill golden check DIR`.
"""

from __future__ import annotations

import argparse
import json
import os
import selectors
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from assets.golden.check import check_case
from tests.oracles import peer_cases, vllm_cases

HERE = Path(__file__).parent
FAMILIES = {"vllm": vllm_cases.MODES, "peer": tuple(peer_cases.FAMILIES)}
START_S = {"vllm": 120, "peer": 30}  # importing vLLM takes its time


def answers(
    kind: str, python: str, script: Path, family: str, seed: int, count: int, limit: float
) -> Iterator[dict[str, Any]]:
    """Answered cases of one family. A case without an answer in `limit` seconds is given up and named."""
    at = seed
    while at < seed + count:
        command = [python, str(HERE / f"answer_{kind}.py"), "--script", str(script.resolve())]
        command += ["--family", family, "--seed", str(at), "--count", str(seed + count - at)]
        environment = {**os.environ, "DYN_LOG": "off", "PYTHONWARNINGS": "ignore"}
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment) as process:
            assert process.stdout and process.stderr
            with selectors.DefaultSelector() as ready:
                ready.register(process.stdout, selectors.EVENT_READ)
                patience = START_S[kind]
                while ready.select(patience) and (line := process.stdout.readline()):
                    yield json.loads(line)
                    at, patience = at + 1, limit
                if spins := process.poll() is None:
                    process.kill()
            if at < seed + count:
                said = process.stderr.read().decode(errors="replace").strip().splitlines()
                if patience == START_S[kind] and not spins:
                    raise SystemExit(f"{python} gave no answer: " + "\n".join(said[-5:]))
                yield {"name": f"{family}_{at}", "unanswered": "no answer in time"}
                at += 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=[*FAMILIES])
    parser.add_argument("--python", required=True, help="interpreter of the other engine's venv")
    parser.add_argument("--script", type=Path, required=True, help="the script that drives the other engine")
    parser.add_argument("--family", action="append", help="only these (default: all)")
    parser.add_argument("--count", type=int, default=200, help="cases in all, shared by the families")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--engine", choices=["fast", "reference"], default="fast")
    parser.add_argument("--limit", type=float, default=20, help="seconds the other engine may take for a case")
    parser.add_argument("--keep", type=Path, help="folder for the cases that differ")
    parser.add_argument("--save", type=Path, help="folder for all answered cases")
    args = parser.parse_args()
    families = args.family or FAMILIES[args.kind]
    totals: Counter[str] = Counter()
    for number, family in enumerate(families):
        count = args.count // len(families) + (number < args.count % len(families))
        tally: Counter[str] = Counter()
        for case in answers(args.kind, args.python, args.script, family, args.seed, count, args.limit):
            if "unanswered" in case:
                tally["skipped"] += 1
                continue
            for folder in filter(None, [args.save]):
                write(case, folder)
            result = check_case(case, name=case["name"], base=Path(), engine=args.engine)
            tally[result.status] += 1
            if result.status == "failed":
                print(result.line, *result.details[1:4], sep="\n    ", flush=True)
                if args.keep:
                    write(case, args.keep)
        print(f"{family}: " + closing(tally), flush=True)
        totals += tally
    print(closing(totals))
    return 1 if totals["failed"] else 0


def write(case: dict[str, Any], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{case['name']}.json").write_text(json.dumps(case, indent=1) + "\n")


def closing(tally: Counter[str]) -> str:
    return f"{tally['passed']} passed, {tally['failed']} failed, {tally['skipped']} skipped"


if __name__ == "__main__":
    sys.exit(main())
