"""What a change of performance data does to the prices of named deployments."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from perf_db.gpu.deployment import resolve
from perf_db.gpu.diff import Side
from perf_db.gpu.errors import PerfDataError
from perf_db.gpu.oplevel import OpLevel

# Passes that stand for a deployment: (kind, requests, new tokens or KV length of each).
PASSES = (
    *(("prefill", 1, tokens) for tokens in (128, 1024, 8192)),
    *(("decode", batch, 2048) for batch in (1, 16, 64, 256)),
)
# What is asked when nobody is named, on every system and backend that a change touches.
USUAL = (
    *({"model": "Qwen/Qwen3-32B", "tp": tp} for tp in (1, 4)),
    *({"model": "Qwen/Qwen3-30B-A3B", "tp": tp} for tp in (1, 2)),
)
_NUMBERS = ("tp", "pp", "dp", "moe_tp", "moe_ep", "nextn")
_TEXTS = ("gemm", "moe", "kv_cache", "fmha", "comm")


def parse_deployment(text: str) -> dict[str, Any]:
    """`MODEL@SYSTEM/BACKEND[/VERSION][:tp=2,gemm=fp8]` as arguments of `resolve`.

    Raises:
        PerfDataError: it is written otherwise.
    """
    form = "write MODEL@SYSTEM/BACKEND[/VERSION][:tp=2,gemm=fp8,...]"
    model, at, rest = text.rpartition("@")
    place, _, options = rest.partition(":")
    parts = place.split("/")
    if not at or len(parts) not in (2, 3):
        raise PerfDataError("unknown_model", f"deployment {text!r}: {form}")
    found: dict[str, Any] = {"model": model, "system": parts[0], "backend": parts[1]}
    if len(parts) == 3:
        found["version"] = parts[2]
    for option in filter(None, options.split(",")):
        name, _, value = option.partition("=")
        name = name.strip().replace("-", "_")
        if name in _NUMBERS and value.isdigit():
            found[name] = int(value)
        elif name in _TEXTS and value:
            found[name] = value
        else:
            raise PerfDataError("unknown_model", f"deployment {text!r}: {option!r}: {form}")
    return found


def usual_deployments(touched: Sequence[tuple[str, str]]) -> list[dict[str, Any]]:
    """The usual ones on (system, backend) pairs."""
    return [
        {**each, "system": system, "backend": backend} for system, backend in sorted(set(touched)) for each in USUAL
    ]


def effects(
    before: Side, after: Side, deployments: Sequence[dict[str, Any]], *, clean: bool
) -> Iterator[dict[str, Any]]:
    """Per deployment: prices of the standard passes on both sides, or why a side cannot price it."""
    for asked in deployments:
        sides = [_priced(side, asked, clean) for side in (before, after)]
        label = "{model} on {system}, {backend}, TP {tp}".format(**{"tp": 1, **asked})
        line: dict[str, Any] = {"deployment": label, "asked": asked, "passes": []}
        for name, side in zip(("before", "after"), sides, strict=True):
            line[name] = side if isinstance(side, str) else "priced"
        if not any(isinstance(side, str) for side in sides):
            line["passes"] = [
                {"pass": kind, "requests": n, "tokens": tokens, "before_ms": a, "after_ms": b, "change": b / a - 1}
                for (kind, n, tokens), a, b in zip(PASSES, *(_prices(side) for side in sides), strict=True)  # type: ignore[arg-type]
                if a is not None and b is not None
            ]
        yield line


def _priced(side: Side, asked: dict[str, Any], clean: bool) -> OpLevel | str:
    """The model, or the reason why there is none."""
    wanted = dict(asked)
    if side.version is not None:
        wanted["version"] = side.version.version
    try:
        return OpLevel(resolve(side.root, **wanted), side.root, clean=clean)
    except PerfDataError as error:
        return f"{error.reason}: {error}"


def _prices(model: OpLevel) -> list[float | None]:
    found: list[float | None] = []
    for kind, n, tokens in PASSES:
        try:
            ms = model.prefill(n, tokens, 0) if kind == "prefill" else model.decode(n, tokens)
        except PerfDataError:
            found.append(None)
            continue
        found.append(float(np.asarray(ms).ravel()[0]))
    return found
