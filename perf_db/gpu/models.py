"""Facts of a checkpoint, from its configuration file: the symbols of the architecture files, and its precisions."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from perf_db.gpu.errors import PerfDataError
from perf_db.gpu.names import unknown
from perf_db.gpu.source import PerfRoot

_SUFFIX = "_config.json"
_QUANT_SUFFIX = "_hf_quant_config.json"

# symbol -> names that configurations use for it, first that is there wins; `required` ones have no default
_SYMBOLS: dict[str, tuple[str, ...]] = {
    "L": ("num_hidden_layers",),
    "h": ("hidden_size",),
    "H": ("num_attention_heads",),
    "G": ("num_key_value_heads", "num_attention_heads"),
    "d": ("head_dim", "attention_head_dim"),
    "F": ("intermediate_size",),
    "V": ("vocab_size",),
    "E": ("n_routed_experts", "num_experts", "num_local_experts"),
    "K": ("num_experts_per_tok", "num_experts_per_token", "experts_per_token", "top_k_experts"),
    "f": ("moe_intermediate_size", "intermediate_size"),
    "shared": ("n_shared_experts", "num_shared_experts"),
    "fs": ("shared_expert_intermediate_size",),
    "q_lora": ("q_lora_rank",),
    "kv_lora": ("kv_lora_rank",),
    "rope": ("qk_rope_head_dim",),
    "nope": ("qk_nope_head_dim",),
    "v_dim": ("v_head_dim",),
    "topk_index": ("index_topk",),
    "index_heads": ("index_n_heads",),
    "index_dim": ("index_head_dim",),
    "window": ("sliding_window",),
    "chunk": ("attention_chunk_size",),
    "G_window": ("swa_num_key_value_heads", "num_key_value_heads"),
    "G_full": ("num_global_key_value_heads", "num_key_value_heads"),
    "d_full": ("global_head_dim", "head_dim"),
    "F_dense": ("intermediate_size_mlp", "intermediate_size"),
    "moe_step": ("interleave_moe_layer_step",),
    "block_size": ("sparse_block_size",),
    "block_topk": ("sparse_topk_blocks",),
    "block_index_heads": ("sparse_num_index_heads",),
    "block_index_dim": ("sparse_index_dim",),
    "lin_k_heads": ("linear_num_key_heads",),
    "lin_v_heads": ("linear_num_value_heads",),
    "lin_k_dim": ("linear_key_head_dim",),
    "lin_v_dim": ("linear_value_head_dim",),
    "lin_conv": ("linear_conv_kernel_dim",),
}
_REQUIRED = ("L", "h", "H", "V")
_ATTENTION_LEFT_OUT = re.compile(r"self_attn(\*|\.q(_a|_b)?_proj)|layers\.\*\.self_attn$")


@dataclass(frozen=True, slots=True)
class Model:
    """One checkpoint.

    Attributes:
        name: `Qwen/Qwen3-32B`.
        classes: the `architectures` of its configuration.
        symbols: L layers, h hidden, H query heads, G KV heads, d head size, F dense FFN width, V vocabulary, E experts,
            K active experts, f expert width, ... ; 0 where the model has no such thing.
        precisions: what the checkpoint says about `gemm`, `moe`, `attention`, `kv_cache`; nothing where it is silent.
        file: configuration file, relative to the root.
        max_length: positions the model was made for.
    """

    name: str
    classes: tuple[str, ...]
    symbols: Mapping[str, Any]
    precisions: Mapping[str, str]
    file: str
    max_length: int


def models(root: PerfRoot) -> list[str]:
    """Names of all checkpoints with a configuration file."""
    names = (p.name for p in root.model_configs.glob(f"*{_SUFFIX}") if not p.name.endswith(_QUANT_SUFFIX))
    return sorted(name.removesuffix(_SUFFIX).replace("--", "/", 1) for name in names)


def load_model(root: PerfRoot, name: str) -> Model:
    """Read a checkpoint's configuration.

    Raises:
        PerfDataError: `unknown_model`; `bad_file` when the configuration is no JSON or lacks a field every model has.
    """
    path = root.model_configs / f"{name.replace('/', '--', 1)}{_SUFFIX}"
    if "/" in name.replace("/", "", 1) or not path.is_file():
        raise PerfDataError("unknown_model", unknown("model", name, models(root), "`tracemill perf list` shows all"))
    label = root.relative(path)
    config = _json(path, label)
    text = config.get("text_config") or config.get("llm_config") or config
    text = {**config, **text} if text is not config else config
    text = {**(text.get("sparse_attention_config") or {}), **text}
    symbols: dict[str, Any] = {}
    for symbol, names in _SYMBOLS.items():
        value = next((text[key] for key in names if text.get(key) is not None), 0)
        symbols[symbol] = value[0] if isinstance(value, list) and value else value
    symbols["L"] = symbols["L"] or len(text.get("layers_block_type") or ())
    absent = [f"{s} ({' or '.join(_SYMBOLS[s])})" for s in _REQUIRED if not symbols[s]]
    if absent:
        raise PerfDataError("bad_file", f"{label}: no {', no '.join(absent)}")
    symbols["d"] = symbols["d"] or symbols["h"] // symbols["H"]
    symbols["qk_norm"] = _has_qk_norm(text, tuple(config.get("architectures") or ()))
    symbols["gate"] = bool(text.get("attn_output_gate", False))
    symbols |= _layer_counts(text)
    quantisation = path.with_name(path.name.removesuffix(_SUFFIX) + _QUANT_SUFFIX)
    return Model(
        name=name,
        classes=tuple(config.get("architectures") or ()),
        symbols=symbols,
        precisions=_precisions(
            text, _json(quantisation, root.relative(quantisation)) if quantisation.is_file() else {}
        ),
        file=label,
        max_length=int(text.get("max_position_embeddings") or 0),
    )


def _layer_counts(text: Mapping[str, Any]) -> dict[str, int]:
    """Layers by kind of attention, and how many have routed experts (0 where a configuration lists none)."""
    kinds = Counter(text.get("layer_types") or ())
    pattern = text.get("hybrid_layer_pattern") or ()  # 1: windowed
    routed = text.get("moe_layer_freq")
    return {
        "L_full": kinds.get("full_attention", 0) + list(pattern).count(0),
        "L_window": kinds.get("sliding_attention", 0) + list(pattern).count(1),
        "L_linear": kinds.get("linear_attention", 0),
        "L_moe": sum(routed) if isinstance(routed, list) else 0,
    }


def _json(path: Path, label: str) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text())
    except ValueError as error:
        raise PerfDataError("bad_file", f"{label}: not JSON: {error}") from error
    if not isinstance(value, dict):
        raise PerfDataError("bad_file", f"{label}: not a JSON object")
    return value


def _has_qk_norm(text: Mapping[str, Any], classes: tuple[str, ...]) -> bool:
    # Qwen3 normalises queries and keys in every checkpoint and has no field for it.
    return bool(text.get("use_qk_norm")) or any(name.startswith("Qwen3") for name in classes)


def _precisions(text: Mapping[str, Any], quantisation: Mapping[str, Any]) -> dict[str, str]:
    """Precisions that the checkpoint was stored in.

    Sources: the quantisation file beside the configuration, else `quantization_config` of the configuration.
    `attention` is named where a checkpoint leaves its attention projections as they were. Of a mixed checkpoint only
    the experts are taken as quantised: what it does with other projections differs from layer to layer.
    """
    own = text.get("quantization_config") or {}
    stated = quantisation.get("quantization") or own
    algorithm = str(stated.get("quant_algo") or "").upper()
    method = str(own.get("quant_method") or "").lower()
    found: dict[str, str] = {}
    if algorithm == "NVFP4":
        found = {"gemm": "nvfp4", "moe": "nvfp4"}
    elif algorithm == "FP8":
        found = {"gemm": "fp8_static", "moe": "fp8"}
    elif algorithm == "MIXED_PRECISION":
        found = {"moe": "nvfp4"}
    elif method == "fp8":
        kind = "fp8_block" if own.get("weight_block_size") else "fp8"
        found = {"gemm": kind, "moe": kind}
    elif method == "mxfp4":
        found = {"moe": "w4a16_mxfp4"}
    elif method == "compressed-tensors":
        groups: list[dict[str, Any]] = list((own.get("config_groups") or {}).values())
        weights = (groups[0].get("weights") or {}) if groups else {}
        if weights.get("num_bits") == 4 and weights.get("type") == "int":
            found = {"moe": "int4_wo"}
    left_out = [str(name) for name in stated.get("exclude_modules") or stated.get("ignore") or ()]
    if "gemm" in found and any(_ATTENTION_LEFT_OUT.search(name) for name in left_out):
        found["attention"] = "bfloat16"
    scheme = stated.get("kv_cache_scheme") or {}
    if str(stated.get("kv_cache_quant_algo") or "").upper() == "FP8" or scheme.get("num_bits") == 8:
        found["kv_cache"] = "fp8"
    return found
