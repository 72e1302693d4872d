"""Does a calibration find constants that are known? Made-up deployments, replayed, their times blurred, and fitted.

`python -m assets.calibration.recovery 50` prints, per constant, how many of 50 intervals hold the truth, how wide they
are, and how often a constant was called identified at all.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from assets.calibration.constants import NAMES
from assets.calibration.pass_cost import Calibration, calibrate
from assets.calibration.replayer import Replayer
from assets.calibration.request_log import RequestLog, workload_of
from sim.spec import EngineSpec, PassCostTiming

ENGINE = EngineSpec(
    profile="vllm", block_tokens=16, blocks=6_000, max_num_seqs=48, max_batched_tokens=2048, prefix_caching=False
)
# Ranges that true constants are drawn from, in the order of NAMES.
LOW = np.array([1.0, 8.0, 60.0, 10.0, 20.0, 80.0, 2.0])
HIGH = np.array([4.0, 20.0, 150.0, 40.0, 80.0, 250.0, 20.0])
REQUESTS = 200
BLUR_S = 0.003  # standard deviation of what is added to every recorded time


@dataclass(frozen=True, slots=True, eq=False)
class Trial:
    """
    Attributes:
        truth: shape (constants,).
        found: the calibration that did not know it.
    """

    truth: np.ndarray
    found: Calibration

    def holds(self, name: str) -> bool:
        interval = self.found.intervals[name]
        return interval.low <= self.truth[NAMES.index(name)] <= interval.high


def made_up(seed: int, n: int = REQUESTS) -> tuple[np.ndarray, RequestLog]:
    """True constants, and the blurred log of a deployment that has them: a quiet and a busy stretch, taking turns."""
    rng = np.random.default_rng(seed)
    truth = np.exp(rng.uniform(np.log(LOW), np.log(HIGH)))
    gaps = rng.exponential(1.0, n) / np.where(np.arange(n) // 25 % 2 == 0, 1.5, 9.0)
    prompts = np.clip(rng.lognormal(6.2, 0.9, n), 16, 6_000).astype(np.int64)
    outputs = np.clip(rng.lognormal(5.0, 0.8, n), 2, 1_200).astype(np.int64)
    arrival = np.cumsum(gaps)
    arrival -= arrival[0]
    exact = RequestLog(tuple(f"r{i}" for i in range(n)), arrival, arrival, arrival, prompts, outputs)
    times = Replayer(ENGINE, workload_of(exact)).times(PassCostTiming(*truth.tolist()))
    assert times is not None, "an open loop on a pool that holds every request ends"
    first, last = (t + rng.normal(0, BLUR_S, n) for t in times)
    first = np.maximum(first, arrival + 1e-4)
    last = np.maximum(last, first + 1e-6)
    return truth, RequestLog(exact.row_id, arrival, first, last, prompts, outputs)


def trials(count: int, *, first_seed: int = 1) -> Iterator[Trial]:
    """Trials, each with constants, traffic and noise of its own."""
    for seed in range(first_seed, first_seed + count):
        truth, log = made_up(seed)
        yield Trial(truth, calibrate(log, ENGINE, seed=seed, discrepancy=0.0))


def main(argv: list[str]) -> int:
    count, first = int(argv[0]) if argv else 50, int(argv[1]) if len(argv) > 1 else 1
    made = []
    for trial in trials(count, first_seed=first):
        made.append(trial)
        row = []
        for i, name in enumerate(NAMES):
            interval = trial.found.intervals[name]
            mark = "" if interval.identified else "?"
            row.append(f"{trial.found.values[i] / trial.truth[i]:.3f}±{interval.half_width:.2f}{mark}")
        print(" ".join(row), flush=True)
    print(f"{'constant':20} {'identified':>10} {'hold':>6} {'median half-width':>18}")
    for name in NAMES:
        known = [t for t in made if t.found.intervals[name].identified]
        hold = sum(t.holds(name) for t in known)
        width = float(np.median([t.found.intervals[name].half_width for t in known])) if known else float("nan")
        print(f"{name:20} {len(known):10} {hold:6} {100 * width:16.1f} %")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
