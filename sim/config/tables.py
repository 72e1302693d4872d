"""Timing tables in files: five arrays under the names their producers use."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np

FIELDS = ("prefill_isl", "prefill_ttft_ms", "decode_active_kv_tokens", "decode_context_length", "decode_itl")


def load_table(base: Path | None, path: str) -> dict[str, Any]:
    """The arrays of a file as nested lists.

    Args:
        base: folder that a relative path starts from; None: the current one.
        path: `.json` (an object of arrays), `.npz`, or `.parquet` (one row; list columns).

    Raises:
        ValueError: the file is missing, unreadable, of another kind, or lacks an array.
    """
    file = (base or Path()) / path
    if not file.is_file():
        raise ValueError(f"timing table {file} does not exist")
    reader = {".json": _read_json, ".npz": _read_npz, ".parquet": _read_parquet}.get(file.suffix.lower())
    if reader is None:
        raise ValueError(f"timing table {file} is not .parquet, .json or .npz")
    try:
        found = reader(file)
    except Exception as error:  # readers raise many classes; the user needs the file's name with each
        raise ValueError(f"timing table {file} cannot be read: {error}") from error
    missing = [name for name in FIELDS if name not in found]
    if missing:
        raise ValueError(f"timing table {file} lacks {', '.join(missing)}")
    return {name: found[name] for name in FIELDS}


def _read_json(file: Path) -> dict[str, Any]:
    found = json.loads(file.read_text())
    if not isinstance(found, dict):
        raise ValueError("not an object of arrays")
    return found


def _read_npz(file: Path) -> dict[str, Any]:
    with np.load(file, allow_pickle=False) as found:
        return {name: found[name].tolist() for name in found.files}


def _read_parquet(file: Path) -> dict[str, Any]:
    import pyarrow.parquet as pq

    rows = pq.read_table(file).to_pylist()
    if len(rows) != 1:
        raise ValueError(f"{len(rows)} rows where one row of list columns is expected")
    return rows[0]


def as_arrays(lists: dict[str, Any]) -> dict[str, np.ndarray]:
    """Float arrays; a ragged grid comes back as a one-dimensional one, which `fault_in` names."""
    arrays = {name: np.asarray(lists[name], np.float64) for name in FIELDS if name != "decode_itl"}
    grid = lists["decode_itl"]
    even = len({len(row) for row in grid}) == 1
    arrays["decode_itl"] = np.asarray(grid, np.float64) if even else np.zeros(len(grid))
    return arrays


def fault_in(arrays: dict[str, np.ndarray]) -> str | None:
    """What makes the tables unusable, or None."""
    for name in ("prefill_isl", "decode_active_kv_tokens", "decode_context_length"):
        axis = arrays[name]
        if len(axis) < 2 or not (np.diff(axis) > 0).all():
            return f"{name} needs at least two values, each larger than the one before"
    if arrays["prefill_ttft_ms"].shape != arrays["prefill_isl"].shape:
        return "prefill_ttft_ms needs one value per prefill_isl"
    shape = (len(arrays["decode_active_kv_tokens"]), len(arrays["decode_context_length"]))
    if arrays["decode_itl"].shape != shape:
        return f"decode_itl needs {shape[0]} rows (decode_active_kv_tokens) of {shape[1]} (decode_context_length)"
    for name in ("prefill_ttft_ms", "decode_itl"):
        if (arrays[name] < 0).any():
            return f"{name} holds a negative duration"
    return None


def digest(arrays: dict[str, np.ndarray]) -> str:
    """Identity of the numbers: equal for equal tables wherever they were read from."""
    total = hashlib.blake2b(digest_size=16)
    for name in FIELDS:
        total.update(f"{name}{arrays[name].shape}".encode())
        total.update(np.ascontiguousarray(arrays[name], dtype="<f8").tobytes())
    return total.hexdigest()
