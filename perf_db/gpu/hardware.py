"""Hardware of a GPU system, from `systems/<system>.yaml`. Bytes, bytes per second, FLOP per second, seconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from perf_db.gpu.errors import PerfDataError
from perf_db.gpu.names import unknown
from perf_db.gpu.source import PerfRoot


@dataclass(frozen=True, slots=True)
class Hardware:
    """One GPU system; per GPU unless said otherwise."""

    system: str
    sm: int  # compute capability times ten, 0 where there is none (not NVIDIA)
    mem_bw: float
    mem_bw_scale: float  # share of mem_bw that a streaming kernel reaches
    mem_latency: float  # constant part of a memory-bound kernel
    mem_capacity: int
    flops: Mapping[str, float]  # by class: bfloat16, fp8, fp4, int8
    gpus_per_node: int
    gpus_per_rack: int  # GPUs of one rack fabric; 0 where there is none
    intra_node_bw: float
    inter_node_bw: float
    inter_rack_bw: float
    p2p_latency: float
    nccl_mem: Mapping[int, int] = field(repr=False)  # bytes of communication buffers by rank count
    other_mem: int = 0
    nccl_version: str = ""

    @property
    def nvidia(self) -> bool:
        return self.sm > 0

    def memory_ms(self, nbytes: Any) -> Any:
        """Time of a kernel that only moves `nbytes` bytes."""
        return (nbytes / (self.mem_bw * self.mem_bw_scale) + self.mem_latency) * 1000.0

    def link_bw(self, gpus: int) -> float:
        """Bandwidth between `gpus` ranks: inside a node, between nodes, between racks."""
        if gpus <= self.gpus_per_node:
            return self.intra_node_bw
        if self.gpus_per_rack and gpus > self.gpus_per_rack:
            return self.inter_rack_bw
        return self.inter_node_bw


def systems(root: PerfRoot) -> list[str]:
    """Systems that have both a hardware file and measured tables."""
    return sorted(p.stem for p in root.systems.glob("*.yaml") if (root.data / p.stem).is_dir())


def load_hardware(root: PerfRoot, system: str) -> Hardware:
    """Read a system's file.

    Raises:
        PerfDataError: `unknown_system`, or `bad_file` when a field is absent or no number.
    """
    path = root.systems / f"{system}.yaml"
    if system not in systems(root):
        everything = "`tracemill perf list` shows all"
        if path.is_file():
            raise PerfDataError(
                "missing_table",
                f"system {system!r} has a hardware file but no measured table; its tables would be under "
                f"{root.relative(root.data / system)}/; systems with tables: {', '.join(systems(root))}",
            )
        raise PerfDataError("unknown_system", unknown("system", system, systems(root), everything))
    return read_hardware(root, system)


def read_hardware(root: PerfRoot, system: str) -> Hardware:
    """Read a system's file, whether or not anything was measured on it.

    Raises:
        PerfDataError: `unknown_system`, or `bad_file` when a field is absent or no number.
    """
    path = root.systems / f"{system}.yaml"
    if not path.is_file():
        raise PerfDataError(
            "unknown_system", unknown("system", system, systems(root), "`tracemill perf list` shows all")
        )
    try:
        values = yaml.safe_load(path.read_text())
    except yaml.YAMLError as error:
        raise PerfDataError("bad_file", f"{root.relative(path)}: not YAML: {error}") from error
    return _parse(values, system, root.relative(path), path)


def _parse(values: Any, system: str, name: str, path: Path) -> Hardware:
    def number(section: str, key: str, default: float | None = None) -> float:
        value = (values.get(section) or {}).get(key, default) if isinstance(values, dict) else None
        # YAML 1.1 reads 3.35e12 as text.
        try:
            return float(value)  # type: ignore[arg-type]
        except (TypeError, ValueError):
            raise PerfDataError("bad_file", f"{name}: {section}.{key} = {value!r}, expected a number") from None

    gpu = values.get("gpu", {}) if isinstance(values, dict) else {}
    classes = {key.removesuffix("_tc_flops"): number("gpu", key) for key in gpu if key.endswith("_tc_flops")}
    per_node = int(number("node", "num_gpus_per_node"))
    misc = values.get("misc") or {} if isinstance(values, dict) else {}
    return Hardware(
        system=system,
        sm=int(number("gpu", "sm_version", 0)),
        mem_bw=number("gpu", "mem_bw"),
        mem_bw_scale=number("gpu", "mem_bw_empirical_scaling_factor"),
        mem_latency=number("gpu", "mem_empirical_constant_latency"),
        mem_capacity=int(number("gpu", "mem_capacity")),
        flops=classes,
        gpus_per_node=per_node,
        gpus_per_rack=int(number("node", "num_gpus_per_rack", 0)),
        intra_node_bw=number("node", "intra_node_bw"),
        inter_node_bw=number("node", "inter_node_bw"),
        inter_rack_bw=number("node", "inter_rack_bw", 0),
        p2p_latency=number("node", "p2p_latency"),
        nccl_mem={int(k): int(v) for k, v in (misc.get("nccl_mem") or {}).items()},
        other_mem=int(number("misc", "other_mem", 0)),
        nccl_version=str(misc.get("nccl_version", "")),
    )
