"""What a file of per-request or per-pass measurements does not say about the deployment it was taken from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class About:
    """Deployment of a set; None for what is not known.

    Attributes:
        truth_set: name of the set.
        group: deployment group; None: the name of the set.
    """

    truth_set: str
    group: str | None = None
    model: str | None = None
    model_family: str | None = None
    system: str | None = None
    backend: str | None = None
    backend_version: str | None = None
    tp: int | None = None
    concurrency: int | None = None
    measured_on: str | None = None

    def columns(self) -> dict[str, Any]:
        """Columns of `ground_truth` that are the same in every row of the set."""
        return {
            "group": self.group or self.truth_set,
            "model": self.model,
            "model_family": self.model_family or self.model,
            "system": self.system,
            "backend": self.backend,
            "backend_version": self.backend_version,
            "tp": self.tp,
            "concurrency": self.concurrency,
            "measured_on": self.measured_on,
        }
