"""Which files of `tracemill calibrate` the constants of a configuration come from; they identify no run, numbers do."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from sim.config import RunConfig
from sim.config.run import ROLES


def origins(config: RunConfig, base: Path) -> dict[str, Any]:
    """Role of workers, or `host`, -> path and digest of the snapshot its constants were read from."""
    found = {}
    for role in ROLES:
        worker = getattr(config.engine.workers, role)
        if worker is not None and worker.timing.type == "pass_cost" and worker.timing.snapshot:
            found[role] = _told(worker.timing.snapshot, base)
    if config.engine.host is not None and config.engine.host.snapshot:
        found["host"] = _told(config.engine.host.snapshot, base)
    return found


def _told(path: str, base: Path) -> dict[str, str]:
    from assets.accuracy.truth import TruthError
    from assets.calibration.snapshot import load

    try:
        made = load(base / path).digest  # as the calibration that wrote it said
    except TruthError:  # constants written by hand have no more than their bytes
        made = hashlib.blake2b((base / path).read_bytes(), digest_size=16).hexdigest()
    return {"path": path, "digest": made}
