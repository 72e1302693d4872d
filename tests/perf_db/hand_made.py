"""A small replay worked out by hand, as the engine would hand it over."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from perf_db.store import Identity, Store

MS = 1_000_000  # ns

# ms    0         10              30      35      40          52
#       | pass 0  |    pass 1     | pass 2| pass 3|  pass 4   |       one rank, 20 blocks of 16 tokens
#  A    | prefill |    decode     | decode|preempt| recompute |       arrives 0, prompt 100, 4 tokens
#  B         ^4   |    prefill    | decode|                           arrives 4, prompt 60 (32 cached), 2 tokens
#  C                      ^20             |prefill|                   arrives 20, prompt 200, 1 token; takes A's blocks
#  D         ^5 rejected                                              E never arrives: the replay stops before
#
# Tokens: A at 10, 30, 35, 52; B at 30, 35; C at 40. In passes 1 and 2 a draft is verified beside each decode, in vain.
A, B, C, D, E = range(5)
# The second row of the source was quarantined, so that everything after A is one further on.
REQUEST_ID = {A: 0, B: 2, C: 3, D: 4, E: 5}


def table(names: str, *rows: tuple[int, ...]) -> dict[str, np.ndarray]:
    data = np.array(rows, np.int64).reshape(-1, len(names.split()))
    return {name: np.ascontiguousarray(data[:, i]) for i, name in enumerate(names.split())}


def hand_made() -> dict[str, dict[str, np.ndarray]]:
    """The engine's tables of the drawing above."""
    none = -1
    requests = table(
        "request worker dp_rank arrival_ns admitted_ns first_token_ns second_token_ns last_token_ns end_ns status "
        "reason prompt_tokens requested_tokens output_tokens cached_tokens_first cached_tokens_max n_admissions "
        "n_preemptions n_spans",
        (A, 0, 0, 0, 0, 10 * MS, 30 * MS, 52 * MS, 52 * MS, 0, 0, 100, 4, 4, 0, 64, 2, 1, 2),
        (B, 0, 0, 4 * MS, 10 * MS, 30 * MS, 35 * MS, 35 * MS, 35 * MS, 0, 0, 60, 2, 2, 32, 32, 1, 0, 1),
        (C, 0, 0, 20 * MS, 35 * MS, 40 * MS, none, 40 * MS, 40 * MS, 0, 0, 200, 1, 1, 0, 0, 1, 0, 1),
        (D, 0, 0, 5 * MS, none, none, none, none, 5 * MS, 1, 1, 9000, 8, 0, none, none, 0, 0, 0),
        (E, none, none, none, none, none, none, none, none, 2, 0, 10, 5, 0, none, none, 0, 0, 0),
    )
    spans = table(
        "request span_no worker dp_rank first_pass n_tokens n_passes first_token_no",
        (B, 0, 0, 0, 1, 2, 2, 0),
        (A, 0, 0, 0, 0, 3, 3, 0),
        (C, 0, 0, 0, 3, 1, 1, 0),
        (A, 1, 0, 0, 4, 1, 1, 3),
    )
    bursts = table(
        "request span_no worker dp_rank first_pass n_passes n_tokens first_token_no tokens_packed drafts_packed",
        (B, 0, 0, 0, 1, 2, 2, 0, 0x11, 0),
        (A, 0, 0, 0, 0, 3, 3, 0, 0x111, 0),
        (C, 0, 0, 0, 3, 1, 1, 0, 0x1, 0),
        (A, 1, 0, 0, 4, 1, 1, 3, 0x1, 0),
    )
    acceptance = table(
        "request n_rounds n_drafts accepted_0 accepted_1 accepted_2 accepted_3 accepted_4 accepted_5",
        (A, 2, 2, 2, 0, 0, 0, 0, 0),
        (B, 1, 1, 1, 0, 0, 0, 0, 0),
    )
    passes = table(
        "worker dp_rank pass_no group_pass_no chosen_ns start_ns prefill_ns decode_ns end_ns n_prefill prefill_tokens "
        "prefill_kv_tokens n_decode decode_kv_tokens scheduled_tokens chunk_tokens n_tokens n_continuing n_admitted "
        "n_preempted n_completed n_running n_waiting n_waiting_preempted active_blocks cached_blocks free_blocks "
        "prefill_cell decode_cell n_rounds n_drafts n_accepted n_bursts",
        *[(0, 0, 0, 0, 0, 0, 10 * MS, 0, 10 * MS, 1, 100, 0, 0, 0, 100, 100, 1, 0, 1, 0, 0)
          + (1, 0, 0, 7, 0, 13, 3, none, 0, 0, 0, 1)],
        *[(0, 0, 1, 1, 10 * MS, 10 * MS, 15 * MS, 5 * MS, 30 * MS, 1, 28, 32, 1, 101, 29, 28, 2, 1, 1, 0, 0)
          + (2, 0, 0, 9, 2, 9, 3, 0, 1, 1, 0, 2)],
        *[(0, 0, 2, 2, 30 * MS, 30 * MS, 0, 5 * MS, 35 * MS, 0, 0, 0, 2, 163, 2, 0, 2, 2, 0, 0, 1)
          + (2, 1, 0, 11, 2, 7, none, 0, 2, 2, 0, 2)],
        *[(0, 0, 3, 3, 35 * MS, 35 * MS, 5 * MS, 0, 40 * MS, 1, 200, 0, 0, 0, 200, 200, 1, 0, 1, 1, 1)
          + (1, 0, 1, 13, 6, 1, 4, none, 0, 0, 0, 1)],
        *[(0, 0, 4, 4, 40 * MS, 40 * MS, 10 * MS, 2 * MS, 52 * MS, 1, 36, 64, 1, 103, 39, 39, 1, 0, 1, 0, 1)
          + (1, 0, 0, 7, 4, 9, 3, 0, 0, 0, 0, 1)],
    )  # fmt: skip
    admissions = table(
        "request admission_no worker dp_rank pass_no chosen_ns start_ns cached_tokens kind order_no",
        (A, 0, 0, 0, 0, 0, 0, 0, 0, 0),
        (B, 0, 0, 0, 1, 10 * MS, 10 * MS, 32, 0, 1),
        (C, 0, 0, 0, 3, 35 * MS, 35 * MS, 0, 0, 2),
        (A, 1, 0, 0, 4, 40 * MS, 40 * MS, 64, 1, 3),
    )
    chunks = table(
        "request worker dp_rank pass_no n_tokens computed_before prompt_tokens kind cached_tokens n_drafts",
        (A, 0, 0, 0, 100, 0, 100, 0, 0, 0),
        (B, 0, 0, 1, 28, 32, 28, 0, 32, 0),
        (C, 0, 0, 3, 200, 0, 200, 0, 0, 0),
        (A, 0, 0, 4, 39, 64, 36, 1, 64, 0),
    )
    pressure = table(
        "request worker dp_rank pass_no chosen_ns asker blocks_released tokens_lost n_running n_waiting active_blocks "
        "reserving",
        (A, 0, 0, 3, 35 * MS, C, 7, 102, 0, 2, 0, 0),
    )
    evidence = table(
        "role phase cell extrapolated source correction_bin n_lookups total_ns first_pass min_x max_x min_y max_y "
        "max_millioctaves",
        (0, 0, 3, 0, 0, none, 3, 35 * MS, 0, 28, 100, 0, 64, 0),
        (0, 0, 4, 1, 0, none, 1, 5 * MS, 3, 200, 200, 0, 0, 0),
        (0, 1, 0, 0, 0, none, 3, 12 * MS, 1, 101, 163, 81, 103, 0),
    )
    handoffs = table(
        "request source_worker source_rank worker dp_rank prefill_admitted_ns held_ns reserved_ns transferred_ns "
        "activated_ns decode_admitted_ns released_ns sent_tokens sent_bytes queued_ns began_ns attempts withdrawn_ns "
        "outcome",
        (B, 0, 0, 1, 0, 10 * MS, 30 * MS, 30 * MS, 31 * MS, none, none, none, 28, none, 30 * MS, 30 * MS, 1, none, 0),
    )
    return {
        "requests": requests,
        "spans": spans,
        "bursts": bursts,
        "passes": passes,
        "admissions": admissions,
        "chunks": chunks,
        "pressure": pressure,
        "acceptance": acceptance,
        "handoffs": handoffs,
        "evidence": evidence,
        "cell_ops": cell_ops(),
    }


def cell_ops() -> dict[str, Any]:
    """Cell 3 of the prefill rests on two raw rows of one operator."""
    numbers = table("role phase cell row_no requests length prefix", (0, 0, 3, 17, 1, 28, 32), (0, 0, 3, 18, 1, 28, 32))
    return {
        **numbers,
        "operator": ["gemm", "gemm"],
        "file": ["systems/data/x/gemm.parquet"] * 2,
        "file_digest": ["d", "d"],
        "share": np.array([0.25, 0.75]),
        "operator_ms": np.array([9.0, 9.0]),
        "operator_share": np.array([1.0, 1.0]),
    }


def identity() -> Identity:
    return Identity(
        request_id=np.array([REQUEST_ID[r] for r in range(5)]),
        external_id=["a", "b", None, "d", "e"],
        source_line=np.array([1, 3, 4, 5, 6]),
        session_id=np.array([7, -1, 7, -1, -1]),
        turn=np.array([0, -1, 1, -1, -1]),
    )


def run_facts(**changes: Any) -> dict[str, Any]:
    """A row of `runs`, as far as a caller gives it."""
    facts: dict[str, Any] = {
        "replay_id": "0123456789abcdef0123456789abcdef",
        "name": "by hand",
        "profile": "vllm",
        "backend": "vllm",
        "seed": 7,
        "config_digest": "c",
        "trace_digest": "t",
        "performance_digest": "p",
        "engine_digest": "e",
        "tracemill_version": "0",
        "python_version": "3",
        "numpy_version": "2",
        "numba_version": "0",
        "engine_ms": 1.5,
        "total_ms": 20.0,
        "end_ns": 52 * MS,
        "peak_active_blocks": 13,
        "mixed_pass": "two_prices",
        "unproven": "",
        "config_json": "{}",
        "provenance_json": "{}",
    }
    return facts | changes


METRICS = [("run", "ttft", "mean", 56 / 3, "ms", 3), ("steady", "ttft", "mean", None, "ms", 0)]


def write_run(store: Store, run_id: str, *, tables: Mapping[str, Any] | None = None, **facts: Any) -> dict[str, Any]:
    """Write and commit the hand-made run; returns its row of `runs`."""
    with store.begin(run_id, identity=identity()) as writer:
        for name, columns in (tables or hand_made()).items():
            writer.rows(name, columns)
        writer.metrics(METRICS)
        writer.quarantine(
            {
                "source_line": [2],
                "reason": ["negative"],
                "field": ["prompt"],
                "value": ["-4"],
                "raw": ['{"prompt": -4}'],
            }
        )
        return writer.commit(run_facts(**facts))
