"""Which requests were served well enough. Rules MR-9, MR-10."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from sim.result import Columns

MS = 1_000_000  # ns


class Limits(Protocol):
    """Latency limits of a good request, ms, inclusive; None is no limit. The configuration's `sla` section is one."""

    @property
    def ttft_ms(self) -> float | None: ...
    @property
    def itl_ms(self) -> float | None: ...
    @property
    def e2e_ms(self) -> float | None: ...


@dataclass(frozen=True, slots=True)
class Sla:
    """TTFT and/or mean ITL, or E2E alone. Rules MR-9, MR-10."""

    ttft_ms: float | None = None
    itl_ms: float | None = None
    e2e_ms: float | None = None

    def __post_init__(self) -> None:
        given = {name: value for name in ("ttft_ms", "itl_ms", "e2e_ms") if (value := getattr(self, name)) is not None}
        if not given:
            raise ValueError("sla: name at least one of ttft_ms, itl_ms or e2e_ms")
        if self.e2e_ms is not None and len(given) > 1:
            raise ValueError("sla: e2e_ms excludes ttft_ms and itl_ms; keep one kind of limit")
        for name, value in given.items():
            if not 0 < value < float("inf"):
                raise ValueError(f"sla.{name}={value}: must be positive and finite")


def is_good(requests: Columns, completed: np.ndarray, sla: Limits) -> np.ndarray:
    """Which completed requests met every limit. Whole nanoseconds, so a request exactly on a limit is good.

    Args:
        requests: the requests table; column `ttft_at_ns` is the end of TTFT where that is not the first token.
    """
    first, last = requests["first_token_ns"], requests["last_token_ns"]
    arrival, made = requests["arrival_ns"], requests["output_tokens"]
    good = completed.copy()
    if sla.e2e_ms is not None:
        # A request without a token ends with its prefill.
        return good & (np.where(made > 0, last, requests["end_ns"]) - arrival <= round(sla.e2e_ms * MS))
    good &= made > 0
    if sla.ttft_ms is not None:
        good &= requests.get("ttft_at_ns", first) - arrival <= round(sla.ttft_ms * MS)
    if sla.itl_ms is not None:
        good &= last - first <= round(sla.itl_ms * MS) * np.maximum(made - 1, 0)
    return good
