"""Per-request logs of a vLLM engine, JSON lines: lengths, and when things happened on the engine's clock.

TTFT counts from `queued_ts`, the moment the engine emptied its input queue. `arrival_time` is on another clock that
drifts against it, so the two are never mixed. What a simulator answered about the same requests comes along
(`peer_sim*.csv` beside the log).
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from assets.accuracy.importers.about import About
from assets.accuracy.importers.jsonish import count, first_object, number, objects
from assets.accuracy.truth import TruthError, TruthSet, recorded_row, request_rows

# A simulator's answers beside the log: one line per request, nanoseconds.
PEER, PREDICTOR = "peer_sim*.csv", "peer_simulator"
ANSWERS = {"ttft": "TTFT", "tpot": "TPOT", "e2e": "latency"}
_N = TypeVar("_N", int, float)
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
    recorded, strangers = _recorded(path, rows)
    aside = {"answers_about_other_requests": strangers} if strangers else {}
    return TruthSet(about.truth_set, rows, "vllm_log", recorded=recorded, set_aside=aside)


def _recorded(path: Path, rows: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], int]:
    """What a simulator answered, as rows of `accuracy`, and how many of its lines are about no request of the log.

    A line names its request by the place in the log, from 0, and has to know its lengths.
    """
    files = sorted(path.parent.glob(PEER))
    if not files:
        return [], 0
    known: dict[int, dict[str, dict[str, Any]]] = {}
    for row in rows:
        known.setdefault(row["source_line"], {})[row["metric"]] = row
    in_order = [known[line] for line in sorted(known)]
    found, strangers = [], 0
    with open(files[0], newline="", encoding="utf-8") as file:
        for number, answer in enumerate(csv.DictReader(file), 2):
            where = f"{files[0]}:{number}"
            place, *lengths = (_number(where, answer, field, int) for field in ("request id", "input", "output"))
            told = {metric: _number(where, answer, field, float) / 1e6 for metric, field in ANSWERS.items()}
            mine = in_order[place] if 0 <= place < len(in_order) else {}
            one = next(iter(mine.values()), None)
            if one is None or [one["prompt_tokens"], one["output_tokens"]] != lengths:
                strangers += 1
                continue
            found += [
                recorded_row(row, PREDICTOR, told[metric])
                for metric, row in mine.items()
                if metric in told and told[metric] > 0
            ]
    return found, strangers


def _number(where: str, answer: Mapping[str, str | None], field: str, kind: Callable[[Any], _N]) -> _N:
    try:
        return kind(answer[field])
    except (KeyError, TypeError, ValueError):
        said = f"is {answer[field]!r}" if answer.get(field) is not None else "is missing"
        raise TruthError(
            f"{where}: no answer of a simulator: field {field!r} {said}, a number is wanted; correct it, or move the "
            "file away to do without its answers"
        ) from None
