"""Calibrations from a file of measurements to a snapshot and rows of table `calibrations`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assets.accuracy.truth import DEPLOYMENT, REQUEST, TruthError, TruthSet, figures_of
from assets.calibration.snapshot import HOST_MODEL, PASS_COST, Snapshot

if TYPE_CHECKING:
    from assets.calibration.constants import Constant
    from assets.calibration.request_log import Prefixes
    from sim.spec import EngineSpec

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Calibrated:
    """
    Attributes:
        rows: of table `calibrations`.
        earlier_s: how much earlier than noted requests were handed over; 0 for closed loops.
    """

    snapshot: Snapshot
    rows: list[dict[str, Any]]
    warnings: tuple[str, ...]
    earlier_s: float = 0.0


def calibrate_requests(
    truth: TruthSet,
    spec: EngineSpec,
    *,
    identity: Mapping[str, Any],
    constants: Sequence[Constant] | None = None,
    prefixes: Prefixes | None = None,
    train_share: float = 0.5,
    seed: int = 1,
    repeats: int | None = None,
    progress: Progress | None = None,
) -> Calibrated:
    """Fit a pass cost to a per-request log.

    Raises:
        TruthError: the log lacks what a replay needs, or is too short to hold a part back.
    """
    from assets.accuracy.sources import on_clock_of
    from assets.calibration.pass_cost import REPEATS, calibrate
    from assets.calibration.request_log import from_truth

    found = calibrate(
        from_truth(truth),
        on_clock_of(spec, truth),
        constants=constants,
        prefixes=prefixes,
        train_share=train_share,
        seed=seed,
        repeats=REPEATS if repeats is None else repeats,
        progress=progress,
    )
    named = found.by_name()
    provenance = {
        "truth_set": truth.name,
        "n_requests": len(found.fitted),
        "n_fitted": int(found.fitted.sum()),
        "train": {name: each.as_json() for name, each in found.train.items()},
        "held_out": {name: each.as_json() for name, each in found.held_out.items()},
        "intervals": {
            name: {"low": i.low, "high": i.high, "identified": i.identified} for name, i in found.intervals.items()
        },
        "misfit": found.misfit,
        "earlier_s": found.earlier_s,
        "seed": seed,
        "replays": found.replays,
        "warnings": list(found.warnings),
        "tracemill_version": metadata.version("tracemill"),
    }
    snapshot = Snapshot({**identity, "constants": PASS_COST}, named, provenance)
    rows = [
        {
            "snapshot": snapshot.digest,
            "constant": c.name,
            "unit": c.unit,
            "value": named[c.name],
            "low": found.intervals[c.name].low if c.name in found.intervals else None,
            "high": found.intervals[c.name].high if c.name in found.intervals else None,
            "prior": c.prior,
            "free": c.free,
            "identified": c.name in found.intervals and found.intervals[c.name].identified,
            "at_bound": bool(c.free and not c.low * 1.01 < named[c.name] < c.high / 1.01),
            "truth_set": truth.name,
            "train_error": found.train["e2e"].mean,
            "held_out_error": found.held_out["e2e"].mean,
        }
        for c in found.constants
    ]
    return Calibrated(snapshot, rows, found.warnings, found.earlier_s)


def calibrate_deployments(
    truth: TruthSet,
    *,
    perf_root: Path | None = None,
    cache: Path | None = None,
    clean: bool = True,
    terms: Sequence[str] | None = None,
    keep: Callable[[Mapping[str, Any]], bool] | None = None,
    seed: int = 1,
    progress: Progress | None = None,
) -> Calibrated:
    """Fit host constants to measured closed loops, backend by backend.

    The constants are fitted to all rows; the held-out error is that of constants which saw neither the scored groups
    nor, where terms were chosen, took part in choosing them. Intervals come from fits to resampled groups.

    Raises:
        TruthError: no backend has enough deployment groups to hold some back.
        PerfDataError: there is no performance data.
    """
    from assets.accuracy.loops import Case, Pricers, case_of, loop_rows
    from assets.accuracy.predict import FEWEST_GROUPS, MIXED_FAMILIES
    from assets.calibration.host_model import HOST_CONSTANTS, constant_of, fit, predict, resampled
    from assets.calibration.intervals import MEANING
    from assets.calibration.validation import held_out, mape, nested, select
    from perf_db.gpu.source import OPTION, open_root

    say = progress or (lambda _: None)
    rows = [r for r in truth.rows if r["grain"] == DEPLOYMENT and not r["repeat_of"] and (keep is None or keep(r))]
    figures = figures_of(r for r in rows if r["model_family"] not in MIXED_FAMILIES)
    cases: list[Case] = [case_of(next(iter(known.values()))) for known in figures.values()]
    priced = Pricers(open_root(perf_root, option=OPTION), clean=clean, cache=cache).price(
        cases, lambda a, b: say(f"priced {a} of {b}")
    )
    constants: dict[str, float] = {}
    provenance: dict[str, Any] = {"truth_set": truth.name, "seed": seed, "train": {}, "held_out": {}, "backends": {}}
    table: list[dict[str, Any]] = []
    warnings: list[str] = []
    for backend in sorted({c.labels.backend for c in cases if c.labels is not None}):
        loops = loop_rows([p for p in priced if p.case.labels and p.case.labels.backend == backend], figures)
        groups = len(set(loops.group.tolist()))
        if groups < FEWEST_GROUPS:
            warnings.append(f"{backend}: {groups} deployment groups, {FEWEST_GROUPS} are needed; nothing is fitted")
            continue
        say(f"{backend}: {len(loops)} loops in {groups} deployment groups")
        outside = held_out(loops, terms) if terms is not None else nested(loops, progress=say)
        chosen = tuple(terms) if terms is not None else select(loops, tuple(HOST_CONSTANTS))
        fitted = fit(loops, chosen)
        spread = resampled(loops, chosen, seed=seed)
        inside = predict(loops, fitted)
        errors = {
            "train": {"ttft": mape(inside[0], loops.truth_ttft_ms), "tpot": mape(inside[1], loops.truth_tpot_ms)},
            "held_out": {
                "ttft": mape(outside.ttft_ms, loops.truth_ttft_ms),
                "tpot": mape(outside.tpot_ms, loops.truth_tpot_ms),
            },
        }
        for side, each in errors.items():
            provenance[side] |= {f"{backend}.{name}": {"mean": value, "n": len(loops)} for name, value in each.items()}
        provenance["backends"][backend] = {"terms": list(chosen), "n_loops": len(loops), "n_groups": groups}
        for name in fitted:  # one per term, or one per class that a term tells apart
            c, (low, high) = constant_of(name), spread[name]
            wide = high - low
            at_bound = not c.low + 1e-3 * (c.high - c.low) < fitted[name] < c.high - 1e-3 * (c.high - c.low)
            identified = not at_bound and not low <= c.default <= high and wide < 0.5 * (c.high - c.low)
            if at_bound:
                warnings.append(f"{backend}.{name} ended at a bound: a mechanism is missing, the value means nothing")
            elif not identified:
                warnings.append(f"{backend}.{name}: not identified (95 % from {low:.3g} to {high:.3g} {c.unit})")
            constants[f"{backend}.{name}"] = fitted[name]
            table.append(
                {
                    "constant": f"{backend}.{name}",
                    "unit": c.unit,
                    "value": fitted[name],
                    "low": low,
                    "high": high,
                    "prior": c.default,
                    "free": True,
                    "identified": identified,
                    "at_bound": at_bound,
                    "truth_set": truth.name,
                    "train_error": (errors["train"]["ttft"] + errors["train"]["tpot"]) / 2,
                    "held_out_error": (errors["held_out"]["ttft"] + errors["held_out"]["tpot"]) / 2,
                }
            )
    if not constants:
        raise TruthError(
            f"{truth.name}: nothing could be fitted and held out ({'; '.join(warnings) or 'no loop has a price'})"
        )
    if not all(row["identified"] for row in table):
        warnings.append(MEANING)
    provenance |= {"warnings": warnings, "tracemill_version": metadata.version("tracemill")}
    snapshot = Snapshot({"constants": HOST_MODEL}, constants, provenance)
    return Calibrated(snapshot, [{"snapshot": snapshot.digest, **row} for row in table], tuple(warnings))


def grain_of(truth: TruthSet) -> str:
    """What kind of truth a calibration is to use: requests where there are any, else deployments.

    Raises:
        TruthError: there is neither.
    """
    grains = {row["grain"] for row in truth.rows}
    for grain in (REQUEST, DEPLOYMENT):
        if grain in grains:
            return grain
    raise TruthError(
        f"{truth.name}: holds {', '.join(sorted(grains))} rows only; passes are tuned with tracemill perf tune"
    )
