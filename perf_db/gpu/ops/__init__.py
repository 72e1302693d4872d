"""Operator families. Each file builds the operators of one family from a shape; this is the table of kinds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from perf_db.gpu.errors import PerfDataError
from perf_db.gpu.ops import (
    attention,
    collectives,
    dispatch,
    dsa,
    gemm,
    linear_attention,
    memory_bound,
    mla,
    moe,
    msa,
)
from perf_db.gpu.ops.base import Operator, Phase, Tables
from perf_db.gpu.ops.groups import Overlap

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
    "msa": msa.build,
    "mla_module": mla.build_module,
    "mla": mla.build_kernel,
    "mla_bmm": mla.build_absorption,
    "gated_delta": linear_attention.build,
}
_NOT_MEASURED = ("missing_table", "missing_precision", "missing_shape")


def build(shapes: Sequence[Mapping[str, Any]], tables: Tables, phase: Phase, stretch: float) -> list[Operator]:
    """Operators of a phase.

    A group `overlap` becomes one operator. Of a group `fallback` the list `first` is taken when the data have it, else
    the operators of `second` stand in its place.

    Args:
        shapes: evaluated entries of an architecture file.
        stretch: multiplies every scale (draft layers of speculative decoding).
    """
    built: list[Operator] = []
    for shape in shapes:
        name = f"{phase}_{shape['op']}"
        if shape["kind"] == "overlap":
            built.append(
                Overlap(name, build(shape["a"], tables, phase, stretch), build(shape["b"], tables, phase, stretch))
            )
        elif shape["kind"] == "fallback":
            built += _first_or_second(shape, tables, phase, stretch)
        else:
            built.append(KINDS[shape["kind"]](name, float(shape["scale"]) * stretch, shape, tables, phase))
    return built


def _first_or_second(shape: Mapping[str, Any], tables: Tables, phase: Phase, stretch: float) -> list[Operator]:
    try:
        return build(shape["first"], tables, phase, stretch)
    except PerfDataError as first:
        if first.reason not in _NOT_MEASURED:
            raise
        try:
            return build(shape["second"], tables, phase, stretch)
        except PerfDataError as second:
            if second.reason not in _NOT_MEASURED:
                raise
            raise PerfDataError(second.reason, f"{first}; nor can it be put together: {second}") from second
