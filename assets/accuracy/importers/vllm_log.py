"""Per-request logs of a vLLM engine, JSON lines: lengths, and when things happened on the engine's clock.

TTFT counts from `queued_ts`, the moment the engine emptied its input queue. `arrival_time` is on another clock that
drifts against it, so the two are never mixed.
"""

from __future__ import annotations

from pathlib import Path

from assets.accuracy.importers.about import About
from assets.accuracy.importers.jsonish import count, first_object, number, objects
from assets.accuracy.truth import TruthError, TruthSet, request_rows

FIELDS = ("input_toks", "output_toks", "queued_ts", "first_token_ts", "last_token_ts")


def recognise(path: Path, head: bytes) -> bool:
    return first_object(head).keys() >= set(FIELDS)


def read(path: Path, about: About) -> TruthSet:
    """
    Raises:
        TruthError: a field is missing, no number, or times run backwards.
    """
    rows, logged = [], []
    for line, row in objects(path):
        where = f"{path}:{line}"
        queued, first, last = (number(row, name, where, least=-1e18) for name in FIELDS[2:])
        if not queued <= first <= last:
            raise TruthError(f"{where}: queued_ts={queued}, first_token_ts={first}, last_token_ts={last} run backwards")
        lengths = count(row, "input_toks", where, least=1), count(row, "output_toks", where, least=1)
        logged.append((str(row.get("request_id", line)), line, queued, first, last, *lengths))
    start = min((each[2] for each in logged), default=0.0)
    for name, line, queued, first, last, prompt, output in logged:
        figures = {
            "ttft": (first - queued) * 1e3,
            "tpot": (last - first) * 1e3 / (output - 1) if output > 1 else None,
            "e2e": (last - queued) * 1e3,
        }
        rows += request_rows(
            about.truth_set,
            name,
            figures,
            clock="engine",
            source=path.name,
            source_line=line,
            prompt_tokens=prompt,
            output_tokens=output,
            arrival_ns=round((queued - start) * 1e9),
            **{"backend": "vllm", **{k: v for k, v in about.columns().items() if v is not None}},
        )
    return TruthSet(about.truth_set, rows, "vllm_log")
