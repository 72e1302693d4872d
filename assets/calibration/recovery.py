"""Does a calibration find constants that are known? Made-up deployments, replayed, their times blurred, and fitted.

`python -m assets.calibration.recovery 50` prints, per constant, how many of 50 intervals hold the truth, how wide they
are, and how often a constant was called identified at all. With a file as second argument every trial is written there
as it ends, and trials that the file holds are not made again.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from assets.calibration.constants import NAMES
from assets.calibration.pass_cost import calibrate
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
FIRST_SEED = 1_001  # smaller ones took part in setting up how wide intervals are


@dataclass(frozen=True, slots=True)
class Found:
    """What a calibration that did not know a constant says of it.

    Attributes:
        truth, value, low, high: the constant, the fitted one, and the ends of its interval.
        half_width: of the interval, as a share.
    """

    truth: float
    value: float
    low: float
    high: float
    half_width: float
    identified: bool

    @property
    def holds(self) -> bool:
        return self.low <= self.truth <= self.high


Trial = dict[str, Found]  # by constant


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


def trial(seed: int) -> Trial:
    """One trial, with constants, traffic and noise of its own."""
    truth, log = made_up(seed)
    found = calibrate(log, ENGINE, seed=seed, discrepancy=0.0)
    known = found.intervals
    return {
        name: Found(
            float(truth[i]),
            float(found.values[i]),
            known[name].low,
            known[name].high,
            known[name].half_width,
            known[name].identified,
        )
        for i, name in enumerate(NAMES)
    }


def trials(count: int, kept: Path | None = None) -> Iterator[Trial]:
    """That many trials; those in the file are read from it, others are added to it."""
    there = {}
    if kept is not None and kept.exists():
        lines = [json.loads(line) for line in kept.read_text().splitlines()]
        there = {line["seed"]: {name: Found(**each) for name, each in line["found"].items()} for line in lines}
    for seed in range(FIRST_SEED, FIRST_SEED + count):
        if seed in there:
            yield there[seed]
            continue
        made = trial(seed)
        if kept is not None:
            with kept.open("a") as file:
                file.write(json.dumps({"seed": seed, "found": {name: asdict(each) for name, each in made.items()}}))
                file.write("\n")
        yield made


def main(argv: list[str]) -> int:
    count = int(argv[0]) if argv else 50
    made = []
    for one in trials(count, Path(argv[1]) if len(argv) > 1 else None):
        made.append(one)
        row = [
            f"{one[name].value / one[name].truth:.3f}±{one[name].half_width:.2f}{'' if one[name].identified else '?'}"
            for name in NAMES
        ]
        print(" ".join(row), flush=True)
    print(f"{'constant':20} {'identified':>10} {'hold':>6} {'median half-width':>18} {'of all, hold':>13}")
    for name in NAMES:
        known = [each[name] for each in made if each[name].identified]
        width = float(np.median([each.half_width for each in known])) if known else float("nan")
        every = sum(each[name].holds for each in made)
        print(f"{name:20} {len(known):10} {sum(e.holds for e in known):6} {100 * width:16.1f} % {every:13}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
