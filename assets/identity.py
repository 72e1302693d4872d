"""Who a replay is: `replay_id` says what was replayed, `run_id` when."""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import secrets
from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from sim.spec import Deployment, EngineSpec, TableTiming, Timing, Transfer
from sim.timing.tables import EXTRAS, ArrayTiming


def digest(*parts: bytes | str) -> str:
    """32 hex digits over the parts; their borders count, so ("ab", "c") and ("a", "bc") differ."""
    state = hashlib.blake2b(digest_size=16)
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        state.update(len(data).to_bytes(8, "little"))
        state.update(data)
    return state.hexdigest()


def canonical_json(value: Any) -> str:
    """One text per value: keys sorted, no spaces, no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False, default=_plain)


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} has no canonical text")


@cache
def sources_digest(package: str) -> str:
    """Digest of every Python file of an installed package: another engine, another answer."""
    module = __import__(package)
    folder = Path(str(module.__file__)).parent
    parts: list[bytes | str] = []
    for path in sorted(folder.rglob("*.py")):
        parts += [path.relative_to(folder).as_posix(), path.read_bytes()]
    return digest(*parts)


def performance_digest(spec: Deployment) -> str:
    """What passes, and between separate pools transfers, cost."""
    digests = [timing_digest(side.timing) for side in spec.sides]
    return digests[0] if isinstance(spec, EngineSpec) else digest(*digests, _transfer_text(spec.transfer))


_FIRST_FIELDS = ("bytes_per_token", "bytes_per_second", "missing_only", "fixed_bytes", "fallback_ns")


def _transfer_text(transfer: Transfer) -> str:
    """Settings that later releases added are named only where they are in use, so that others keep their digest."""
    used = [
        f"{f.name}={getattr(transfer, f.name)!r}"
        for f in fields(transfer)
        if f.name in _FIRST_FIELDS or getattr(transfer, f.name) != f.default
    ]
    if not transfer.failure_rate:
        used = [text for text in used if not text.startswith("seed=")]
    return f"Transfer({', '.join(used)})"


def timing_digest(timing: Timing) -> str:
    """Digest of the performance data a replay is priced with, whatever file it came from."""
    if isinstance(timing, TableTiming):
        arrays = ("prefill_tokens", "prefill_ms", "decode_kv_tokens", "decode_context", "decode_ms")
        return digest("table", *(part for name in arrays for part in _array_parts(getattr(timing, name))))
    if isinstance(timing, ArrayTiming):
        # What a header says beside the figures (where they came from, how far they are off) prices nothing.
        known = (
            *("nextn", "square_root", "extra_ms", "lookups", "outside_by_prompt"),
            *("flat_batch", "between_batches", *EXTRAS),
        )
        header = {name: timing.header[name] for name in known if name in timing.header}
        parts = (part for name in sorted(timing.arrays) for part in (name, *_array_parts(timing.arrays[name])))
        return digest(timing.kind, canonical_json(header), *parts)
    return digest(repr(timing))


def _array_parts(array: np.ndarray) -> tuple[str, bytes]:
    return f"{array.dtype.str}{array.shape}", np.ascontiguousarray(array).tobytes()


def replay_id(*, config: Mapping[str, Any], trace: str, performance: str, engine: str, schema: str, seed: int) -> str:
    """Digest of everything that decides the result tables, and of nothing else."""
    return digest(canonical_json(config), trace, performance, engine, schema, str(seed))


def new_run_id(now: dt.datetime | None = None) -> str:
    """A name that sorts by time and that two processes starting together do not share."""
    at = now or dt.datetime.now(dt.UTC)
    return f"{at:%Y%m%dT%H%M%S%f}-{secrets.token_hex(2)}"
