"""KV blocks of a two-layer model, worked out by hand."""

from __future__ import annotations

import pytest

from perf_db.gpu.errors import PerfDataError
from perf_db.gpu.memory import MIB, capacity, default_fraction
from perf_db.gpu.source import PerfRoot
from tests.perf_db.gpu.measured import SYSTEM
from tests.perf_db.gpu.tiny import deployed, write_tiny

GPU = SYSTEM["gpu"]["mem_capacity"]
OTHER = SYSTEM["misc"]["other_mem"]
# Two layers of qkv, output, gate and up, down; logits and embedding.
WEIGHTS = 2 * (2 * (128 * 64 + 64 * 64 + 256 * 64 + 64 * 128) + 256 * 64 + 256 * 64)


@pytest.fixture
def root(tmp_path) -> PerfRoot:
    return write_tiny(tmp_path)


def test_parts_of_one_rank(root):
    found = capacity(deployed(root), root, max_batched_tokens=1 << 20, fraction=0.5)
    assert (found.weights_bytes, found.runtime_bytes, found.comm_bytes) == (WEIGHTS, OTHER, 0)
    assert found.activation_bytes == 2 * (1 << 20) * 64 * 11
    assert found.kv_bytes == int(GPU * 0.5 - WEIGHTS - OTHER - found.activation_bytes)
    assert found.kv_bytes_per_token == 2 * 2 * 2 * 2 * 16  # bytes, layers, K and V, KV heads, head size
    assert found.kv_tokens == found.kv_bytes // 256 and found.blocks == found.kv_tokens // 16


def test_activations_have_a_floor_and_ranks_share_weights(root):
    found = capacity(deployed(root, tp=2), root, max_batched_tokens=16)
    assert found.activation_bytes == 70 * MIB and found.comm_bytes == 358612992
    assert found.weights_bytes == WEIGHTS // 2 and found.kv_bytes_per_token == 128
    assert capacity(deployed(root, pp=2), root, max_batched_tokens=16).weights_bytes == WEIGHTS // 2


def test_fractions_by_backend_and_version():
    asked = (("vllm", "0.24.0"), ("vllm", "0.19.1"), ("trtllm", "1.0"), ("sglang", "0.5.14"))
    assert [default_fraction(backend, version) for backend, version in asked] == [0.92, 0.90, 0.9, 0.88]


def test_no_room_names_the_parts(root):
    with pytest.raises(
        PerfDataError, match=r"no KV block fits into 141.00 GiB at fraction 0.02: weights 0.00"
    ) as caught:
        capacity(deployed(root), root, max_batched_tokens=16, fraction=0.02)
    assert caught.value.reason == "no_memory"
