"""Random small worlds for vLLM's scheduler, in the oracle's case format. Standard library only: its venv runs this."""

from __future__ import annotations

import random
from typing import Any

MODES = (
    "sync",
    "async",
    "crowd_sync",
    "crowd_async",
    "drafts_sync",
    "drafts_async",
    "drafts_crowd_sync",
    "drafts_crowd_async",
)
LIMIT = 64  # max_model_len of most cases


def random_case(mode: str, seed: int) -> dict[str, Any]:
    """One world under pressure: shared text, ties, tight budgets and pools, now and then an option of vLLM's own."""
    r = random.Random(f"{mode}-{seed}")
    crowd = "crowd" in mode
    block = r.choice([2, 4, 8])
    limit = r.choice([24, LIMIT, LIMIT])
    requests = _requests(r, block, limit, r.randint(40, 160) if crowd else r.randint(2, 10))
    sequences = r.choice([8, 32, 64]) if crowd else r.randint(1, 6)
    chunked = r.random() < 0.8
    # vLLM wants budget >= sequences, and without chunks budget >= model length.
    budget = max(sequences, r.choice([2, sequences + 1, 8, 16, 32, 100])) if chunked else max(sequences, limit)
    case: dict[str, Any] = {
        "name": f"{mode}_{seed}",
        "profile": "vllm",
        "block_size": block,
        "max_num_seqs": sequences,
        "max_num_batched_tokens": budget,
        "max_model_len": limit,
        "enable_prefix_caching": r.random() < 0.75,
        "enable_chunked_prefill": chunked,
        "async_scheduling": mode.endswith("async"),
        "max_passes": 10_000 if crowd else 3000,
        "requests": requests,
    }
    alone = max(-(-min(_length(q) + q["output_len"], limit) // block) for q in requests)
    roomy = r.random() < 0.25
    case["num_gpu_blocks"] = alone * (8 if roomy else 1) + r.randint(0, 2 * alone) * (r.randint(1, 8) if crowd else 1)
    # The tool prices a resumed request's recomputed answers in its own way: two prices only where nobody is preempted.
    plenty = sum(-(-(_length(q) + q["output_len"]) // block) for q in requests)
    if roomy and r.random() < 0.5:
        case["num_gpu_blocks"] = max(case["num_gpu_blocks"], plenty)
        case["pass_ms"] = {"prefill": r.choice([1.0, 2.5, 10.0]), "decode": r.choice([1.0, 0.5, 3.0])}
    else:
        case["pass_ms"] = {"flat": r.choice([1.0, 1.0, 2.5])}
    if r.random() < 0.2:
        case["watermark"] = r.choice([0.05, 0.2, 0.34])
    if r.random() < 0.15:
        case["reserve_full_isl"] = False
    if r.random() < 0.2:
        case["boundary_arrivals"] = r.choice(["before", "after"])
    if r.random() < 0.2:
        case["concurrency"] = r.randint(1, 40 if crowd else 4)
    elif not mode.endswith("async") and r.random() < 0.2:
        case["dp_size"], case["prefill_schedule_interval"] = 2, r.randint(2, 5)
        # The recorded counter also counts steps taken in vain, which happen only when ties are read late; a real group
        # would run dummy batches there, so there is nothing to agree with.
        case.pop("boundary_arrivals", None)
    if mode.startswith("drafts"):
        case["speculative"] = _drafts(r, case)
    return case


def _drafts(r: random.Random, case: dict[str, Any]) -> dict[str, Any]:
    """MTP or n-gram drafts with scripted acceptance; n-gram goes with one batch in flight."""
    method = "mtp" if case["async_scheduling"] else r.choice(["mtp", "ngram"])
    count = r.randint(1, 5)

    def script() -> list[int]:
        return [r.randint(0, count) for _ in range(r.choice([1, 1, 2, 5]))]

    accept = {"*": r.choice([script(), [0], [count]])}
    accept |= {q["id"]: script() for q in case["requests"] if r.random() < 0.3}
    # Slots ahead: with less, one request alone may run for ever in vLLM.
    if r.random() < 0.7:
        case["num_gpu_blocks"] += -(-2 * count // case["block_size"])
    case.pop("prefill_schedule_interval", None)
    case.pop("dp_size", None)
    return {"method": method, "num_speculative_tokens": count, "accept": accept}


def _requests(r: random.Random, block: int, limit: int, count: int) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    texts = [[1000 * g + k for k in range(limit)] for g in range(2)]
    at = 0.0
    for i in range(count):
        at += r.choice([0, 0, r.randint(0, 6), r.randint(0, 12)]) + r.choice([0, 0, 0.5])
        length, output = r.randint(1, min(24, limit - 1)), r.randint(1, 12)
        row: dict[str, Any] = {"id": f"r{i}", "arrival_ms": at, "output_len": output}
        kind = r.random()
        if kind < 0.35:
            row["prompt_len"] = length
        elif kind < 0.65:
            row |= {"prompt_len": length, "prefix_group": r.randint(0, 1), "prefix_len": r.randint(1, length)}
        elif kind < 0.8:
            blocks = -(-length // block)
            row |= {"prompt_len": length, "hash_ids": [50 + k if r.random() < 0.8 else 90 + i for k in range(blocks)]}
        else:
            # Answers that go on with the text others prompt with: their blocks may be hit as well.
            text = r.choice(texts)
            row |= {"prompt_token_ids": text[:length]}
            if r.random() < 0.7:
                row["output_token_ids"] = text[length : length + output]
        rows.append(row)
    return rows


def _length(request: dict[str, Any]) -> int:
    return request.get("prompt_len") or len(request["prompt_token_ids"])
