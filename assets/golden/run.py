"""One recorded case through one of the two engines, everything kept in memory."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Literal

from sim.inputs import Workload
from sim.result import TABLES, Columns, MemorySink, Outcome
from sim.spec import Deployment

Engine = Literal["fast", "reference"]
MODULES = {"fast": "sim.engine", "reference": "sim.reference"}


@dataclass(frozen=True)
class Replayed:
    """A finished replay: its tables and its outcome."""

    spec: Deployment
    tables: dict[str, Columns]
    outcome: Outcome


def run(spec: Deployment, workload: Workload, engine: Engine = "fast") -> Replayed:
    """Replay on the compiled engine ("fast") or on the plain one ("reference")."""
    sink = MemorySink()
    outcome = import_module(MODULES[engine]).replay(spec, workload, sink)
    return Replayed(spec, {name: sink.table(name) for name in TABLES}, outcome)
