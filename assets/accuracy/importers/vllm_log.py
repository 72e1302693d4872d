"""Per-request logs of a vLLM engine, JSON lines: lengths, and when things happened on the engine's clock.

TTFT counts from `queued_ts`, the moment the engine emptied its input queue. `arrival_time` is on another clock that
drifts against it, so the two are never mixed. What a simulator answered about the same requests comes along
(`peer_sim*.csv` beside the log).
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from assets.accuracy.importers.about import About
from assets.accuracy.importers.jsonish import count, first_object, number, objects
from assets.accuracy.truth import TruthError, TruthSet, recorded_row, request_rows

# A simulator's answers beside the log: one line per request, nanoseconds.
PEER, PREDICTOR = "peer_sim*.csv", "peer_simulator"
REMEDY = "correct it, or move the file away to do without its answers"
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
    found, strangers, answered = [], 0, dict[int, int]()
    for line, answer in _lines(files[0]):
        where = f"{files[0]}:{line}"
        place, *lengths = (_number(where, answer, field, int) for field in ("request id", "input", "output"))
        told = {metric: _number(where, answer, field, float) / 1e6 for metric, field in ANSWERS.items()}
        mine = in_order[place] if 0 <= place < len(in_order) else {}
        one = next(iter(mine.values()), None)
        if one is None or [one["prompt_tokens"], one["output_tokens"]] != lengths:
            strangers += 1
            continue
        if place in answered:
            raise TruthError(
                f"{where}: request id {place} was answered on line {answered[place]} already; keep one of the two"
            )
        answered[place] = line
        for metric, row in mine.items():
            if metric in told and told[metric] <= 0:
                raise TruthError(
                    f"{where}: field {ANSWERS[metric]!r} of a simulator's answer is {answer[ANSWERS[metric]]!r}, a "
                    f"time above 0 is wanted; {REMEDY}"
                )
            found += [recorded_row(row, PREDICTOR, told[metric])] if metric in told else []
    return found, strangers


def _lines(path: Path) -> Iterator[tuple[int, dict[str, str]]]:
    """Number of a row's last line, and the row."""
    with open(path, newline="", encoding="utf-8-sig") as file:
        reader = csv.DictReader(file)
        try:
            for row in reader:
                yield reader.line_num, row
        except (UnicodeDecodeError, csv.Error) as error:
            raise TruthError(f"{path}:{reader.line_num + 1}: no CSV text in UTF-8 ({error}); {REMEDY}") from None


def _number(where: str, answer: Mapping[str, str | None], field: str, kind: Callable[[Any], _N]) -> _N:
    try:
        found = kind(answer[field])
        if math.isfinite(found):
            return found
    except (KeyError, TypeError, ValueError):
        pass
    said = f"is {answer[field]!r}" if answer.get(field) is not None else "is missing"
    wanted = "a whole number" if kind is int else "a finite number"
    raise TruthError(f"{where}: no answer of a simulator: field {field!r} {said}, {wanted} is wanted; {REMEDY}")
