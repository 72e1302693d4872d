"""Replays one case file on the compiled engine in the wheel `ai-dynamo-runtime`, and prints its summary as JSON.

Run by the interpreter of an environment that has the wheel; needs nothing else:

    PEER_PYTHON benchmarks/peer_driver.py CASE.json
"""

from __future__ import annotations

import json
import sys
import time
from importlib.metadata import version
from typing import Any

KEYS = ("wall_time_ms", "duration_ms", "completed_requests", "mean_ttft_ms")


def answer(case: dict[str, Any]) -> dict[str, Any]:
    """The figures we compare, and the host time of the whole call."""
    from dynamo import _core

    traffic, topology = case["traffic"], case["topology"]
    # Filled up with the engine's own defaults by the engine.
    if topology["mode"] == "disaggregated":
        arguments: dict[str, Any] = {
            f"{role}_engine_args": _core._normalize_mocker_config(case[f"{role}_config"])
            for role in ("prefill", "decode")
        } | {f"num_{role}_workers": topology[f"{role}_workers"] for role in ("prefill", "decode")}
    else:
        arguments = {
            "extra_engine_args": _core._normalize_mocker_config(case["config"]),
            "num_workers": topology["workers"],
        }
    arguments |= {
        "router_mode": topology["router_mode"],
        # Only the summary is asked for; anything per request would cost it time and memory.
        "capture_per_request": False,
        "capture_planner_details": False,
    }
    if traffic.get("concurrency") is not None:
        arguments["replay_concurrency"] = traffic["concurrency"]
    began = time.perf_counter()
    if traffic["kind"] == "synthetic":
        lengths = (traffic[name] for name in ("input_tokens", "output_tokens", "request_count"))
        report = _core.run_mocker_synthetic_trace_replay(*lengths, **arguments)
    else:
        arguments |= {"trace_format": traffic["format"], "trace_block_size": traffic["block_size"]}
        report = _core.run_mocker_trace_replay([traffic["path"]], **arguments)
    call_ms = (time.perf_counter() - began) * 1e3
    summary = dict(report.summary)
    return {
        "summary": {key: summary[key] for key in KEYS},
        "call_ms": call_ms,
        "version": version("ai-dynamo-runtime"),
        "python": sys.version.split()[0],
    }


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as file:
        print(json.dumps(answer(json.load(file))))
