"""The file a calibration leaves: whom it is for, the constants, and what they were made from.

It has the sections of every tuned snapshot (identity, corrections, host_constants, provenance); a calibration fills
host_constants and leaves the corrections empty.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assets.accuracy.truth import TruthError
from assets.identity import canonical_json, digest

if TYPE_CHECKING:
    from sim.config import RunConfig
    from sim.config.engine import Worker

FORMAT = 1
SECTIONS = ("identity", "corrections", "host_constants", "provenance")
_NO_CORRECTIONS = {
    "options": {
        "min_observations": 5,
        "bucket_count": 16,
        "min_faster_correction_factor": 0.5,
        "max_slower_correction_factor": 2.0,
    },
    "stores": {"prefill": [], "decode": [], "mixed": []},
}
PASS_COST, HOST_MODEL = "pass_cost", "host_model"


@dataclass(frozen=True)
class Snapshot:
    """
    Attributes:
        identity: deployment, and `constants`: which model they belong to, `pass_cost` or `host_model`.
        host_constants: by name; of a host model `backend.name`.
        provenance: truth, errors of both sides, intervals, seed, warnings.
    """

    identity: dict[str, Any]
    host_constants: dict[str, float]
    provenance: dict[str, Any]

    @property
    def digest(self) -> str:
        return digest(canonical_json([self.identity, self.host_constants, self.provenance]))

    @property
    def kind(self) -> str:
        return str(self.identity.get("constants", ""))

    def of_backend(self) -> dict[str, dict[str, float]]:
        """Host constants by backend."""
        found: dict[str, dict[str, float]] = {}
        for name, value in self.host_constants.items():
            backend, _, constant = name.partition(".")
            found.setdefault(backend, {})[constant] = value
        return found

    def held_out(self) -> dict[str, float]:
        """Latency -> held-out error when the snapshot was made."""
        return {name: float(each["mean"]) for name, each in self.provenance["held_out"].items()}


def identity_of(config: RunConfig, worker: Worker) -> dict[str, Any]:
    """Whom the constants of a deployment's workers belong to: model, hardware, backend, tensor width."""
    engine = config.engine
    return {
        "model": engine.model,
        "hardware": engine.hardware,
        "backend": engine.backend,
        "backend_version": engine.backend_version,
        "tensor": worker.parallelism.tensor,
    }


def fitted_to_another(snapshot: Snapshot, identity: Mapping[str, Any], path: Path | str) -> str:
    """A warning where constants are used for another deployment than they were fitted to; empty if none is known to be.

    Args:
        identity: of the deployment that they are used for; what is None says nothing.
    """
    fitted = snapshot.identity
    unlike = [
        f"{name} {fitted[name]} (here {here})"
        for name, here in identity.items()
        if here is not None and fitted.get(name) is not None and fitted[name] != here
    ]
    if not unlike:
        return ""
    return f"the constants of {path} were fitted to {', '.join(unlike)}; calibrate this deployment to rely on them"


def save(snapshot: Snapshot, path: Path) -> None:
    """Write the file, whole or not at all.

    Raises:
        TruthError: there is a train error without a held-out one, or a constant that is no number.
    """
    if not snapshot.provenance.get("held_out"):
        raise TruthError(f"{path}: a snapshot without a held-out error is not written; keep rows away from the fit")
    for name, value in snapshot.host_constants.items():
        if not math.isfinite(value):
            raise TruthError(f"{path}: constant {name}={value} is no number; the fit failed")
    whole = {
        "format": FORMAT,
        "identity": snapshot.identity,
        "corrections": _NO_CORRECTIONS,
        "host_constants": snapshot.host_constants,
        "provenance": snapshot.provenance,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    aside.write_text(json.dumps(whole, indent=1, sort_keys=True, allow_nan=False) + "\n", encoding="utf-8")
    os.replace(aside, path)


def load(path: Path) -> Snapshot:
    """
    Raises:
        TruthError: the file is no snapshot, or none that a calibration made.
        OSError: it cannot be read.
    """
    text = ""
    try:
        text = path.read_text(encoding="utf-8")
        found = json.loads(text)
    except FileNotFoundError as error:
        raise TruthError(
            f"{path}: no such file; make a snapshot with tracemill calibrate LOG --deployments RUN.yaml -o {path}"
        ) from error
    except (ValueError, RecursionError) as error:
        begins = f", it begins with {text[:80].splitlines()[0]!r}" if text.strip() else ""
        raise TruthError(
            f"{path}: is no snapshot: no JSON ({error}){begins}; give the file that tracemill calibrate LOG "
            "--deployments RUN.yaml -o FILE wrote"
        ) from error
    absent = [name for name in SECTIONS if not isinstance(found, dict) or not isinstance(found.get(name), Mapping)]
    if absent:
        raise TruthError(f"{path}: no section {', '.join(absent)}; a snapshot has {', '.join(SECTIONS)}")
    if found.get("format") != FORMAT:
        raise TruthError(f"{path}: format {found.get('format')!r}; this release reads {FORMAT}")
    if not found["host_constants"] or not found["provenance"].get("held_out"):
        raise TruthError(f"{path}: holds no constants with a held-out error; tracemill calibrate writes such a file")
    for name, value in found["host_constants"].items():
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not abs(value) <= sys.float_info.max:
            raise TruthError(f"{path}: host_constants.{name}={value!r} is no finite number; make the snapshot again")
    held_out = found["provenance"]["held_out"]
    for name, each in held_out.items() if isinstance(held_out, Mapping) else [("", held_out)]:
        mean = each.get("mean") if isinstance(each, Mapping) else None
        if isinstance(mean, bool) or not isinstance(mean, (int, float)):
            at = f"provenance.held_out.{name}".rstrip(".")
            raise TruthError(f"{path}: {at}={each!r} has no mean error; make the snapshot again")
    constants = {str(name): float(value) for name, value in found["host_constants"].items()}
    return Snapshot(dict(found["identity"]), constants, dict(found["provenance"]))
