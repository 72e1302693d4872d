"""Operator families. Each file builds the operators of one family from a shape; this is the table of kinds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from perf_db.gpu.ops import attention, collectives, dispatch, dsa, gemm, groups, memory_bound, moe
from perf_db.gpu.ops.base import Operator, Phase, Tables

Builder = Callable[[str, float, Mapping[str, Any], Tables, Phase], Operator]

KINDS: dict[str, Builder] = {
    "embedding": memory_bound.build,
    "elementwise": memory_bound.build,
    "gemm": gemm.build,
    "attention": attention.build,
    "all_reduce": collectives.build,
    "p2p": collectives.build,
    "moe": moe.build,
    "dispatch": dispatch.build,
    "dsa": dsa.build,
}


def build(shapes: Sequence[Mapping[str, Any]], tables: Tables, phase: Phase, stretch: float) -> list[Operator]:
    """Operators of a phase. `stretch` multiplies every scale (draft layers of speculative decoding)."""
    built = []
    for shape in shapes:
        name = f"{phase}_{shape['op']}"
        if shape["kind"] in groups.KINDS:
            built.append(groups.build(name, shape, lambda inner: build(inner, tables, phase, stretch)))
        else:
            built.append(KINDS[shape["kind"]](name, float(shape["scale"]) * stretch, shape, tables, phase))
    return built
