"""Dense projections: y[m, n] = x[m, k] W[k, n]."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import numpy as np

from perf_db.gpu import quant
from perf_db.gpu.hardware import Hardware
from perf_db.gpu.interpolate.curve import Curve
from perf_db.gpu.interpolate.sites import Site, Sites
from perf_db.gpu.ops.base import Floats, Operator, Phase, Shape, Share, Tables
from perf_db.gpu.quant import Precision

if TYPE_CHECKING:
    import polars as pl

SKIPPED_KERNELS = ("awq", "gptq")
LEAST = 1e-9  # ms; a difference of two measurements may come out as nothing
TAIL = 3  # points whose median utilisation is held past the end of a curve


class Gemm(Operator):
    """A site (n, k) of the GEMM table, as a function of m = tokens. Latencies are raised to the roofline."""

    kind = "gemm"

    def __init__(self, name: str, scale: float, n: int, k: int, precision: Precision, tables: Tables) -> None:
        super().__init__(name, scale)
        self.n, self.k, self.precision = n, k, precision
        stored = "fp8" if precision.name == "fp8_static" else precision.name
        self.sites = _site(n, k, stored, precision, tables)
        self.subtracted = _activation_quantisation(k, tables) if precision.name == "fp8_static" else []

    def ms(self, tokens: Floats) -> Floats:
        value = self.sites(tokens)
        for kernel in self.subtracted:
            value = value - kernel(tokens)
        return value if not self.subtracted else np.maximum(value, self.sites.roofline(tokens))

    def explain(self, tokens: float) -> list[Share]:
        return self.sites.explain(tokens)


def roofline(m: Floats, *, n: int, k: int, precision: Precision, hardware: Hardware) -> Floats:
    """max(2 m n k / FLOP rate, bytes of both operands and the result / bandwidth), ms."""
    compute = 2.0 * m * n * k / hardware.flops[precision.flops]
    memory = precision.bytes * (m * n + m * k + n * k) / hardware.mem_bw
    return np.maximum(compute, memory) * 1000.0


def _site(n: int, k: int, stored: str, precision: Precision, tables: Tables) -> Sites:
    """The site's own curve, or what its neighbours say; the same for every operator of this shape."""
    key = ("gemm", stored, n, k)
    if key in tables.memo:
        return tables.memo[key]
    where = {"gemm_dtype": stored}
    curves = _curves(tables.rows("gemm", where | {"n": n, "k": k}), precision, tables.hardware)
    if not curves:
        every = ("gemm", stored)
        if every not in tables.memo:
            tables.memo[every] = _curves(tables.rows("gemm", where), precision, tables.hardware)
        curves = tables.memo[every]
    if not curves:
        tables.missing("gemm", where, {"n": n, "k": k})
    limit = functools.partial(roofline, n=n, k=k, precision=precision, hardware=tables.hardware)
    site = Sites((n, k), curves, limit)
    if not site.answers:
        tables.missing("gemm", where, {"n": n, "k": k})
    tables.memo[key] = site
    return site


def _curves(frame: pl.DataFrame, precision: Precision, hardware: Hardware) -> dict[Site, Curve]:
    curves: dict[Site, Curve] = {}
    if not frame.height:
        return curves
    frame = frame.filter(~frame["kernel_source"].is_in(SKIPPED_KERNELS))
    frame = frame.unique(["n", "k", "m"], keep="first", maintain_order=True)
    for (n, k), rows in frame.group_by(["n", "k"], maintain_order=True):
        limit = functools.partial(roofline, n=int(n), k=int(k), precision=precision, hardware=hardware)
        m = rows["m"].to_numpy()
        latency = np.maximum(rows["latency"].to_numpy(), limit(m.astype(np.float64)))
        curves[int(n), int(k)] = Curve(m, latency, rows["label"].to_numpy(), limit, tail=TAIL)
    return curves


def _activation_quantisation(k: int, tables: Tables) -> list[Sites]:
    """The two kernels a static scale saves: finding the scale, and applying it. Absent tables save nothing."""
    found = []
    for table in ("computescale", "scale_matrix"):
        frame = tables.rows(table, {"quant_dtype": "fp8"})
        if not frame.height:
            continue

        def moved(m: Floats, width: int) -> Floats:
            return m * width * 3.0 / tables.hardware.mem_bw * 1000.0  # bfloat16 in, fp8 out

        curves: dict[Site, Curve] = {
            (int(width),): Curve(
                rows["m"].to_numpy(),
                np.maximum(rows["latency"].to_numpy(), LEAST),
                rows["label"].to_numpy(),
                functools.partial(moved, width=int(width)),
            )
            for (width,), rows in frame.group_by(["k"], maintain_order=True)
        }
        site = Sites((k,), curves, functools.partial(moved, width=k))
        if site.answers:
            found.append(site)
    return found


def build(name: str, scale: float, shape: Shape, tables: Tables, phase: Phase) -> Operator:
    """From `{kind: gemm, n: ..., k: ..., quant: ..., rows: tokens | requests}`."""
    precision = quant.precision(shape["quant"], quant.GEMM, "GEMM")
    operator = Gemm(name, scale, int(shape["n"]), int(shape["k"]), precision, tables)
    if shape.get("rows") == "requests":
        operator.part = "logits"
    return operator
