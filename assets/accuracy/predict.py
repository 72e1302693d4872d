"""Predictions beside measurements: rows of `accuracy`, of whatever grain the truth has.

Deployments are closed loops, priced from the performance data with the host constants of a snapshot, or with constants
that cross-validation fitted without the row's group. Requests are replayed on the engine of a run configuration, passes
are priced by its timing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from assets.accuracy.report import OURS
from assets.accuracy.truth import DEPLOYMENT, PASS, REQUEST, TruthError, TruthSet, figures_of, predicted_row

if TYPE_CHECKING:
    from assets.accuracy.loops import Priced
    from assets.calibration.host_model import LoopRows
    from assets.calibration.request_log import Prefixes
    from sim.spec import EngineSpec
    from sim.timing.plain import PlainPricer, Work

HELD_OUT, IN_SAMPLE, UNCALIBRATED = "held_out", "in_sample", "uncalibrated"
# Families whose measured runs mix settings that the source does not record.
MIXED_FAMILIES = {"deepseek-v3-family": "draft_tokens_not_recorded"}
FEWEST_GROUPS = 12  # groups of a backend that cross-validation needs
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Prediction:
    """Rows of `accuracy`, and what a person should know of how they came about.

    Attributes:
        notes: backend -> terms, constants and their ranges over the folds, ready for JSON.
    """

    rows: list[dict[str, Any]]
    notes: dict[str, Any]


def accuracy_row(
    row: Mapping[str, Any], value: float | None, *, reason: str | None = None, **about: Any
) -> dict[str, Any]:
    """One prediction of ours of a row of `ground_truth`; `reason` where there is none.

    Args:
        about: standing, and what else `predicted_row` takes.
    """
    if value is None and reason is None:
        raise ValueError(f"row {row['row_id']}: a missing prediction needs a reason")
    return predicted_row(row, OURS, value, reason=reason, **about)


def predict_deployments(
    truth: TruthSet,
    *,
    perf_root: Path | None = None,
    cache: Path | None = None,
    clean: bool = True,
    constants: Mapping[str, Mapping[str, float]] | None = None,
    snapshot: str | None = None,
    standing_of_snapshot: str = HELD_OUT,
    terms: Sequence[str] | None = None,
    keep: Callable[[Mapping[str, Any]], bool] | None = None,
    progress: Progress | None = None,
) -> Prediction:
    """
    Args:
        perf_root: folder of performance data; None: the optional extra's.
        cache: folder for amounts.
        constants: backend -> host constants, of a snapshot; None: fitted by cross-validation over deployment groups,
            their terms chosen without the scored groups as well.
        snapshot: digest of the snapshot that `constants` came from.
        standing_of_snapshot: of predictions with its constants: `in_sample` if they were fitted to these rows.
        terms: host constants to fit; None: chosen.
        keep: which rows to predict; None: all.

    Raises:
        PerfDataError: there is no performance data.
    """
    from assets.accuracy.loops import Case, Pricers, case_of, loop_rows
    from perf_db.gpu.source import OPTION, open_root

    say = progress or (lambda _: None)
    rows = [row for row in truth.rows if row["grain"] == DEPLOYMENT and (keep is None or keep(row))]
    figures = figures_of(row for row in rows if row["statistic"] == "mean")
    cases: list[Case] = []
    for row_id, known in figures.items():
        row = next(iter(known.values()))
        if row["repeat_of"]:
            cases.append(Case(row_id, None, None, 0, reason="repeats_another_row"))
        elif row["model_family"] in MIXED_FAMILIES:
            cases.append(Case(row_id, None, None, 0, reason=MIXED_FAMILIES[row["model_family"]]))
        else:
            cases.append(case_of(row))
    pricers = Pricers(open_root(perf_root, option=OPTION), clean=clean, cache=cache)
    priced = pricers.price(cases, lambda done, of: say(f"priced {done:,} of {of:,} loops"))
    told: dict[str, dict[str, float]] = {}
    notes: dict[str, Any] = {}
    standing = {p.case.row_id: UNCALIBRATED for p in priced}
    backends = sorted({str(next(iter(known.values()))["backend"]) for known in figures.values()})
    for backend in backends:
        members = [p for p in priced if p.case.labels is not None and p.case.labels.backend == backend]
        loops = loop_rows(members, figures)
        if not len(loops):
            continue
        tell, how, notes[backend] = _constants(loops, backend, constants, terms, say)
        how = standing_of_snapshot if constants is not None and how == HELD_OUT else how
        latencies = _latencies(loops, [p for p in members if p.amounts is not None], tell)
        for i, row_id in enumerate(loops.row_id.tolist()):
            told[row_id] = {metric: float(values[i]) for metric, values in latencies.items()}
            standing[row_id] = how
    return Prediction(_deployment_rows(priced, figures, told, standing, snapshot), notes)


Tell = Callable[["LoopRows"], tuple[np.ndarray, np.ndarray]]


def _constants(
    loops: LoopRows,
    backend: str,
    constants: Mapping[str, Mapping[str, float]] | None,
    terms: Sequence[str] | None,
    say: Progress,
) -> tuple[Tell, str, dict[str, Any]]:
    """(what gives TTFT and TPOT of loops in this order, standing, notes) of one backend."""
    from assets.calibration.host_model import predict
    from assets.calibration.validation import held_out, nested

    if constants is not None:
        given = constants.get(backend, {})
        standing = HELD_OUT if given else UNCALIBRATED
        return lambda rows: predict(rows, given), standing, {"constants": dict(given)}
    groups = len(set(loops.group.tolist()))
    if groups < FEWEST_GROUPS:
        because = f"{groups} deployment groups, {FEWEST_GROUPS} are needed to fit"
        return lambda rows: predict(rows, {}), UNCALIBRATED, {"because": because}
    say(f"{backend}: fitting host constants over {groups} deployment groups")
    found = held_out(loops, terms) if terms is not None else nested(loops, progress=say)

    def tell(rows: LoopRows) -> tuple[np.ndarray, np.ndarray]:
        ttft, tpot = np.zeros(len(rows)), np.zeros(len(rows))
        for j, fitted in enumerate(found.constants):
            mine = found.fold == j
            ttft[mine], tpot[mine] = predict(rows.take(mine), fitted)
        return ttft, tpot

    names = sorted({name for each in found.constants for name in each})
    ranges = {n: [min(v), max(v)] for n in names if (v := [each[n] for each in found.constants if n in each])}
    return tell, HELD_OUT, {"terms": [list(t) for t in found.terms], "ranges": ranges}


def _latencies(loops: LoopRows, priced: Sequence[Priced], tell: Tell) -> dict[str, np.ndarray]:
    """Every metric of every loop, shape (n,): amounts differ, constants are the same."""
    from assets.accuracy.closed_loop import PROMPTS_PER_CLIENT

    def amounts(name: str) -> np.ndarray:
        return np.array([getattr(p.amounts, name) for p in priced])

    ttft, tpot = tell(loops)
    e2e, _ = tell(replace(loops, ttft=amounts("e2e")))
    _, itl = tell(replace(loops, tpot=amounts("itl")))
    # What is no pass's is paid by every client once per prompt, one after the other.
    beside, _ = tell(replace(loops, ttft=np.zeros_like(loops.ttft)))
    whole, _ = tell(replace(loops, ttft=amounts("whole")))
    lasting_ms = whole + (PROMPTS_PER_CLIENT - 1) * beside
    ranks = np.array([p.case.labels.dp if p.case.labels else 1 for p in priced])
    throughput = np.array([p.amounts.n_tokens if p.amounts else 0 for p in priced]) * ranks / (lasting_ms / 1e3)
    return {"ttft": ttft, "tpot": tpot, "itl": itl, "e2e": e2e, "output_throughput": throughput}


def _deployment_rows(
    priced: Sequence[Priced],
    figures: Mapping[str, Mapping[str, Mapping[str, Any]]],
    told: Mapping[str, Mapping[str, float]],
    standing: Mapping[str, str],
    snapshot: str | None,
) -> list[dict[str, Any]]:
    rows = []
    for p in priced:
        name = p.case.row_id
        for metric, row in figures[name].items():
            value = None
            reason = p.reason
            if name in told and metric in told[name] and np.isfinite(told[name][metric]):
                value = told[name][metric]
            elif reason is None:
                reason = "metric_not_predicted"
            evidence = dict(p.evidence)
            if p.amounts is not None:
                evidence |= {"n_passes": p.amounts.n_passes, "n_preempted": p.amounts.n_preempted}
            rows.append(
                accuracy_row(
                    row,
                    value,
                    standing=standing[name],
                    reason=reason,
                    provisional=p.case.provisional,
                    extrapolated_share=None if p.amounts is None else p.amounts.extrapolated_share,
                    evidence=evidence or None,
                    snapshot=snapshot,
                )
            )
    return rows


def predict_requests(
    truth: TruthSet,
    spec: EngineSpec,
    *,
    standing: str = UNCALIBRATED,
    n_fitted: int = 0,
    earlier_s: float = 0.0,
    prefixes: Prefixes | None = None,
    snapshot: str | None = None,
) -> Prediction:
    """Replay a per-request log on a deployment.

    Args:
        standing: of the predictions.
        n_fitted: so many requests, the first to arrive, took part in the fit: theirs are `in_sample`.

    Raises:
        TruthError: the log lacks what a replay needs.
    """
    from assets.calibration.replayer import Replayer
    from assets.calibration.request_log import from_truth, workload_of

    log = from_truth(truth)
    times = Replayer(spec, workload_of(log, earlier_s=earlier_s, prefixes=prefixes)).times(spec.timing)
    if times is None:
        raise TruthError(f"{truth.name}: the log cannot be replayed on this engine; check its capacity and limits")
    first, last = times
    later = np.maximum(log.output_tokens - 1, 1)
    told = {
        "ttft": (first - log.arrival_s) * 1e3,
        "tpot": np.where(log.output_tokens > 1, (last - first) * 1e3 / later, np.nan),
        "itl": np.where(log.output_tokens > 1, (last - first) * 1e3 / later, np.nan),
        "e2e": (last - log.arrival_s) * 1e3,
    }
    place = {name: i for i, name in enumerate(log.row_id)}
    made = log.output_tokens.sum() / (np.nanmax(last) - log.arrival_s.min())
    rows = []
    for row in truth.rows:
        if row["grain"] == DEPLOYMENT:
            # In part of requests that were fitted, where any were.
            how = IN_SAMPLE if n_fitted else standing
            rows.append(_of_the_whole(row, told, float(made), how, snapshot))
        if row["grain"] != REQUEST:
            continue
        value = float(told[row["metric"]][place[row["row_id"]]]) if row["metric"] in told else float("nan")
        good = np.isfinite(value) and value > 0
        rows.append(
            accuracy_row(
                row,
                value if good else None,
                standing=IN_SAMPLE if place[row["row_id"]] < n_fitted else standing,
                reason=None if good else "rejected_in_replay",
                snapshot=snapshot,
            )
        )
    return Prediction(rows, {})


def _of_the_whole(
    row: Mapping[str, Any], told: Mapping[str, np.ndarray], throughput: float, standing: str, snapshot: str | None
) -> dict[str, Any]:
    """A figure over all requests of a log that was replayed."""
    statistics: dict[str, Callable[[np.ndarray], Any]] = {"mean": np.nanmean, "median": np.nanmedian}
    value = float("nan")
    if row["metric"] == "output_throughput":
        value = throughput
    elif row["metric"] in told and row["statistic"] in statistics:
        value = float(statistics[row["statistic"]](told[row["metric"]]))
    good = np.isfinite(value) and value > 0
    reason = None if good else "metric_not_predicted"
    return accuracy_row(row, value if good else None, standing=standing, reason=reason, snapshot=snapshot)


def predict_passes(truth: TruthSet, spec: EngineSpec, *, snapshot: str | None = None) -> Prediction:
    """Price recorded passes by what they held."""
    from sim.errors import TimingError
    from sim.timing.plain import PlainPricer, Work

    pricer = PlainPricer(spec)
    rows = []
    for row in truth.rows:
        if row["grain"] != PASS:
            continue
        names = ("n_prefill", "prefill_tokens", "prefill_kv_tokens", "n_decode", "decode_kv_tokens")
        work = Work(*(int(row[name] or 0) for name in names))
        try:
            price = pricer.price(work)
        except TimingError:
            rows.append(accuracy_row(row, None, standing=UNCALIBRATED, reason="refused_by_timing", snapshot=snapshot))
            continue
        value = (price.prefill_ns + price.decode_ns) / 1e6
        share, evidence = _looked_up(pricer, work)
        rows.append(
            accuracy_row(
                row,
                value or None,
                standing=UNCALIBRATED,
                reason=None if value else "refused_by_timing",
                extrapolated_share=share,
                evidence=evidence,
                snapshot=snapshot,
            )
        )
    return Prediction(rows, {})


def _looked_up(pricer: PlainPricer, work: Work) -> tuple[float | None, dict[str, Any] | None]:
    """(share of the price that is extrapolated, the lookups) of a pass; None, None without performance data."""
    from sim.result import SOURCE_NAMES
    from sim.timing.tables import EXTRAPOLATED

    if pricer.tables is None:
        return None, None
    got = pricer.tables.answer(*work)
    parts = {
        "prefill": (got.prefill_ms, got.prefill_cell, got.prefill_source, got.prefill_octaves),
        "decode": (got.decode_ms, got.decode_cell, got.decode_source, got.decode_octaves),
    }
    asked = {phase: part for phase, part in parts.items() if part[2]}
    beyond = sum(ms for ms, _, source, _ in asked.values() if source == EXTRAPOLATED)
    whole = got.prefill_ms + got.decode_ms
    lookups = {
        phase: {"cell": cell, "source": SOURCE_NAMES[source], "octaves": octaves}
        for phase, (_, cell, source, octaves) in asked.items()
    }
    return (beyond / whole if whole else 0.0), {"lookups": lookups}
