"""What is known of requests' drafts when the replay is over."""

from __future__ import annotations

import numpy as np

import sim.speculation.columns as D
from sim.logs import logged
from sim.result import ACCEPTANCE, Columns
from sim.speculation.columns import Drafting


class AcceptanceRows:
    """Requests that verified drafts, in the order in which they end."""

    def __init__(self) -> None:
        self.parts: list[np.ndarray] = [np.zeros((len(ACCEPTANCE), 0), np.int64)]

    def drain(self, drafting: Drafting) -> None:
        """Empty the kernels' log."""
        self.parts.append(drafting.acceptance[:, : drafting.counts[D.N_ACCEPTANCE_LOG]].copy())
        drafting.counts[D.N_ACCEPTANCE_LOG] = 0

    def table(self) -> Columns:
        """All of them, by request."""
        rows = np.concatenate(self.parts, axis=1)
        rows = rows[:, np.argsort(rows[0])]
        return {name: np.ascontiguousarray(rows[i]) for i, name in enumerate(logged("acceptance", drafting=True))}
