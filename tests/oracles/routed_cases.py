"""Random worlds behind the reference simulator's `kv_router`. Standard library only: its own venv runs this.

    PEER_PYTHON routed_cases.py --script peer_replay.py --seed 0 --count 100 [--pools]

One line of JSON per case: its seed, and per request in order of arrival where it was placed and when its first token
came; null where the simulator gives up.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import random
from pathlib import Path
from typing import Any

Case = dict[str, Any]
SEEN = ("arrival_time_ms", "prefill_worker_idx", "decode_worker_idx", "first_token_ms")


def routed_case(seed: int, *, pools: bool) -> Case:
    """Up to 24 requests with much in common; no two arrive together, and none as a pass ends."""
    r = random.Random(f"kv{seed}{pools}")
    block = r.choice([2, 4, 4, 8])
    first = _worker(r, block)
    rows, texts, now, fresh, gap = [], list[list[int]](), 0.0, 1, r.choice([1, 4, 9, 30])
    for _ in range(r.randint(6, 24)):
        tokens = r.randint(1, 70)
        blocks, ids = -(-tokens // block), list[int]()
        if texts and r.random() < 0.75:
            other = r.choice(texts)
            ids = other[: min(r.randint(1, len(other)), blocks)]
        while len(ids) < blocks:
            ids.append(fresh)
            fresh += 1
        texts.append(ids)
        row = {"timestamp": now, "input_length": tokens, "output_length": r.randint(1, 20), "hash_ids": ids}
        rows.append(row)
        now += r.choice([0.25, 0.5, 1, 2, 5]) * gap + 0.125
    case: Case = {"name": f"kv_{seed}", "options": {}}
    case["traffic"] = {"kind": "trace", "format": "mooncake", "block_size": block, "rows": rows}
    if not pools:
        workers = r.choice([2, 2, 3, 4])
        return case | {"topology": _topology("aggregated", workers=workers), "config": first}
    second = _worker(r, block)
    first["engine"] |= {"worker_type": "prefill", "kv_transfer_bandwidth": 1.0, "kv_transfer_bytes_per_token": 100_000}
    second["engine"]["worker_type"] = "decode"
    topology = _topology("disaggregated", prefill_workers=r.choice([1, 2, 3]), decode_workers=r.choice([2, 3]))
    return case | {"topology": topology, "prefill_config": first, "decode_config": second}


def _topology(mode: str, **workers: int) -> Case:
    return {"mode": mode, "router_mode": "kv_router", **workers}


def _worker(r: random.Random, block: int) -> Case:
    engine = {
        "backend": "vllm",
        "block_size": block,
        "num_gpu_blocks": r.choice([4096, 4096, 4096, r.randint(30, 60)]),
        "max_num_batched_tokens": r.choice([64, 64, 256, 32]),
        "max_num_seqs": 64,
        "timing_model": {
            "type": "fixed",
            "prefill_ms": r.choice([8.0, 10.0, 12.5]),
            "decode_ms": r.choice([1.0, 2.0, 3.0]),
        },
    }
    return {"engine": engine, "dp_size": 1 if r.random() < 0.7 else 2}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--script", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--pools", action="store_true")
    args = parser.parse_args()
    spec = importlib.util.spec_from_file_location("peer_replay", args.script)
    assert spec and spec.loader
    peer = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(peer)
    for seed in range(args.seed, args.seed + args.count):
        rows = peer.run_case(routed_case(seed, pools=args.pools)).get("per_request")
        seen = None if rows is None else sorted([row[name] for name in SEEN] for row in rows)
        print(json.dumps([seed, seen]), flush=True)


if __name__ == "__main__":
    main()
