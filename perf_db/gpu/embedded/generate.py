"""`python -m perf_db.gpu.embedded.generate` makes the embedded tables from the operator data of the extra.

What is stored are passes priced by `perf_db.gpu.oplevel` with cleaning on, in the whole-forward schema: figures of our
own evaluation, none of the measured rows. The points lie so that reading between them stays close to the evaluation
(`python -m perf_db.gpu.embedded.generate --check` says how close):

- decode: the batches where GEMM tables step (pairs x, x + 1), KV lengths of the attention tables;
- prefill: every batch to 256, because a whole-forward table never reads between batches; fewer points for large ones;
  token counts where the deployment's own price has its steps.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from perf_db.gpu.deployment import Deployment
from perf_db.gpu.embedded import FOLDER, PROVENANCE, table_name
from perf_db.gpu.oplevel import OpLevel
from perf_db.gpu.source import open_root

SYSTEMS = ("h200_sxm", "b200_sxm")
BACKEND, VERSION = "vllm", "0.24.0"
MODELS = {"Qwen/Qwen3-32B": (1, 2, 4), "Qwen/Qwen3-30B-A3B": (1, 2)}
POLICY = "evaluated by perf_db.gpu.oplevel from operator tables, repairs on; not measured as whole passes"
BITS = 12  # significant ones of a stored price: 0.02 %, far below the error of reading between points

LONGEST = 131_072  # tokens of one request
_STEPS = (16, 32, 48, 64, 80, 96, 112, 128, 160, 192, 224, 256, 512)
DECODE_BATCHES = tuple(sorted({*range(1, 9), *_STEPS, *(b + 1 for b in _STEPS), 1024}))
# From 1, so that between two batches the larger one reaches down to the smallest total of the smaller one.
DECODE_KV = (1, 64, 256, 1024, 2048, 4096, 8192, 16_384, 32_768, 65_536, LONGEST)
# (up to so many prefill requests, token counts per curve, cached tokens per request); more requests compute less each.
PREFILL = (
    (16, 20, (0, 512, 2048, 8192, 32_768, LONGEST)),
    (32, 12, (0, 2048, 16_384, LONGEST)),
    (256, 5, (0, 8192, LONGEST)),
)
MOST_TOKENS = 32_768  # new tokens of one pass
SAMPLES = 800


def deployments() -> Iterator[Deployment]:
    """Everything that is embedded, one pair of files each."""
    for model, degrees in MODELS.items():
        for system in SYSTEMS:
            for tp in degrees:
                moe_tp = tp if "A3B" in model else 1
                yield Deployment(model, system, BACKEND, VERSION, tp=tp, moe_tp=moe_tp)


def points(model: OpLevel) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """(prefill points, decode points), shapes (n, 3) and (m, 3): requests, new tokens in all, KV tokens in all."""
    prefill, done = [], 0
    for most, n, past in PREFILL:
        knots = telling_tokens(model, done + 1, n)
        # Batches innermost: neighbours in the file cost nearly the same, which is what makes it small.
        for p in past:
            for t in (0, *knots):
                prefill += [(b, max(t, b), b * p) for b in range(done + 1, most + 1) if t == 0 or t > b]
        done = most
    decode = [(b, 0, b * kv) for kv in DECODE_KV for b in DECODE_BATCHES]
    return np.array(prefill, np.int64), np.array(decode, np.int64)


def telling_tokens(model: OpLevel, requests: int, n: int) -> list[int]:
    """The `n` token counts between which a prefill pass of so many requests is nearest to straight.

    Kernels work in tiles, so the price climbs in steps, and where differs by deployment. Of the counts at which a step
    can begin or end those are taken that make the mean squared relative distance the smallest, small counts weighing as
    much as large ones do (dynamic programming over the last count taken).
    """
    tiles = {*range(1, 17), *range(16, 129, 16), *range(128, 257, 32), *range(256, 4097, 256), 6144, 8192, 16_384}
    may = np.array(sorted({requests, MOST_TOKENS, *(t + d for t in tiles for d in (0, 1) if t + d > requests)}))
    tokens = np.unique(np.geomspace(requests, MOST_TOKENS, SAMPLES).round().astype(np.int64))
    at, ms = (_one_prefill(model, requests, t) for t in (may, tokens))
    cost = np.full((len(may), len(may)), np.inf)
    for i in range(len(may)):
        for j in range(i + 1, len(may)):
            inside = (tokens > may[i]) & (tokens < may[j])
            read = np.interp(tokens[inside], may[[i, j]], at[[i, j]])
            cost[i, j] = np.sum((read / ms[inside] - 1) ** 2)
    best, came = cost[0], []
    for _ in range(n - 1):
        through = best[:, None] + cost
        came.append(through.argmin(axis=0))
        best = through.min(axis=0)
    chosen = [len(may) - 1]
    for step in reversed(came):
        chosen.append(int(step[chosen[-1]]))
    return may[sorted(chosen)].tolist()


def _one_prefill(model: OpLevel, requests: int, tokens: NDArray[np.int64]) -> NDArray[np.float64]:
    nothing = np.zeros_like(tokens)
    return passes(model, "prefill", np.stack([nothing + requests, tokens, nothing], axis=1))


def passes(model: OpLevel, kind: str, at: NDArray[np.int64]) -> NDArray[np.float64]:
    """Price of passes that only prefill or only decode, ms. `at`: as `points` gives them."""
    b, tokens, kv = at.T
    nothing = np.zeros_like(b)
    if kind == "prefill":
        return model.mixed(b, tokens, kv, nothing, nothing)
    return model.mixed(nothing, nothing, nothing, b, kv)


def rounded(ms: NDArray[np.float64]) -> NDArray[np.float32]:
    """To `BITS` significant bits: a third of the bytes."""
    share, exponent = np.frexp(ms)
    return np.ldexp(np.round(share * 2.0**BITS) / 2.0**BITS, exponent).astype(np.float32)


def identity(deployment: Deployment) -> dict[str, Any]:
    """The columns that are one value in a table."""
    d = deployment
    return {
        "cell_id": table_name(d.model, d.system, d.tp),
        "model_path": d.model,
        "system": d.system,
        "backend": d.backend,
        "backend_version": d.version,
        "weight_quantization": d.gemm,
        "gemm_quant_mode": d.gemm,
        "moe_quant_mode": d.moe,
        "fmha_quant_mode": d.fmha,
        "comm_quant_mode": d.comm,
        "kv_cache_dtype": d.kv_cache,
        "moe_backend": "",
        "attention_backend": "",
        "tp": d.tp,
        "pp": d.pp,
        "dp": d.dp,
        "moe_tp": d.moe_tp,
        "moe_ep": d.moe_ep,
        "cp": 1,
        "enable_wideep": False,
        "enable_eplb": False,
        "partition_policy": "balanced_v1",
    }


def write_pair(folder: Path, deployment: Deployment, model: OpLevel) -> Path:
    """Evaluate a deployment and write its pair of files, the metadata last."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from perf_db.gpu import forward

    prefill, decode = points(model)
    at = np.concatenate([prefill, decode])
    ms = np.concatenate([passes(model, "prefill", prefill), passes(model, "decode", decode)])
    columns: dict[str, Any] = {
        name: pa.DictionaryArray.from_arrays(pa.array(np.zeros(len(at), np.int8)), pa.array([value]))
        if isinstance(value, str)
        else pa.array(np.full(len(at), value))
        for name, value in identity(deployment).items()
    }
    kinds = np.repeat(np.array([0, 1], np.int8), [len(prefill), len(decode)])
    columns["workload_kind"] = pa.DictionaryArray.from_arrays(pa.array(kinds), pa.array(["prefill", "decode"]))
    columns |= {name: pa.array(at[:, i].astype(np.int32)) for i, name in enumerate(forward.WHOLE)}
    columns["latency_ms"] = pa.array(rounded(ms))
    path = folder / f"{table_name(deployment.model, deployment.system, deployment.tp)}.parquet"
    aside = path.with_name(path.name + ".part")
    pq.write_table(
        pa.table({name: columns[name] for name in forward.COLUMNS}),
        aside,
        compression="zstd",
        compression_level=19,
        use_dictionary=[name for name in forward.COLUMNS if name != "latency_ms"],
        column_encoding={"latency_ms": "BYTE_STREAM_SPLIT"},
        write_statistics=False,
        store_schema=False,
    )
    about = {
        "schema_name": forward.SCHEMA_NAME,
        "schema_version": forward.SCHEMA_VERSION,
        "coordinate_system": forward.COORDINATES,
        "measurement_policy": POLICY,
        "system": deployment.system,
        "backend": deployment.backend,
        "backend_version": deployment.version,
        "row_count": len(at),
        "parquet_sha256": forward._sha256(aside),
    }
    os.replace(aside, path)
    _write_json(forward.sidecar_of(path), about)
    return path


def provenance(models: dict[str, OpLevel]) -> dict[str, Any]:
    """What the figures were made from, as JSON."""
    root = next(iter(models.values())).root
    used: dict[str, str] = {}
    for model in models.values():
        used |= model.provenance()["source"]["files"]
    return {
        "about": "Prices of whole passes, evaluated by Tracemill from the operator data below; derived figures only",
        "made_by": "python -m perf_db.gpu.embedded.generate",
        "rule": POLICY,
        "source": {
            "distribution": "aiconfigurator-core",
            "version": root.version,
            "licence": "Apache-2.0",
            "copyright": "Copyright (c) 2025-2026 NVIDIA CORPORATION & AFFILIATES. All rights reserved.",
            "files_blake2b": dict(sorted(used.items())),
        },
        "tables": {name: model.deployment.as_dict() for name, model in models.items()},
    }


def main() -> int:
    """Write the pairs and their provenance, or with `--check` say how far reading between points strays."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare the tables at hand with the evaluation")
    parser.add_argument("--folder", type=Path, default=FOLDER)
    given = parser.parse_args()
    root = open_root()
    models = {table_name(d.model, d.system, d.tp): OpLevel(d, root, clean=True) for d in deployments()}
    if given.check:
        from perf_db.gpu.embedded.check import stray

        for name, model in models.items():
            print(f"{name:<32} {stray(given.folder / f'{name}.parquet', model)}")
        return 0
    for model in models.values():
        path = write_pair(given.folder, model.deployment, model)
        print(f"{path.name:<40} {path.stat().st_size:>8,} bytes")
    _write_json(given.folder / PROVENANCE.name, provenance(models))
    return 0


def _write_json(path: Path, values: dict[str, Any]) -> None:
    aside = path.with_name(path.name + ".part")
    aside.write_text(json.dumps(values, indent=2, sort_keys=True) + "\n")
    os.replace(aside, path)


if __name__ == "__main__":
    raise SystemExit(main())
