"""What a person gives beside a file of measurements: the engine it was measured on, prefixes, facts, filters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assets.accuracy.importers import About
from assets.accuracy.truth import COLUMNS, TruthError, TruthSet
from perf_db.gpu.names import nearest_first

if TYPE_CHECKING:
    from assets.calibration.request_log import Prefixes
    from sim.spec import EngineSpec

_WHOLE = ("tp", "concurrency")


def about_of(truth_set: str, given: Mapping[str, str]) -> About:
    """
    Raises:
        TruthError: a fact that is none, or no whole number where one is needed.
    """
    known = [f.name for f in fields(About) if f.name != "truth_set"]
    facts: dict[str, Any] = {}
    for name, value in given.items():
        if name not in known:
            raise TruthError(f"--about {name}={value}: no such fact; there are: {', '.join(known)}")
        if name in _WHOLE and not value.isdecimal():
            raise TruthError(f"--about {name}={value}: a whole number is needed")
        facts[name] = int(value) if name in _WHOLE else value
    return About(truth_set=truth_set, **facts)


def filter_of(given: Sequence[str]) -> Callable[[Mapping[str, Any]], bool] | None:
    """Rows that answer to all of COLUMN=VALUE and COLUMN!=VALUE.

    Raises:
        TruthError: another form, or a column that ground_truth does not have.
    """
    wanted: list[tuple[str, str, bool]] = []
    for text in given:
        name, _, value = text.partition("=")
        unlike = name.endswith("!")
        name = name.removesuffix("!")
        if not name or "=" not in text:
            raise TruthError(f"--where {text}: write COLUMN=VALUE or COLUMN!=VALUE with a column of ground_truth")
        if name not in COLUMNS:
            columns = ", ".join(nearest_first(name, COLUMNS))
            raise TruthError(f"--where {text}: {name!r} is no column of ground_truth; there are: {columns}")
        wanted.append((name, value, not unlike))
    if not wanted:
        return None
    return lambda row: all((str("" if row[n] is None else row[n]) == value) == like for n, value, like in wanted)


def engine_of(path: Path) -> tuple[EngineSpec, dict[str, Any]]:
    """The engine of a run configuration, and whom it is: model, hardware, backend, tensor.

    Raises:
        ConfigError: the configuration cannot be used, or is one of separate pools.
        PerfDataError: its prices come from performance data, which have no answer.
    """
    from assets.calibration.snapshot import identity_of
    from assets.pricing import price_deployment
    from sim.config import ConfigError, load_run_config
    from sim.spec import EngineSpec

    config = load_run_config(path)
    spec = price_deployment(config, base=path.parent).spec
    if not isinstance(spec, EngineSpec):
        raise ConfigError(
            f"{path}: engine.mode='disaggregated': measurements of separate pools are not replayed; give the "
            "configuration of an aggregated deployment"
        )
    return spec, identity_of(config, config.worker)


def on_clock_of(spec: EngineSpec, truth: TruthSet) -> EngineSpec:
    """The engine as its measurements saw it: times that the engine took itself know nothing of its front end."""
    clocks = {row["clock"] for row in truth.rows}
    return replace(spec, front=None) if clocks == {"engine"} and spec.front is not None else spec


def prefixes_of(path: Path, truth: TruthSet) -> Prefixes:
    """Prefix identity of the requests from a trace of the same requests in the same order as the log's lines.

    Raises:
        TraceError, TruthError: the trace cannot be read, has no hashes, or is of other requests.
    """
    from assets.calibration.request_log import Prefixes
    from assets.ingest import read_trace

    trace = read_trace(path)
    if trace.hash_offsets is None or trace.hash_ids is None:
        raise TruthError(f"{path}: the trace says nothing about prefixes; leave --prefixes out")
    lines = {
        row["row_id"]: (row["source_line"], row["prompt_tokens"]) for row in truth.rows if row["grain"] == "request"
    }
    names = sorted(lines, key=lambda name: lines[name])
    if len(names) != len(trace):
        raise TruthError(
            f"{path}: {len(trace):,} requests, the log has {len(names):,}; give a trace of the same requests"
        )
    ids: dict[str, list[int]] = {}
    for i, name in enumerate(names):
        if int(trace.prompt_tokens[i]) != lines[name][1]:
            here = int(trace.prompt_tokens[i])
            raise TruthError(f"{path}: request {i} has {here} prompt tokens, {name} of the log {lines[name][1]}")
        whole = lines[name][1] // trace.hash_block_tokens  # a last, partly filled block is nobody's prefix
        first = int(trace.hash_offsets[i])
        ids[name] = trace.hash_ids[first : int(trace.hash_offsets[i + 1])][:whole].tolist()
    return Prefixes(ids, trace.hash_block_tokens)
