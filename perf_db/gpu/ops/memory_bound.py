"""Operators that only move bytes: embedding, norms, activations. Computed from bandwidth, not measured."""

from __future__ import annotations

from perf_db.gpu.hardware import Hardware
from perf_db.gpu.ops.base import Floats, Operator, Phase, Shape, Tables


class MemoryBound(Operator):
    """`bytes_per_token` bytes per token at the reachable share of memory bandwidth, plus a constant."""

    kind = "elementwise"
    source = "empirical"

    def __init__(self, name: str, scale: float, bytes_per_token: float, hardware: Hardware, kind: str) -> None:
        super().__init__(name, scale)
        self.kind = kind
        self.bytes_per_token = bytes_per_token
        self.hardware = hardware

    def ms(self, tokens: Floats) -> Floats:
        return self.hardware.memory_ms(self.bytes_per_token * tokens)


def build(name: str, scale: float, shape: Shape, tables: Tables, phase: Phase) -> Operator:
    """From `{kind: embedding, hidden: ...}` or `{kind: elementwise, bytes_per_token: ...}`."""
    if shape["kind"] == "embedding":
        return MemoryBound(name, scale, 2.0 * shape["hidden"], tables.hardware, "embedding")
    return MemoryBound(name, scale, shape["bytes_per_token"], tables.hardware, "elementwise")
