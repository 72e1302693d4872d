"""Which attention kernel of several measured ones a backend runs.

A slice of the attention tables may hold rows of several kernels, the lanes. A kernel that is no lane by name belongs to
the lane `default`. A backend walks its lanes in order and takes the first that has the slice.
"""

from __future__ import annotations

import functools
from importlib.resources import files
from typing import Any

import yaml

from perf_db.gpu.ops.base import Phase


@functools.cache
def _declared() -> dict[str, Any]:
    return yaml.safe_load((files("perf_db.gpu") / "architectures" / "attention_lanes.yaml").read_text())


def named_lanes() -> frozenset[str]:
    """Kernels that are lanes of their own."""
    return frozenset(_declared()["lanes"])


def lane_order(backend: str, sm: int, phase: Phase) -> tuple[str, ...]:
    """Lanes of a backend on a compute capability, first choice first."""
    known = _declared()
    entry = known["order"].get(backend, {})
    own = entry.get(sm, entry.get("any", []))
    first = own.get(phase, []) if isinstance(own, dict) else own
    last = entry.get("last", {}).get(sm, [])
    rest = [lane for lane in known["rest"] if lane not in first and lane not in last]
    return tuple(["default"] if entry.get("single") else [*first, *rest, "default", *last])
