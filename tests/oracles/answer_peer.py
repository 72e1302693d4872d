"""Answers random cases with the reference simulator; run by its interpreter. One JSON case per line on stdout.

    PEER_PYTHON answer_peer.py --script peer_replay.py --family pressure --seed 0 --count 100

The simulator can spin for ever; whoever starts this has to keep an eye on the time between two lines.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from peer_cases import FAMILIES, random_case  # type: ignore[import-not-found]

COLUMNS = [
    "arrival_time_ms",
    "input_length",
    "requested_output_length",
    "output_length",
    "terminal_status",
    "first_admit_ms",
    "first_token_ms",
    "last_token_ms",
    "terminal_time_ms",
    "ttst_ms",
    "itl_ms",
    "reused_input_tokens",
    "admission_count",
    "decode_worker_idx",
    "admissions",
]


SPLIT_COLUMNS = [
    *("prefill_worker_idx", "prefill_admit_ms", "source_held_ms", "destination_reserved_ms"),
    *("destination_activated_ms", "decode_admit_ms", "source_released_ms", "decode_reused_input_tokens"),
]


def load(script: Path) -> Any:
    """The simulator's wrapper, from wherever it lives."""
    spec = importlib.util.spec_from_file_location("peer_replay", script)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--script", type=Path, required=True)
    parser.add_argument("--family", choices=[*FAMILIES], required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=100)
    args = parser.parse_args()
    peer = load(args.script)
    for seed in range(args.seed, args.seed + args.count):
        case = random_case(args.family, seed)
        answer = peer.run_case(case)
        if "error" in answer:
            case["expected"] = {"error": True}
        else:
            more = SPLIT_COLUMNS if case["topology"]["mode"] == "disaggregated" else []
            case["expected"] = peer.project(answer, {"columns": COLUMNS + more})
        print(json.dumps(case), flush=True)


if __name__ == "__main__":
    main()
