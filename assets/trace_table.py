"""The canonical trace table: requests as the source gives them, before load, stop and replay."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from assets.ingest.ingest import wait_columns
from assets.inputs import Inputs
from perf_db.tables import TRACES

if TYPE_CHECKING:
    import pyarrow as pa


def trace_rows(inputs: Inputs, *, source: str) -> pa.Table:
    """Rows of table `traces`, validated; SchemaError names every fault."""
    import pyarrow as pa

    # Made-up traffic has no file behind it: what the engine gets is the source.
    given: Any = inputs.trace if inputs.trace is not None else inputs.workload
    n = len(given.arrival_ns)
    known = inputs.trace if inputs.trace is not None else inputs
    hashes = None
    if given.hash_offsets is not None:
        hashes = pa.LargeListArray.from_arrays(given.hash_offsets, given.hash_ids)
    columns = {
        "request_id": _int32(known.request_id),
        "external_id": pa.array(known.external_id or [None] * n, pa.string()),
        "source_line": _int32(known.source_line, n),
        "session_id": _names(known.session_id, n),
        "turn": _int32(known.turn, n),
        "pinned_rank": _int32(given.pinned_rank, n),
        "arrival_ns": given.arrival_ns,
        "delay_ns": pa.nulls(n, pa.int64()) if given.delay_ns is None else given.delay_ns,
        "not_before_ns": pa.nulls(n, pa.int64()) if given.not_before_ns is None else given.not_before_ns,
        **{
            name: pa.nulls(n, pa.list_(pa.int64())) if values is None else values
            for name, values in wait_columns(getattr(given, "waits", None)).items()
        },
        "prompt_tokens": _int32(given.prompt_tokens),
        "output_tokens": _int32(given.output_tokens),
        "hash_ids": pa.nulls(n, pa.list_(pa.int64())) if hashes is None else hashes,
        "hashed_tokens": _int32(described(given), n),
        "hash_block_tokens": _int32(None if hashes is None else np.full(n, given.hash_block_tokens), n),
    }
    return TRACES.validate(pa.table(columns), source=source)


def described(given: Any) -> np.ndarray | None:
    """Leading tokens of each request that its ids reach; None without ids."""
    if given.hash_offsets is None:
        return None
    prompts = given.prompt_tokens if given.hashed_tokens is None else given.hashed_tokens
    return np.minimum(prompts, np.diff(given.hash_offsets) * given.hash_block_tokens)


def write_trace(root: Path, key: str, rows: pa.Table) -> Path:
    """Keep the rows under the partition's name; the file appears whole or not at all."""
    import pyarrow.parquet as pq

    path = root.absolute() / "traces" / f"{key}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(path.name + ".partial")
    try:
        pq.write_table(rows, aside, compression="zstd", compression_level=1)
        os.replace(aside, path)
    finally:
        aside.unlink(missing_ok=True)
    return path


def _int32(values: np.ndarray | None, n: int = 0) -> pa.Array:
    """Negative means none."""
    import pyarrow as pa

    if values is None:
        return pa.nulls(n, pa.int32())
    values = np.asarray(values)
    return pa.array(values.astype(np.int32), mask=values < 0)


def _names(values: Any, n: int) -> pa.Array:
    import pyarrow as pa

    if values is None:
        return pa.nulls(n, pa.string())
    if isinstance(values, np.ndarray):
        values = [None if v < 0 else str(v) for v in values.tolist()]
    return pa.array(values, pa.string())
