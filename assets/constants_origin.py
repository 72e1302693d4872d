"""Which files of `tracemill calibrate` the constants of a configuration come from; they identify no run, numbers do."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sim.config import RunConfig
from sim.config.engine import Worker
from sim.config.run import ROLES


def origins(config: RunConfig, base: Path) -> dict[str, Any]:
    """Role of workers, or `host`, -> path and digest of the snapshot its constants were read from."""
    found = {role: _told(file, base) for role, file, _ in _pass_costs(config)}
    if config.engine.host is not None and config.engine.host.snapshot:
        found["host"] = _told(config.engine.host.snapshot, base)
    return found


def warnings(config: RunConfig, base: Path) -> tuple[str, ...]:
    """Constants of a pass cost that were fitted to another deployment."""
    from assets.accuracy.truth import TruthError
    from assets.calibration.snapshot import fitted_to_another, identity_of, load

    said = []
    for role, file, worker in _pass_costs(config):
        try:
            told = fitted_to_another(load(base / file), identity_of(config, worker), file)
        except TruthError:  # written by hand, for whomever
            continue
        if told:
            said.append(f"engine.workers.{role}.timing.snapshot: {told}")
    return tuple(said)


def _pass_costs(config: RunConfig) -> Iterator[tuple[str, str, Worker]]:
    """Role, file and workers of every snapshot with constants of a pass cost."""
    for role in ROLES:
        worker = getattr(config.engine.workers, role)
        if worker is not None and worker.timing.type == "pass_cost" and worker.timing.snapshot:
            yield role, worker.timing.snapshot, worker


def _told(path: str, base: Path) -> dict[str, str]:
    from assets.accuracy.truth import TruthError
    from assets.calibration.snapshot import load

    try:
        made = load(base / path).digest  # as the calibration that wrote it said
    except TruthError:  # constants written by hand have no more than their bytes
        made = hashlib.blake2b((base / path).read_bytes(), digest_size=16).hexdigest()
    return {"path": path, "digest": made}
