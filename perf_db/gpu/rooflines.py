"""The least time that each row of a table can have taken: no repair goes below it."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from perf_db.gpu import quant
from perf_db.gpu.hardware import Hardware
from perf_db.gpu.operator_tables import OperatorTable

if TYPE_CHECKING:
    import polars as pl


def floor_ms(table: OperatorTable, frame: pl.DataFrame, hardware: Hardware | None) -> NDArray[np.float64] | None:
    """Roofline of every row, shape (n,), ms; 0 for a precision the hardware has no rate for.

    None where the table has no roofline of its own (modules, communication, ...), or the hardware is unknown.
    """
    rule = _RULES.get(table.name)
    if rule is None or hardware is None:
        return None
    columns, formula = rule
    present = [c for c in columns if c in frame.columns]
    out = np.zeros(frame.height)
    indexed = frame.with_row_index("_at")
    for values, rows in indexed.group_by(present, maintain_order=True):
        out[rows["_at"].to_numpy()] = formula(rows, dict(zip(present, values, strict=True)), hardware)
    return out


def _gemm(rows: pl.DataFrame, named: dict[str, Any], hardware: Hardware) -> NDArray[np.float64]:
    from perf_db.gpu.ops.gemm import roofline

    precision = quant.GEMM.get(named["gemm_dtype"])
    if precision is None or precision.flops not in hardware.flops:
        return np.zeros(rows.height)
    m, n, k = (_floats(rows, c) for c in ("m", "n", "k"))
    return roofline(m, n=n, k=k, precision=precision, hardware=hardware)  # type: ignore[arg-type]


def _context_attention(rows: pl.DataFrame, named: dict[str, Any], hardware: Hardware) -> NDArray[np.float64]:
    from perf_db.gpu.ops.attention import context_roofline

    compute, head = quant.FMHA.get(named["attn_dtype"]), _head(named)
    if compute is None or compute.flops not in hardware.flops or head is None:
        return np.zeros(rows.height)
    heads, kv_heads = _floats(rows, "num_heads"), _floats(rows, "num_key_value_heads")
    requests, length = _floats(rows, "batch_size"), _floats(rows, "isl")
    return context_roofline(heads, kv_heads, head, requests, length, compute.flops, hardware)


def _generation_attention(rows: pl.DataFrame, named: dict[str, Any], hardware: Hardware) -> NDArray[np.float64]:
    from perf_db.gpu.ops.attention import generation_roofline

    head = _head(named)
    if head is None:
        return np.zeros(rows.height)
    heads, kv_heads = _floats(rows, "num_heads"), _floats(rows, "num_key_value_heads")
    kv = _floats(rows, "isl") + _floats(rows, "step")
    return generation_roofline(heads, kv_heads, head, _floats(rows, "batch_size"), kv, hardware)


def _head(named: dict[str, Any]) -> Any:
    """What the rooflines of attention read of a head; None for a KV precision nobody has."""
    kv_bytes = quant.KV_BYTES.get(named["kv_cache_dtype"])
    if kv_bytes is None:
        return None
    return SimpleNamespace(size=named["head_dim"], window=named.get("window_size") or 0, kv_bytes=kv_bytes)


def _floats(rows: pl.DataFrame, column: str) -> NDArray[np.float64]:
    return rows[column].to_numpy().astype(np.float64)


_Rule = Callable[["pl.DataFrame", dict[str, Any], Hardware], NDArray[np.float64]]
_HEAD = ("attn_dtype", "kv_cache_dtype", "head_dim", "window_size")
_RULES: dict[str, tuple[tuple[str, ...], _Rule]] = {
    "gemm": (("gemm_dtype",), _gemm),
    "context_attention": (_HEAD, _context_attention),
    "generation_attention": (_HEAD, _generation_attention),
}
