"""Answers random cases with vLLM's own scheduler; run by the oracle's interpreter. One JSON case per line on stdout.

ORACLE_PYTHON answer_vllm.py --script vllm_scheduler_oracle.py --family sync --seed 0 --count 100
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from vllm_cases import MODES, random_case  # type: ignore[import-not-found]


def load(script: Path) -> Any:
    """The oracle's module, from wherever it lives."""
    spec = importlib.util.spec_from_file_location("oracle", script)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--script", type=Path, required=True)
    parser.add_argument("--family", choices=MODES, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=100)
    args = parser.parse_args()
    oracle = load(args.script)
    oracle._import_vllm()
    for seed in range(args.seed, args.seed + args.count):
        case = random_case(args.family, seed)
        try:
            answer = {**case, "expected": oracle.run_case(case)}
        except (RuntimeError, ValueError) as problem:  # a livelock, or an input vLLM refuses
            answer = {"name": case["name"], "unanswered": str(problem)}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
