"""The least time a whole prefill pass can take: the sum of the rooflines of its operators.

Of the performance data only the files of the model and of the system are read, no measured table, so that measured
passes can be compared between sites wherever both are known. Operators, per rank and in ms, with x tokens in the pass:

* projections, experts, messages: as beside their tables (`perf_db.gpu.ops`), experts at x D tokens;
* what only moves bytes: bytes / memory bandwidth, without the share and the constant that real kernels add;
* two streams at once: the slower; of a module or its separate operators: the module, which has all of the work;
* attention over n requests with t new and q cached tokens in all, means s = t / n, p = q / n, S = s + p: the larger of
  compute and memory, both linear in a few counts, so that a kernel can evaluate them (`ATTENTION`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perf_db.gpu import quant
from perf_db.gpu.architecture import architecture_of, operators_of, precisions_of, symbols_of
from perf_db.gpu.deployment import Deployment, check
from perf_db.gpu.errors import PerfDataError
from perf_db.gpu.hardware import read_hardware
from perf_db.gpu.models import load_model
from perf_db.gpu.ops import collectives, dispatch, dsa, gemm, linear_attention, mla, moe, msa
from perf_db.gpu.ops.base import Floats, Shape
from perf_db.gpu.source import PerfRoot

# Columns of an attention operator. With low = min(p, kept), high = min(S, kept), e the diagonal:
#   pairs  = n ((high (high + e) - low (low + e)) / 2 + kept (max(S - kept, 0) - max(p - kept, 0))),
#            t window where there is a window shorter than S
#   scored = t S where S > kept, else 0
#   ms     = max(token t + pair pairs + score scored, fixed + new t + read n high + cached n S)
ATTENTION = ("window", "kept", "diagonal", "token", "pair", "score", "fixed", "new", "read", "cached")
LOGITS = ("row", "fixed", "moved")  # ms of n rows = max(row n, fixed + moved n)
MS = 1000.0

Curve = Callable[[Floats], Floats]


class WholeRoofline:
    """Roofline of prefill passes of one deployment.

    Raises:
        PerfDataError: the model, the system, a precision or the parallelism is not known here; see `.reason`.
    """

    def __init__(self, deployment: Deployment, root: PerfRoot) -> None:
        self.deployment = deployment
        self.model = load_model(root, deployment.model)
        check(deployment, self.model)
        self.hardware = read_hardware(root, deployment.system)
        self.files = [root.systems / f"{deployment.system}.yaml", root.path / self.model.file]
        self.shared: list[Curve] = []
        attention: list[list[float]] = []
        logits: list[list[float]] = []
        try:
            for shape in self._shapes():
                for part in _flattened(shape):
                    if part["kind"] in _ATTENTION:
                        scale, row = float(part["scale"]), _ATTENTION[part["kind"]](self, part)
                        attention.append([*row[:3], *(scale * value for value in row[3:])])
                    elif part.get("rows") == "requests":
                        logits.append([float(part["scale"]) * value for value in self._logits(part)])
                    else:
                        self.shared.append(self._curve(part))
        except KeyError as absent:
            raise PerfDataError(
                "unknown_quantisation",
                f"{deployment.system} has no rate for {absent} and {deployment.label} needs one",
            ) from None
        self.attention = np.array(attention, np.float64).reshape(-1, len(ATTENTION))
        self.logits = np.array(logits, np.float64).reshape(-1, len(LOGITS))

    def tokens_ms(self, tokens: Any) -> Floats:
        """Everything but attention and logits at so many tokens."""
        x = np.asarray(tokens, np.float64)
        return sum((curve(x) for curve in self.shared), np.zeros(x.shape))

    def prefill_ms(self, requests: Any, tokens: Any, past: Any) -> Floats:
        """A pass by its totals: requests, new tokens, cached tokens."""
        n, t, q = (np.asarray(v, np.float64) for v in np.broadcast_arrays(requests, tokens, past))
        total, s, p = self.tokens_ms(t), t / n, q / n
        full = s + p
        for window, kept, diagonal, token, pair, score, fixed, new, read, cached in self.attention:
            low, high = np.minimum(p, kept), np.minimum(full, kept)
            beyond = np.maximum(full - kept, 0.0) - np.maximum(p - kept, 0.0)
            pairs = n * ((high * (high + diagonal) - low * (low + diagonal)) / 2.0 + kept * beyond)
            if window:
                pairs = np.where(window < full, t * window, pairs)
            compute = token * t + pair * pairs + score * np.where(full > kept, t * full, 0.0)
            total = total + np.maximum(compute, fixed + new * t + read * n * high + cached * n * full)
        for row, fixed, moved in self.logits:
            total = total + np.maximum(row * n, fixed + moved * n)
        return total

    def arrays(self, most_tokens: int) -> dict[str, NDArray[np.float64]]:
        """What a timing model needs to evaluate `prefill_ms` up to so many new tokens."""
        return {
            "roofline_tokens": self.tokens_ms(np.arange(most_tokens + 1)),
            "roofline_attention": self.attention,
            "roofline_logits": self.logits,
        }

    def _shapes(self) -> list[dict[str, Any]]:
        d = self.deployment
        architecture = architecture_of(self.model)
        degrees = {"T": d.tp, "D": d.dp, "P": d.pp, "Et": d.moe_tp, "Ee": d.moe_ep}
        extra = {"backend": d.backend, "sm": self.hardware.sm, "architecture": self.model.classes[0]}
        symbols = symbols_of(architecture, self.model, degrees, extra)
        return operators_of(architecture.operators, symbols, "context", precisions_of(d, self.model))

    def _curve(self, shape: Shape) -> Curve:
        if shape["kind"] == "overlap":
            a, b = ([self._curve(part) for part in _each(shape[stream])] for stream in ("a", "b"))
            return lambda x: np.maximum(sum(c(x) for c in a), sum(c(x) for c in b))
        scale, one = float(shape["scale"]), _SHARED[shape["kind"]](self, shape)
        return lambda x: scale * one(x) if scale else np.zeros(x.shape)

    def _logits(self, shape: Shape) -> tuple[float, float, float]:
        n, k = float(shape["n"]), float(shape["k"])
        precision = quant.precision(shape["quant"], quant.GEMM, "GEMM")
        moved = precision.bytes * MS / self.hardware.mem_bw
        return 2.0 * n * k * MS / self.hardware.flops[precision.flops], moved * n * k, moved * (n + k)


def deployment_of_cell(cell: Mapping[str, Any], root: PerfRoot) -> Deployment:
    """The deployment that a cell of a whole-forward table measured; precisions it leaves empty are the checkpoint's.

    Args:
        cell: identity of the cell, by the columns of the table.

    Raises:
        PerfDataError: `unknown_model`, or `bad_parallelism`: a context that is split over ranks is not modelled.
    """
    if cell["cp"] != 1:
        raise PerfDataError("bad_parallelism", f"cp={cell['cp']}: operators are modelled for cp=1 only")
    stated = load_model(root, cell["model_path"]).precisions
    return Deployment(
        model=cell["model_path"],
        system=cell["system"],
        backend=cell["backend"],
        version=cell["backend_version"],
        **{name: int(cell[name]) for name in ("tp", "pp", "dp", "moe_tp", "moe_ep")},
        gemm=cell["gemm_quant_mode"] or stated.get("gemm", "bfloat16"),
        moe=cell["moe_quant_mode"] or stated.get("moe", "bfloat16"),
        kv_cache=cell["kv_cache_dtype"] or stated.get("kv_cache", "bfloat16"),
        fmha=cell["fmha_quant_mode"] or "bfloat16",
        # Messages in the precision of activations are called by it in some tables.
        comm=cell["comm_quant_mode"] if cell["comm_quant_mode"] in quant.MESSAGE_BYTES else "half",
    )


def _each(shapes: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [part for shape in shapes for part in _flattened(shape)]


def _flattened(shape: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The operator itself, or those of a group with a module in front."""
    return _each(shape["first"]) if shape["kind"] == "fallback" else [shape]


# ---------------------------------------------------------------- operators priced by tokens, one layer
def _streamed(whole: WholeRoofline, shape: Shape) -> Curve:
    size = 2.0 * shape["hidden"] if shape["kind"] == "embedding" else float(shape["bytes_per_token"])
    return lambda x: size * x / whole.hardware.mem_bw * MS


def _gemm(whole: WholeRoofline, shape: Shape) -> Curve:
    precision = quant.precision(shape["quant"], quant.GEMM, "GEMM")
    n, k = int(shape["n"]), int(shape["k"])
    whole.hardware.flops[precision.flops]
    return lambda x: gemm.roofline(x, n=n, k=k, precision=precision, hardware=whole.hardware)


def _moe(whole: WholeRoofline, shape: Shape) -> Curve:
    d, precision = whole.deployment, quant.precision(shape["quant"], quant.GEMM, "expert")
    sizes = {name: int(shape[name]) for name in ("hidden", "inter", "active", "experts")}
    whole.hardware.flops[precision.flops]
    return lambda x: moe.roofline(
        x * d.dp, **sizes, tp=d.moe_tp, ep=d.moe_ep, precision=precision, hardware=whole.hardware
    )


def _all_reduce(whole: WholeRoofline, shape: Shape) -> Curve:
    hidden, ranks = float(shape["hidden"]), int(shape["ranks"])
    return lambda x: collectives.roofline(hidden * x, "custom_all_reduce", ranks, whole.hardware)


def _hand_over(whole: WholeRoofline, shape: Shape) -> Curve:
    size = quant.MESSAGE_BYTES["half"] * float(shape["hidden"])
    return lambda x: size * x / whole.hardware.inter_node_bw * MS


def _dispatch(whole: WholeRoofline, shape: Shape) -> Curve:
    plan = dispatch.exchanges(shape, whole.deployment, whole.hardware)
    return lambda x: sum(
        (collectives.roofline(size * x, operation, ranks, whole.hardware) for operation, ranks, size in plan),
        np.zeros(x.shape),
    )


def _gated_delta(whole: WholeRoofline, shape: Shape) -> Curve:
    keys, values = (int(shape[f"{side}_heads"]) * int(shape[f"{side}_dim"]) for side in ("k", "v"))
    return lambda x: linear_attention.roofline(x, keys=keys, values=values, state=0, hardware=whole.hardware)


_SHARED: Mapping[str, Callable[[WholeRoofline, Shape], Curve]] = {
    "embedding": _streamed,
    "elementwise": _streamed,
    "gemm": _gemm,
    "moe": _moe,
    "all_reduce": _all_reduce,
    "p2p": _hand_over,
    "dispatch": _dispatch,
    "gated_delta": _gated_delta,
}


# ---------------------------------------------------------------- attention, one layer: rows of `ATTENTION`
def _heads(whole: WholeRoofline, shape: Shape) -> list[float]:
    d, hardware = whole.deployment, whole.hardware
    heads, size = float(shape["heads"]), float(shape["head_size"])
    flops = hardware.flops[quant.precision(d.fmha, quant.FMHA, "attention").flops]
    per_byte = MS / hardware.mem_bw
    cached = 2.0 * float(shape["kv_heads"]) * size * quant.KV_BYTES[d.kv_cache] * per_byte
    return [
        *(float(shape.get("window", 0)), float(mla.DENSE), 0.0),
        *(0.0, 4.0 * heads * size * MS / flops, 0.0),
        *(0.0, 4.0 * heads * size * per_byte, 0.0, cached),
    ]


def _latent(whole: WholeRoofline, shape: Shape, **changed: int) -> list[float]:
    d, hardware = whole.deployment, whole.hardware
    dims = {name: int(shape.get(name, 0)) for name in dsa.DIMENSIONS} | changed
    sizes = dsa.Sizes(
        **dims,
        kv_bytes=quant.KV_BYTES[d.kv_cache],
        gemm=quant.precision(shape["quant"], quant.GEMM, "GEMM"),
        fmha=quant.precision(d.fmha, quant.FMHA, "attention"),
        hardware=hardware,
    )
    heads, flops, per_byte = float(shape["heads"]), hardware.flops, MS / hardware.mem_bw
    dense = 2.0 * (sizes.shared_weights + heads * (sizes.head_weights + sizes.absorbed))
    weights = sizes.gemm.bytes * (sizes.shared_weights + heads * sizes.head_weights)
    return [
        *(0.0, float(sizes.topk), 1.0),
        dense * MS / flops[sizes.gemm.flops],
        2.0 * heads * (2 * sizes.kv_lora + sizes.rope) * MS / flops[sizes.fmha.flops],
        2.0 * sizes.index_heads * sizes.index_dim * MS / flops.get("fp8", flops["bfloat16"]),
        weights * per_byte,
        heads * 4.0 * (sizes.nope + sizes.rope) * per_byte,
        heads * sizes.kv_bytes * (sizes.kv_lora + sizes.rope) * per_byte,
        0.0,
    ]


def _mla_module(whole: WholeRoofline, shape: Shape) -> list[float]:
    return _latent(whole, shape, index_heads=0, index_dim=0, topk=mla.DENSE)


def _mla_kernel(whole: WholeRoofline, shape: Shape) -> list[float]:
    return _latent(whole, shape, index_heads=0, index_dim=0, topk=mla.DENSE, q_lora=0, hidden=0)


def _blocks(whole: WholeRoofline, shape: Shape) -> list[float]:
    hardware, heads = whole.hardware, float(shape["heads"])
    sizes = msa.sizes_of(shape, whole.deployment, hardware)
    kv_heads, flops, per_byte = max(heads / sizes.group, 1.0), hardware.flops, MS / hardware.mem_bw
    weights = sizes.hidden * (sizes.head_size * (2 * heads + 2 * kv_heads) + sizes.index)
    return [
        *(0.0, float(sizes.topk), 1.0),
        2.0 * weights * MS / flops[sizes.gemm.flops],
        4.0 * heads * sizes.head_size * MS / flops[sizes.fmha.flops],
        2.0 * sizes.index * MS / flops["bfloat16"],
        sizes.gemm.bytes * weights * per_byte,
        0.0,
        0.0,
        2.0 * kv_heads * sizes.head_size * sizes.kv_bytes * per_byte,
    ]


_ATTENTION: Mapping[str, Callable[[WholeRoofline, Shape], list[float]]] = {
    "attention": _heads,
    "dsa": _latent,
    "msa": _blocks,
    "mla_module": _mla_module,
    "mla": _mla_kernel,
}
