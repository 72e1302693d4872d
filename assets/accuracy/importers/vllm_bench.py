"""Results of `vllm bench serve` (and its predecessor `benchmark_serving`), one JSON object.

The summary gives rows of a deployment (`mean_ttft_ms`, ...). With `--save-detailed` the lists `ttfts`, `itls`,
`input_lens` and `output_lens` (and `start_times`, where there are any) give a row per request as well; times are
seconds on the client's clock. A request that failed has an error text and no times.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from assets.accuracy.importers.about import About
from assets.accuracy.importers.jsonish import document, number
from assets.accuracy.truth import DEPLOYMENT, TruthError, TruthSet, request_rows, truth_row

METRICS = {"ttft": "ttft", "tpot": "tpot", "itl": "itl", "e2el": "e2e"}
STATISTICS = ("mean", "median")


def recognise(path: Path, head: bytes) -> bool:
    return head.lstrip().startswith(b"{") and b'"mean_ttft_ms"' in (head if len(head) < 1 << 16 else path.read_bytes())


def read(path: Path, about: About) -> TruthSet:
    """
    Raises:
        TruthError: no summary, or lists of different lengths.
    """
    found = document(path)
    columns = {k: v for k, v in about.columns().items() if v is not None}
    model = found.get("model_id")
    if isinstance(model, str):
        columns = {"model": model, "model_family": model, **columns}
    if isinstance(found.get("max_concurrency"), int):
        columns = {"concurrency": found["max_concurrency"], **columns}
    columns |= {"clock": "client", "source": path.name, "source_line": 1}
    requests, aside = _requests(path, found, about, columns)
    return TruthSet(about.truth_set, _summary(path, found, about, columns) + requests, "vllm_bench", set_aside=aside)


def _summary(path: Path, found: dict[str, Any], about: About, columns: dict[str, Any]) -> list[dict[str, Any]]:
    about_load: dict[str, Any] = {}
    done = found.get("completed") or 0
    for name, total in (("prompt_tokens", "total_input_tokens"), ("output_tokens", "total_output_tokens")):
        if done and isinstance(found.get(total), int):
            about_load[name] = round(found[total] / done)
    rows = []
    for field, metric in METRICS.items():
        for statistic in STATISTICS:
            name = f"{statistic}_{field}_ms"
            if found.get(name) is not None:
                value = number(found, name, str(path))
                rows.append(_row(about, metric, statistic, value, {**columns, **about_load}))
    if found.get("output_throughput") is not None:
        value = number(found, "output_throughput", str(path))
        rows.append(_row(about, "output_throughput", "mean", value, {**columns, **about_load}))
    return [row for row in rows if row["value"] > 0]


def _row(about: About, metric: str, statistic: str, value: float, columns: dict[str, Any]) -> dict[str, Any]:
    return truth_row(about.truth_set, "summary", metric, value, grain=DEPLOYMENT, statistic=statistic, **columns)


def _requests(
    path: Path, found: dict[str, Any], about: About, columns: dict[str, Any]
) -> tuple[list[dict[str, Any]], dict[str, int]]:
    lists = ("ttfts", "itls", "input_lens", "output_lens")
    if not all(isinstance(found.get(name), list) for name in lists):
        return [], {}
    sizes = {name: len(found[name]) for name in lists}
    if len(set(sizes.values())) > 1:
        told = ", ".join(f"{name} {n}" for name, n in sizes.items())
        raise TruthError(f"{path}: lists of different lengths ({told}); save the result again with --save-detailed")
    starts: list[float] = found.get("start_times") or []
    errors = found.get("errors") or [""] * sizes["ttfts"]
    rows: list[dict[str, Any]] = []
    failed = 0
    for i, (ttft, gaps) in enumerate(zip(found["ttfts"], found["itls"])):
        if errors[i] or not isinstance(ttft, int | float) or not ttft > 0:
            failed += 1
            continue
        output = int(found["output_lens"][i])
        decoding = math.fsum(gaps)
        figures = {
            "ttft": ttft * 1e3,
            # Gaps are between chunks of the stream; a chunk may hold several tokens.
            "tpot": decoding * 1e3 / (output - 1) if output > 1 else None,
            "itl": decoding * 1e3 / len(gaps) if gaps else None,
            "e2e": (ttft + decoding) * 1e3,
        }
        rows += request_rows(
            about.truth_set,
            f"request-{i}",
            {k: v for k, v in figures.items() if v is not None and v > 0},
            prompt_tokens=int(found["input_lens"][i]),
            output_tokens=output,
            arrival_ns=round((starts[i] - min(starts)) * 1e9) if starts else None,
            **columns,
        )
    return rows, {"failed_at_source": failed} if failed else {}
