"""Operator tables as data: where a table lies, what its key is, which columns are axes.

The columns `framework`, `version`, `device`, `op_name`, `kernel_source` come first in every file and say where a row was
measured; `latency` comes last. In between lie the key columns and the numeric axes named here. A file may hold more
columns (power readings, for one); they are not read.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PerfTable:
    """One kind of operator table.

    Attributes:
        name: how we call it, and the file's name without `_perf.parquet`.
        family: folder under `systems/data/<system>/`.
        key: columns that select a slice.
        axes: numeric columns that span the slice's grid, in the order in which they are interpolated.
        latency: column of the measurement.
        to_ms: factor that makes it milliseconds.
        optional: key columns that some files lack; absent means this value.
    """

    name: str
    family: str
    key: tuple[str, ...]
    axes: tuple[str, ...]
    latency: str = "latency"
    to_ms: float = 1.0
    optional: tuple[tuple[str, str | int], ...] = ()

    @property
    def file(self) -> str:
        return f"{self.name}_perf.parquet"


_ATTENTION = ("kernel_source", "attn_dtype", "kv_cache_dtype", "num_key_value_heads", "head_dim", "window_size")
_MODULE = ("op_name", "architecture", "mla_dtype", "kv_cache_dtype", "gemm_type")
_MOE = (
    "kernel_source", "moe_dtype", "distribution", "hidden_size", "inter_size", "topk", "num_experts",
    "moe_tp_size", "moe_ep_size",
)  # fmt: skip
_LINEAR = ("kernel_source", "phase", "d_model", "num_k_heads", "head_k_dim", "num_v_heads", "head_v_dim", "d_conv")

TABLES: dict[str, PerfTable] = {
    table.name: table
    for table in (
        PerfTable("gemm", "gemm", ("gemm_dtype",), ("n", "k", "m")),
        PerfTable("computescale", "quantize", ("quant_dtype",), ("k", "m")),
        PerfTable("scale_matrix", "quantize", ("quant_dtype",), ("k", "m")),
        PerfTable("context_attention", "attention", _ATTENTION, ("num_heads", "isl", "batch_size")),
        PerfTable("generation_attention", "attention", _ATTENTION, ("num_heads", "batch_size", "isl", "step")),
        PerfTable(
            "encoder_attention", "encoder_attention", ("attn_dtype", "head_dim"), ("num_heads", "isl", "batch_size")
        ),
        PerfTable("context_mla", "mla", ("mla_dtype", "kv_cache_dtype"), ("num_heads", "isl", "batch_size", "step")),
        PerfTable("generation_mla", "mla", ("mla_dtype", "kv_cache_dtype"), ("num_heads", "batch_size", "isl", "step")),
        PerfTable("mla_context_module", "mla", _MODULE, ("num_heads", "step", "isl", "batch_size")),
        PerfTable("mla_generation_module", "mla", _MODULE, ("num_heads", "batch_size", "isl", "step")),
        PerfTable("mla_bmm", "mla_bmm", ("op_name", "bmm_dtype", "num_heads"), ("num_tokens",)),
        PerfTable("dsa_context_module", "sparse_attention", _MODULE, ("num_heads", "step", "isl", "batch_size")),
        PerfTable("dsa_generation_module", "sparse_attention", _MODULE, ("num_heads", "batch_size", "isl", "step")),
        PerfTable("msa_context_module", "msa", _MODULE, ("num_heads", "step", "isl", "batch_size")),
        PerfTable("msa_generation_module", "msa", _MODULE, ("num_heads", "batch_size", "isl", "step")),
        PerfTable("moe", "moe", _MOE, ("num_tokens",)),
        PerfTable("gdn", "linear_attention", _LINEAR, ("batch_size", "seq_len", "num_tokens")),
        PerfTable("kda", "kda", _LINEAR, ("batch_size", "seq_len", "num_tokens")),
        PerfTable(
            "mamba2",
            "linear_attention",
            ("kernel_source", "phase", "d_model", "d_state", "d_conv", "nheads", "head_dim", "n_groups"),
            ("batch_size", "seq_len", "num_tokens"),
        ),
        PerfTable(
            "custom_allreduce",
            "comm",
            ("kernel_source", "num_gpus"),
            ("message_size",),
        ),
        PerfTable("nccl", "comm", ("nccl_dtype", "op_name", "num_gpus"), ("message_size",)),
        PerfTable("oneccl", "comm", ("nccl_dtype", "op_name", "num_gpus"), ("message_size",)),
        PerfTable(
            "moe_a2a",
            "comm",
            ("comm_backend", "phase", "comm_dtype", "ep_size", "node_num", "hidden_size", "topk", "num_experts"),
            ("num_tokens",),
            to_ms=1e-3,  # named latency, but in microseconds: it repeats transmit_us
        ),
    )
}
