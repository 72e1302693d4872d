"""Operator lists as data: one small YAML file per architecture in `architectures/`.

    name: dense_gqa
    classes: [Qwen3ForCausalLM, ...]     what checkpoint configurations call it
    symbols: {name: formula, ...}        derived symbols, evaluated in order
    operators:                           the order of the list is the order of the breakdown
      - {op: qkv_gemm, kind: gemm, scale: L, n: (H*d + 2*G*d)/T, k: h, quant: gemm}

Keys of an operator: `op` (its name, prefixed with the phase), `kind` (a family of `perf_db.gpu.ops`), `scale` (how many
layers it stands for), `phase` (context or generation; absent: both), `when` (a formula; absent: always), and the shape
that its family reads, each value a formula over the symbols. `quant` names a precision or the field of the deployment
that holds it (`gemm`, `moe`, `attention`). Groups hold lists of operators under `a` and `b` (overlap) or `first` and
`second` (fallback).

Symbols besides the model's (`perf_db.gpu.models`): T tensor parallel, D attention data parallel, P pipeline parallel,
Et and Ee expert tensor and expert parallel; backend, sm.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import yaml

from perf_db.gpu.deployment import Deployment
from perf_db.gpu.errors import PerfDataError
from perf_db.gpu.formulas import evaluate
from perf_db.gpu.models import Model

TEXT_KEYS = frozenset({"op", "kind", "phase", "rows", "distribution", "side"})
GROUP_KEYS = frozenset({"a", "b", "first", "second"})


@dataclass(frozen=True, slots=True)
class Architecture:
    """One file of `architectures/`, as read."""

    name: str
    classes: tuple[str, ...]
    symbols: Mapping[str, Any]
    operators: tuple[Mapping[str, Any], ...]
    memory: Mapping[str, Any]


@functools.cache
def architectures() -> tuple[Architecture, ...]:
    """All architectures that can be priced."""
    found = []
    for path in sorted((files("perf_db.gpu") / "architectures").iterdir(), key=lambda p: p.name):
        if not path.name.endswith(".yaml"):
            continue
        values = yaml.safe_load(path.read_text())
        if "operators" not in values:
            continue  # tables of another kind
        found.append(
            Architecture(
                values["name"],
                tuple(values["classes"]),
                values.get("symbols") or {},
                tuple(values["operators"]),
                values["memory"],
            )
        )
    return tuple(found)


def architecture_of(model: Model) -> Architecture:
    """The architecture of a checkpoint.

    Raises:
        PerfDataError: `unsupported_architecture`.
    """
    for architecture in architectures():
        if set(model.classes) & set(architecture.classes):
            return architecture
    known = "; ".join(f"{a.name} ({', '.join(a.classes)})" for a in architectures())
    raise PerfDataError(
        "unsupported_architecture",
        f"{model.name} ({model.file}) is {', '.join(model.classes) or 'of no named architecture'}; priced are {known}",
    )


def symbols_of(
    architecture: Architecture, model: Model, degrees: Mapping[str, int], extra: Mapping[str, Any]
) -> dict[str, Any]:
    """All symbols of a deployment: the model's, the parallel degrees, and those the architecture derives."""
    symbols: dict[str, Any] = {**model.symbols, **degrees, **extra}
    for name, formula in architecture.symbols.items():
        symbols[name] = evaluate(formula, symbols)
    return symbols


def precisions_of(deployment: Deployment, model: Model) -> dict[str, str]:
    """Precisions by the names that architecture files use: `gemm`, `moe`, and `attention` for its projections.

    Attention's own holds only as long as the projections are those of the checkpoint; who asks for another precision of
    projections gets it everywhere.
    """
    own = model.precisions
    as_stored = deployment.gemm == own.get("gemm")
    attention = own.get("attention", deployment.gemm) if as_stored else deployment.gemm
    return {"gemm": deployment.gemm, "moe": deployment.moe, "attention": attention}


def operators_of(
    operators: Any, symbols: Mapping[str, Any], phase: str, precisions: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Operators of a phase with every formula evaluated; groups keep their nesting."""
    listed = []
    for entry in operators:
        if entry.get("phase", phase) != phase or not evaluate(entry.get("when", True), symbols):
            continue
        shape: dict[str, Any] = {}
        for key, value in entry.items():
            if key in ("phase", "when"):
                continue
            if key in GROUP_KEYS:
                shape[key] = operators_of(value, symbols, phase, precisions)
            elif key == "quant":
                shape[key] = precisions.get(value, value)
            elif key in TEXT_KEYS or (key == "module" and value not in symbols):
                shape[key] = value
            else:
                shape[key] = evaluate(value, symbols)
        listed.append(shape)
    return listed
