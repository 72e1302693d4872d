"""Whatever stands in a file, the answer is a configuration or a ConfigError, never another exception."""

from __future__ import annotations

import contextlib
from copy import deepcopy
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from sim.config import ConfigError, load_run_config

BASE: dict[str, Any] = {
    "profile": "vllm",
    "traffic": {
        "source": {"type": "synthetic", "input_tokens": 8, "shared_prefix_ratio": 0.5, "prefix_groups": 1},
        "load": {"type": "poisson", "requests_per_second": 1, "seed": 1},
        "stop": {"requests": 1},
    },
    "engine": {
        "model": "Qwen/Qwen3-32B",
        "context_length": "max",
        "workers": {
            "aggregated": {
                "scheduler": {"max_batched_tokens": 8192, "chunked_prefill": True, "watermark": 0},
                "kv_cache": {"block_size": 64, "capacity": {"type": "fixed", "blocks": 16384}},
                "timing": {
                    "type": "table",
                    "prefill_isl": [0, 1],
                    "prefill_ttft_ms": [0, 1],
                    "decode_active_kv_tokens": [0, 1],
                    "decode_context_length": [0, 1],
                    "decode_itl": [[0, 1], [0, 1]],
                },
            }
        },
    },
    "evaluation": {"sla": {"ttft_ms": 1}},
}
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=5),
    st.sampled_from(["max", "fixed", "trace", "vllm"]),
)
JUNK = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.one_of(st.sampled_from(["type", "path", "blocks", "x"]), st.integers(), st.none()), inner, max_size=3
        )
    ),
    max_leaves=4,
)


def paths(values: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [here] if here else []
    items = values.items() if isinstance(values, dict) else enumerate(values) if isinstance(values, list) else ()
    return found + [path for name, inner in items for path in paths(inner, (*here, name))]


@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_junk_is_refused_and_nothing_breaks(data: st.DataObject) -> None:
    values = deepcopy(BASE)
    for _ in range(data.draw(st.integers(1, 3))):
        path = data.draw(st.sampled_from(paths(values) or [("seed",)]))
        here: Any = values
        for part in path[:-1]:
            here = here[part]
        if data.draw(st.booleans()):
            here[path[-1]] = data.draw(JUNK)
        elif isinstance(here, dict):
            here[data.draw(st.one_of(st.text(max_size=4), st.integers()))] = data.draw(JUNK)
    try:
        config = load_run_config(values)
    except ConfigError as error:
        assert str(error).startswith("configuration: ")
    else:
        config.engine_spec()
        config.canonical()
        assert isinstance(config.warnings, tuple)


@settings(max_examples=100, deadline=None)
@given(text=st.text(alphabet="abe.nigr=[]{}:, 1tfx", max_size=20))
def test_any_override_is_answered(text: str) -> None:
    with contextlib.suppress(ConfigError):
        load_run_config(BASE, overrides=[text])
