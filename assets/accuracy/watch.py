"""Observe, calibrate, replay, compare: the four steps for a registered set of measurements, without Dagster."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from assets.accuracy.drift import check
from assets.accuracy.importers import read_truth
from assets.accuracy.registry import Watched
from assets.accuracy.sources import about_of, engine_of, filter_of, prefixes_of
from assets.accuracy.study import CACHE, Study, evaluate
from assets.accuracy.truth import REQUEST, TruthError, TruthSet
from assets.calibration.snapshot import Snapshot, load, save
from perf_db.store import Store
from perf_db.tables import CALIBRATIONS, GROUND_TRUTH

if TYPE_CHECKING:
    from assets.calibration.run import Calibrated


def observe(watched: Watched, store: Store) -> TruthSet:
    """Read the measurements and keep them in the store."""
    found = read_truth(Path(watched.truth), about=about_of(watched.name, watched.about), form=watched.form)
    keep = filter_of(watched.where)
    rows = [row for row in found.rows if keep is None or keep(row)]
    if not rows:
        raise TruthError(f"{watched.truth}: no row is left of {len(found.rows)} after {', '.join(watched.where)}")
    store.note(GROUND_TRUTH, watched.name, rows)
    return TruthSet(found.name, rows, found.form, recorded=found.recorded, set_aside=found.set_aside)


def calibrate(watched: Watched, truth: TruthSet, store: Store) -> Calibrated:
    """Fit constants to the measurements and write the snapshot."""
    from assets.calibration.run import calibrate_deployments, calibrate_requests, grain_of

    if grain_of(truth) == REQUEST:
        spec, identity = _engine(watched)
        made = calibrate_requests(truth, spec, identity=identity, prefixes=_prefixes(watched, truth))
    else:
        made = calibrate_deployments(
            truth, perf_root=_path(watched.perf_root), cache=store.root / CACHE, terms=watched.terms or None
        )
    save(made.snapshot, Path(watched.snapshot))
    store.note(CALIBRATIONS, made.snapshot.digest, made.rows)
    return made


def compare(watched: Watched, truth: TruthSet, store: Store) -> tuple[Study, Snapshot, list[dict[str, Any]]]:
    """Replay with the snapshot's constants, compare, and hold the errors against those it was accepted with."""
    snapshot = load(Path(watched.snapshot))
    study = evaluate(
        truth,
        store,
        spec=_engine(watched)[0] if watched.deployments else None,
        snapshot=snapshot,
        prefixes=_prefixes(watched, truth),
        perf_root=_path(watched.perf_root),
    )
    return study, snapshot, check(study, snapshot, store)


def _engine(watched: Watched) -> tuple[Any, dict[str, Any]]:
    if watched.deployments is None:
        raise TruthError(f"{watched.name}: requests need the engine they were measured on: register with --deployments")
    return engine_of(Path(watched.deployments))


def _prefixes(watched: Watched, truth: TruthSet) -> Any:
    return None if watched.prefixes is None else prefixes_of(Path(watched.prefixes), truth)


def _path(text: str | None) -> Path | None:
    return None if text is None else Path(text)
