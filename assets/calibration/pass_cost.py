"""A deployment known by its request log alone: fit what a pass costs, and say how well that foretells what comes after.

The first requests are fitted, the later ones are kept away from the fit and scored. All requests are replayed either
way, for the later ones take room and time from the earlier.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from assets.accuracy.truth import TruthError
from assets.calibration.constants import NAMES, Constant, from_log
from assets.calibration.intervals import MEANING, WIDE, Interval, intervals, redrawn
from assets.calibration.objective import Objective
from assets.calibration.replayer import Replayer
from assets.calibration.request_log import Prefixes, RequestLog, workload_of
from assets.calibration.search import SIMPLEX, descend, search, step_down
from sim.spec import EngineSpec, PassCostTiming

TRAIN_SHARE = 0.5
FEWEST = 20  # requests on either side: fewer say nothing
EARLIER = 0.5  # of a usual pass: how much earlier than the engine noted it a request came, on average
# Requests share passes: so many of them tell about as much as an independent one. This sets what a prior weighs.
SHARING = 30
BLOCK = 10  # neighbouring requests, drawn together for the intervals
# A pass cost of seven constants is not what a GPU does: it follows a log no closer than to one pass, whatever the fit
# says. Without this a fit that is perfect in the batches it saw pays for it in those that it did not see.
DISCREPANCY = 1.0
FIRST_PULL = 0.005  # where the form is known to be right
POLISHED = 24  # draws of the intervals from which the search is taken up again
REPEATS = 200
ABOUT_AS_GOOD = 1.15  # times the least objective


@dataclass(frozen=True, slots=True)
class Errors:
    """Of one latency over some requests, as shares.

    Attributes:
        total: sum of predictions / sum of truths - 1.
        median, mean: of |prediction / truth - 1| of single requests.
    """

    total: float
    median: float
    mean: float
    n: int

    def as_json(self) -> dict[str, float | int]:
        return {"total": self.total, "median": self.median, "mean": self.mean, "n": self.n}


@dataclass(frozen=True, slots=True, eq=False)
class Calibration:
    """Fitted constants, and what they are worth.

    Attributes:
        values: shape (constants,), fixed ones included.
        intervals: of every free constant, by name.
        train, held_out: latency -> errors. There is never one without the other.
        first_s, last_s: token times of the replay with the fitted constants, for every request.
        fitted: shape (n,), which requests were fitted.
        warnings: what the data cannot say.
    """

    constants: tuple[Constant, ...]
    values: np.ndarray
    intervals: dict[str, Interval]
    train: dict[str, Errors]
    held_out: dict[str, Errors]
    first_s: np.ndarray
    last_s: np.ndarray
    fitted: np.ndarray
    misfit: float
    pull: float
    earlier_s: float
    seed: int
    replays: int
    warnings: tuple[str, ...]

    @property
    def timing(self) -> PassCostTiming:
        return PassCostTiming(**dict(zip(NAMES, self.values.tolist())))

    def by_name(self) -> dict[str, float]:
        return dict(zip(NAMES, self.values.tolist()))


def calibrate(
    log: RequestLog,
    spec: EngineSpec,
    *,
    constants: Sequence[Constant] | None = None,
    prefixes: Prefixes | None = None,
    train_share: float = TRAIN_SHARE,
    seed: int = 1,
    repeats: int = REPEATS,
    discrepancy: float = DISCREPANCY,
    progress: Callable[[str], None] | None = None,
) -> Calibration:
    """
    Args:
        spec: the deployment; its timing is replaced.
        constants: what may move, from where; None: priors with the scale of the log.
        train_share: of the requests, by arrival, that are fitted.
        repeats: draws for the intervals; 0: none are given.
        discrepancy: misfit, in passes, that the form of the cost is trusted to at best; 0: the log follows it exactly.

    Raises:
        TruthError: too few requests on either side of the split, or none of the constants fits at all.
    """
    n = len(log)
    fitted = np.arange(n) < round(train_share * n)
    for side, count in (("to fit", int(fitted.sum())), ("to hold out", n - int(fitted.sum()))):
        if count < FEWEST:
            raise TruthError(
                f"{count} requests {side}, at least {FEWEST} are needed: an error of the fitted requests alone says "
                "nothing and is not reported; give a longer log, or another --train-share"
            )
    say = progress or (lambda _: None)
    earlier = EARLIER * log.pass_s(fitted) if log.noted_at_boundary else 0.0
    replayer = Replayer(spec, workload_of(log, earlier_s=earlier, prefixes=prefixes))
    known = tuple(constants) if constants is not None else log_priors(log, spec, fitted)
    independent = max(int(fitted.sum()) / SHARING, 1.0)
    objective = Objective(replayer, log, known, fitted, max(discrepancy / (2 * independent), FIRST_PULL))
    say(f"searching {len(objective.free)} constants over {int(fitted.sum())} of {n} requests")
    ends = search(objective, seed=seed)
    best = ends[0][0]
    # A prior weighs as much as the misfit that is left allows.
    pull = max(objective.misfit(best), discrepancy) / (2 * independent)
    objective = replace(objective, pull=pull)
    best, least = descend(objective, step_down(objective, best)[0], SIMPLEX)
    rests, draws = [at for at, _ in ends], np.zeros((0, len(best)))
    if repeats:
        say(f"drawing {repeats} times for the intervals")
        draws = redrawn(objective, best, repeats=repeats, block=BLOCK, seed=seed)
        for start in draws[:POLISHED]:
            at, there = step_down(objective, start, steps=4)
            rests.append(at)
            if there < least:
                best, least = at, there
    rests = [at for at in rests if objective(at) < ABOUT_AS_GOOD * least]
    times = replayer.times(objective.timing(best))
    if times is None:
        raise TruthError(
            "no constants let the log be replayed on this deployment: check kv_cache.capacity, max_sequences and "
            "context_length against the engine that wrote the log"
        )
    found = intervals(objective, best, draws, rests) if repeats else []
    named = {known[i].name: interval for i, interval in zip(objective.free, found)}
    first, last = times
    train, held = errors(log, first, last, fitted), errors(log, first, last, ~fitted)
    return Calibration(
        constants=known,
        values=objective.values(best),
        intervals=named,
        train=train,
        held_out=held,
        first_s=first,
        last_s=last,
        fitted=fitted,
        misfit=objective.misfit(best),
        pull=pull,
        earlier_s=earlier,
        seed=seed,
        replays=replayer.replays,
        warnings=_warnings(named, known, objective.values(best), train, held),
    )


def errors(log: RequestLog, first_s: np.ndarray, last_s: np.ndarray, rows: np.ndarray) -> dict[str, Errors]:
    """Of TTFT, TPOT and end-to-end latency over these requests; TPOT over those with more than one token."""
    later = np.maximum(log.output_tokens - 1, 1)
    pairs = {
        "ttft": (first_s - log.arrival_s, log.ttft_s, rows),
        "tpot": ((last_s - first_s) / later, log.tpot_s, rows & (log.output_tokens > 1)),
        "e2e": (last_s - log.arrival_s, log.e2e_s, rows),
    }
    found = {}
    for name, (told, truth, of) in pairs.items():
        told, truth = told[of & np.isfinite(told)], truth[of & np.isfinite(told)]
        off = np.abs(told / truth - 1)
        found[name] = Errors(float(told.sum() / truth.sum() - 1), float(np.median(off)), float(off.mean()), len(truth))
    return found


def log_priors(log: RequestLog, spec: EngineSpec, fitted: np.ndarray) -> tuple[Constant, ...]:
    """Priors with the scale of the fitted part of the log."""
    end = float(log.last_s[fitted].max())
    seen = log.last_s <= end
    tokens = float((log.prompt_tokens + log.output_tokens)[seen].sum())
    # Little's law: requests in decode = their decode time per time.
    decoding = min(float((log.last_s - log.first_s)[seen].sum()) / end, float(spec.max_num_seqs))
    context = float((log.prompt_tokens + log.output_tokens / 2).mean())
    return from_log(log.pass_s(fitted) * 1e3, tokens / (end * 1e3), decoding, decoding * context)


def _warnings(
    named: dict[str, Interval],
    known: tuple[Constant, ...],
    values: np.ndarray,
    train: dict[str, Errors],
    held: dict[str, Errors],
) -> tuple[str, ...]:
    told = []
    for i, constant in enumerate(known):
        interval = named.get(constant.name)
        if interval is not None and not interval.identified:
            why = "no narrower than half of its prior, or at a bound"
            if interval.half_width > WIDE:
                why = f"95 % within a factor {1 + interval.half_width:.3g}, the limit is {1 + WIDE:.2f}"
            told.append(f"{constant.name}: not identified ({why})")
        if constant.free and not constant.low * 1.01 < values[i] < constant.high / 1.01:
            told.append(f"{constant.name} ended at a bound: something is missing from the model, not a value")
    if any(not interval.identified for interval in named.values()):
        told.append(MEANING)
    for name in ("tpot", "e2e"):
        off = abs(held[name].total)
        if off > 0.02 and off > 2 * held[name].median:
            told.append(
                f"{name}: the held-out requests are off by {100 * held[name].total:+.1f} % in sum but by "
                f"{100 * held[name].median:.1f} % in the median: a few requests in batches that the fitted part did "
                "not hold are extrapolated"
            )
    return tuple(told)
