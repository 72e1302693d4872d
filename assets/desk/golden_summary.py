"""Recorded answers of other engines inside an evidence pack: which still hold, and for those that do not, where the
first departure is and what it is about."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from assets.desk.mechanism import ADMISSION, ARRIVAL, LENGTH, PREEMPTION, PREFIX, PRICE, SAMPLING, UNEXPLAINED
from assets.identity import sources_digest

KEPT = 50  # differences of a case that are kept
# What a column of a recorded pass or request is about, asked in this order.
_ABOUT = (
    (re.compile(r"preempt"), PREEMPTION),
    (re.compile(r"cached|hit|reus|blocks|prefix"), PREFIX),
    (re.compile(r"arriv"), ARRIVAL),
    (re.compile(r"new|running|waiting|scheduled|commit|admi|passes|batch|chunk|order"), ADMISSION),
    (re.compile(r"output|length|finish|status|reason|complet"), LENGTH),
    (re.compile(r"token"), SAMPLING),
    (re.compile(r"_ms|_ns|time|ttft|itl|e2e|tpot|throughput|duration"), PRICE),
)


def collect(path: Path) -> dict[str, Any]:
    """Replay every case of a folder with the engine as it is, in plain values.

    Raises:
        ConfigError: a file is not readable.
    """
    from assets.golden.check import check_dir

    files = {p.stem: p for p in ([path] if path.is_file() else path.glob("*.json"))}
    cases = [
        {
            "name": result.name,
            "digest": hashlib.blake2b(files[result.name].read_bytes(), digest_size=16).hexdigest(),
            "status": result.status,
            "n_details": len(result.details),
            "details": list(result.details[:KEPT]),
        }
        for result in check_dir(path).results
    ]
    return {"format": 1, "engine_digest": sources_digest("sim"), "cases": cases}


def summarise_golden(collected: Mapping[str, Any]) -> dict[str, Any]:
    """Follows from what was collected and nothing else."""
    cases = collected["cases"]
    counts = {status: sum(c["status"] == status for c in cases) for status in ("passed", "failed", "skipped")}
    skips: dict[str, int] = {}
    for case in cases:
        if case["status"] == "skipped":
            skips[case["details"][0]] = skips.get(case["details"][0], 0) + 1
    return {
        "engine_digest": collected["engine_digest"],
        "cases": len(cases),
        **counts,
        "skipped_because": skips,
        "departures": [_departure(c) for c in cases if c["status"] == "failed"],
    }


def golden_text(found: Mapping[str, Any]) -> str:
    """As people read it."""
    lines = [f"{found['passed']} passed, {found['failed']} failed, {found['skipped']} skipped"]
    lines += [f"skipped {n}: {why}" for why, n in found["skipped_because"].items()]
    for d in found["departures"]:
        lines.append(f"FAILED {d['case']}: first departure {d['first']}; mechanism {d['mechanism']} "
                     f"({d['differences']} differences)")  # fmt: skip
    return "\n".join(lines)


def _departure(case: Mapping[str, Any]) -> dict[str, Any]:
    first = case["details"][0]
    # "pass 12, active_blocks: expected 3, got 4": what stands before the colon says what it is about.
    subject = first.partition(":")[0].rpartition(", ")[2].lower()
    mechanism = next((name for pattern, name in _ABOUT if pattern.search(subject)), UNEXPLAINED)
    return {"case": case["name"], "first": first, "mechanism": mechanism, "differences": case["n_details"]}
