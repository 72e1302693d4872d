"""Recorded answers of corrected prices against ours: after every observation, bit for bit."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from perf_db.gpu.errors import PerfDataError
from perf_db.gpu.forward_jsonl import RankWork
from perf_db.gpu.snapshot import Corrections, Options

FILE = "correction.json"


def check_corrections(path: Path) -> Iterator[tuple[str, float, float]]:
    """(what was asked, recorded answer, ours) of every query after every observation of every run; ms.

    Raises:
        PerfDataError: `bad_file`: the file is not one of these.
    """
    try:
        # Numbers stay text until it is known how they were read when the answers were recorded.
        said = json.loads(path.read_text(), parse_float=_Text)
        queries = [RankWork(*query) for query in said["queries"]]
        for i, run in enumerate(said["runs"]):
            yield from _run(f"{path.name} run {i}", run, queries)
    except OSError as error:
        raise PerfDataError("bad_file", f"{path}: cannot be read: {error.strerror}") from None
    except PerfDataError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, ArithmeticError, RecursionError) as error:
        why = f"field {error} is missing" if isinstance(error, KeyError) else f"{error}"
        raise PerfDataError("bad_file", f"{path}: no recorded corrections: {why}; record the file again") from None


class _Text(str):
    """A number as it stands in the file."""


def _run(where: str, run: dict[str, Any], queries: list[RankWork]) -> Iterator[tuple[str, float, float]]:
    kept = Corrections(Options(**{name: _plain(value) for name, value in run["options"].items()}))
    native = [float(ms) for ms in run["native_answers_ms"]]
    for n, step in enumerate(run["steps"]):
        observed_ms = as_the_recorder_read(str(step["wall_time_s"])) * 1e3
        kept.observe(RankWork(*step["observation"]), float(step["native_ms"]), observed_ms)
        for q, (query, ms, want) in enumerate(zip(queries, native, step["answers_ms"], strict=True)):
            yield f"{where}, after observation {n}, query {q}", float(want), ms * kept.factor(query)


def _plain(value: Any) -> Any:
    return float(value) if isinstance(value, _Text) else value


def as_the_recorder_read(text: str) -> float:
    """A decimal number as the recorded engine took it from JSON.

    Its reader rounds twice: the digits as one whole number to a double, and that divided by a power of ten. For some
    numbers the result is one unit in the last place from the nearest double.
    """
    mantissa, _, exponent = text.lower().partition("e")
    whole, _, fraction = mantissa.partition(".")
    digits, power = float(int(whole + fraction)), int(exponent or 0) - len(fraction)
    return digits * 10.0**power if power >= 0 else digits / 10.0**-power
