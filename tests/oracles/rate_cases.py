"""Workloads whose drafts are accepted by chance, in the reference simulator's case format. Standard library only."""

from __future__ import annotations

from typing import Any

RATES = "0.8,0.5,0.3"


def case(name: str, seed: int) -> dict[str, Any]:
    """One of WORKLOADS with one seed of the acceptance draws; everything else stays the same."""
    engine, traffic = WORKLOADS[name]
    drafts = {"aic_nextn": 3, "aic_nextn_accept_rates": RATES, "aic_mtp_seed": seed}
    return {
        "name": f"{name}_{seed}",
        "purpose": "fractional acceptance",
        "topology": {"mode": "aggregated", "workers": 1, "router_mode": "round_robin"},
        "config": {"engine": {"backend": "vllm", "block_size": 16, **engine, **drafts}, "dp_size": 1},
        "traffic": {"kind": "synthetic", **traffic},
        "options": {},
    }


ONE_MS = {"type": "fixed", "prefill_ms": 1.0, "decode_ms": 1.0}
WORKLOADS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    # One request at a time: a round is a millisecond, so the duration counts rounds.
    "alone": (
        {"timing_model": ONE_MS},
        {"input_tokens": 64, "output_tokens": 200, "request_count": 40, "concurrency": 1},
    ),
    "batch": (
        {"timing_model": {"type": "polynomial"}, "num_gpu_blocks": 2048, "max_num_batched_tokens": 1024},
        {"input_tokens": 256, "output_tokens": 128, "request_count": 160, "concurrency": 16},
    ),
    # Bursts that do not fit: requests are thrown out and come again.
    "pressure": (
        {"timing_model": {"type": "polynomial"}, "num_gpu_blocks": 150, "max_num_batched_tokens": 1024},
        {"input_tokens": 128, "output_tokens": 128, "request_count": 120, "concurrency": 16},
    ),
    "trtllm": (
        {"backend": "trtllm", "timing_model": {"type": "polynomial"}, "num_gpu_blocks": 200},
        {"input_tokens": 128, "output_tokens": 128, "request_count": 120, "concurrency": 16},
    ),
}
KEYS = ("mean_tpot_ms", "output_throughput_tok_s", "mean_e2e_latency_ms", "duration_ms")


def figures(name: str, summary: dict[str, Any]) -> dict[str, float]:
    """What is compared. One request at a time and a millisecond per round, the duration also tells the tokens of a
    round: all of it but the prefills is rounds."""
    found = {key: float(summary[key]) for key in KEYS}
    if name == "alone":
        rounds = found["duration_ms"] - float(summary["completed_requests"])
        found["tokens_per_round"] = float(summary["total_output_tokens"]) / rounds
    return found
