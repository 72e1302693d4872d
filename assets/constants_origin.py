"""Which files of `tracemill calibrate` the constants of a configuration come from; they identify no run, numbers do."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from sim.config import RunConfig
from sim.config.engine import Worker
from sim.config.run import ROLES


def origins(config: RunConfig, base: Path) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Role of workers, or `host`, -> path and digest of the snapshot its constants were read from; and a warning where
    those of a pass cost were fitted to another deployment."""
    found, warnings = {}, []
    for role in ROLES:
        worker = getattr(config.engine.workers, role)
        if worker is not None and worker.timing.type == "pass_cost" and worker.timing.snapshot:
            found[role], unlike = _told(worker.timing.snapshot, base, config, worker)
            warnings += [f"engine.workers.{role}.timing.snapshot: {unlike}"] if unlike else []
    if config.engine.host is not None and config.engine.host.snapshot:
        found["host"], _ = _told(config.engine.host.snapshot, base, config)
    return found, tuple(warnings)


def _told(path: str, base: Path, config: RunConfig, worker: Worker | None = None) -> tuple[dict[str, str], str]:
    """Path and digest; and the warning, where constants are those of `worker` alone."""
    from assets.accuracy.truth import TruthError
    from assets.calibration.snapshot import fitted_to_another, identity_of, load

    try:
        snapshot = load(base / path)
    except TruthError:  # constants written by hand have no more than their bytes, and are for whomever
        made = hashlib.blake2b((base / path).read_bytes(), digest_size=16).hexdigest()
        return {"path": path, "digest": made}, ""
    unlike = "" if worker is None else fitted_to_another(snapshot, identity_of(config, worker), path)
    return {"path": path, "digest": snapshot.digest}, unlike
