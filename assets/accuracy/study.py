"""From a file of measurements to stored tables and a report, and from stored tables to the same report again."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assets.accuracy.plots import charts, svg
from assets.accuracy.report import OURS, Report, build
from assets.accuracy.text import constants_text, report_text
from assets.accuracy.truth import COLUMNS, DEPLOYMENT, PASS, REQUEST, TruthError, TruthSet
from perf_db.layout import write_whole
from perf_db.store import Store
from perf_db.tables import ACCURACY, GROUND_TRUTH

if TYPE_CHECKING:
    from assets.calibration.request_log import Prefixes
    from assets.calibration.snapshot import Snapshot
    from sim.spec import EngineSpec

CACHE = "cache/accuracy"
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Study:
    """One truth set and everything said about it.

    Attributes:
        notes: how our predictions came about, ready for JSON.
    """

    truth: list[dict[str, Any]]
    accuracy: list[dict[str, Any]]
    report: Report
    notes: dict[str, Any]


def evaluate(
    truth: TruthSet,
    store: Store,
    *,
    spec: EngineSpec | None = None,
    snapshot: Snapshot | None = None,
    prefixes: Prefixes | None = None,
    perf_root: Path | None = None,
    clean: bool = True,
    terms: Sequence[str] | None = None,
    keep: Callable[[Row], bool] | None = None,
    progress: Callable[[str], None] | None = None,
) -> Study:
    """Predict every row of a set, keep measurements and predictions in the store, and report.

    Args:
        spec: the engine that requests or passes were measured on; needed for those grains.
        keep: which rows to predict and report.

    Raises:
        TruthError: the set needs an engine and none is given.
        PerfDataError: deployments need performance data and there is none.
    """
    from assets.accuracy import predict

    rows = [row for row in truth.rows if keep is None or keep(row)]
    if not rows:
        raise TruthError(f"{truth.name}: no row is left after --where; it holds {len(truth.rows)} figures")
    kept = TruthSet(truth.name, rows, truth.form)
    grains = {row["grain"] for row in rows}
    found: list[dict[str, Any]] = []
    notes: dict[str, Any] = {}
    digest = None if snapshot is None else snapshot.digest
    if DEPLOYMENT in grains and truth.form == "silicon":
        made = predict.predict_deployments(
            kept,
            perf_root=perf_root,
            cache=store.root / CACHE,
            clean=clean,
            constants=None if snapshot is None else snapshot.of_backend(),
            snapshot=digest,
            standing_of_snapshot=predict.IN_SAMPLE if _is_of(snapshot, truth) else predict.HELD_OUT,
            terms=terms,
            progress=progress,
        )
        found, notes = made.rows, made.notes
    elif DEPLOYMENT in grains and REQUEST not in grains:
        found = [
            predict.accuracy_row(row, None, standing=predict.UNCALIBRATED, reason="requests_not_saved")
            for row in rows
            if row["grain"] == DEPLOYMENT
        ]
    if grains & {REQUEST, PASS}:
        if spec is None:
            raise TruthError(
                f"{truth.name}: {', '.join(sorted(grains & {REQUEST, PASS}))} rows are predicted by an engine: "
                "describe it with --deployments RUN.yaml (a run configuration; its traffic is not used)"
            )
        from assets.accuracy.sources import on_clock_of

        engine, earlier, standing = _tuned(on_clock_of(spec, kept), snapshot)
        if REQUEST in grains:
            own = _is_of(snapshot, truth)
            found += predict.predict_requests(
                kept,
                engine,
                standing=standing,
                n_fitted=int(snapshot.provenance.get("n_fitted", 0)) if own and snapshot is not None else 0,
                earlier_s=earlier,
                prefixes=prefixes,
                snapshot=digest,
            ).rows
        if PASS in grains:
            found += predict.predict_passes(kept, engine, snapshot=digest).rows
    wanted = {(row["row_id"], row["metric"], row["statistic"]) for row in rows}
    accuracy = found + [r for r in truth.recorded if (r["row_id"], r["metric"], r["statistic"]) in wanted]
    store.note(GROUND_TRUTH, truth.name, rows)
    store.note(ACCURACY, truth.name, accuracy)
    return Study(rows, accuracy, build(rows, accuracy), notes)


def _is_of(snapshot: Snapshot | None, truth: TruthSet) -> bool:
    """Whether a snapshot was fitted to this set, as far as its name says."""
    return snapshot is not None and snapshot.provenance.get("truth_set") == truth.name


def _tuned(spec: EngineSpec, snapshot: Snapshot | None) -> tuple[EngineSpec, float, str]:
    """(engine with the snapshot's constants, how much earlier requests are handed over, standing)."""
    from dataclasses import replace

    from assets.accuracy.predict import HELD_OUT, UNCALIBRATED
    from assets.calibration.constants import NAMES
    from assets.calibration.snapshot import PASS_COST
    from sim.spec import PassCostTiming

    if snapshot is None:
        return spec, 0.0, UNCALIBRATED
    if snapshot.kind != PASS_COST:
        raise TruthError(
            f"the snapshot holds constants of {snapshot.kind or 'no model'}; requests need a pass_cost one"
        )
    constants: dict[str, Any] = {name: snapshot.host_constants[name] for name in NAMES}
    timing = PassCostTiming(**constants)
    return replace(spec, timing=timing), float(snapshot.provenance.get("earlier_s", 0.0)), HELD_OUT


def stored(store: Store, truth_set: str) -> Study:
    """A set as the store holds it, its report made again from the tables.

    Raises:
        TruthError: the store knows no set of that name.
    """
    if not store.exists:
        raise TruthError(f"{truth_set}: no such file, and no stored set of that name; {store.root} holds nothing yet")
    with store.connect() as con:
        truth = _rows(con, "ground_truth", truth_set)
        accuracy = _rows(con, "accuracy", truth_set)
        names = [name for (name,) in con.execute("SELECT DISTINCT truth_set FROM ground_truth ORDER BY 1").fetchall()]
    if not truth:
        known = ", ".join(names) or "none yet"
        raise TruthError(f"{truth_set}: no such file, and no stored set of that name; stored sets: {known}")
    return Study(truth, accuracy, build(truth, accuracy), {})


def _rows(con: Any, table: str, truth_set: str) -> list[dict[str, Any]]:
    columns = COLUMNS if table == "ground_truth" else ACCURACY.column_names
    # The order of rows decides nothing but ties; keep it the same every time.
    order = "source_line, metric, statistic" if table == "ground_truth" else "predictor, row_id, metric, statistic"
    query = f"SELECT {', '.join(columns)} FROM {table} WHERE truth_set = ? ORDER BY {order}"
    return [dict(zip(columns, row)) for row in con.execute(query, [truth_set]).fetchall()]


def pictures(study: Study) -> str:
    """Scatter and residuals of every metric with predictions, as one SVG."""
    found = Counter(
        row["metric"] for row in study.accuracy if row["prediction"] is not None and row["predictor"] == OURS
    )
    # One point is no picture, unless there is no other.
    shown = [metric for metric in sorted(found) if found[metric] > 1] or sorted(found)
    return svg([charts(study.truth, study.accuracy, metric) for metric in shown])


def write_files(study: Study, folder: Path, *, snapshot: str | None = None) -> list[Path]:
    """report.txt, report.json and errors.svg; each appears whole or not at all.

    Args:
        snapshot: what to call the file of constants, where one was given.
    """
    folder.mkdir(parents=True, exist_ok=True)
    constants = constants_text(study.report, study.accuracy, snapshot)
    whole = {**study.report.as_json(), "how": study.notes, "constants": constants.removeprefix("constants: ")}
    texts = {
        "report.txt": f"{constants}\n{report_text(study.report)}\n",
        "report.json": json.dumps(whole, indent=1, allow_nan=False) + "\n",
    }
    if any(row["prediction"] is not None and row["predictor"] == OURS for row in study.accuracy):
        texts["errors.svg"] = pictures(study)
    for name, text in texts.items():
        write_whole(folder / name, text)
    return [folder / name for name in texts]
