"""Facts about models that a replay needs: the longest sequence, for `context_length: max`, and the number of layers.

Figures are `max_position_embeddings` of the `config.json` that each model publishes on its Hugging Face page, which is
what vLLM takes as `max_model_len` when nothing else is said. A model that is not listed is an error that asks for a
number: guessing a limit would silently reject or admit requests. Layers are `num_hidden_layers` of the same files.
"""

from __future__ import annotations

MAX_CONTEXT_TOKENS: dict[str, int] = {
    "Qwen/Qwen3-8B": 40960,
    "Qwen/Qwen3-14B": 40960,
    "Qwen/Qwen3-32B": 40960,
    "Qwen/Qwen3-32B-FP8": 40960,
    "Qwen/Qwen3-30B-A3B": 40960,
    "Qwen/Qwen3-235B-A22B": 40960,
    "Qwen/Qwen3-235B-A22B-FP8": 40960,
    "nvidia/Qwen3-32B-NVFP4": 40960,
    "deepseek-ai/DeepSeek-V3": 163840,
    "deepseek-ai/DeepSeek-R1": 163840,
    "deepseek-ai/DeepSeek-V3.1": 163840,
    "deepseek-ai/DeepSeek-V3.2": 163840,
    "nvidia/DeepSeek-R1-NVFP4": 163840,
    "nvidia/DeepSeek-V3.1-NVFP4": 163840,
    "meta-llama/Llama-3.1-8B": 131072,
    "meta-llama/Llama-3.1-8B-Instruct": 131072,
    "meta-llama/Meta-Llama-3.1-8B": 131072,
    "meta-llama/Meta-Llama-3.1-8B-Instruct": 131072,
    "meta-llama/Llama-3.1-70B": 131072,
    "meta-llama/Llama-3.1-70B-Instruct": 131072,
    "meta-llama/Meta-Llama-3.1-70B": 131072,
    "meta-llama/Meta-Llama-3.1-70B-Instruct": 131072,
    "nvidia/Llama-3.1-8B-Instruct-FP8": 131072,
    "MiniMaxAI/MiniMax-M2": 196608,
    "MiniMaxAI/MiniMax-M2.5": 196608,
    "openai/gpt-oss-120b": 131072,
}

_LAYERS = {  # by the name's end without the precision it was converted to
    "Qwen3-8B": 36,
    "Qwen3-14B": 40,
    "Qwen3-32B": 64,
    "Qwen3-30B-A3B": 48,
    "Qwen3-235B-A22B": 94,
    "DeepSeek-V3": 61,
    "DeepSeek-R1": 61,
    "DeepSeek-V3.1": 61,
    "DeepSeek-V3.2": 61,
    "Llama-3.1-8B": 32,
    "Llama-3.1-70B": 80,
    "MiniMax-M2": 62,
    "MiniMax-M2.5": 62,
    "gpt-oss-120b": 36,
}


def layers_of(model: str | None) -> int | None:
    """Transformer layers of a model, or None when the model is unknown."""
    if model not in MAX_CONTEXT_TOKENS:
        return None
    name = model.rpartition("/")[2].removeprefix("Meta-")
    for ending in ("-FP8", "-NVFP4", "-Instruct"):
        name = name.removesuffix(ending)
    return _LAYERS[name]


def max_context_tokens(model: str | None) -> int | None:
    """Longest sequence of a model in tokens, or None when the model is unknown."""
    return MAX_CONTEXT_TOKENS.get(model) if model is not None else None
