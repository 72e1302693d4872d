"""One deployment's prices as tables: curves of prefill and decode, operators of a pass, KV capacity."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from assets.plots import AMBER, BLUE, Panel, svg
from perf_db.gpu.deployment import resolve
from perf_db.gpu.errors import PerfDataError
from perf_db.gpu.memory import Capacity, capacity
from perf_db.gpu.oplevel import EXTRAPOLATED, MEASURED, OpCost, OpLevel, Phase
from perf_db.gpu.source import OPTION, open_root
from sim.config.timing import MOST_FACTOR

PREFILL_TOKENS = (128, 512, 1024, 2048, 4096, 8192, 16384)
PREFIXES = (0, 1024, 8192)
BATCHES = (1, 8, 32, 64, 128, 256)
KV_LENGTHS = (128, 1024, 4096, 16384, 65536)
SHOWN_PREFILL = (1, 2048)  # requests, new tokens of the pass that is broken down
SHOWN_DECODE = (64, 2048)  # requests, KV length
MARK = {MEASURED: "", EXTRAPOLATED: "*"}


@dataclass(frozen=True)
class Curves:
    """Prices of one phase.

    Attributes:
        rows, columns: what is varied, with its values.
        ms: shape (rows, columns).
        kind: how attention was answered, same shape: measured, interpolated, extrapolated.
    """

    phase: str
    row_name: str
    rows: tuple[int, ...]
    column_name: str
    columns: tuple[int, ...]
    ms: np.ndarray
    kind: np.ndarray

    @property
    def head(self) -> list[str]:
        return [self.row_name, *(f"{self.column_name} {c:,}" for c in self.columns)]

    @property
    def cells(self) -> list[list[Any]]:
        """Rows for a table for people; `*` marks what lies beyond the measured points."""
        return [
            [f"{row:,}", *(f"{ms:,.3f}{MARK.get(int(kind), '')}" for ms, kind in zip(line, kinds))]
            for row, line, kinds in zip(self.rows, self.ms, self.kind)
        ]


@dataclass(frozen=True)
class DeploymentPage:
    """Everything `perf show` says. What a phase lacks is in `refused`, by phase."""

    label: str
    capacity: Capacity | None
    no_capacity: str
    curves: dict[str, Curves]
    breakdown: dict[str, tuple[str, list[OpCost]]]  # phase -> which pass, its operators
    refused: dict[str, str]
    provenance: dict[str, Any]

    def as_dict(self) -> dict[str, Any]:
        """The same as JSON values."""
        return {
            "deployment": self.provenance["deployment"],
            "kv_capacity": None
            if self.capacity is None
            else {name: getattr(self.capacity, name) for name in self.capacity.__slots__},
            "curves": {
                phase: [
                    {
                        c.row_name: row,
                        c.column_name: column,
                        "ms": float(c.ms[i, j]),
                        "extrapolated": bool(c.kind[i, j] == EXTRAPOLATED),
                    }
                    for i, row in enumerate(c.rows)
                    for j, column in enumerate(c.columns)
                ]
                for phase, c in self.curves.items()
            },
            "breakdown": {
                phase: {"pass": which, "operators": [line._asdict() for line in lines]}
                for phase, (which, lines) in self.breakdown.items()
            },
            "refused": self.refused,
            "provenance": self.provenance,
        }

    def write_plot(self, path: Path) -> None:
        """The curves as an SVG picture."""
        panels = []
        for phase, c in self.curves.items():
            along, fixed = (c.rows, c.columns) if phase == "prefill" else (c.columns, c.rows)
            name, other = (c.row_name, c.column_name) if phase == "prefill" else (c.column_name, c.row_name)
            for k, value in enumerate(fixed):
                ms = c.ms[:, k] if phase == "prefill" else c.ms[k, :]
                title, colour = f"{phase}, {other} {value:,} (ms)", BLUE if phase == "prefill" else AMBER
                panels.append(Panel(title, along, [float(v) for v in ms], name, colour))
        path.write_text(svg(panels))


def parse_factors(named: Sequence[str]) -> dict[str, float]:
    """`qkv_gemm=0.5` and the like.

    Raises:
        PerfDataError: `unknown_operator` when a factor is no name and positive number.
    """
    factors = {}
    for text in named:
        name, _, number = text.partition("=")
        try:
            value = float(number)
        except ValueError:
            value = 0.0
        if not name or not 0 < value <= MOST_FACTOR:
            most = f"{MOST_FACTOR:,.0f}"
            raise PerfDataError("unknown_operator", f"--factor {text!r}: write NAME=X, X above 0 and at most {most}")
        factors[name] = value
    return factors


def show_deployment(
    model: str,
    perf_root: Path | None,
    *,
    system: str,
    backend: str,
    max_tokens: int,
    clean: bool,
    factors: dict[str, float],
    **named: Any,
) -> DeploymentPage:
    """Price a deployment on a small grid.

    Args:
        model, system, backend, named: see `perf_db.gpu.deployment.resolve`.
        perf_root: folder of performance data, None for the optional extra's.
        max_tokens: token budget of a pass, for the KV capacity.
        clean, factors: see `perf_db.gpu.oplevel.OpLevel`.

    Raises:
        PerfDataError: an unknown name, or nothing can be priced.
    """
    root = open_root(perf_root, option=OPTION)
    deployment = resolve(root, model, system, backend, **named)
    level = OpLevel(deployment, root, clean=clean, factors=factors)
    try:
        room, without = capacity(deployment, root, max_batched_tokens=max_tokens), ""
    except PerfDataError as error:
        if error.reason != "no_memory":
            raise
        room, without = None, str(error)
    curves: dict[str, Curves] = {}
    breakdown: dict[str, tuple[str, list[OpCost]]] = {}
    if "context" in level.phases:
        new, prefix = np.array(PREFILL_TOKENS)[:, None], np.array(PREFIXES)[None, :]
        curves["prefill"] = Curves(
            "prefill", "new tokens", PREFILL_TOKENS, "prefix", PREFIXES,
            level.prefill(1, new, prefix), level.coverage("context", 1, new, prefix).kind,
        )  # fmt: skip
        which = f"{SHOWN_PREFILL[0]} request, {SHOWN_PREFILL[1]:,} new tokens, no prefix"
        breakdown["prefill"] = which, level.breakdown("context", *SHOWN_PREFILL)
    if "generation" in level.phases:
        batch, kv = np.array(BATCHES)[:, None], np.array(KV_LENGTHS)[None, :]
        curves["decode"] = Curves(
            "decode", "requests", BATCHES, "KV", KV_LENGTHS,
            level.decode(batch, kv), level.coverage("generation", batch, kv).kind,
        )  # fmt: skip
        which = f"{SHOWN_DECODE[0]} requests at KV length {SHOWN_DECODE[1]:,}"
        breakdown["decode"] = which, level.breakdown("generation", *SHOWN_DECODE)
    names: dict[Phase, str] = {"context": "prefill", "generation": "decode"}
    refused = {names[phase]: str(level.refusal(phase)) for phase in names if phase not in level.phases}
    return DeploymentPage(deployment.label, room, without, curves, breakdown, refused, level.provenance())
