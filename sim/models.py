"""Facts about models that a replay needs: today only the longest sequence, for `context_length: max`.

Figures are `max_position_embeddings` of the `config.json` that each model publishes on its Hugging Face page, which is
what vLLM takes as `max_model_len` when nothing else is said. A model that is not listed is an error that asks for a
number: guessing a limit would silently reject or admit requests.
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


def max_context_tokens(model: str | None) -> int | None:
    """Longest sequence of a model in tokens, or None when the model is unknown."""
    return MAX_CONTEXT_TOKENS.get(model) if model is not None else None
