"""Precisions: bytes per element, and which of the GPU's FLOP classes computes them."""

from __future__ import annotations

from dataclasses import dataclass

from perf_db.gpu.errors import PerfDataError
from perf_db.gpu.names import unknown


@dataclass(frozen=True, slots=True)
class Precision:
    """`bytes` of one weight or activation element; `flops`, the class of tensor-core rate it runs at."""

    name: str
    bytes: float
    flops: str


GEMM: dict[str, Precision] = {
    name: Precision(name, size, flops)
    for name, size, flops in (
        ("bfloat16", 2.0, "bfloat16"),
        ("int8_wo", 1.0, "bfloat16"),
        ("sq", 1.0, "int8"),
        ("fp8", 1.0, "fp8"),
        ("fp8_block", 1.0, "fp8"),
        ("fp8_static", 1.0, "fp8"),
        ("fp8_ootb", 1.0, "fp8"),
        ("int4_wo", 0.5, "bfloat16"),
        ("w4a16_mxfp4", 0.5, "bfloat16"),
        ("w4afp8", 0.5, "fp8"),
        ("w4a8_mxfp4_mxfp8", 0.5, "fp8"),
        ("mxfp4_mxfp8", 0.5, "fp8"),
        ("nvfp4", 9 / 16, "fp4"),
        ("nvfp4_wo", 9 / 16, "bfloat16"),
        ("w4a16_nvfp4", 9 / 16, "bfloat16"),
    )
}
FMHA: dict[str, Precision] = {
    name: Precision(name, size, flops)
    for name, size, flops in (("bfloat16", 2.0, "bfloat16"), ("fp8", 1.0, "fp8"), ("fp8_block", 1.0, "fp8"))
}
KV_BYTES: dict[str, int] = {"bfloat16": 2, "fp8": 1, "int8": 1}
MESSAGE_BYTES: dict[str, float] = {"half": 2.0, "fp8": 1.0, "int8": 1.0}


def precision(name: str, table: dict[str, Precision], what: str) -> Precision:
    """The precision called `name`.

    Raises:
        PerfDataError: `unknown_quantisation`.
    """
    if name not in table:
        raise PerfDataError(
            "unknown_quantisation", unknown(f"{what} precision", name, table, f"all: {', '.join(table)}")
        )
    return table[name]
