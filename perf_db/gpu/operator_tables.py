"""Every kind of operator table, declared once: its categories, its axes, what was measured and in which unit.

The declaration is data. Reading, validation, quality figures, cleaning and `perf import` all go by it. A file is named
`<table>_perf.parquet`; a column that is neither declared nor optional makes the file a bad file.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

# Who measured, with what. Present in nearly every file, never part of a key: one file holds one framework's rows.
PROVENANCE = ("framework", "version", "device")
# Written by some collectors, read by nobody.
IGNORED = ("power", "power_limit")
FILE_SUFFIX = "_perf"


@dataclass(frozen=True, slots=True)
class Axis:
    """A number along which points lie.

    Attributes:
        columns: the columns whose sum it is.
        grows: whether more of it can only cost more, other things equal; cleaning makes the latency follow.
    """

    name: str
    unit: str
    columns: tuple[str, ...]
    grows: bool = True


@dataclass(frozen=True, slots=True)
class Measure:
    """A measured column. `zero` where nothing at all is a possible answer: differences, notifications."""

    column: str
    unit: Literal["ms", "us"] = "ms"
    zero: bool = False


@dataclass(frozen=True, slots=True)
class OperatorTable:
    """One kind of table.

    Attributes:
        name: file name without `_perf.parquet`.
        row_is: completes the sentence "One row is ...".
        categories: text, size and flag columns that together name a slice, in reading order.
        axes: the first is the main axis: the one along which a slice is read as a curve.
        splice: categories that tell kernels apart but of which a curve may hold several, end to end.
        compared: categories that mean the same work under every backend, so that kernels can be held against each
            other; () where backends cut the work differently.
        optional: columns that some files lack.
        extra: columns that follow from the others or repeat them; read by nobody.
        rectangle: groups of axes whose product every slice ought to fill; () for curves.
    """

    name: str
    row_is: str
    categories: tuple[str, ...]
    axes: tuple[Axis, ...]
    measures: tuple[Measure, ...] = (Measure("latency"),)
    splice: tuple[str, ...] = ()
    compared: tuple[str, ...] = ()
    optional: frozenset[str] = frozenset()
    extra: tuple[str, ...] = ()
    rectangle: tuple[tuple[str, ...], ...] = ()

    @property
    def file_name(self) -> str:
        return f"{self.name}{FILE_SUFFIX}.parquet"

    @property
    def family(self) -> str:
        """Folder of a system's data that holds such tables."""
        return next(family for family, names in _FAMILIES.items() if self.name in names)

    @property
    def main(self) -> Axis:
        return self.axes[0]

    @property
    def measure(self) -> Measure:
        """The column that stands for the table in figures and pictures: the first."""
        return self.measures[0]

    @property
    def axis_columns(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(column for axis in self.axes for column in axis.columns))

    @property
    def slice_key(self) -> tuple[str, ...]:
        """What a consumer must name to get a grid: the categories, without those a curve is spliced from."""
        return tuple(c for c in self.categories if c not in self.splice)

    @property
    def columns(self) -> dict[str, str]:
        """Declared columns and their kinds: text, integer, number or flag."""
        kinds = dict.fromkeys(PROVENANCE, "text")
        kinds |= {c: _KINDS.get(c, "text") for c in self.categories}
        kinds |= dict.fromkeys(self.axis_columns, "integer")
        kinds |= dict.fromkeys((m.column for m in self.measures), "number")
        return kinds | {c: _KINDS.get(c, "number") for c in self.extra} | dict.fromkeys(IGNORED, "number")

    @property
    def required(self) -> tuple[str, ...]:
        absent = {*PROVENANCE, *IGNORED, *self.optional}
        return tuple(c for c in self.columns if c not in absent)

    def axis(self, name: str) -> Axis:
        for each in self.axes:
            if each.name == name:
                return each
        raise KeyError(f"table {self.name!r} has no axis {name!r}; it has {', '.join(a.name for a in self.axes)}")


_FAMILIES = {
    "attention": ("context_attention", "generation_attention"),
    "encoder_attention": ("encoder_attention",),
    "gemm": ("gemm",),
    "quantize": ("computescale", "scale_matrix"),
    "moe": ("moe", "wideep_moe", "wideep_context_moe", "wideep_generation_moe", "dsv4_megamoe_module"),
    "mlp": ("wideep_context_mlp", "wideep_generation_mlp"),
    "mla": (
        "context_mla", "generation_mla", "mla_context_module", "mla_generation_module", "wideep_context_mla",
        "wideep_generation_mla",
    ),
    "mla_bmm": ("mla_bmm",),
    "sparse_attention": (
        "dsa_context_module", "dsa_generation_module", "dsv4_csa_context_module", "dsv4_csa_generation_module",
        "dsv4_hca_context_module", "dsv4_hca_generation_module", "dsv4_csa_topk_calib", "dsv4_hca_attn_module",
        "dsv4_paged_mqa_logits_module", "glm5_dsa_attn_module", "glm5_mqa_logits_module", "glm5_topk_module",
    ),
    "msa": ("msa_context_module", "msa_generation_module"),
    "linear_attention": ("gdn", "mamba2"),
    "kda": ("kda",),
    "mhc": ("mhc_module",),
    "comm": (
        "custom_allreduce", "nccl", "oneccl", "moe_a2a", "trtllm_alltoall", "wideep_deepep_ll", "wideep_deepep_normal",
    ),
}  # fmt: skip
# What columns hold that are neither text nor measured.
_INTEGERS = (
    "num_key_value_heads", "head_dim", "window_size", "beam_width", "tp_size", "hidden_size", "inter_size",
    "intermediate_size", "topk", "num_topk", "num_experts", "num_slots", "moe_tp_size", "moe_ep_size", "ep_size",
    "num_gpus", "node_num", "dispatch_sms", "combine_sms", "sms", "compress_ratio", "local_num_heads", "d_model",
    "d_conv", "d_state", "num_k_heads", "head_k_dim", "num_v_heads", "head_v_dim", "nheads", "n_groups", "chunk_size",
    "num_sites", "hc_mult", "sinkhorn_iters", "num_fused_shared_experts", "num_max_tokens_per_rank",
    "effective_num_max_tokens_per_rank", "num_tokens", "dp_num_tokens", "global_num_tokens",
)  # fmt: skip
_FLAGS = ("includes_routed_scale", "includes_gate_topk", "includes_buffer_init", "used_cuda_graph")
_KINDS = dict.fromkeys(_INTEGERS, "integer") | dict.fromkeys(_FLAGS, "flag") | {"routed_scaling_factor": "number"}
_KERNEL = ("op_name", "kernel_source")
_HEADS = Axis("num_heads", "heads", ("num_heads",), grows=False)
_BATCH = Axis("batch_size", "requests", ("batch_size",))
_PROMPT = Axis("isl", "tokens", ("isl",))
_PREFIX = Axis("step", "tokens", ("step",))
_KV = Axis("kv_length", "tokens", ("isl", "step"))
_TOKENS = Axis("num_tokens", "tokens", ("num_tokens",))
_MESSAGE = Axis("message_size", "elements", ("message_size",))
_MODULE = (*_KERNEL, "model", "architecture", "mla_dtype", "kv_cache_dtype", "gemm_type", "tp_size")
_RATIO = (*_MODULE, "compress_ratio")
_ATTENTION = (
    *_KERNEL, "attn_dtype", "kv_cache_dtype", "num_key_value_heads", "head_dim", "window_size", "beam_width",
)  # fmt: skip
_MOE = (
    *_KERNEL, "moe_dtype", "distribution", "hidden_size", "inter_size", "topk", "num_experts", "moe_tp_size",
    "moe_ep_size",
)  # fmt: skip
_MEGA_MOE = (
    *_MOE, "phase", "kernel_dtype", "num_fused_shared_experts", "source_policy", "pre_dispatch",
    "num_max_tokens_per_rank", "effective_num_max_tokens_per_rank", "routed_scaling_factor", "includes_routed_scale",
    "includes_gate_topk", "buffer_policy", "includes_buffer_init", "used_cuda_graph",
)  # fmt: skip
_ALL_TO_ALL = (
    *_KERNEL, "comm_backend", "phase", "comm_dtype", "ep_size", "node_num", "hidden_size", "topk", "num_experts", "sms",
)  # fmt: skip
_LINEAR = (*_KERNEL, "phase", "model_name", "d_model", "d_conv")
_GATED = (*_LINEAR, "num_k_heads", "head_k_dim", "num_v_heads", "head_v_dim")
_SEQUENCE = Axis("seq_len", "tokens", ("seq_len",))
# `num_tokens` of a linear-attention row is batch x sequence: told, not chosen.
_LINEAR_AXES = (_SEQUENCE, _BATCH)


def _context(
    name: str,
    row_is: str,
    categories: tuple[str, ...] = _MODULE,
    *,
    measure: Measure = Measure("latency"),
    optional: frozenset[str] = frozenset(),
) -> OperatorTable:
    """A table over prompts: new tokens x requests x cached prefix x heads."""
    axes = (_PROMPT, _BATCH, _PREFIX, _HEADS)
    return OperatorTable(
        name, row_is, categories, axes, (measure,), optional=optional, rectangle=(("batch_size",), ("isl",))
    )


def _generation(
    name: str, row_is: str, categories: tuple[str, ...] = _MODULE, *, optional: frozenset[str] = frozenset()
) -> OperatorTable:
    """A table over decode steps: KV length x requests x heads."""
    axes = (_KV, _BATCH, _HEADS)
    return OperatorTable(name, row_is, categories, axes, optional=optional, rectangle=(("batch_size",), ("kv_length",)))


_WINDOW = frozenset({"window_size"})
_NO_MODEL = frozenset({"model", "architecture", "gemm_type"})
_NO_KERNEL = frozenset({"op_name", "kernel_source"})

_DECLARED = (
    OperatorTable(
        "gemm",
        "one matrix product y = x W: m tokens, n outputs, k inputs",
        (*_KERNEL, "gemm_dtype"),
        (
            Axis("m", "tokens", ("m",)),
            Axis("n", "outputs", ("n",), grows=False),
            Axis("k", "inputs", ("k",), grows=False),
        ),
        splice=("kernel_source",),
        compared=("gemm_dtype",),
        # Outputs and inputs come in pairs: the sites of a model's weights.
        rectangle=(("m",), ("n", "k")),
    ),
    _context("context_attention", "causal attention of a prompt, heads per rank", _ATTENTION, optional=_WINDOW),
    _generation("generation_attention", "decode attention, heads per rank", _ATTENTION, optional=_WINDOW),
    OperatorTable(
        "encoder_attention",
        "attention without a causal mask",
        (*_KERNEL, "attn_dtype", "head_dim"),
        (_PROMPT, _BATCH, _HEADS),
        rectangle=(("batch_size",), ("isl",)),
    ),
    _context("context_mla", "MLA prefill kernel", (*_KERNEL, "mla_dtype", "kv_cache_dtype", "tp_size")),
    _generation("generation_mla", "MLA decode kernel", (*_KERNEL, "mla_dtype", "kv_cache_dtype", "tp_size")),
    _context("mla_context_module", "MLA prefill with its projections"),
    _generation("mla_generation_module", "MLA decode with its projections"),
    _context("wideep_context_mla", "MLA prefill with its projections, wide expert parallelism", optional=_NO_MODEL),
    _generation(
        "wideep_generation_mla", "MLA decode with its projections, wide expert parallelism", optional=_NO_MODEL
    ),
    OperatorTable("mla_bmm", "one absorption product of MLA", (*_KERNEL, "bmm_dtype"), (_TOKENS, _HEADS)),
    _context("dsa_context_module", "sparse attention (DSA) prefill with its projections"),
    _generation("dsa_generation_module", "sparse attention (DSA) decode with its projections"),
    _context("msa_context_module", "sparse attention (MSA) prefill with its projections"),
    _generation("msa_generation_module", "sparse attention (MSA) decode with its projections"),
    _context("dsv4_csa_context_module", "compressed sparse attention (CSA) prefill", _RATIO),
    _generation("dsv4_csa_generation_module", "compressed sparse attention (CSA) decode", _RATIO),
    _context("dsv4_hca_context_module", "heavily compressed attention (HCA) prefill", _RATIO),
    _generation("dsv4_hca_generation_module", "heavily compressed attention (HCA) decode", _RATIO),
    _context(
        "dsv4_csa_topk_calib",
        "the top-k selection of CSA, scores of one kind",
        (*_RATIO, "score_mode"),
        measure=Measure("latency", zero=True),
    ),
    _context("dsv4_hca_attn_module", "the attention kernel of HCA", (*_RATIO, "local_num_heads")),
    _context(
        "dsv4_paged_mqa_logits_module",
        "the index scores of CSA",
        (*_RATIO, "local_num_heads"),
        optional=frozenset({"local_num_heads"}),
    ),
    _context("glm5_dsa_attn_module", "the attention kernel of DSA", _RATIO),
    _context("glm5_mqa_logits_module", "the index scores of DSA", _RATIO),
    _context(
        "glm5_topk_module",
        "the top-k selection of DSA, scores of one kind",
        (*_RATIO, "score_mode"),
        measure=Measure("latency", zero=True),
    ),
    OperatorTable("moe", "both expert products and the activation, one rank", _MOE, (_TOKENS,)),
    OperatorTable("wideep_context_moe", "experts of a prefill pass, wide expert parallelism", _MOE, (_TOKENS,)),
    OperatorTable("wideep_generation_moe", "experts of a decode pass, wide expert parallelism", _MOE, (_TOKENS,)),
    OperatorTable(
        "wideep_moe",
        "experts with redundant slots, wide expert parallelism",
        (*_MOE, "moe_kernel", "num_slots", "simulation_mode"),
        (_TOKENS, Axis("rank0_num_tokens", "tokens", ("rank0_num_tokens",), grows=False)),
        extra=("dp_num_tokens",),
    ),
    OperatorTable(
        "dsv4_megamoe_module",
        "experts with dispatch and combine in one kernel",
        _MEGA_MOE,
        (_TOKENS,),
        extra=("global_num_tokens",),
    ),
    OperatorTable(
        "custom_allreduce",
        "one all-reduce of the engine's own kernel",
        (*_KERNEL, "allreduce_dtype", "num_gpus", "backend", "implementation"),
        (_MESSAGE,),
        optional=frozenset({"backend", "implementation"}),
    ),
    OperatorTable(
        "nccl",
        "one collective of NCCL",
        (*_KERNEL, "nccl_dtype", "num_gpus"),
        (_MESSAGE,),
        optional=frozenset(PROVENANCE),
    ),
    OperatorTable("oneccl", "one collective of oneCCL", (*_KERNEL, "nccl_dtype", "num_gpus"), (_MESSAGE,)),
    OperatorTable(
        "moe_a2a",
        "one all-to-all of expert parallelism",
        _ALL_TO_ALL,
        (_TOKENS,),
        # Named latency without a unit; it repeats transmit_us.
        measures=(Measure("latency", "us"), Measure("transmit_us", "us"), Measure("notify_us", "us", zero=True)),
    ),
    OperatorTable(
        "trtllm_alltoall",
        "one all-to-all of expert parallelism over NVLink",
        (*_KERNEL, "moe_dtype", "hidden_size", "topk", "num_experts", "moe_ep_size", "distribution"),
        (_TOKENS,),
    ),
    OperatorTable(
        "wideep_deepep_ll",
        "dispatch and combine of DeepEP, low latency",
        (*_KERNEL, "node_num", "hidden_size", "num_topk", "num_experts"),
        (Axis("num_token", "tokens", ("num_token",)),),
        measures=(Measure("dispatch_avg_t_us", "us"), Measure("combine_avg_t_us", "us")),
        extra=("dispatch_bandwidth_gbps", "combine_bandwidth_gbps"),
    ),
    OperatorTable(
        "wideep_deepep_normal",
        "dispatch and combine of DeepEP, high throughput",
        (*_KERNEL, "node_num", "hidden_size", "num_topk", "num_experts", "dispatch_sms", "combine_sms"),
        (Axis("num_token", "tokens", ("num_token",)),),
        measures=(
            Measure("dispatch_transmit_us", "us"),
            Measure("combine_transmit_us", "us"),
            Measure("dispatch_notify_us", "us", zero=True),
            Measure("combine_notify_us", "us", zero=True),
        ),
    ),
    OperatorTable(
        "computescale",
        "finding the scale of an activation: dynamic minus static quantisation",
        (*_KERNEL, "quant_dtype"),
        (Axis("m", "tokens", ("m",)), Axis("k", "inputs", ("k",), grows=False)),
        measures=(Measure("latency", zero=True),),
        rectangle=(("m",), ("k",)),
    ),
    OperatorTable(
        "scale_matrix",
        "quantising an activation with a known scale",
        (*_KERNEL, "quant_dtype"),
        (Axis("m", "tokens", ("m",)), Axis("k", "inputs", ("k",), grows=False)),
        rectangle=(("m",), ("k",)),
    ),
    *(
        OperatorTable(
            name,
            f"one dense feed-forward block of a {phase} pass, wide expert parallelism",
            (*_KERNEL, "quant_type", "hidden_size", "intermediate_size"),
            (Axis("num_token", "tokens", ("num_token",)),),
            measures=(Measure("avg_ms"),),
        )
        for name, phase in (("wideep_context_mlp", "prefill"), ("wideep_generation_mlp", "decode"))
    ),
    OperatorTable("gdn", "one kernel of gated delta attention", _GATED, _LINEAR_AXES, extra=("num_tokens",)),
    OperatorTable("kda", "one kernel of Kimi delta attention", _GATED, _LINEAR_AXES, extra=("num_tokens",)),
    OperatorTable(
        "mamba2",
        "one kernel of Mamba 2",
        (*_LINEAR, "d_state", "nheads", "head_dim", "n_groups", "chunk_size"),
        _LINEAR_AXES,
        extra=("num_tokens",),
    ),
    OperatorTable(
        "mhc_module",
        "one mapping of manifold-constrained hyper-connections",
        (*_KERNEL, "architecture", "num_sites", "hc_mult", "hidden_size", "sinkhorn_iters"),
        (_TOKENS,),
    ),
)

OPERATOR_TABLES: dict[str, OperatorTable] = {table.name: table for table in _DECLARED}
