"""From measured passes of a deployment to a tuned snapshot of its prices."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from assets.pricing import native_identity, price_deployment
from perf_db.gpu.errors import PerfDataError
from perf_db.gpu.forward_jsonl import Observation, RankWork, Unusable, read_forward_jsonl
from perf_db.gpu.snapshot import Corrections, Options, Snapshot, leading_rank, tune
from sim.config import ConfigError, RunConfig
from sim.timing.plain_tables import TablePricer
from sim.timing.tables import ArrayTiming

UNUSABLE = {
    "idle": "that computed nothing",
    "untimed": "without a finite wall time above 0",
    "outside": "outside the grids",
    "unpriced": "without a price of their own",
}


@dataclass(frozen=True)
class Tuned:
    """A snapshot, and how many iterations it was made from: used, and left out by the reasons of `UNUSABLE`."""

    snapshot: Snapshot
    counts: dict[str, int]
    native_error: float  # median of |native / observed - 1| over the iterations that have a price
    corrected_error: float  # the same with the factors


def tune_snapshot(config: RunConfig, observations: Path, *, base: Path, options: Options | None = None) -> Tuned:
    """Correct the prices of a configuration by what was measured.

    Args:
        config: whose prices; a snapshot it names is left aside.
        observations: forward-pass metrics, one JSON object a line.
        base: folder that relative paths of the configuration start from.

    Raises:
        ConfigError: the configuration's timing is given, or is itself a regression.
        PerfDataError: the prices or the observations cannot be had, or no observation can be used.
    """
    if len(config.sides) > 1:
        raise ConfigError(
            "engine.mode='disaggregated': a snapshot belongs to one pool; tune with one role's workers as aggregated"
        )
    pricing = price_deployment(config, base=base, corrected=False)
    timing = pricing.spec.sides[0].timing
    if not isinstance(timing, ArrayTiming) or timing.kind == "regression":
        raise ConfigError(
            "engine.workers.aggregated.timing: only prices from performance data can be tuned; use type: default with "
            "estimation_mode op_level or fpm_interpolation"
        )
    pricer = TablePricer(timing, pricing.mixed_pass)

    def native(work: RankWork) -> float:
        n, b = work.num_prefill_requests, work.num_decode_requests
        if work.sum_prefill_tokens == 0:
            n = 0  # cached to the end: only the decodes compute
        got = pricer.answer(
            n, work.sum_prefill_tokens if n else 0, work.sum_prefill_kv_tokens if n else 0, b, work.sum_decode_kv_tokens
        )
        return got.prefill_ms + got.decode_ms

    left_out: Counter[Unusable] = Counter()
    seen = read_forward_jsonl(observations, left_out)
    kept = Corrections(options)
    counts = tune(kept, seen, native) | {"idle": left_out["idle"], "untimed": left_out["untimed"]}
    if not counts["used"]:
        why = ", ".join(f"{counts[name]} {text}" for name, text in UNUSABLE.items() if counts[name])
        raise PerfDataError(
            "bad_file",
            f"{observations}: no iteration can be used: {why or 'the file is empty'}; no snapshot is written",
        )
    provenance = {
        "observations": {
            "file": observations.name,
            "sha256": hashlib.sha256(observations.read_bytes()).hexdigest(),
            "iterations": len(seen) + left_out.total(),
            **counts,
        },
        "performance": pricing.provenance,
    }
    snapshot = Snapshot(native_identity(pricing.identity, timing), kept, {}, provenance)
    return Tuned(snapshot, counts, *_errors(kept, seen, native))


def _errors(kept: Corrections, seen: Sequence[Observation], native: Callable[[RankWork], float]) -> tuple[float, float]:
    before, after = [], []
    for each in seen:
        work = leading_rank(each.ranks)
        ms = native(work)
        if math.isfinite(ms) and ms > 0:
            before.append(abs(ms / each.wall_time_ms - 1.0))
            after.append(abs(ms * kept.factor(work) / each.wall_time_ms - 1.0))
    return (median(before), median(after)) if before else (math.nan, math.nan)
