"""GuideLLM's report: `benchmarks`, each with `requests.successful`; times are seconds on the client's clock.

TPOT is worked out from first and last token and the tokens after the first: GuideLLM's own figure of that name divides
by all tokens.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from assets.accuracy.importers.about import About
from assets.accuracy.importers.jsonish import document, maybe_number, number
from assets.accuracy.truth import TruthError, TruthSet, request_rows

TIMES = ("start_time", "first_token_time", "last_token_time", "end_time")


def recognise(path: Path, head: bytes) -> bool:
    return head.lstrip().startswith(b"{") and b'"benchmarks"' in head


def read(path: Path, about: About) -> TruthSet:
    """
    Raises:
        TruthError: no benchmarks, or a request without times.
    """
    benchmarks = document(path).get("benchmarks")
    if not isinstance(benchmarks, list):
        raise TruthError(f"{path}: benchmarks is no list; give GuideLLM's JSON report")
    rows: list[dict[str, Any]] = []
    aside: dict[str, int] = {}
    columns = {k: v for k, v in about.columns().items() if v is not None}
    for b, benchmark in enumerate(benchmarks):
        requests = benchmark.get("requests") or {}
        for name, why in (("errored", "failed_at_source"), ("incomplete", "canceled")):
            if requests.get(name):
                aside[why] = aside.get(why, 0) + len(requests[name])
        done = requests.get("successful") or []
        starts = [_times(r, f"{path}: benchmarks[{b}].requests.successful[{i}]")[0] for i, r in enumerate(done)]
        first = min(starts, default=0.0)
        for i, request in enumerate(done):
            where = f"{path}: benchmarks[{b}].requests.successful[{i}]"
            start, token, last, end = _times(request, where)
            output = request.get("output_tokens")
            figures: dict[str, float | None] = {"e2e": (end - start) * 1e3}
            if token is not None:
                figures["ttft"] = (token - start) * 1e3
                if last is not None and isinstance(output, int) and output > 1:
                    figures["tpot"] = (last - token) * 1e3 / (output - 1)
            rows += request_rows(
                about.truth_set,
                f"{b}/{request.get('request_id') or i}",
                {k: v for k, v in figures.items() if v is not None and v > 0},
                clock="client",
                source=path.name,
                source_line=len(rows) + 1,
                prompt_tokens=request.get("prompt_tokens"),
                output_tokens=output,
                arrival_ns=round((start - first) * 1e9),
                # Each benchmark of a report is a load of its own on the same deployment.
                origin=f"benchmark {b}",
                **columns,
            )
    return TruthSet(about.truth_set, rows, "guidellm", set_aside=aside)


def _times(request: Any, where: str) -> tuple[float, float | None, float | None, float]:
    if not isinstance(request, dict):
        raise TruthError(f"{where}: {type(request).__name__} where a request is expected")
    start, end = number(request, TIMES[0], where), number(request, TIMES[3], where)
    return start, maybe_number(request, TIMES[1], where), maybe_number(request, TIMES[2], where), end
