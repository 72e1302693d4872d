"""All-reduce and its kin between ranks, and the hand-over between pipeline stages.

Messages are counted in elements. Within the ranks that were measured a message size is a curve. Beyond the largest
measured rank count M, N ranks cost the M curve times ((N-1)/N) (M/(M-1)) bw(M)/bw(N).
"""

from __future__ import annotations

import functools

import numpy as np

from perf_db.gpu import quant
from perf_db.gpu.hardware import Hardware
from perf_db.gpu.interpolate.curve import Curve
from perf_db.gpu.ops.base import Floats, Operator, Phase, Shape, Share, Tables


class Collective:
    """One collective over `ranks` ranks as a function of the message size; nothing when there is one rank."""

    def __init__(self, operation: str, ranks: int, tables: Tables) -> None:
        self.ranks = ranks
        self.hardware = tables.hardware
        self.curve: Curve | None = None
        self.factor = 1.0
        self.link: str | None = None
        if ranks <= 1:
            return
        self.link = "intra_node" if ranks <= self.hardware.gpus_per_node else "inter_node"
        table, where = self._table(operation, tables)
        known = [int(n) for n in tables.values(table, "num_gpus", where)]
        if not known:
            tables.missing(table, where or {"num_gpus": ranks}, {"num_gpus": ranks})
        measured = self._measured(known, tables, table, where)
        frame = tables.rows(table, where | {"num_gpus": measured})
        frame = frame.filter(~frame["kernel_source"].str.ends_with("_eager")) if self.hardware.nvidia else frame
        if not frame.height:
            tables.missing(table, {}, where | {"num_gpus": measured})
        frame = frame.unique(["message_size"], keep="first", maintain_order=True)
        limit = functools.partial(roofline, operation=operation, ranks=measured, hardware=self.hardware)
        self.curve = Curve(
            frame["message_size"].to_numpy(), frame["latency"].to_numpy(), frame["label"].to_numpy(), limit
        )

    def _table(self, operation: str, tables: Tables) -> tuple[str, dict[str, str]]:
        if operation == "custom_all_reduce":
            return "custom_allreduce", {}
        library = "nccl" if self.hardware.nvidia else "oneccl"
        return library, {"op_name": operation, "nccl_dtype": tables.deployment.comm}

    def _measured(self, known: list[int], tables: Tables, table: str, where: dict[str, str]) -> int:
        """The rank count whose curve is used; sets the factor when it is not the asked one."""
        if self.ranks in known:
            return self.ranks
        largest = max(known)
        if self.ranks < largest:
            tables.missing(table, {}, where | {"num_gpus": self.ranks})
        n, m = self.ranks, largest
        self.factor = ((n - 1) / n) * (m / (m - 1)) * self.hardware.link_bw(m) / self.hardware.link_bw(n)
        return largest

    def __call__(self, size: Floats) -> Floats:
        """ms for messages of `size` elements."""
        return np.zeros(size.shape) if self.curve is None else self.curve(size) * self.factor

    def explain(self, size: float) -> list[Share]:
        """Raw rows that answer."""
        return [] if self.curve is None else self.curve.explain(size)


def roofline(size: Floats, operation: str, ranks: int, hardware: Hardware) -> Floats:
    """Limit of one collective over messages of `size` elements, ms; nothing with one rank."""
    rounds = 2.0 if operation.endswith("all_reduce") else 1.0
    return rounds * 2.0 * size * (ranks - 1) / ranks / hardware.link_bw(ranks) * 1000.0


class AllReduce(Operator):
    """All-reduce of `hidden` elements per token over the tensor-parallel ranks."""

    kind = "all_reduce"

    def __init__(self, name: str, scale: float, hidden: float, ranks: int, tables: Tables) -> None:
        super().__init__(name, scale)
        self.hidden = hidden
        self.collective = Collective("custom_all_reduce", ranks, tables)
        self.link = self.collective.link
        self.source = "silicon" if ranks > 1 else "empirical"

    def ms(self, tokens: Floats) -> Floats:
        return self.collective(self.hidden * tokens)

    def explain(self, tokens: float) -> list[Share]:
        return self.collective.explain(self.hidden * tokens)


class PipelineHandOver(Operator):
    """Activations from one pipeline stage to the next, over the network."""

    kind = "p2p"
    link = "inter_node"

    def __init__(self, name: str, scale: float, hidden: float, tables: Tables) -> None:
        super().__init__(name, scale)
        self.hidden = hidden
        self.hardware = tables.hardware

    def ms(self, tokens: Floats) -> Floats:
        size = quant.MESSAGE_BYTES["half"] * self.hidden * tokens
        return (size / self.hardware.inter_node_bw + self.hardware.p2p_latency) * 1000.0


def build(name: str, scale: float, shape: Shape, tables: Tables, phase: Phase) -> Operator:
    """From `{kind: all_reduce, hidden: ..., ranks: ...}` or `{kind: p2p, hidden: ...}`."""
    if shape["kind"] == "p2p":
        return PipelineHandOver(name, scale, float(shape["hidden"]), tables)
    return AllReduce(name, scale, float(shape["hidden"]), int(shape["ranks"]), tables)
